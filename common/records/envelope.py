"""The fields that every kind of record shares, and why a line is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple, TypeGuard

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
    """The fields that every record has. `run` names the writer; `job` is empty where it is not known."""

    run: str
    seq: int
    timestamp: float
    event: Event
    job: str
    rank: str | None


def envelope(value: Json, kind: str) -> Envelope | None:
    """Return the envelope of a record, None for another kind's; UnusableRecordError where there is none."""
    if "schema_version" not in value:
        raise UnusableRecordError("not_a_record", "schema_version")
    if value.get("kind") != kind:
        return None
    version = value["schema_version"]
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise UnusableRecordError("unknown_schema_version", "schema_version", version)
    known = identity(value)
    if known is None:
        raise UnusableRecordError("not_a_record", "run_id, seq", (value.get("run_id"), value.get("seq")))
    event = value.get("event")
    if not isinstance(event, str) or event not in _EVENTS:
        raise UnusableRecordError("not_a_record", "event", event)
    rank, stamp = value.get("rank"), value.get("timestamp")
    at = stamp if type(stamp) is float and 0 < stamp < MAX_TIME else timestamp(value)
    named = None if rank is None else str(rank)[:20]
    return Envelope(*known, at, _EVENTS[event], text(value, "job"), named)


def identity(value: Json) -> tuple[str, int] | None:
    """Return the run (with the rank) and the number of a record, equal in all copies; None without them."""
    run_id, seq, rank = value.get("run_id"), value.get("seq"), value.get("rank")
    if not isinstance(run_id, str) or not 0 < len(run_id) <= MAX_TEXT:
        return None
    if type(seq) is not int or not 0 <= seq < MAX_NUMBER:
        return None
    if rank is None:
        return run_id, seq
    if type(rank) is int and -MAX_NUMBER < rank < MAX_NUMBER:
        return f"{run_id}/{rank}", seq
    return (f"{run_id}/{str(rank)[:20]}", seq) if isinstance(rank, str | float | bool) else None


def text(value: Json, key: str) -> str:
    """Return a field as text, cut to the length of a tag; empty where it is absent."""
    found = value.get(key)
    if type(found) is str and len(found) <= MAX_TEXT:
        return found
    return "" if found is None else str(found)[:MAX_TEXT]


def timestamp(value: Json) -> float:
    """Return seconds since the epoch, from a number or from ISO 8601 (UTC where it names no zone)."""
    stamp = value.get("timestamp")
    if isinstance(stamp, str):
        try:
            date = datetime.fromisoformat(stamp)
            stamp = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
    if is_number(stamp) and 0 < stamp < MAX_TIME:  # NaN is not
        return float(stamp)
    raise UnusableRecordError("bad_timestamp", "timestamp", stamp)


def time_of(value: Json) -> float | None:
    """Return the time of a record; None where it has none."""
    try:
        return timestamp(value)
    except UnusableRecordError:
        return None


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, finite or not; booleans are not."""
    return type(value) in (int, float)
