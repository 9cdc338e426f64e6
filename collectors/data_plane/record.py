"""What a line of a data-plane file says: some operations of one interval, or what a writer holds."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from common.records.entry import Entry
from common.records.envelope import MAX_NUMBER, UnusableRecordError, envelope, text
from common.records.saved import Number, Whole
from fleetgauge.data_plane import BUCKET_ENDS_MS
from fleetgauge.data_plane.jsonl import KIND
from fleetgauge.records import Json

BUCKETS = {str(index): index for index in range(len(BUCKET_ENDS_MS) + 1)}

# Operations that add up: how many succeeded, their keys and bytes; the sum of their times, the shortest, the
# longest, and how many there are in each bucket of times; then how many failed, and how many timed out.
# Without an operation: how many keys were cleared that nobody had put, and how many given up.
Totals = tuple[Whole, Number, Number, Number, Number, Number, dict[str, Whole], Whole, Whole]
NONE = (0, 0, 0, 0.0, 0.0, 0.0)
_NUMBERS = {int, float}


class Operations(NamedTuple):
    """Calls of one operation on one partition that ended alike; `group` is the writer's job and rank."""

    writer: str
    timestamp: float
    group: tuple[str, ...]
    op: str
    partition_id: str
    totals: Totals


class Held(NamedTuple):
    """What the clients of one source hold; its next word replaces this one, in whichever run it says it."""

    writer: str
    timestamp: float
    group: tuple[str, str]
    source: str
    writes: bool  # has put, cleared or registered
    unknown: str | None  # why this is not what the job holds; None of one that cannot tell
    peak_bytes: int
    keys: int
    bytes_by_partition: dict[str, int] | None  # None of a source that has no client
    foreign_clears: int | None  # keys since the word before; None where it is not told, as the next
    keys_overflowed: int | None

    @property
    def proves(self) -> bool:
        """Whether it tells figures, and that they are those of the job."""
        return self.writes and self.unknown == "" and self.bytes_by_partition is not None


def interpret(entry: Entry) -> Operations | Held | None:
    """The record a line holds; None for another kind's."""
    value, known = entry.value, envelope(entry, KIND)
    if known is None:
        return None
    run, timestamp, _, job, rank = known
    group = (job, rank or "")
    if "op" in value:
        op = text(value, "op")
        if not op:
            raise UnusableRecordError("bad_body", "op", value["op"])
        return Operations(run, timestamp, group, op, text(value, "partition_id"), _totals(value))
    has_client = "bytes_outstanding" in value or "source" not in value
    return Held(
        run,
        timestamp,
        group,
        text(value, "source") or run,
        value.get("writes") is True,
        text(value, "unknown") if "unknown" in value else None,
        whole(value, "peak_bytes_outstanding") if has_client else 0,
        whole(value, "keys_outstanding") if has_client else 0,
        _by_partition(value.get("bytes_outstanding")) if has_client else None,
        _counted(value, "foreign_clears"),
        _counted(value, "keys_overflowed"),
    )


def _counted(value: Json, key: str) -> int | None:
    return whole(value, key) if key in value else None


def _totals(value: Json) -> Totals:
    """The operations a record tells of; what it says must add up."""
    count, keys, n_bytes = whole(value, "count"), whole(value, "keys"), whole(value, "bytes")
    wall_ms, status = value.get("wall_ms"), value.get("status")
    try:
        total, low, high = wall_ms["sum"], wall_ms["min"], wall_ms["max"]  # type: ignore[index]
        buckets: dict[str, int] = wall_ms["buckets"]  # type: ignore[index]
        numbers = buckets.values()
        good = {type(total), type(low), type(high)} <= _NUMBERS and set(map(type, numbers)) == {int}
        good = good and buckets.keys() <= BUCKETS.keys() and min(numbers) >= 0 and sum(numbers) == count
        good = good and 0 <= low <= high < MAX_NUMBER and 0 <= total < MAX_NUMBER and count > 0
    except (KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise UnusableRecordError("bad_body", "count, wall_ms", (count, wall_ms))
    if status == "ok":
        return (count, keys, n_bytes, float(total), float(low), float(high), buckets, 0, 0)
    if status not in ("error", "timeout"):
        raise UnusableRecordError("bad_body", "status", status)
    return (*NONE, {}, *((count, 0) if status == "error" else (0, count)))


def plus(one: Totals, other: Totals) -> Totals:
    """Both together."""
    buckets = dict(one[6])
    for index, count in other[6].items():
        buckets[index] = buckets.get(index, 0) + count
    if one[0] and other[0]:
        low, high = min(one[4], other[4]), max(one[5], other[5])
    else:
        low, high = (one if one[0] else other)[4:6]
    return (
        *(one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3], low, high),
        *(buckets, one[7] + other[7], one[8] + other[8]),
    )


def _add_up(totals: Totals) -> Totals:
    """Refuse saved totals that contradict themselves."""
    if not totals[6].keys() <= BUCKETS.keys() or sum(totals[6].values()) != totals[0]:
        raise ValueError("not totals")
    return totals


SavedTotals = Annotated[Totals, AfterValidator(_add_up)]


def _by_partition(value: object) -> dict[str, int]:
    """Bytes by partition."""
    if not isinstance(value, dict):
        raise UnusableRecordError("bad_body", "bytes_outstanding", value)
    return {partition_id[:200]: whole(value, partition_id) for partition_id in value}


def whole(value: Json, key: str) -> int:
    """A number of things."""
    number = value.get(key)
    if type(number) is not int or not 0 <= number < MAX_NUMBER:
        raise UnusableRecordError("bad_body", key, number)
    return number
