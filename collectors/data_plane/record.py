"""The records of data-plane files: operations of one interval, or what a client has outstanding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from common.records.envelope import MAX_NUMBER, UnusableRecordError, envelope, text
from fleetgauge.data_plane import BUCKET_ENDS_MS
from fleetgauge.records import Json

NAME = "data_plane"

_BUCKETS = {str(index): index for index in range(len(BUCKET_ENDS_MS) + 1)}
_NUMBERS = {int, float}
_INTEGERS = {int}


class Calls(NamedTuple):
    """How many calls succeeded, failed and timed out; of those that succeeded also what they moved and took.

    Times are in milliseconds; `buckets` counts calls by the index of their time in the histogram.
    """

    succeeded: int
    errors: int
    timeouts: int
    keys: int
    bytes: int
    total_time: float
    shortest: float
    longest: float
    buckets: dict[int, int]

    def plus(self, other: Calls) -> Calls:
        """Return both together."""
        buckets = dict(self.buckets)
        for index, number in other.buckets.items():
            buckets[index] = buckets.get(index, 0) + number
        timed = [calls for calls in (self, other) if calls.succeeded]
        return Calls(
            self.succeeded + other.succeeded,
            self.errors + other.errors,
            self.timeouts + other.timeouts,
            self.keys + other.keys,
            self.bytes + other.bytes,
            self.total_time + other.total_time,
            min((calls.shortest for calls in timed), default=0.0),
            max((calls.longest for calls in timed), default=0.0),
            buckets,
        )


class Operations(NamedTuple):
    """Calls of one operation on one partition."""

    writer: str
    seq: int
    timestamp: float
    job: str
    rank: str
    op: str
    partition_id: str
    calls: Calls


class Outstanding(NamedTuple):
    """What a client has put and not cleared; of the job only where it is the `sole_writer`.

    `doubts` are keys since the record before: cleared and not outstanding there, and given up.
    """

    writer: str
    seq: int
    timestamp: float
    job: str
    rank: str
    sole_writer: bool
    peak_bytes: int
    keys: int
    bytes_by_partition: Mapping[str, int]
    doubts: tuple[int, int] | None


Record = Operations | Outstanding


def parse(value: Json) -> Record | None:
    """Return the record that an object is, None for another kind's; UnusableRecordError otherwise."""
    known = envelope(value, NAME)
    if known is None:
        return None
    run, seq, timestamp, _, job, rank = known
    if "op" in value:
        op = text(value, "op")
        if not op:
            raise UnusableRecordError("bad_body", "op", value["op"])
        partition_id = text(value, "partition_id")
        return Operations(run, seq, timestamp, job, rank or "", op, partition_id, _calls(value))
    has_client = "bytes_outstanding" in value or "interval_s" not in value
    sole_writer = value.get("sole_writer") is True and has_client
    doubts = None
    if "foreign_clears" in value and "keys_overflowed" in value:
        doubts = (natural(value, "foreign_clears"), natural(value, "keys_overflowed"))
    return Outstanding(
        run,
        seq,
        timestamp,
        job,
        rank or "",
        sole_writer,
        natural(value, "peak_bytes_outstanding") if has_client else 0,
        natural(value, "keys_outstanding") if has_client else 0,
        _by_partition(value.get("bytes_outstanding")) if has_client else {},
        doubts,
    )


def _calls(value: Json) -> Calls:
    """Return the calls that a record counts; numbers that contradict each other are refused."""
    count, keys, n_bytes = natural(value, "count"), natural(value, "keys"), natural(value, "bytes")
    wall_ms, status = value.get("wall_ms"), value.get("status")
    try:
        total, low, high = wall_ms["sum"], wall_ms["min"], wall_ms["max"]  # type: ignore[index]
        buckets: dict[str, int] = wall_ms["buckets"]  # type: ignore[index]
        numbers = buckets.values()
        good = (
            _NUMBERS.issuperset((type(total), type(low), type(high)))
            and _INTEGERS.issuperset(map(type, numbers))
            and min(numbers) >= 0
            and sum(numbers) == count > 0
            and 0 <= low <= high < MAX_NUMBER
            and 0 <= total < MAX_NUMBER
        )
        indexed = {_BUCKETS[index]: number for index, number in buckets.items()}
    except (KeyError, TypeError, AttributeError, ValueError):  # ValueError: there is no bucket
        good = False
    if not good:
        raise UnusableRecordError("bad_body", "count, wall_ms", (count, wall_ms))
    if status == "ok":
        return Calls(count, 0, 0, keys, n_bytes, float(total), float(low), float(high), indexed)
    if status not in ("error", "timeout"):
        raise UnusableRecordError("bad_body", "status", status)
    errors, timeouts = (count, 0) if status == "error" else (0, count)
    return Calls(0, errors, timeouts, 0, 0, 0.0, 0.0, 0.0, {})


def _by_partition(value: object) -> dict[str, int]:
    """Return bytes by partition."""
    if not isinstance(value, dict):
        raise UnusableRecordError("bad_body", "bytes_outstanding", value)
    return {partition_id[:200]: natural(value, partition_id) for partition_id in value}


def natural(value: Json, key: str) -> int:
    """Return a field that is a number of things; UnusableRecordError where it is none."""
    number = value.get(key)
    if type(number) is not int or not 0 <= number < MAX_NUMBER:
        raise UnusableRecordError("bad_body", key, number)
    return number
