"""The timeline of a session as at most 250 rows that still tell its story.

Rows are in time order from the first to the last event. Alerts are kept before anything else; where there are
more of them than rows, the severe ones come first and the rest is spread over the whole span, with room left
for ordinary samples, so that the start of a session cannot be crowded out by what happened at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypedDict, TypeVar

from .events import ALERT_TYPES, MemoryEvent, read_event

MAX_ROWS = 250
# With more alerts than rows, this many rows stay for what happened between them.
_MIN_OTHER_ROWS = 100
# Beyond this many events of a kind, only every second is held, then every fourth, and so on.
_MAX_HELD = 20_000

Item = TypeVar("Item")
Timed = tuple[float, int, MemoryEvent]  # when an event was, and how many came before it


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


class Thinned(Generic[Item]):
    """Items of a stream: all while they are few, then every second, every fourth … one."""

    def __init__(self, limit: int) -> None:
        self.items: list[Item] = []
        self._limit = limit
        self._stride = 1
        self._seen = 0

    def add(self, item: Item) -> None:
        """Take the next item of the stream, or let it pass."""
        if self._seen % self._stride == 0:
            self.items.append(item)
            if len(self.items) > self._limit:
                del self.items[1::2]
                self._stride *= 2
        self._seen += 1


class Timeline:
    """Collects events, in any order and any number, for the rows to be made of."""

    def __init__(self, held: int = _MAX_HELD) -> None:
        self._kinds = {kind: Thinned[Timed](held) for kind in (*ALERT_TYPES, "")}
        self._ends: tuple[Timed, Timed] | None = None
        self._count = 0

    def add(self, event: MemoryEvent) -> None:
        """Take an event; without a time it has no place here."""
        if event.timestamp is None:
            return
        timed = (event.timestamp, self._count, event._replace(metadata={}))
        self._count += 1
        self._kinds[event.event_type if event.is_alert else ""].add(timed)
        first, last = self._ends or (timed, timed)
        self._ends = min(first, timed), max(last, timed)

    def rows(self) -> list[TimelineRow]:
        """At most 250 rows in time order."""
        held = [timed for kind in self._kinds.values() for timed in kind.items]
        ordered = sorted({timed[:2]: timed for timed in (*held, *(self._ends or ()))}.values())
        # Numbers say how many events came before: they follow time even where the events did not.
        numbers = sorted(number for _, number, _ in ordered)
        return sample_timeline_rows(
            [
                _row(number, at - ordered[0][0], event)
                for number, (at, _, event) in zip(numbers, ordered, strict=True)
            ]
        )


def tracking_timeline_rows(events: Iterable[object]) -> list[TimelineRow]:
    """The timeline of a session's events, given as mappings or objects, in either shape."""
    timeline = Timeline()
    for event in events:
        timeline.add(read_event(event))
    return timeline.rows()


def sample_timeline_rows(rows: Sequence[TimelineRow]) -> list[TimelineRow]:
    """At most 250 of these rows, in their order: alerts and the last one first, of the rest every n-th."""
    if len(rows) <= MAX_ROWS:
        return list(rows)
    last = len(rows) - 1
    alerts = [at for at, row in enumerate(rows) if row["event_type"] in ALERT_TYPES]
    pinned = {*alerts, last}
    if len(pinned) >= MAX_ROWS:
        pinned = {0, last}
        pinned |= _most_severe(rows, alerts, MAX_ROWS - _MIN_OTHER_ROWS - len(pinned))
    others = [at for at in range(len(rows)) if at not in pinned and rows[at]["event_type"] not in ALERT_TYPES]
    room = MAX_ROWS - len(pinned)
    stride = max(1, -(-len(others) // room))
    chosen = pinned | set(others[::stride])
    # Where ordinary rows are few, their room goes to more alerts.
    chosen |= _most_severe(rows, [at for at in alerts if at not in chosen], MAX_ROWS - len(chosen))
    return [rows[at] for at in sorted(chosen)]


def _most_severe(rows: Sequence[TimelineRow], alerts: Sequence[int], room: int) -> set[int]:
    """As many alerts as there is room for, severe kinds before others, each spread evenly."""
    chosen: set[int] = set()
    for kind in ALERT_TYPES:
        of_kind = [at for at in alerts if rows[at]["event_type"] == kind]
        chosen |= set(_spread(of_kind, room - len(chosen)))
    return chosen


def _spread(items: Sequence[int], room: int) -> Iterable[int]:
    """Evenly chosen items, the first and the last among them."""
    if len(items) <= room:
        return items
    if room < 2:
        return items[:room]
    return [items[round(step * (len(items) - 1) / (room - 1))] for step in range(room)]


def _row(number: int, elapsed: float, event: MemoryEvent) -> TimelineRow:
    return {
        "sample_index": number,
        "elapsed_seconds": elapsed,
        "event_type": event.event_type,
        "allocated_bytes": event.memory_allocated,
        "reserved_bytes": event.memory_reserved,
        "change_bytes": event.memory_change,
        "device_used_bytes": event.device_used_or_held,
        "utilization_percent": event.utilization_percent,
        "context": event.context,
        "rank": event.rank,
    }
