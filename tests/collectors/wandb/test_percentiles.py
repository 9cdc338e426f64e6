"""Percentiles at many instants, against sorting the durations at each of them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.wandb.evaluate import percentiles

SHARES = (50, 95, 100)
INSTANTS = 6

lasting = st.tuples(st.integers(0, 9), st.integers(0, INSTANTS - 1), st.integers(0, INSTANTS)).filter(
    lambda one: one[1] < one[2]
)


def truth(every: list[tuple[int, int, int]], instant: int) -> list[int]:
    there = sorted(value for value, first, after in every if first <= instant < after)
    return [there[math.ceil(share * len(there) / 100) - 1] for share in SHARES] if there else []


@settings(max_examples=200, deadline=None)
@given(st.lists(lasting, max_size=40))
def test_they_are_those_of_the_sorted_durations_at_every_instant(every: list[tuple[int, int, int]]) -> None:
    expected = [truth(every, instant) for instant in range(INSTANTS)]
    assert list(percentiles(every, INSTANTS, SHARES)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_many_durations_are_right_too(seed: int) -> None:
    pick = random.Random(seed).randrange
    firsts = [pick(INSTANTS) for _ in range(1500)]
    every = [(pick(300), first, pick(first + 1, INSTANTS + 1)) for first in firsts]
    expected = [truth(every, instant) for instant in range(INSTANTS)]
    assert list(percentiles(every, INSTANTS, SHARES)) == expected
