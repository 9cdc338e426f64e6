"""Points in the making: what one record states alone, and the sums of several."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, repeat
from operator import lt
from struct import Struct

from common.metric import Metric, Series

Key = tuple[str, ...]
SeriesKey = tuple[Metric, Key, str | None]  # metric, tags and host


class Block:
    """Values that one writer states of several series together: one of each for every time."""

    def __init__(self, n_series: int, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self.order = array("Q")  # when each time was added, among those of all blocks
        self.times = array("d")
        self.values = array("d")  # of all series for the first time, then for the second, …
        self._pack = Struct(f"{n_series}d").pack  # a third of the time of making an array

    def add(self, time: float, values: Iterable[float]) -> None:
        """Add one value of each series; struct.error, and nothing is added, for too large an integer."""
        self.values.frombytes(self._pack(*values))
        self.times.append(time)
        self.order.append(next(self._numbers))


class PointBuffer:
    """Gauges that single records state, and counts by bucket.

    Of two values of a gauge for one second the later timestamp wins, then the larger name of the writer, then
    the line that was read later.
    """

    def __init__(self) -> None:
        # By series: each writer with the times and values of a block, and the number of series in it.
        self._gauges: dict[SeriesKey, list[tuple[str, Block, int, int]]] = {}
        self._numbers = count()
        self._counts: dict[SeriesKey, dict[int, float]] = {}

    def block(self, series: Sequence[SeriesKey], writer: str) -> Block:
        """Return where a writer's values of some series go."""
        block = Block(len(series), self._numbers)
        for index, key in enumerate(series):
            self._gauges.setdefault(key, []).append((writer, block, index, len(series)))
        return block

    def count(self, metric: Metric, tags: Key, host: str | None, start: int, value: float = 1) -> None:
        """Add to a count, in the bucket that begins at `start`."""
        buckets = self._counts.setdefault((metric, tags, host), {})
        buckets[start] = buckets.get(start, 0) + value

    def gauges(self) -> Iterator[Series]:
        """Yield each gauge."""
        seconds: dict[Block, list[int] | None] = {}
        for (metric, tags, host), parts in self._gauges.items():
            _, block, index, width = parts[0]
            if block not in seconds:
                seconds[block] = _distinct_seconds(block.times)
            in_order = seconds[block]
            if len(parts) == 1 and in_order:
                yield Series(metric, tags, host, in_order, block.values[index::width])
                continue
            rows = sorted(
                row
                for writer, block, index, width in parts
                for row in zip(block.times, repeat(writer), block.order, block.values[index::width])
            )
            points = {int(time): value for time, _, _, value in rows}  # of one second, the last
            if points:
                yield Series(metric, tags, host, [*points], [*points.values()])

    def counts(self) -> Iterator[Series]:
        """Yield each count."""
        for (metric, tags, host), buckets in self._counts.items():
            starts = sorted(buckets)
            yield Series(metric, tags, host, starts, [buckets[start] for start in starts])


def _distinct_seconds(times: array[float]) -> list[int] | None:
    """Return times as integer seconds; None where they are out of order or two are in one second."""
    seconds = [*map(int, times)]
    return seconds if all(map(lt, seconds, islice(seconds, 1, None))) else None


class LastValues:
    """The last value of each writer in each bucket, by key: what writers that share a series add up to."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._values: dict[Key, dict[int, dict[str, tuple[float, float]]]] = {}  # by key, bucket and writer

    def add(self, writer: str, timestamp: float, values: Mapping[Key, float]) -> None:
        """Store the values of a writer in their bucket, unless it has later ones there."""
        start = int(timestamp) // self._width * self._width
        for key, value in values.items():
            writers = self._values.setdefault(key, {}).setdefault(start, {})
            if writer not in writers or writers[writer][0] <= timestamp:
                writers[writer] = (timestamp, value)

    def buckets(self) -> Iterator[tuple[Key, dict[int, list[float]]]]:
        """Yield each key with the values of its writers, by the start of the bucket; in order."""
        for key, by_start in sorted(self._values.items()):
            buckets = {}
            for start, writers in sorted(by_start.items()):
                buckets[start] = [value for _, (_, value) in sorted(writers.items())]
            yield key, buckets
