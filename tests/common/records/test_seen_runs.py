"""Ranges of numbers behave as a set of numbers does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.records import seen_runs
from common.records.saved import SavedState
from common.records.seen_runs import SeenRuns, Sequence


@given(st.lists(st.integers(0, 30)))
def test_ranges_are_a_set(numbers: list[int]) -> None:
    ranges = Sequence()
    expected: set[int] = set()
    for number in numbers:
        ranges.add(number)
        expected.add(number)
        assert [number in ranges for number in range(-1, 32)] == [
            number in expected for number in range(-1, 32)
        ]
        assert ranges.edges == sorted({*ranges.edges})


def test_beyond_so_many_gaps_the_lowest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_runs, "MAX_RANGES", 3)
    ranges = Sequence()
    for number in (0, 2, 4, 6):
        ranges.add(number)
    assert ranges.edges == [0, 3, 4, 5, 6, 7]
    ranges = Sequence()
    for number in (4, 0, 2):
        ranges.add(number)
    assert ranges.edges == [0, 1, 2, 3, 4, 5]


def test_what_was_met_of_a_run_is_saved_and_forgotten_when_it_is_old() -> None:
    saved = {"seen:old": {"edges": [0, 3], "at": 99}, "seen:new": {"edges": [5, 6], "at": 100}}
    runs = SeenRuns(SavedState(saved), 500)
    assert runs.expired(100) == {"seen:old"}
    assert [number in runs["old"] for number in range(-1, 5)] == [False, True, True, True, False, False]
    runs["old"].add(3)
    assert runs.expired(500) == {"seen:new"}
    assert runs.changes({"old"}) == {"seen:old": {"edges": [0, 4], "at": 500}}


@pytest.mark.parametrize("edges", [[1], [1, 1], [2, 1], [1, 2, 2, 3], "12", [1, 2.5]])
def test_what_is_no_set_of_numbers_is_forgotten_and_counted(edges: object) -> None:
    saved = SavedState({"seen:bad": {"edges": edges, "at": 99}, "seen:good": {"edges": [1, 2], "at": 99}})
    runs = SeenRuns(saved, 500)
    assert (1 in runs["bad"], 1 in runs["good"], saved.bad) == (False, True, 1)
