"""The timeline of a session as at most 250 rows: the rows that the tracker's own exporter picks.

Rows are in time order from the first to the last event: all alerts, the last row, and every n-th of the
others. Where alerts alone would fill the rows, that exporter loses the start of the session; here severe
alerts come first, the others are spread over the complete span, and some rows stay for ordinary samples.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypedDict

from .events import ALERT_TYPES, MemoryEvent, event_timestamp_seconds, event_type, read_event

MAX_ROWS = 250
# With more alerts than rows, this many rows stay for what happened between them.
_MIN_OTHER_ROWS = 100


class TimelineRow(TypedDict):
    """One row of the timeline; None is unknown."""

    sample_index: int
    elapsed_seconds: float
    event_type: str
    allocated_bytes: int | None
    reserved_bytes: int | None
    change_bytes: int | None
    device_used_bytes: int | None
    utilization_percent: float | None
    context: str | None
    rank: int | None


class TimelineIndex:
    """The times of a session's events and which of them are alerts: enough to choose the rows."""

    def __init__(self) -> None:
        self._times = array("d")
        self._alerts: dict[int, str] = {}

    def add(self, timestamp: float | None, kind: str) -> None:
        """Add the next event."""
        if kind in ALERT_TYPES and timestamp is not None:
            self._alerts[len(self._times)] = kind
        self._times.append(math.nan if timestamp is None else timestamp)

    def rows(self, events: Iterable[object]) -> list[TimelineRow]:
        """Return the rows, in time order, of the same events, which are iterated a second time."""
        times = self._times
        order: Sequence[int] = range(len(times))
        if any(map(math.isnan, times)):
            order = [at for at in order if not math.isnan(times[at])]
        if any(times[after] < times[before] for before, after in pairwise(order)):
            order = sorted(order, key=times.__getitem__)
        alerts = {index: self._alerts[at] for index, at in enumerate(order) if at in self._alerts}
        selected = {order[index]: index for index in _choose(len(order), alerts)}
        if isinstance(events, Sequence):
            found = {at: events[at] for at in selected}
        else:
            found = {at: event for at, event in enumerate(events) if at in selected}
        return [
            _row(index, times[at] - times[order[0]], read_event(found[at])) for at, index in selected.items()
        ]


def tracking_timeline_rows(events: Iterable[object]) -> list[TimelineRow]:
    """Return the timeline of a session's events, given as mappings or objects, in either shape."""
    known = list(events) if iter(events) is events else events
    index = TimelineIndex()
    for event in known:
        index.add(event_timestamp_seconds(event), event_type(event))
    return index.rows(known)


def sample_timeline_rows(rows: Sequence[TimelineRow]) -> list[TimelineRow]:
    """Return at most 250 of these rows, in their order: alerts and the last one, of the others every n-th."""
    alerts = {at: row["event_type"] for at, row in enumerate(rows) if row["event_type"] in ALERT_TYPES}
    return [rows[at] for at in _choose(len(rows), alerts)]


def _choose(count: int, alerts: Mapping[int, str]) -> Sequence[int]:
    """Return which of `count` rows to log, in order; `alerts` are the kinds of those that are alerts."""
    if count <= MAX_ROWS:
        return range(count)
    last = count - 1
    pinned = {*alerts, last}
    if len(pinned) >= MAX_ROWS:
        pinned = {0, last} | _most_severe(alerts, MAX_ROWS - _MIN_OTHER_ROWS - 2)
    others = [at for at in range(count) if at not in pinned and at not in alerts]
    stride = max(1, math.ceil(len(others) / (MAX_ROWS - len(pinned))))
    selected = pinned | set(others[::stride])
    # Where ordinary rows are few, more alerts take their room.
    remaining = {at: kind for at, kind in alerts.items() if at not in selected}
    return sorted(selected | _most_severe(remaining, MAX_ROWS - len(selected)))


def _most_severe(alerts: Mapping[int, str], room: int) -> set[int]:
    """Return as many alerts as there is room for, severe kinds before others, each spread evenly."""
    selected: set[int] = set()
    for kind in ALERT_TYPES:
        of_kind = [at for at, found in alerts.items() if found == kind]
        selected |= set(_spread(of_kind, room - len(selected)))
    return selected


def _spread(items: Sequence[int], room: int) -> Iterable[int]:
    """Return evenly selected items, the first and the last among them."""
    if len(items) <= room:
        return items
    if room < 2:
        return items[:room]
    return [items[round(step * (len(items) - 1) / (room - 1))] for step in range(room)]


def _row(index: int, elapsed: float, event: MemoryEvent) -> TimelineRow:
    return {
        "sample_index": index,
        "elapsed_seconds": elapsed,
        "event_type": event.event_type,
        "allocated_bytes": event.memory_allocated,
        "reserved_bytes": event.memory_reserved,
        "change_bytes": event.memory_change,
        "device_used_bytes": event.effective_device_used,
        "utilization_percent": event.utilization_percent,
        "context": event.context,
        "rank": event.rank,
    }
