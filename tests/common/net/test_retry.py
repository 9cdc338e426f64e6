"""One deadline, and trying again within it, on a clock that only sleeping moves."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import DeadlineExceededError
from common.net.retry import Deadline, TransientError, persist, requested_wait
from support.standins import NOW, Time


def failing(times: int, wait: float | None = None) -> Callable[[], str]:
    left = iter(range(times))

    def attempt() -> str:
        if next(left, None) is not None:
            raise TransientError("busy", wait)
        return "done"

    return attempt


class TestDeadline:
    def test_wait_may_take_what_is_left_and_no_more_than_it_wants(self, time: Time) -> None:
        deadline = Deadline(10, clock=time)
        assert (deadline.remaining(), deadline.timeout(15), deadline.timeout(3)) == (10, 10, 3)
        time.sleep(9.5)
        assert (deadline.elapsed(), deadline.timeout(15)) == (9.5, 0.5)
        assert (deadline.within(0.25).remaining(), deadline.within(3).remaining()) == (0.25, 0.5)
        time.sleep(2)
        assert (deadline.elapsed(), deadline.within(3).seconds) == (11.5, 0)

    @pytest.mark.parametrize("over", [0, 1])
    def test_once_it_has_passed_nothing_may_be_awaited(self, time: Time, over: float) -> None:
        deadline = Deadline(10, clock=time)
        time.sleep(10 + over)
        assert deadline.remaining() == -over
        with pytest.raises(DeadlineExceededError, match=r"^the deadline of 10 s has passed$"):
            deadline.timeout(15)
        with pytest.raises(DeadlineExceededError, match=r"passed while waiting for an answer of x$"):
            deadline.timeout(15, "an answer of x")


class TestRequestedWait:
    @pytest.mark.parametrize(
        ("headers", "wait"),
        [
            *(({"Retry-After": text}, wait) for text, wait in (("2", 2), (" 2.5 ", 2.5), ("0", 0))),
            *(({"Retry-After": text}, 60) for text in ("60.5", "1e999")),
            *(({"Retry-After": text}, None) for text in ("nan", "", "soon", "-1")),
            *(
                ({"Retry-After": formatdate(NOW + ahead, usegmt=True)}, wait)
                for ahead, wait in ((7, 7), (7000, 60), (0, 0), (-1, None))
            ),
            *(({"X-RateLimit-Reset": text}, wait) for text, wait in (("3.25", 3.25), ("21600", 60))),
            ({"RateLimit-Reset": "4"}, 4),
            ({"X-RateLimit-Reset": "9", "Retry-After": "5"}, 5),
            *(({"X-RateLimit-Reset": "9", "Retry-After": text}, 9) for text in ("soon", "-1")),
            ({"Retry-After": formatdate(NOW, usegmt=True), "Date": "today"}, None),
            ({}, None),
        ],
    )
    def test_what_a_server_requests_is_read_and_capped(
        self, headers: dict[str, str], wait: float | None
    ) -> None:
        assert requested_wait({"Date": formatdate(NOW, usegmt=True), **headers}) == wait

    @given(
        st.dictionaries(
            st.sampled_from(["Retry-After", "X-RateLimit-Reset", "RateLimit-Reset", "Date"]),
            st.text() | st.floats().map(str) | st.integers().map(str),
        )
    )
    def test_no_header_makes_it_raise_or_wait_more_than_a_minute(self, headers: dict[str, str]) -> None:
        wait = requested_wait(headers)
        assert wait is None or 0 <= wait <= 60


class TestPersist:
    def test_any_other_error_passes_at_once(self, time: Time) -> None:
        def attempt() -> None:
            raise KeyError("ours")

        with pytest.raises(KeyError, match="ours"):
            persist(attempt, Deadline(1000, time, time.sleep))
        assert time.naps == []

    def test_twelfth_attempt_is_the_last(self, time: Time) -> None:
        assert persist(failing(11), Deadline(1e6, time, time.sleep)) == "done"
        with pytest.raises(TransientError, match=r"^busy \(tried 12 times\)$"):
            persist(failing(12), Deadline(1e6, time, time.sleep))
        assert len(time.naps) == 11 + 11

    @pytest.mark.parametrize("jitter", [0.0, 0.5])
    def test_wait_that_would_reach_the_deadline_is_not_begun(
        self, time: Time, monkeypatch: pytest.MonkeyPatch, jitter: float
    ) -> None:
        monkeypatch.setattr("random.uniform", lambda low, _: low + jitter)
        with pytest.raises(TransientError, match=r"^busy \(tried 1 time\)$") as caught:
            persist(failing(1, wait=10), Deadline(10 + jitter, time, time.sleep))
        assert (caught.value.wait, time.naps) == (10, [])
        assert persist(failing(1, wait=10), Deadline(10.001 + jitter, time, time.sleep)) == "done"

    @pytest.mark.parametrize(
        ("bound", "naps"), [(max, [0.5, 1, 2, 4, 8, 15, 15, 15, 15]), (min, [0] * 9)], ids=["max", "min"]
    )
    def test_other_waits_are_random_and_their_bound_doubles_to_15_s(
        self, time: Time, monkeypatch: pytest.MonkeyPatch, bound: Callable[..., float], naps: list[float]
    ) -> None:
        monkeypatch.setattr("random.uniform", bound)
        persist(failing(9), Deadline(1e6, time, time.sleep))
        assert time.naps == naps
