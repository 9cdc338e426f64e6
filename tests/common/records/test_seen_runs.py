"""Ranges of numbers behave as a set of numbers does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.records import seen_runs
from common.records.seen_runs import Sequence


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
