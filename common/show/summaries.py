"""What a series comes to, taken in part by part: its figures, and its shape over a span.

Pure, and in the same room however long a series is. Parts may come in any order.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.metric import Metric
from common.show.points import SeriesKey, SeriesPoints
from common.window import Window


class Summary:
    """The figures of one series: its first and last value, the extremes and the mean."""

    __slots__ = ("_mean", "first", "first_at", "high", "last", "last_at", "low", "points")

    def __init__(self) -> None:
        self.points = 0
        self.first_at, self.last_at = sys.maxsize, -sys.maxsize
        self.first = self.last = self._mean = 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, part: SeriesPoints) -> None:
        """Take some more points in."""
        seconds, values = part.seconds, part.values
        earliest, latest = min(seconds), max(seconds)
        if earliest <= self.first_at:
            self.first_at, self.first = earliest, values[seconds.index(earliest)]
        if latest >= self.last_at:
            self.last_at, self.last = latest, values[seconds.index(latest)]
        self.low, self.high = min(self.low, *values), max(self.high, *values)
        self.points += len(values)
        share = len(values) / self.points
        self._mean += _mean(values) * share - self._mean * share

    @property
    def mean(self) -> float:
        """The mean of all points; rounding takes it nowhere that no value was."""
        return min(self.high, max(self.low, self._mean))

    @property
    def spacing(self) -> float:
        """Seconds from one point to the next, on average; infinite for a single one."""
        return (self.last_at - self.first_at) / (self.points - 1) if self.points > 1 else math.inf


@dataclass(frozen=True, slots=True)
class Grid:
    """A span cut into stretches of equal width, each of whole grains. A stretch ends with its last second.

    So each tick of a span, which ends with its last one, is in a stretch.
    """

    start: int
    grain: int
    width: int
    count: int

    @classmethod
    def over(cls, span: Window, max_count: int, spacing: float = math.inf) -> Grid:
        """At most so many stretches, none so narrow that a series without a gap would leave it empty.

        Points stand on the ticks of the span or, read from records, closer together: then the narrowest
        stretch is twice their spacing.
        """
        grain = max(1, math.ceil(min(span.step, 2 * spacing)))
        start = span.since // grain * grain
        grains = max(1, -(-(span.until - start) // grain))
        each = -(-grains // max_count)
        return cls(start, grain, each * grain, -(-grains // each))

    def middle(self, number: int) -> float:
        """The second that a stretch stands for: the middle of the ticks in it."""
        return self.start + number * self.width + (self.width + self.grain) / 2


class Stretch(NamedTuple):
    """What the points of one stretch come to. The extremes are kept, so that no spike is averaged away."""

    low: float
    mean: float
    high: float


class Shape:
    """One series along a grid. Where no point fell, nothing is known, which is not zero."""

    __slots__ = ("_counts", "_highs", "_lows", "_means", "grid")

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._counts = array("L", [0]) * grid.count
        self._lows, self._means, self._highs = (array("d", [0.0]) * grid.count for _ in range(3))

    def add(self, part: SeriesPoints) -> None:
        """Take some more points in; those outside of the grid have no place here."""
        start, width, count = self.grid.start, self.grid.width, self.grid.count
        counts, lows, means, highs = self._counts, self._lows, self._means, self._highs
        for second, value in zip(part.seconds, part.values, strict=True):
            at = (second - start - 1) // width if second > start else second - start
            if not 0 <= at < count:
                continue
            counts[at] = number = counts[at] + 1
            if number == 1:
                lows[at] = means[at] = highs[at] = value
                continue
            means[at] += value / number - means[at] / number  # a sum could overflow
            if value < lows[at]:
                lows[at] = value
            elif value > highs[at]:
                highs[at] = value

    def stretches(self) -> list[Stretch | None]:
        """Every stretch of the grid; None where nothing is known."""
        found = zip(self._counts, self._lows, self._means, self._highs, strict=True)
        return [
            Stretch(low, min(high, max(low, mean)), high) if count else None
            for count, low, mean, high in found
        ]


def in_order(series: Iterable[SeriesKey], declared: Sequence[Metric]) -> list[SeriesKey]:
    """Series as the catalogue lists their metrics, those of one metric by their labels."""
    place = {metric.name: number for number, metric in enumerate(declared)}
    return sorted(series, key=lambda one: (place.get(one.metric, len(place)), one.metric, one.labels))


def shared_labels(series: Iterable[SeriesKey]) -> tuple[str, ...]:
    """The labels that all series have, which need saying only once."""
    every = [one.labels for one in series]
    kept = set(every[0]).intersection(*every) if every else set()
    return tuple(label for label in every[0] if label in kept) if every else ()


def _mean(values: Sequence[float]) -> float:
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    return sum(value / len(values) for value in values)
