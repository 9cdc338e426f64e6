"""Percentiles of durations at many instants: N durations and T instants take about N log N + T sqrt N steps.

By nearest rank: the p-th percentile of n durations is the ceil(p x n / 100)-th smallest, one that a run had.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

_BLOCK = 256  # durations that are counted together


def percentiles(
    lasting: Sequence[tuple[int, int, int]], instants: int, shares: Sequence[int]
) -> Iterator[tuple[int, ...] | None]:
    """For each instant, the percentiles of the durations that count from one instant until before another."""
    ranked = sorted(lasting)
    changes: list[list[tuple[int, int]]] = [[] for _ in range(instants + 1)]
    for rank, (_, first, after) in enumerate(ranked):
        changes[first].append((rank, 1))
        changes[after].append((rank, -1))
    present = bytearray(len(ranked))
    blocks = [0] * (len(ranked) // _BLOCK + 1)
    number = 0
    for change in changes[:instants]:
        for rank, sign in change:
            present[rank] += sign
            blocks[rank // _BLOCK] += sign
            number += sign
        sums = list(accumulate(blocks))
        places = [-(-share * number // 100) for share in shares]
        yield tuple(ranked[_select(present, sums, place)][0] for place in places) if number else None


def _select(present: bytearray, sums: list[int], place: int) -> int:
    """The rank of the one that has this place, counted from 1, among those present."""
    block = bisect_left(sums, place)
    left = place - (sums[block - 1] if block else 0)
    rank = block * _BLOCK - 1
    for _ in range(left):
        rank = present.index(1, rank + 1)
    return rank
