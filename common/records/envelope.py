"""What every kind of record says of itself, and how a line is refused. Knows nothing of any kind's body."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple, TypeGuard

from common.records.entry import Entry
from common.records.saved import MAX_TIME
from fleetgauge.records import SCHEMA_VERSION, Event, Json

MAX_NUMBER = 2**63  # of any whole number; sums of them are exact in JSON
MAX_TEXT = 200

_EVENTS = {str(event): event for event in Event}


class UnusableRecordError(Exception):  # it is counted, never reported
    """A line that is JSON and still no record: the reason it is counted under, and which field it was."""

    def __init__(self, reason: str, key: str = "", value: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.key = key
        self.value = value


class Envelope(NamedTuple):
    """What every record says of itself. `run` tells writers apart; `job` is empty where it is not known."""

    run: str
    timestamp: float
    event: Event
    job: str
    rank: str | None


def envelope(entry: Entry, kind: str) -> Envelope | None:
    """The envelope of a record; None for another kind's."""
    value, known = entry.value, entry.identity
    if "schema_version" not in value:
        raise UnusableRecordError("not_a_record", "schema_version")
    if value.get("kind") != kind:
        return None
    version = value["schema_version"]
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise UnusableRecordError("unknown_schema_version", "schema_version", version)
    if known is None:
        raise UnusableRecordError("not_a_record", "run_id, seq", (value.get("run_id"), value.get("seq")))
    event = value.get("event")
    if not isinstance(event, str) or event not in _EVENTS:
        raise UnusableRecordError("not_a_record", "event", event)
    rank = value.get("rank")
    told = None if rank is None else str(rank)[:20]
    return Envelope(known[0], timestamp(value), _EVENTS[event], text(value, "job"), told)


def text(value: Json, key: str) -> str:
    """What a field says, cut to the length of a tag; empty where it is absent."""
    said = value.get(key)
    if type(said) is str and len(said) <= MAX_TEXT:
        return said
    return "" if said is None else str(said)[:MAX_TEXT]


def timestamp(value: Json) -> float:
    """Seconds since the epoch, from a number or from ISO 8601, which is UTC where it does not say."""
    stamp = value.get("timestamp")
    if isinstance(stamp, str):
        try:
            moment = datetime.fromisoformat(stamp)
            stamp = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
    if is_number(stamp) and 0 < stamp < MAX_TIME:  # which not a number is not, either
        return float(stamp)
    raise UnusableRecordError("bad_timestamp", "timestamp", stamp)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is one, finite or not; true and false are none."""
    return type(value) in (int, float)
