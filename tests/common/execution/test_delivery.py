"""Batches and marks: a mark is remembered only behind what was delivered, and many become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import DeliveryError
from common.execution import delivery
from common.execution.delivery import Delivery
from common.metric import Mark, Sample, gauge

VALUE = gauge("a.b", "", "x")


class Journal:
    """A sink and a store that write down in which order they were used."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.points_sent = 0
        self.dropped: Counter[str] = Counter()
        self.broken = False

    def send(self, samples: Iterable[Sample]) -> None:
        if self.broken:
            raise DeliveryError("down")
        self.events.append([sample.value for sample in samples])

    def remember(self, changes: Mapping[str, object]) -> None:
        self.events.append(dict(changes))


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setattr(delivery, "BATCH_SIZE", 3)
    monkeypatch.setattr(delivery, "MAX_UNMARKED", 5)
    return Journal()


def taking(journal: Journal, *items: float | dict[str, object]) -> Delivery:
    made = Delivery(journal, journal.remember)
    for item in items:
        made.take(Mark(item) if isinstance(item, dict) else VALUE(item, 1))
    return made


def test_a_batch_ends_at_the_first_mark_behind_enough_samples(journal: Journal) -> None:
    made = taking(journal, 1, {"a": 1}, 2, {"a": 2}, 3, {"a": 3, "b": 1}, 4, {"a": 4}, 5)
    assert journal.events == [[1, 2, 3], {"a": 3, "b": 1}]
    made.flush()
    assert journal.events[2:] == [[4, 5], {"a": 4}]


def test_marks_without_samples_are_one_save(journal: Journal) -> None:
    taking(journal, {"a": 1}, {"b": 2}, {"a": 3}).flush()
    assert journal.events == [[], {"a": 3, "b": 2}]


def test_nothing_behind_an_undelivered_sample_is_remembered(journal: Journal) -> None:
    made = taking(journal, 1, {"a": 1})
    journal.broken = True
    with pytest.raises(DeliveryError):
        made.flush()
    journal.broken = False
    made.flush()
    assert journal.events == [[]]


def test_more_samples_than_can_be_kept_without_a_mark_are_a_defect(journal: Journal) -> None:
    made = taking(journal, 1, 2, 3, 4, 5)
    with pytest.raises(ValueError, match="more than 5 samples without a mark"):
        made.take(VALUE(6, 1))
    made = taking(journal, 1, 2, 3, 4, 5, {"a": 1})
    made.take(VALUE(6, 1))


@given(st.lists(st.integers(0, 9) | st.dictionaries(st.sampled_from("abc"), st.integers(), min_size=1)))
def test_every_sample_is_sent_once_in_order_and_every_mark_ends_up_saved(
    items: list[int | dict[str, object]],
) -> None:
    journal = Journal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "BATCH_SIZE", 2)
        taking(journal, *items).flush()
    sent = [value for event in journal.events if isinstance(event, list) for value in event]
    assert sent == [item for item in items if not isinstance(item, dict)]
    saved: dict[str, object] = {}
    expected: dict[str, object] = {}
    for event in journal.events:
        saved |= event if isinstance(event, dict) else {}
    for item in items:
        expected |= item if isinstance(item, dict) else {}
    assert saved == expected
