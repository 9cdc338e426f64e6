"""Profiles of sessions: totals, lines to draw and alerts, in bounded memory however many events there are.

Events come in batches, which are folded column by column: that is several times faster than event by event.
The lines are bins over time. While a session is short every event has its own bin; when there are too many,
neighbours are merged, each with its lowest and highest value, so that no peak disappears and the complete
time span stays, in whatever order the events come.

`recording` fills the profiles; `page` draws them, and `wandb_export` logs their statistics.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from .events import ALERT_TYPES, MemoryEvent, used_memory
from .sessions import SessionSummary, text_or_none

SERIES = ("allocated", "reserved", "device used")
# Bounds of memory, and of a page that a browser draws at once.
MAX_BINS = 300
MAX_RANKS = 128
MAX_ALERTS = 50
MAX_CONTEXT = 500
MIN_PEAK_BYTES = 2**20  # a tracker of a process reports every page that it grows by as a new peak
# Shorter than the usual period of a tracker: at first every sample has a bin of its own.
_MIN_BIN_SECONDS = 0.001
_START = ""  # the key in a bin for the time of its first event
# A peak is no alert in the tracker's own count.
_COUNTED_ALERTS = ("critical", "error", "warning")
_COUNTED_TYPES = frozenset({*ALERT_TYPES, "sample", "allocation", "deallocation"})

Sizes = Sequence[int | None]
Point = tuple[float, float | None]
Extreme = tuple[int, float]  # a value and its time, negated for a highest value: the first time wins


class Bins:
    """The memory of one rank over time: in each bin the extremes of each series and kind of alert.

    A bin is numbered by its time divided by the width, so that doubling the width merges neighbours without
    sorting. Keys of a bin are the index of a series, the kind of an alert, or `_START`.
    """

    def __init__(self) -> None:
        self.seconds = _MIN_BIN_SECONDS  # the width of a bin
        self._bins: dict[int, dict[int | str, tuple[Extreme, Extreme]]] = {}

    def add(self, events: Sequence[MemoryEvent], columns: Sequence[Sizes]) -> None:
        """Add events that all have a time, in order of it; `columns` are their values of each series.

        Columns may be longer than the events: values of events without a time follow, and are not used.
        """
        times = [event.timestamp or 0.0 for event in events]
        first = 0
        while first < len(times):
            number = int(times[first] // self.seconds)
            # Events are in order, so that the events of one bin are a slice that a binary search finds.
            end = bisect_right(times, number, first, key=lambda at: int(at // self.seconds))
            found = self._bins.setdefault(number, {})
            _widen(found, _START, (0, times[first]), (0, -times[first]))
            for series, column in enumerate(columns):
                values = [value for value in column[first:end] if value is not None]
                if values:
                    low, high = min(values), max(values)
                    low_at, high_at = (times[column.index(value, first)] for value in (low, high))
                    _widen(found, series, (low, low_at), (high, -high_at))
            first = end
        for index, event in enumerate(events):
            if event.event_type in ALERT_TYPES:
                at = times[index]
                # A mark is drawn at the first known series of its event, at the bottom where none is known.
                height = next((column[index] for column in columns if column[index] is not None), None) or 0
                _widen(self._bins[int(at // self.seconds)], event.event_type, (height, at), (height, -at))
        while len(self._bins) > MAX_BINS:
            self._merge()

    def points(self, series: int) -> list[Point]:
        """Return the line of a series in time order; None where events have every value but this one.

        A bin gives its lowest and its highest value, in the order in which they occurred.
        """
        points: list[Point] = []
        for _, found in sorted(self._bins.items()):
            if series in found:
                (low, low_at), (high, high_at) = found[series]
                points.extend(sorted({(low_at, low), (-high_at, high)}))
            else:
                points.append((found[_START][0][1], None))
        return points

    def alerts(self) -> Iterator[tuple[str, tuple[float, int]]]:
        """Yield the marks to draw: severe kinds first, each in time order; of one bin, the highest."""
        for kind in ALERT_TYPES:
            for _, found in sorted(self._bins.items()):
                if kind in found:
                    height, at = found[kind][1]
                    yield kind, (-at, height)

    def _merge(self) -> None:
        """Double the width of the bins."""
        self.seconds *= 2
        bins, self._bins = self._bins, {}
        for number, found in bins.items():
            merged = self._bins.setdefault(number // 2, found)
            if merged is not found:
                for key, extremes in found.items():
                    _widen(merged, key, *extremes)


@dataclass
class Totals:
    """Counts, extremes and latest values of some events. What no event states is absent.

    `peaks` are the highest values by name; `latest` are states by the tracker's names, as last observed.
    """

    events: int = 0
    samples: int = 0  # events with a time
    counts: Counter[str] = field(default_factory=Counter)  # by event type
    changed: Counter[str] = field(default_factory=Counter)  # bytes allocated and deallocated
    first_at: float | None = None
    last_at: float | None = None
    stopped_at: float | None = None
    peaks: dict[str, float] = field(default_factory=dict)
    latest: dict[str, tuple[float, object]] = field(default_factory=dict)  # the time and the value

    def add(
        self, batch: Sequence[MemoryEvent], timed: Sequence[MemoryEvent], columns: Sequence[Sizes]
    ) -> None:
        """Add events, those of them that have a time in order of it, and their values of each series."""
        types = [event.event_type for event in batch]
        capacities = [event.device_total for event in batch]
        allocated, reserved, used = columns
        counts = Counter(types)
        self.events += len(batch)
        self.samples += len(timed)
        for kind, count in counts.items():
            # Unknown types share a name, so that they cannot fill the memory.
            self.counts[kind if kind in _COUNTED_TYPES else "other"] += count
        for kind in {"allocation", "deallocation"} & counts.keys():
            self.changed[kind] += sum(
                abs(event.memory_change or 0) for event in batch if event.event_type == kind
            )
        shares = [
            value / capacity * 100.0
            for value, capacity in zip(used, capacities, strict=True)
            if value is not None and capacity is not None and capacity > 0
        ]
        self._raise_peaks(
            {
                "allocated": allocated,
                "reserved": reserved,
                "used": used,
                "utilization": shares,
                "capacity": [size for size in capacities if size and size > 0],
            }
        )
        if timed:
            self._add_times(timed[0].timestamp, timed[-1].timestamp)
            stops = [event.timestamp for event in timed if event.event_type == "stop"]
            self.stopped_at = max((at for at in (self.stopped_at, *stops) if at is not None), default=None)
            # A state is unknown in most events: the last event that states it counts.
            for name, read in _STATES.items():
                self._keep_latest(name, _last(read, timed))

    def merge(self, other: Totals) -> None:
        """Add the events of other totals; of two latest values, the later one stays."""
        self.events += other.events
        self.samples += other.samples
        self.counts += other.counts
        self.changed += other.changed
        self._add_times(other.first_at, other.last_at)
        self.stopped_at = max(
            (at for at in (self.stopped_at, other.stopped_at) if at is not None), default=None
        )
        self._raise_peaks({name: [value] for name, value in other.peaks.items()})
        for name, found in other.latest.items():
            self._keep_latest(name, found)

    @property
    def duration(self) -> float | None:
        """Return the seconds from the first event to the last; None without a time."""
        return None if self.first_at is None or self.last_at is None else self.last_at - self.first_at

    @property
    def alerts(self) -> int:
        """Return the number of alerts, peaks among them.

        The tracker's own count, in `as_stats`, is without peaks.
        """
        return sum(self.counts[kind] for kind in ALERT_TYPES)

    def as_stats(self) -> dict[str, object]:
        """Return the statistics by the tracker's own names; what is unknown is left out."""
        allocations, deallocations = self.counts["allocation"], self.counts["deallocation"]
        stats: dict[str, object] = {
            "total_events": self.events,
            "alert_count": sum(self.counts[kind] for kind in _COUNTED_ALERTS),
            "total_allocations": allocations,
            "total_deallocations": deallocations,
            "total_allocation_bytes": self.changed["allocation"],
            "total_deallocation_bytes": self.changed["deallocation"],
            "peak_memory": self.peaks.get("allocated"),
            "peak_device_used": self.peaks.get("used"),
            "device_total": self.peaks.get("capacity"),
            "tracking_duration_seconds": self.duration,
        }
        # Neither without a duration nor over a duration of 0.
        if self.duration:
            stats["allocations_per_second"] = allocations / self.duration
            stats["bytes_allocated_per_second"] = self.changed["allocation"] / self.duration
        stats |= {name: value for name, (_, value) in self.latest.items()}
        return {name: value for name, value in stats.items() if value not in (None, "")}

    def _raise_peaks(self, columns: Mapping[str, Iterable[float | None]]) -> None:
        """Raise each peak to the highest value of its column; None is no value."""
        for name, column in columns.items():
            known = [value for value in (self.peaks.get(name), *column) if value is not None]
            if known:
                self.peaks[name] = max(known)

    def _add_times(self, first: float | None, last: float | None) -> None:
        """Widen the span to these times."""
        if first is not None and last is not None:
            self.first_at = first if self.first_at is None else min(self.first_at, first)
            self.last_at = last if self.last_at is None else max(self.last_at, last)

    def _keep_latest(self, name: str, found: tuple[float, object] | None) -> None:
        """Replace a latest value, unless a later one is known: batches may come in any order."""
        if found is not None and (name not in self.latest or self.latest[name][0] <= found[0]):
            self.latest[name] = found


class RankProfile:
    """One rank of a session: its totals, its lines, and the latest alerts of each kind but small peaks."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.totals = Totals()
        self.bins = Bins()
        self._latest = {kind: deque[MemoryEvent](maxlen=MAX_ALERTS) for kind in ALERT_TYPES}

    def add(self, batch: Sequence[MemoryEvent]) -> None:
        """Add events, in any order."""
        # Ranks that share a file, or a clock that was set, may break the order.
        timed = sorted((event for event in batch if event.timestamp is not None), key=_time)
        batch = [*timed, *(event for event in batch if event.timestamp is None)]
        # The fields of `MemoryEvent` by position: columns in one pass.
        _, _, allocated, reserved, _, used, *_ = zip(*batch, strict=True)
        if None in used:
            used = tuple(map(used_memory, used, allocated, reserved))
        columns = (allocated, reserved, used)
        self.totals.add(batch, timed, columns)
        self.bins.add(timed, columns)
        for event in batch:
            change = event.memory_change
            # The tracker of a process reports a new peak for every page it grows by: these would displace all
            # others.
            is_small_peak = event.event_type == "peak" and change is not None and change < MIN_PEAK_BYTES
            if event.event_type in ALERT_TYPES and not is_small_peak:
                context = event.context[:MAX_CONTEXT] if event.context else event.context
                self._latest[event.event_type].append(event._replace(metadata={}, context=context))

    def latest_alerts(self) -> list[MemoryEvent]:
        """Return the latest alerts in time order, those without a time last.

        There are at most 50 of each kind.
        """
        alerts = [event for latest in self._latest.values() for event in latest]
        return sorted(alerts, key=lambda event: (event.timestamp is None, event.timestamp or 0.0))


@dataclass
class SessionProfile:
    """A session: what its manifest states, its first event, and a profile for each rank.

    Rank None has the events without a rank, and those of ranks beyond `MAX_RANKS`.
    """

    summary: SessionSummary | None = None
    first: MemoryEvent | None = None
    ranks: dict[int | None, RankProfile] = field(default_factory=dict)

    def add(self, batch: Sequence[MemoryEvent]) -> None:
        """Add events, in any order. Ranks beyond the limit share one profile with events of no rank."""
        if self.first is None and batch:
            self.first = batch[0]
        by_rank: dict[int | None, list[MemoryEvent]] = {}
        for event in batch:
            by_rank.setdefault(event.rank, []).append(event)
        for rank, events in by_rank.items():
            # A damaged file may have any number of ranks; memory stays bounded.
            shown = rank if rank in self.ranks or len(self.ranks) < MAX_RANKS else None
            self.ranks.setdefault(shown, RankProfile(shown)).add(events)

    @property
    def totals(self) -> Totals:
        """Return the totals over all ranks, computed anew at each call."""
        totals = Totals()
        for rank in self.ranks.values():
            totals.merge(rank.totals)
        return totals


def _widen(
    found: dict[int | str, tuple[Extreme, Extreme]], key: int | str, low: Extreme, high: Extreme
) -> None:
    """Widen the extremes of a key by two more.

    Times of highest values are negated, so that `max` prefers the first of equal values as `min` does.
    """
    known = found.get(key)
    found[key] = (low, high) if known is None else (min(known[0], low), max(known[1], high))


def _backend(event: MemoryEvent) -> str | None:
    """Return the backend of an event's metadata, or of the capabilities nested in it."""
    backend = event.metadata.get("backend")
    capabilities = event.metadata.get("memory_capabilities")
    if backend is None and isinstance(capabilities, Mapping):
        backend = capabilities.get("backend")
    return text_or_none(backend)


def _last_error(event: MemoryEvent) -> str | None:
    """Return the error of the collector, empty where the event states that there is none."""
    error = event.metadata.get("collector_last_error", "")
    return "" if error is None else text_or_none(error)


def _last(read: Callable[[MemoryEvent], object], timed: Sequence[MemoryEvent]) -> tuple[float, object] | None:
    """Return the last known value of events in time order, and its time."""
    for event in reversed(timed):
        if (value := read(event)) is not None:
            return event.timestamp or 0.0, value
    return None


_time = attrgetter("timestamp")
# What is true from an event on until another states something else, by the tracker's names.
_STATES: dict[str, Callable[[MemoryEvent], object]] = {
    "current_memory_allocated": attrgetter("memory_allocated"),
    "current_memory_reserved": attrgetter("memory_reserved"),
    "current_device_used": attrgetter("effective_device_used"),
    "memory_utilization_percent": attrgetter("utilization_percent"),
    "backend": _backend,
    "collector_health_status": lambda event: text_or_none(event.metadata.get("collector_health_status")),
    "collector_last_error": _last_error,
}
