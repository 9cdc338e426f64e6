"""The fields that every kind of record shares, and why a line is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from common.times import EARLIEST
from fleetgauge.records import SCHEMA_VERSION, Event, Json

MAX_TIME = 2**33  # seconds since the epoch
MAX_NUMBER = 2**63  # of any integer
MAX_TEXT = 200

_EVENTS = {str(event): event for event in Event}


class UnusableRecordError(Exception):  # it is counted, never reported
    """A line that is JSON and still no record: the reason it is counted under, and which field is wrong."""

    def __init__(self, reason: str, key: str = "", value: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key
        self.value = value


class Envelope(NamedTuple):
    """What is known of any record. The name of its writer is the run and, where there is one, the rank.

    `job` is empty where it is not known. Copies of a record have the same `writer` and `seq`; of records
    without a `seq` a copy makes no difference.
    """

    writer: str
    seq: int | None
    timestamp: float
    event: Event | None = None
    job: str = ""
    rank: str = ""


def envelope(value: Json, kind: str) -> Envelope | None:
    """Return the envelope of a record, None for another kind's; UnusableRecordError where there is none."""
    if "schema_version" not in value:
        raise UnusableRecordError("not_a_record", "schema_version")
    if value.get("kind") != kind:
        return None
    version, event = value["schema_version"], value.get("event")
    run, seq, rank = value.get("run_id"), value.get("seq"), value.get("rank")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise UnusableRecordError("unknown_schema_version", "schema_version", version)
    if not isinstance(run, str) or not 0 < len(run) <= MAX_TEXT:
        raise UnusableRecordError("not_a_record", "run_id", run)
    if type(seq) is not int or not 0 <= seq < MAX_NUMBER:
        raise UnusableRecordError("not_a_record", "seq", seq)
    if not isinstance(event, str) or event not in _EVENTS:
        raise UnusableRecordError("not_a_record", "event", event)
    if isinstance(rank, (list, dict)):
        raise UnusableRecordError("not_a_record", "rank", rank)
    rank = text(value, "rank")
    writer = f"{run}/{rank}" if rank else run
    fields = (writer, seq, timestamp(value), _EVENTS[event], text(value, "job"), rank)
    return tuple.__new__(Envelope, fields)  # half the time of the constructor, and each record needs it


def text(value: Json, key: str) -> str:
    """Return a field as text, cut to the length of a tag; empty where it is absent."""
    found = value.get(key)
    return "" if found is None else str(found)[:MAX_TEXT]


def timestamp(value: Json) -> float:
    """Return the time of a record; UnusableRecordError where it has none."""
    time = time_of(value)
    if time is None:
        raise UnusableRecordError("bad_timestamp", "timestamp", value.get("timestamp"))
    return time


def time_of(value: Json) -> float | None:
    """Return seconds since the epoch, from a number or from ISO 8601 (UTC where it names no zone)."""
    stamp: Any = value.get("timestamp")  # Any: parsed JSON
    if isinstance(stamp, str):
        try:
            date = datetime.fromisoformat(stamp)
            stamp = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    # NaN is not in it, nor is a time from a clock that was not set.
    return float(stamp) if type(stamp) in (int, float) and EARLIEST <= stamp < MAX_TIME else None
