"""Batches and marks: a mark is remembered only behind what was accepted, and few saves are made of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import CheckpointError, DeliveryError, Interrupted
from common.execution import delivery
from common.execution.delivery import Delivery
from common.metric import Mark, Sample, gauge
from support.standins import Time

VALUE = gauge("a.b", "", "x")

Item = float | dict[str, object]


class Journal:
    """A sink with payloads of three points and a store, which write down in which order they were used."""

    payload = 3

    def __init__(self) -> None:
        self.events: list[object] = []
        self.points_sent = 0
        self.dropped: Counter[str] = Counter()
        self.left = 10**9  # payloads until it breaks
        self.breaks_with: BaseException = DeliveryError("down")
        self.time = Time()
        self._queue: list[float] = []
        self.settled = 0
        self.examples: dict[str, str] = {}

    @property
    def taken(self) -> int:
        return self.settled + len(self._queue)

    def take(self, samples: Iterable[Sample]) -> None:
        self._queue += [sample.value for sample in samples]

    def deliver(self, *, everything: bool, within: float | None = None) -> None:
        while len(self._queue) >= self.payload or (everything and self._queue):
            if self.left == 0:
                if isinstance(self.breaks_with, Interrupted):
                    self.left = 10**9  # a signal comes once
                raise self.breaks_with
            self.left -= 1
            self.events.append(self._queue[: self.payload])
            self.settled += len(self._queue[: self.payload])
            del self._queue[: self.payload]

    def clear(self) -> None:
        self.events, self.settled, self._queue = [], 0, []

    def remember(self, changes: Mapping[str, object]) -> None:
        self.events.append(dict(changes))

    @property
    def sent(self) -> list[float]:
        return [value for event in self.events if isinstance(event, list) for value in event]

    @property
    def saves(self) -> list[dict[str, object]]:
        return [event for event in self.events if isinstance(event, dict)]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setattr(delivery, "BATCH_SIZE", 3)
    monkeypatch.setattr(delivery, "MAX_UNMARKED", 5)
    return Journal()


def fill(made: Delivery, *items: Item) -> None:
    for item in items:
        made.take(Mark(item) if isinstance(item, dict) else VALUE(item, 1))


def taking(journal: Journal, *items: Item) -> Delivery:
    made = Delivery(journal, journal.remember, journal.time)
    fill(made, *items)
    return made


def collect(journal: Journal, *items: Item, ends_with: BaseException | None = None) -> None:
    """A whole run of a collector, which may end with an error."""
    with Delivery(journal, journal.remember, journal.time) as made:
        fill(made, *items)
        if ends_with is not None:
            raise ends_with


class TestPayloads:
    def test_what_does_not_fill_a_payload_waits_for_the_next(self, journal: Journal) -> None:
        made = taking(journal, 1, 2, 3, 4, {"a": 1})
        assert journal.events == [[1, 2, 3]]
        fill(made, 5, 6, 7, {"a": 2})
        assert journal.events == [[1, 2, 3], [4, 5, 6]]
        made.flush()
        assert journal.events == [[1, 2, 3], [4, 5, 6], [7], {"a": 2}]

    def test_samples_leave_only_at_marks(self, journal: Journal) -> None:
        made = taking(journal, 1, 2, 3, 4, 5)
        assert journal.events == []
        fill(made, {})
        assert journal.events == [[1, 2, 3]]

    def test_more_samples_than_can_be_kept_without_a_mark_are_a_defect(self, journal: Journal) -> None:
        made = taking(journal, 1, 2, 3, 4, 5)
        with pytest.raises(ValueError, match="more than 5 samples without a mark: they cannot all be kept"):
            made.take(VALUE(6, 1))
        made = taking(journal, 1, 2, {"a": 1}, 3, 4, 5, 6, 7)
        with pytest.raises(ValueError, match="more than 5 samples without a mark"):
            made.take(VALUE(8, 1))


class TestMarks:
    def test_a_mark_waits_for_the_last_sample_before_it(self, journal: Journal) -> None:
        made = taking(journal, 1, 2, 3, 4, {"a": 1})
        journal.time.now += 100
        fill(made, 5, {"a": 2})
        assert journal.saves == []  # 4 was not accepted yet, and the first mark stands behind it
        fill(made, 6, 7, {"a": 3})
        assert journal.events == [[1, 2, 3], [4, 5, 6], {"a": 1}]

    def test_marks_without_samples_are_one_save(self, journal: Journal) -> None:
        taking(journal, {"a": 1}, {"b": 2}, {"a": 3}).flush()
        assert journal.events == [{"a": 3, "b": 2}]

    def test_nothing_behind_an_undelivered_sample_is_remembered(self, journal: Journal) -> None:
        journal.left = 1
        with pytest.raises(DeliveryError):
            collect(journal, 1, 2, 3, {"a": 1}, 4, 5, 6, {"a": 2}, 7, {"a": 3})
        assert journal.events == [[1, 2, 3], {"a": 1}]

    def test_what_could_not_be_delivered_is_not_tried_again_at_the_end(self, journal: Journal) -> None:
        journal.left = 0
        made = taking(journal, 1, 2, {"a": 1}, 3)
        with pytest.raises(DeliveryError):
            fill(made, {"a": 2})
        journal.left = 10
        made.flush()
        assert journal.events == []


class TestSaving:
    def test_state_is_saved_at_most_every_ten_seconds_and_at_the_end(self, journal: Journal) -> None:
        made = Delivery(journal, journal.remember, journal.time)
        for number in range(100):
            fill(made, 1, 2, 3, {"a": number})
            journal.time.now += 1
        assert journal.saves == [{"a": number} for number in range(10, 100, 10)]
        made.flush()
        assert journal.saves[-1] == {"a": 99}
        assert len(journal.saves) == 10

    def test_a_save_that_fails_is_an_error_and_is_not_tried_again(self, journal: Journal) -> None:
        tries = []

        def remember(changes: Mapping[str, object]) -> None:
            tries.append(changes)
            raise CheckpointError("full")

        made = Delivery(journal, remember, journal.time)
        journal.time.now += 10
        with pytest.raises(CheckpointError), made:
            fill(made, 1, 2, 3, {"a": 1})
        assert tries == [{"a": 1}]

    def test_without_a_store_nothing_is_remembered(self, journal: Journal) -> None:
        with Delivery(journal, None, journal.time) as made:
            fill(made, 1, {"a": 1})
        assert journal.events == [[1]]


class TestEnding:
    @pytest.mark.parametrize("error", [ValueError("a defect"), Interrupted(15), DeliveryError("of another")])
    def test_whatever_ends_the_collector_everything_before_it_is_delivered_and_remembered(
        self, journal: Journal, error: BaseException
    ) -> None:
        with pytest.raises(type(error)):
            collect(journal, 1, {"a": 1}, 2, 3, 4, {"a": 2}, 5, ends_with=error)
        assert journal.sent == [1, 2, 3, 4, 5]
        assert journal.saves[-1] == {"a": 2}

    @pytest.mark.parametrize("payload", range(3))
    def test_a_signal_during_a_delivery_loses_neither_samples_nor_marks(
        self, journal: Journal, payload: int
    ) -> None:
        journal.left, journal.breaks_with = payload, Interrupted(15)
        with pytest.raises(Interrupted):
            collect(journal, 1, 2, 3, {"a": 1}, 4, 5, 6, {"a": 2}, 7, {"a": 3})
        assert journal.sent == list(range(1, [4, 7, 8][payload]))
        assert journal.saves[-1] == {"a": payload + 1}

    def test_after_a_signal_what_was_accepted_is_remembered_before_the_rest_is_tried(
        self, journal: Journal
    ) -> None:
        for journal.left, rest in ((1, []), (9, [[4], {"a": 2}])):
            with pytest.raises(Interrupted):
                collect(journal, 1, 2, 3, {"a": 1}, 4, {"a": 2}, ends_with=Interrupted(15))
            assert journal.events == [[1, 2, 3], {"a": 1}, *rest]
            journal.clear()

    def test_a_signal_while_the_end_is_delivered_gives_the_rest_a_last_chance(self, journal: Journal) -> None:
        journal.left, journal.breaks_with = 1, Interrupted(15)
        with pytest.raises(Interrupted):
            collect(journal, 1, 2, {"a": 1}, 3, 4, 5)
        assert journal.sent == [1, 2, 3, 4, 5]
        assert journal.saves == [{"a": 1}]


@given(
    st.lists(st.integers(0, 9) | st.dictionaries(st.sampled_from("abc"), st.integers(), min_size=1)),
    st.integers(0, 12),
    st.integers(1, 4),
)
def test_every_sample_is_sent_once_in_order_and_no_mark_is_ahead_of_what_was_accepted(
    items: list[int | dict[str, object]], left: int, payload: int
) -> None:
    journal = Journal()
    journal.payload, journal.left = payload, left
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "BATCH_SIZE", 2)
        patch.setattr(delivery, "SAVE_EVERY", 0)
        with suppress(DeliveryError):
            collect(journal, *items)
    samples = [item for item in items if not isinstance(item, dict)]
    assert journal.sent == samples[: len(journal.sent)]
    possible, state, passed = [dict[str, object]()], dict[str, object](), 0
    for item in items:
        if isinstance(item, dict):
            state = {**state, **item}
            if passed <= len(journal.sent):
                possible.append(state)
        else:
            passed += 1
    saved: dict[str, object] = {}
    for event in journal.saves:
        saved |= event
    assert saved in possible
    if len(journal.sent) == len(samples):
        assert saved == state
