"""One deadline, and trying again within it, on a clock that only sleeping moves."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import DeadlineExceededError
from common.net.retry import MAX_ATTEMPTS, RETRIED_STATUSES, Deadline, TransientError, persist, requested_wait
from support.standins import NOW, Time


def failing(times: int, wait: float | None = None) -> Callable[[], str]:
    left = iter(range(times))

    def attempt() -> str:
        if next(left, None) is not None:
            raise TransientError("busy", wait)
        return "done"

    return attempt


class TestDeadline:
    def test_a_request_may_take_what_is_left_and_no_more_than_it_wants(self, time: Time) -> None:
        deadline = Deadline(10, clock=time)
        assert (deadline.remaining(), deadline.timeout(15), deadline.timeout(3)) == (10, 10, 3)
        time.sleep(9.5)
        assert deadline.timeout(15) == 0.5

    def test_a_part_of_it_ends_with_it_at_the_latest(self, time: Time) -> None:
        deadline = Deadline(10, clock=time)
        time.sleep(9.5)
        assert (deadline.elapsed(), deadline.within(0.25).remaining()) == (9.5, 0.25)
        assert deadline.within(3).remaining() == 0.5
        time.sleep(2)
        assert (deadline.elapsed(), deadline.within(3).seconds) == (11.5, 0)

    @pytest.mark.parametrize("over", [0, 1])
    def test_once_it_has_passed_nothing_may_be_asked(self, time: Time, over: float) -> None:
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
            ({"Retry-After": "2"}, 2),
            ({"Retry-After": " 2.5 "}, 2.5),
            ({"Retry-After": "0"}, 0),
            ({"Retry-After": "60.5"}, 60),
            ({"Retry-After": "1e999"}, 60),
            ({"Retry-After": formatdate(NOW + 7, usegmt=True)}, 7),
            ({"Retry-After": formatdate(NOW + 7000, usegmt=True)}, 60),
            ({"Retry-After": formatdate(NOW, usegmt=True)}, 0),
            ({"Retry-After": formatdate(NOW - 1, usegmt=True)}, None),
            ({"X-RateLimit-Reset": "3"}, 3),
            ({"X-RateLimit-Reset": "3.25"}, 3.25),
            ({"X-RateLimit-Reset": "21600"}, 60),
            ({"RateLimit-Reset": "4"}, 4),
            ({"X-RateLimit-Reset": "9", "Retry-After": "5"}, 5),
            ({"X-RateLimit-Reset": "9", "Retry-After": "soon"}, 9),
            ({"X-RateLimit-Reset": "9", "Retry-After": "-1"}, 9),
            ({"Retry-After": "nan"}, None),
            ({"Retry-After": ""}, None),
            ({}, None),
        ],
    )
    def test_what_a_server_asks_for_is_read_and_capped(
        self, headers: dict[str, str], wait: float | None
    ) -> None:
        assert requested_wait(headers, NOW) == wait

    @given(
        st.dictionaries(
            st.sampled_from(["Retry-After", "X-RateLimit-Reset", "RateLimit-Reset", "Date"]),
            st.text() | st.floats().map(str) | st.integers().map(str),
        )
    )
    def test_no_header_makes_it_raise_or_wait_more_than_a_minute(self, headers: dict[str, str]) -> None:
        wait = requested_wait(headers, NOW)
        assert wait is None or 0 <= wait <= 60


class TestPersist:
    def test_the_first_success_is_returned(self, time: Time) -> None:
        assert persist(failing(3), Deadline(1000, time), time.sleep) == "done"
        assert len(time.naps) == 3

    def test_any_other_error_passes_at_once(self, time: Time) -> None:
        def attempt() -> None:
            raise KeyError("ours")

        with pytest.raises(KeyError, match="ours"):
            persist(attempt, Deadline(1000, time), time.sleep)
        assert time.naps == []

    def test_it_gives_up_after_twelve_attempts_and_says_so(self, time: Time) -> None:
        assert MAX_ATTEMPTS == 12
        assert persist(failing(11), Deadline(1e6, time), time.sleep) == "done"
        with pytest.raises(TransientError, match=r"^busy \(tried 12 times\)$"):
            persist(failing(12), Deadline(1e6, time), time.sleep)
        assert len(time.naps) == 11 + 11

    def test_a_wait_that_would_reach_the_deadline_is_not_begun(self, time: Time) -> None:
        with pytest.raises(TransientError, match=r"^busy \(tried 1 time\)$") as caught:
            persist(failing(1, wait=10), Deadline(10, time), time.sleep)
        assert caught.value.wait == 10
        assert time.naps == []

    def test_not_even_one_that_would_reach_it_to_the_instant(
        self, time: Time, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("random.uniform", lambda low, high: low)
        with pytest.raises(TransientError, match=r"^busy \(tried 1 time\)$"):
            persist(failing(1, wait=10), Deadline(10, time), time.sleep)

    def test_a_wait_that_ends_before_the_deadline_is_taken(self, time: Time) -> None:
        assert persist(failing(1, wait=10), Deadline(10.5001, time), time.sleep) == "done"

    def test_all_waits_together_stay_within_the_deadline(self, time: Time) -> None:
        deadline = Deadline(30, time)
        with pytest.raises(TransientError):
            persist(failing(1000, wait=9), deadline, time.sleep)
        assert len(time.naps) == 3
        assert deadline.remaining() > 0

    def test_what_the_server_asked_for_is_waited_with_up_to_half_a_second_more(self, time: Time) -> None:
        for _ in range(20):
            persist(failing(1, wait=5), Deadline(1000, time), time.sleep)
        assert all(5 <= nap <= 5.5 for nap in time.naps)
        assert len(set(time.naps)) == 20

    def test_without_it_waits_are_random_and_their_bound_doubles_to_15_s(
        self, time: Time, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(30):
            persist(failing(1), Deadline(1e6, time), time.sleep)
        assert len(set(time.naps)) == 30
        for bound, expected in ((max, [0.5, 1, 2, 4, 8, 15, 15, 15, 15]), (min, [0] * 9)):
            time.naps.clear()
            monkeypatch.setattr("random.uniform", bound)
            persist(failing(9), Deadline(1e6, time), time.sleep)
            assert time.naps == expected


def test_timeouts_limits_and_server_errors_are_worth_another_try() -> None:
    assert {408, 429} | set(range(500, 600)) == RETRIED_STATUSES
