"""What is worth keeping of a session's events: a picture, statistics and alerts, in bounded memory.

The picture is a row of bins over time. While a session is short every event has its own; when there are too
many, neighbours are merged, each keeping its lowest and highest value, so that a peak never disappears and
the whole time span stays, in whatever order the events came.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from .documents import words
from .events import ALERT_TYPES, MemoryEvent

SERIES = ("allocated", "reserved", "device used")
MAX_BINS = 300
MAX_RANKS = 128
MAX_ALERTS = 50
MAX_CONTEXT = 500
MIN_PEAK_BYTES = 2**20  # a new peak that is less above the last is only summed up
_MIN_BIN_SECONDS = 0.001
_BEGINNING = ""  # the key in a bin for when it begins
# A peak is no alert to the tracker's own count, so that ours agrees with it.
COUNTED_ALERTS = ("critical", "error", "warning")
_COUNTED = frozenset({*ALERT_TYPES, "sample", "allocation", "deallocation"})

Number = TypeVar("Number", int, float)
Point = tuple[float, float | None]
Extreme = tuple[int, float]  # a value and when it was, or for a highest one minus that: the first one stands


class Picture:
    """The memory of one rank over time: in each bin the lowest and highest value of each series and alert."""

    def __init__(self) -> None:
        self._width = _MIN_BIN_SECONDS
        self._bins: dict[int, dict[int | str, tuple[Extreme, Extreme]]] = {}

    def add(self, event: MemoryEvent) -> None:
        """Draw an event; one without a time cannot be drawn."""
        when = event.timestamp
        if when is None:
            return
        found = self._bins.setdefault(int(when // self._width), {})
        values = (event.memory_allocated, event.memory_reserved, event.device_used_or_held)
        _widen(found, _BEGINNING, (0, when), (0, -when))
        for series, value in enumerate(values):
            if value is not None:
                _widen(found, series, (value, when), (value, -when))
        if event.is_alert:
            height = next((value for value in values if value is not None), 0)
            _widen(found, event.event_type, (height, when), (height, -when))
        while len(self._bins) > MAX_BINS:
            self._merge()

    @property
    def bin_seconds(self) -> float:
        """How long a stretch of time one bin stands for."""
        return self._width

    def points(self, series: int) -> list[Point]:
        """The line of a series in time order; None where events tell of everything but this."""
        points: list[Point] = []
        for _, found in sorted(self._bins.items()):
            if series in found:
                (low, low_at), (high, high_at) = found[series]
                points.extend(sorted({(low_at, low), (-high_at, high)}))
            else:
                points.append((found[_BEGINNING][0][1], None))
        return points

    def alerts(self) -> Iterator[tuple[str, tuple[float, int]]]:
        """The marks to draw, in time order within each kind; of those too close, the highest one."""
        for kind in ALERT_TYPES:
            for _, found in sorted(self._bins.items()):
                if kind in found:
                    height, at = found[kind][1]
                    yield kind, (-at, height)

    def _merge(self) -> None:
        self._width *= 2
        bins, self._bins = self._bins, {}
        for number, found in bins.items():
            kept = self._bins.setdefault(number // 2, found)
            if kept is not found:
                for key, extremes in found.items():
                    _widen(kept, key, *extremes)


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


@dataclass
class SmallPeaks:
    """New peaks that each grew by little: how many, by how much together, and when the last one was."""

    count: int = 0
    growth: int = 0
    last_at: float | None = None


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
            self.small_peaks.count += 1
            self.small_peaks.growth += change
            self.small_peaks.last_at = _highest(self.small_peaks.last_at, event.timestamp)
        elif event.is_alert:
            context = event.context[:MAX_CONTEXT] if event.context else event.context
            self._latest[event.event_type].append(event._replace(metadata={}, context=context))

    def latest_alerts(self) -> list[MemoryEvent]:
        """The alerts that were kept, in time order, those without a time last."""
        kept = [event for latest in self._latest.values() for event in latest]
        return sorted(kept, key=lambda event: (event.timestamp is None, event.timestamp or 0.0))


class Statistics(Extent):
    """What one session came to, under the names that the tracker itself gives it.

    A tracker that ended well hands its statistics over; for a directory that a crashed job left behind they
    are computed here. What events cannot tell (how much was pruned, say) is absent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first: MemoryEvent | None = None
        self._allocated_bytes = 0
        self._deallocated_bytes = 0
        self._latest_at = -math.inf
        self._latest: dict[str, object] = {}

    def add(self, event: MemoryEvent) -> None:
        """Take an event into account."""
        super().add(event)
        if self.first is None:
            self.first = event
        if event.event_type == "allocation":
            self._allocated_bytes += abs(event.memory_change or 0)
        elif event.event_type == "deallocation":
            self._deallocated_bytes += abs(event.memory_change or 0)
        if event.timestamp is not None and event.timestamp >= self._latest_at:
            self._latest_at = event.timestamp
            self._latest |= {name: value for name, value in _present(event).items() if value is not None}
            if event.metadata.get("collector_last_error", "") is None:
                self._latest.pop("collector_last_error", None)  # it says that it recovered

    def as_mapping(self) -> dict[str, object]:
        """The statistics by the tracker's names."""
        allocations, deallocations = self.counts["allocation"], self.counts["deallocation"]
        found: dict[str, object] = {
            "total_events": self.events,
            "alert_count": sum(self.counts[kind] for kind in COUNTED_ALERTS),
            "total_allocations": allocations,
            "total_deallocations": deallocations,
            "total_allocation_bytes": self._allocated_bytes,
            "total_deallocation_bytes": self._deallocated_bytes,
            "peak_memory": self.peak_allocated,
            "peak_device_used": self.peak_used,
            "device_total": self.capacity,
            "tracking_duration_seconds": self.duration,
        }
        if self.duration:
            found["allocations_per_second"] = allocations / self.duration
            found["bytes_allocated_per_second"] = self._allocated_bytes / self.duration
        return {name: value for name, value in found.items() if value is not None} | self._latest


def _present(event: MemoryEvent) -> dict[str, object]:
    """What holds as of an event, until another one says otherwise."""
    capabilities = event.metadata.get("memory_capabilities")
    backend = event.metadata.get("backend")
    if backend is None and isinstance(capabilities, Mapping):
        backend = capabilities.get("backend")
    return {
        "current_memory_allocated": event.memory_allocated,
        "current_memory_reserved": event.memory_reserved,
        "current_device_used": event.device_used_or_held,
        "memory_utilization_percent": event.utilization_percent,
        "backend": words(backend),
        "collector_health_status": words(event.metadata.get("collector_health_status")),
        "collector_last_error": words(event.metadata.get("collector_last_error")),
    }


def _highest(known: Number | None, found: Number | None) -> Number | None:
    return found if known is None else known if found is None else max(known, found)


def _widen(
    found: dict[int | str, tuple[Extreme, Extreme]], key: int | str, low: Extreme, high: Extreme
) -> None:
    kept = found.get(key)
    found[key] = (low, high) if kept is None else (min(kept[0], low), max(kept[1], high))
