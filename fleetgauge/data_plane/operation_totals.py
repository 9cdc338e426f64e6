"""Aggregates of operations: counts, keys, bytes and a histogram of their times.

The buckets of the histogram are fixed, so that those of any two records can be added. `sinks` fills them in
the job; `collectors/data_plane` adds those of all ranks and computes percentiles.
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
    """Operations of one kind. `buckets` counts them by the index of the bucket of their time.

    An index is a position in `BUCKET_ENDS_MS`; `len(BUCKET_ENDS_MS)` is the bucket without an end.
    """

    count: int = 0
    keys: int = 0
    bytes: int = 0
    wall_ms_sum: float = 0.0
    wall_ms_min: float = math.inf
    wall_ms_max: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, keys: int, n_bytes: int, wall_ms: float) -> None:
        """Add one operation. Raises TypeError or ValueError, and adds nothing, for what is no number."""
        # One test for three values: a sum with NaN or infinity is not finite, and any other type raises
        # TypeError.
        if not math.isfinite(keys + n_bytes + wall_ms):
            raise ValueError(f"wall_ms is {wall_ms!r}")
        index = bisect_left(BUCKET_ENDS_MS, wall_ms)
        self.count += 1
        self.keys += keys
        self.bytes += n_bytes
        self.wall_ms_sum += wall_ms
        self.wall_ms_min = min(self.wall_ms_min, wall_ms)
        self.wall_ms_max = max(self.wall_ms_max, wall_ms)
        self.buckets[index] = self.buckets.get(index, 0) + 1

    def wall_ms_percentile(self, percent: float) -> float:
        """Return the time that `percent` of the operations did not exceed, to within its bucket (19 %)."""
        buckets = sorted(self.buckets.items())
        [time] = percentiles((percent,), self.count, self.wall_ms_min, self.wall_ms_max, buckets)
        return time


def percentiles(
    percents: Iterable[float], count: int, low: float, high: float, buckets: Sequence[tuple[int, int]]
) -> list[float]:
    """Return the times of ascending percents; `buckets` are sorted by their index, and not empty.

    `low` and `high` are the extremes that were measured: they narrow the first and last bucket. Inside a
    bucket the times are taken as evenly spread.
    """
    times: list[float] = []
    following = iter(buckets)
    index, inside = next(following)
    reached = 0
    for percent in percents:
        rank = math.ceil(count * percent / 100) or 1
        # Percents ascend, so that one pass over the buckets serves all of them.
        while reached + inside < rank and (bucket := next(following, None)):
            reached += inside
            index, inside = bucket
        start, end = _EDGES[index], _EDGES[index + 1]
        if start < low:
            start = low
        if end > high:
            end = high
        times.append(start + (end - start) * ((rank - reached) / inside))
    return times
