"""What many operations add up to: counts, keys, bytes and how long they took.

Two aggregates of the same kind add up to the aggregate of all their operations, in any order and
on any machine, because the buckets of their times are fixed. Percentiles are read from the buckets.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# Where each bucket ends, four to a doubling from 10 microseconds to over an hour; one more has no end.
# Written records name buckets by index: ends may be added, never moved.
BUCKET_ENDS_MS = tuple(0.01 * 2 ** (step / 4) for step in range(116))
_EDGES = (0.0, *BUCKET_ENDS_MS, math.inf)


@dataclass(slots=True)
class OperationTotals:
    """Some operations, at least one. `buckets` counts them by the index of the bucket of their time."""

    count: int = 0
    keys: int = 0
    bytes: int = 0
    wall_ms_sum: float = 0.0
    wall_ms_min: float = math.inf
    wall_ms_max: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of_one(cls, keys: int, n_bytes: int, wall_ms: float) -> OperationTotals:
        return cls(1, keys, n_bytes, wall_ms, wall_ms, wall_ms, {bisect_left(BUCKET_ENDS_MS, wall_ms): 1})

    def add(self, other: OperationTotals) -> None:
        self.count += other.count
        self.keys += other.keys
        self.bytes += other.bytes
        self.wall_ms_sum += other.wall_ms_sum
        self.wall_ms_min = min(self.wall_ms_min, other.wall_ms_min)
        self.wall_ms_max = max(self.wall_ms_max, other.wall_ms_max)
        for index, count in other.buckets.items():
            self.buckets[index] = self.buckets.get(index, 0) + count

    def __add__(self, other: OperationTotals) -> OperationTotals:
        both = OperationTotals()
        both.add(self)
        both.add(other)
        return both

    @property
    def wall_ms_avg(self) -> float:
        return self.wall_ms_sum / self.count

    def wall_ms_percentile(self, percent: float) -> float:
        """The time that `percent` of the operations did not exceed, to within its bucket (19 %)."""
        buckets = sorted(self.buckets.items())
        [time] = percentiles((percent,), self.count, self.wall_ms_min, self.wall_ms_max, buckets)
        return time


def percentiles(
    percents: Iterable[float], count: int, low: float, high: float, buckets: Sequence[tuple[int, int]]
) -> list[float]:
    """`OperationTotals.wall_ms_percentile` of ascending percents, for where there are a great many."""
    times: list[float] = []
    place = reached = 0
    for percent in percents:
        rank = max(1, math.ceil(count * percent / 100))
        while reached + buckets[place][1] < rank and place + 1 < len(buckets):
            reached += buckets[place][1]
            place += 1
        index, inside = buckets[place]
        start, end = max(low, _EDGES[index]), min(high, _EDGES[index + 1])
        times.append(start + (end - start) * ((rank - reached) / inside))
    return times
