"""The timeline of a session as at most 250 rows: the rows that the tracker's own exporter picks.

Rows are in time order from the first to the last event: all alerts, the last row, and every n-th of the
others. Where alerts alone would fill the rows, that exporter loses the start of the session; here severe
alerts come first, the others are spread over the complete span, and some rows stay for ordinary samples.

`wandb_export` logs the rows; `profiles` draws lines that are not limited to them.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TypedDict

from .events import ALERT_TYPES, MemoryEvent, batches, read_event, used_memory, utilization

MAX_TIMELINE_ROWS = 250
# With more alerts than rows, this many rows stay for what happened between them.
_MIN_OTHER_ROWS = 100
_NUMBERS = ("memory_allocated", "memory_reserved", "memory_change", "device_used", "device_total", "rank")
_UNKNOWN = -(2**63)  # less than any number of an event


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


class Timeline:
    """The events of a session as columns, a few dozen bytes an event: enough to choose and make the rows.

    Which rows are logged is only known once all events are read, and complete events might not fit in memory.
    """

    def __init__(self) -> None:
        self._times = array("d")  # NaN without a time
        self._numbers = {name: array("q") for name in _NUMBERS}
        self._types: list[str] = []
        self._contexts: list[str | None] = []
        self.alerts: deque[MemoryEvent] = deque(
            maxlen=MAX_TIMELINE_ROWS
        )  # the last ones, with or without a time

    def add(self, events: Sequence[MemoryEvent]) -> None:
        """Add the next events."""
        self._times.extend([math.nan if event.timestamp is None else event.timestamp for event in events])
        for name, column in self._numbers.items():
            values = map(attrgetter(name), events)
            column.extend([_UNKNOWN if value is None else value for value in values])
        # Interned: event types are few and repeat for millions of events.
        self._types.extend([sys.intern(event.event_type) for event in events])
        self._contexts.extend([event.context for event in events])
        # Without metadata, which may be large and is not logged.
        self.alerts.extend(event._replace(metadata={}) for event in events if event.is_alert)

    def rows(self) -> list[TimelineRow]:
        """Return the rows, in time order; events without a time are left out."""
        times = self._times
        order: Sequence[int] = range(len(times))
        if any(map(math.isnan, times)):
            order = [at for at in order if not math.isnan(times[at])]
        # Sorted only where necessary: a single writer appends in order, merged ranks may not.
        if any(times[after] < times[before] for before, after in pairwise(order)):
            order = sorted(order, key=times.__getitem__)
        alerts = {index: kind for index, at in enumerate(order) if (kind := self._types[at]) in ALERT_TYPES}
        return [self._row(index, order[index], times[order[0]]) for index in _choose(len(order), alerts)]

    def _row(self, index: int, at: int, start: float) -> TimelineRow:
        """Return the row of the event at position `at`.

        `index` counts events in time order, `start` is the time of the first.
        """
        numbers = {name: column[at] for name, column in self._numbers.items()}
        known = {name: None if number == _UNKNOWN else number for name, number in numbers.items()}
        used = used_memory(known["device_used"], known["memory_allocated"], known["memory_reserved"])
        return {
            "sample_index": index,
            "elapsed_seconds": self._times[at] - start,
            "event_type": self._types[at],
            "allocated_bytes": known["memory_allocated"],
            "reserved_bytes": known["memory_reserved"],
            "change_bytes": known["memory_change"],
            "device_used_bytes": used,
            "utilization_percent": utilization(used, known["device_total"]),
            "context": self._contexts[at],
            "rank": known["rank"],
        }


def tracking_timeline_rows(events: Iterable[object]) -> list[TimelineRow]:
    """Return the timeline of a session's events, given as mappings or objects, in either shape."""
    timeline = Timeline()
    for batch in batches(map(read_event, events)):
        timeline.add(batch)
    return timeline.rows()


def sample_timeline_rows(rows: Sequence[TimelineRow]) -> list[TimelineRow]:
    """Return at most 250 of these rows, in their order: alerts and the last one, of the others every n-th."""
    alerts = {at: row["event_type"] for at, row in enumerate(rows) if row["event_type"] in ALERT_TYPES}
    return [rows[at] for at in _choose(len(rows), alerts)]


def _choose(count: int, alerts: Mapping[int, str]) -> Sequence[int]:
    """Return which of `count` rows to log, in order; `alerts` are the kinds of those that are alerts.

    At most `MAX_TIMELINE_ROWS`; the first and the last row are always among them.
    """
    if count <= MAX_TIMELINE_ROWS:
        return range(count)
    last = count - 1
    pinned = {*alerts, last}
    if len(pinned) >= MAX_TIMELINE_ROWS:
        pinned = {0, last} | _most_severe(alerts, MAX_TIMELINE_ROWS - _MIN_OTHER_ROWS - 2)
    others = [at for at in range(count) if at not in pinned and at not in alerts]
    # Rounded up, so that a stride never selects more rows than there is room for.
    stride = max(1, math.ceil(len(others) / (MAX_TIMELINE_ROWS - len(pinned))))
    selected = pinned | set(others[::stride])
    # Where ordinary rows are few, more alerts take their room.
    remaining = {at: kind for at, kind in alerts.items() if at not in selected}
    return sorted(selected | _most_severe(remaining, MAX_TIMELINE_ROWS - len(selected)))


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
