"""What collectors over records share: a record's envelope, the times that can be sent, how the reading went.

Knows the fields that every kind of record has, and nothing of any kind's body.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from common.errors import ConfigurationError
from common.intake import BATCH_SIZE, MAX_AGE, MAX_AHEAD
from common.metric import Mark, Metric, Sample, gauge
from common.records.file import NotDue
from common.records.paths import find
from common.records.tail import Identity, Tail, TailedFile, TailLimits
from fleetgauge.records import SCHEMA_VERSION, Event, Json, identity


class UnusableRecordError(Exception):  # it is counted, never reported
    """A line that is JSON and still no record; the message is the reason it is counted under."""


class Envelope(NamedTuple):
    """What every record says of itself. `run` tells writers apart; `job` is empty where it is not known."""

    run: str
    timestamp: float
    event: Event
    job: str
    rank: str | None


def envelope(value: Json, kind: str) -> Envelope | None:
    """The envelope of a record; None for another kind's."""
    if "schema_version" not in value:
        raise UnusableRecordError("not_a_record")
    if value.get("kind") != kind:
        return None
    version = value["schema_version"]
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise UnusableRecordError("unknown_schema_version")
    known = identity(value)
    event = value.get("event")
    if known is None or event not in tuple(Event):
        raise UnusableRecordError("not_a_record")
    rank = value.get("rank")
    return Envelope(
        run=known[0],
        timestamp=timestamp(value),
        event=Event(event),
        job=text(value, "job"),
        rank=None if rank is None else str(rank)[:20],
    )


def text(value: Json, key: str) -> str:
    """What a field says, cut to the length of a tag; empty where it is absent."""
    said = value.get(key)
    return "" if said is None else str(said)[:200]


def timestamp(value: Json) -> float:
    """Seconds since the epoch, from a number or from ISO 8601, which is UTC where it does not say."""
    stamp = value.get("timestamp")
    if isinstance(stamp, str):
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            raise UnusableRecordError("bad_timestamp") from None
        stamp = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not math.isfinite(stamp):
        raise UnusableRecordError("bad_timestamp")
    if not 0 < stamp < 2**33:
        raise UnusableRecordError("bad_timestamp")
    return float(stamp)


def bucket_end(timestamp: float, width: int = 1) -> int:
    """When the bucket of a time is over: its second, where no wider one is asked for."""
    return (int(timestamp) // width + 1) * width


class Window(NamedTuple):
    """Which times a tick can send: what was over by `due`, and lies between `oldest` and `furthest`."""

    due: int
    oldest: int
    furthest: float

    def may_grow(self, timestamp: float, width: int = 1) -> bool:
        """Whether more may still be written of that second, or of the bucket of a width that it is in."""
        return bucket_end(timestamp, width) > self.due and timestamp <= self.furthest

    def refuses(self, timestamp: float) -> str | None:
        """Why a point of that time cannot be sent; None where it can."""
        if timestamp < self.oldest:
            return "too_old"
        return "in_future" if timestamp > self.furthest else None


@dataclass(frozen=True)
class Tick:
    """One reading of the files: which times it takes, and which files it looks into.

    A pass of a replay is a tick whose time lies in the past: what its files hold of later times is not due
    yet, and waits. `now` is the machine's time all the same, because files' own times are told by that.
    """

    window: Window
    now: int
    forget_after: int  # files that nobody wrote to for so long are neither read nor remembered
    not_due: NotDue = field(default_factory=NotDue)
    live: bool = True

    @classmethod
    def at(cls, now: int, settle: int, forget_after: int) -> Tick:
        """The tick of this moment: it takes what the intake does, but for the last `settle` seconds."""
        return cls(Window(now - settle, now - MAX_AGE, now + MAX_AHEAD), now, forget_after)

    def window_of(self, file: TailedFile) -> Window:
        """The times that can be sent of one file.

        In a replay what comes later is no sign of a wrong clock, unless it is later than the last write.
        """
        if self.live:
            return self.window
        return self.window._replace(furthest=min(self.window.furthest, file.written + MAX_AHEAD))

    def tail(
        self,
        patterns: Sequence[str],
        state: Mapping[str, object],
        bytes_per_tick: int,
        enough: Callable[[], bool],
        *,
        identity: Identity | None = None,
        family: Callable[[str], str] = str,
    ) -> Tail:
        """The files of this tick. A replay also reads what is of one family with a file that it must read."""
        return Tail(
            patterns,
            state,
            now=self.now,
            limits=TailLimits(bytes_per_tick, expire_after=self.forget_after),
            identity=identity,
            enough=enough,
            family=str if self.live else family,
            due=self.window.due,
            not_due=self.not_due,
        )


def in_batches(samples: Iterable[Sample]) -> Iterator[Sample | Mark]:
    """Samples that are all of their series and second, with marks between them that change nothing.

    Delivery holds back what no mark stands behind; what is delivered before the state is saved is sent again.
    """
    for number, sample in enumerate(samples, 1):
        yield sample
        if number % BATCH_SIZE == 0:
            yield Mark({})


class IngestMetrics:
    """The metrics of a collector's own reading, named `<prefix>.ingest.…`."""

    def __init__(self, prefix: str) -> None:
        def declared(name: str, unit: str, meaning: str) -> Metric:
            return gauge(f"{prefix}.ingest.{name}", unit, meaning)

        self._files = declared("files", "file", "Files that the configured paths stand for.")
        self._records = declared("records", "record", "Records read in this tick.")
        self._bad_records = declared("bad_records", "record", "Lines of this tick that could not be used.")
        self._bytes = declared("bytes", "byte", "Bytes read in this tick.")
        self._backlog = declared(
            "backlog_bytes", "byte", "Bytes left for the next tick: this one had its share."
        )
        self._lag = declared(
            "lag_seconds", "second", "How long the oldest file with a backlog has waited; 0 without one."
        )
        self.metrics = (
            *(self._files, self._records, self._bad_records),
            *(self._bytes, self._backlog, self._lag),
        )

    def samples(self, tail: Tail, unusable: int, now: int) -> Iterator[Sample]:
        """How a tick's reading went, once it is over; `unusable` lines were objects and still no records."""
        yield self._files(tail.files_found, now)
        yield self._records(tail.taken - unusable, now)
        yield self._bad_records(sum(tail.damage.values()) + unusable, now)
        yield self._bytes(tail.bytes, now)
        yield self._backlog(tail.backlog_bytes, now)
        yield self._lag(0 if tail.waiting_since is None else max(0.0, now - tail.waiting_since), now)


def look_into(variable: str, paths: Sequence[str]) -> str:
    """How many files the paths that a variable configures stand for; raises where one cannot be entered."""
    found = find(paths)
    for path, why in found.unreadable:
        raise ConfigurationError(f"{variable}: cannot look into {path}: {why}")
    return f"{', '.join(paths)}: {len(found.files)} files"
