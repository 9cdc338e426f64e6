"""Points in the making: what one record states alone, and what several records add up to."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice, repeat
from math import isfinite
from operator import lt
from typing import NamedTuple

from common.metric import Metric, Series

Key = tuple[str, ...]
SeriesKey = tuple[Metric, Key, str | None]  # metric, tags and host


class Block(NamedTuple):
    """Values that one writer states of several series together: one of each for every time.

    Append to every array of `values` first, then to `times`.
    """

    times: array[float]
    values: tuple[array[float], ...]


class Gauges:
    """Series whose points are stated by single records.

    Of two values for one second the later timestamp wins, then the larger name of the writer, then the line
    that was read later.
    """

    def __init__(self) -> None:
        self._parts: dict[SeriesKey, list[tuple[str, array[float], array[float]]]] = {}

    def block(self, series: Sequence[SeriesKey], writer: str) -> Block:
        """Return where a writer's values of some series go."""
        block = Block(array("d"), tuple(array("d") for _ in series))
        for key, values in zip(series, block.values, strict=True):
            self._parts.setdefault(key, []).append((writer, block.times, values))
        return block

    def series(self, counted_since: int) -> Iterator[tuple[Series, int]]:
        """Yield each series that has points, and how many values from a time on are not finite: left out."""
        seconds: dict[int, list[int] | None] = {}  # by the identity of an array of times
        for (metric, tags, host), parts in self._parts.items():
            _, times, values = parts[0]
            if id(times) not in seconds:
                seconds[id(times)] = _distinct_seconds(times)
            in_order = seconds[id(times)]
            if len(parts) == 1 and in_order and isfinite(sum(values)):
                yield Series(metric, tags, host, in_order, values), 0
                continue
            rows = sorted(
                row for name, *part in parts for row in zip(part[0], repeat(name), count(), part[1])
            )
            points = {int(row[0]): row[3] for row in rows if isfinite(row[3])}  # of one second, the last
            not_finite = sum(not isfinite(row[3]) and row[0] >= counted_since for row in rows)
            if points or not_finite:
                yield Series(metric, tags, host, [*points], [*points.values()]), not_finite


def _distinct_seconds(times: array[float]) -> list[int] | None:
    """Return times as integer seconds; None where they are out of order or two are in one second."""
    seconds = [*map(int, times)]
    return seconds if all(map(lt, seconds, islice(seconds, 1, None))) else None


class Counts:
    """Counts by series and bucket."""

    def __init__(self) -> None:
        self._values: dict[SeriesKey, dict[int, float]] = {}

    def add(self, metric: Metric, tags: Key, host: str | None, start: int, value: float = 1) -> None:
        """Add to the bucket that begins at `start`."""
        buckets = self._values.setdefault((metric, tags, host), {})
        buckets[start] = buckets.get(start, 0) + value

    def series(self) -> Iterator[Series]:
        """Yield each series."""
        for (metric, tags, host), buckets in self._values.items():
            starts = sorted(buckets)
            yield Series(metric, tags, host, starts, [buckets[start] for start in starts])


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
        for key, buckets in sorted(self._values.items()):
            yield (
                key,
                {
                    start: [value for _, (_, value) in sorted(writers.items())]
                    for start, writers in sorted(buckets.items())
                },
            )
