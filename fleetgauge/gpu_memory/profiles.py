"""What is worth keeping of a session's events: a picture, statistics and alerts, in bounded memory.

The picture is a row of bins over time. While a session is short every event has its own; when there are too
many, neighbours are merged, each keeping its lowest and highest value, so that a peak never disappears and
the whole time span stays, in whatever order the events came.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from .events import ALERT_TYPES, MemoryEvent

SERIES = ("allocated", "reserved", "device used")
MAX_BINS = 300
MAX_RANKS = 128
MAX_ALERTS = 50
MAX_CONTEXT = 500
MIN_PEAK_BYTES = 2**20  # a new peak that is less above the last is only summed up
_MIN_BIN_SECONDS = 0.001
_COUNTED = frozenset({*ALERT_TYPES, "sample", "allocation", "deallocation"})

Number = TypeVar("Number", int, float)
Point = tuple[float, float | None]
Extreme = tuple[float, int]


class _Bin:
    """The extremes of a stretch of time, as (time, value), and the alerts in it."""

    __slots__ = ("alerts", "at", "high", "low")

    def __init__(self, at: float) -> None:
        self.at = at
        self.low: list[Extreme | None] = [None] * len(SERIES)
        self.high: list[Extreme | None] = [None] * len(SERIES)
        self.alerts: dict[str, Extreme] = {}

    def add(self, series: int, extreme: Extreme) -> None:
        low, high = self.low[series], self.high[series]
        if low is None or (extreme[1], extreme[0]) < (low[1], low[0]):
            self.low[series] = extreme
        if high is None or (extreme[1], -extreme[0]) > (high[1], -high[0]):
            self.high[series] = extreme

    def add_alert(self, kind: str, mark: Extreme) -> None:
        # Of alerts of one kind too close to be drawn apart, the highest one is drawn.
        self.alerts[kind] = max(self.alerts.get(kind, mark), mark, key=lambda one: (one[1], -one[0]))

    def merge(self, other: _Bin) -> None:
        self.at = min(self.at, other.at)
        for series in range(len(SERIES)):
            for extreme in (other.low[series], other.high[series]):
                if extreme is not None:
                    self.add(series, extreme)
        for kind, mark in other.alerts.items():
            self.add_alert(kind, mark)


class Picture:
    """The memory of one rank over time."""

    def __init__(self) -> None:
        self._width = _MIN_BIN_SECONDS
        self._bins: dict[int, _Bin] = {}

    def add(self, event: MemoryEvent) -> None:
        """Draw an event; one without a time cannot be drawn."""
        if event.timestamp is None:
            return
        found = self._bins.setdefault(int(event.timestamp // self._width), _Bin(event.timestamp))
        found.at = min(found.at, event.timestamp)
        values = (event.memory_allocated, event.memory_reserved, event.device_used_or_held)
        for series, value in enumerate(values):
            if value is not None:
                found.add(series, (event.timestamp, value))
        if event.is_alert:
            height = next((value for value in values if value is not None), 0)
            found.add_alert(event.event_type, (event.timestamp, height))
        while len(self._bins) > MAX_BINS:
            self._merge()

    def points(self, series: int) -> list[Point]:
        """The line of a series in time order; None where events tell of everything but this."""
        points: list[Point] = []
        for _, found in sorted(self._bins.items()):
            low, high = found.low[series], found.high[series]
            if low is None or high is None:
                points.append((found.at, None))
            else:
                points.extend(sorted({low, high}))
        return points

    def alerts(self) -> Iterator[tuple[str, Extreme]]:
        """The marks to draw, in time order within each kind."""
        for kind in ALERT_TYPES:
            for _, found in sorted(self._bins.items()):
                if kind in found.alerts:
                    yield kind, found.alerts[kind]

    def _merge(self) -> None:
        self._width *= 2
        bins, self._bins = self._bins, {}
        for number, found in bins.items():
            kept = self._bins.setdefault(number // 2, found)
            if kept is not found:
                kept.merge(found)


@dataclass
class Extent:
    """Counts, extremes and the last known values of a stretch of events."""

    events: int = 0
    samples: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first_at: float | None = None
    last_at: float | None = None
    stopped_at: float | None = None
    peak_allocated: int | None = None
    peak_reserved: int | None = None
    peak_used: int | None = None
    peak_utilization: float | None = None
    capacity: int | None = None

    def add(self, event: MemoryEvent) -> None:
        """Take an event into account, in any order."""
        self.events += 1
        # Made-up types share a name, so that they cannot fill the memory.
        self.counts[event.event_type if event.event_type in _COUNTED else "other"] += 1
        if event.timestamp is not None:
            self.samples += 1
            self.first_at = event.timestamp if self.first_at is None else min(self.first_at, event.timestamp)
            self.last_at = _highest(self.last_at, event.timestamp)
            if event.event_type == "stop":
                self.stopped_at = _highest(self.stopped_at, event.timestamp)
        self.peak_allocated = _highest(self.peak_allocated, event.memory_allocated)
        self.peak_reserved = _highest(self.peak_reserved, event.memory_reserved)
        self.peak_used = _highest(self.peak_used, event.device_used_or_held)
        self.peak_utilization = _highest(self.peak_utilization, event.utilization_percent)
        if event.device_total is not None and event.device_total > 0:
            self.capacity = _highest(self.capacity, event.device_total)

    @property
    def duration(self) -> float | None:
        """Seconds from the first event to the last."""
        if self.first_at is None or self.last_at is None:
            return None
        return self.last_at - self.first_at

    @property
    def alerts(self) -> int:
        """How many events deserve a mark."""
        return sum(self.counts[kind] for kind in ALERT_TYPES)


@dataclass(frozen=True)
class SmallPeaks:
    """New peaks that each grew by little: how many, by how much together, and when the last one was."""

    count: int = 0
    growth: int = 0
    last_at: float | None = None

    def with_one(self, event: MemoryEvent) -> SmallPeaks:
        """These and one more."""
        growth = self.growth + (event.memory_change or 0)
        return SmallPeaks(self.count + 1, growth, _highest(self.last_at, event.timestamp))


class RankProfile(Extent):
    """One rank of a session: its picture, the latest alerts of each kind, and its small peaks as a sum.

    A tracker of a process calls every page that it grows by a new peak.
    """

    def __init__(self, rank: int | None) -> None:
        super().__init__()
        self.rank = rank
        self.picture = Picture()
        self.small_peaks = SmallPeaks()
        self._latest = {kind: deque[MemoryEvent](maxlen=MAX_ALERTS) for kind in ALERT_TYPES}

    def add(self, event: MemoryEvent) -> None:
        """Take an event into account."""
        super().add(event)
        self.picture.add(event)
        change = event.memory_change
        if event.event_type == "peak" and change is not None and 0 <= change < MIN_PEAK_BYTES:
            self.small_peaks = self.small_peaks.with_one(event)
        elif event.is_alert:
            context = event.context[:MAX_CONTEXT] if event.context else event.context
            self._latest[event.event_type].append(event._replace(metadata={}, context=context))

    def latest_alerts(self) -> list[MemoryEvent]:
        """The alerts that were kept, in time order, those without a time last."""
        kept = [event for latest in self._latest.values() for event in latest]
        return sorted(kept, key=lambda event: (event.timestamp is None, event.timestamp or 0.0))


def _highest(known: Number | None, found: Number | None) -> Number | None:
    return found if known is None else known if found is None else max(known, found)
