"""What a line of a data-plane file says: some operations of one interval, or what a writer holds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from common.records.ingest import Envelope, UnusableRecordError, envelope, text
from fleetgauge.data_plane import BUCKET_ENDS_MS, OperationTotals
from fleetgauge.data_plane.jsonl import KIND
from fleetgauge.records import Json

STATUSES = ("ok", "error", "timeout")
MAX_NUMBER = 2**63  # of any number; sums of them are exact in JSON


class Operations(NamedTuple):
    """Calls of one operation on one partition that ended alike."""

    envelope: Envelope
    op: str
    partition_id: str
    status: str
    totals: OperationTotals


class Held(NamedTuple):
    """What the clients of one source hold; its next word replaces this one, in whichever run it says it."""

    envelope: Envelope
    source: str
    bytes_by_partition: dict[str, int]
    peak_bytes: int
    keys: int


def interpret(value: Json) -> Operations | Held | None:
    """The record a line holds; None for another kind's."""
    known = envelope(value, KIND)
    if known is None:
        return None
    if "op" in value:
        op, status = text(value, "op"), value.get("status")
        if not op or status not in STATUSES:
            raise UnusableRecordError("bad_body")
        return Operations(known, op, text(value, "partition_id"), status, totals_of(value))
    return Held(
        known,
        text(value, "source") or known.run,
        by_partition(value.get("bytes_outstanding")),
        whole(value.get("peak_bytes_outstanding")),
        whole(value.get("keys_outstanding")),
    )


def totals_of(value: Json) -> OperationTotals:
    """The operations a record, or a saved state, tells of; what they say must add up."""
    wall_ms = value.get("wall_ms")
    if not isinstance(wall_ms, dict) or not isinstance(wall_ms.get("buckets"), dict):
        raise UnusableRecordError("bad_body")
    buckets = {_bucket(index): whole(count) for index, count in wall_ms["buckets"].items()}
    totals = OperationTotals(
        count=whole(value.get("count")),
        keys=whole(value.get("keys")),
        bytes=whole(value.get("bytes")),
        wall_ms_sum=_time(wall_ms.get("sum")),
        wall_ms_min=_time(wall_ms.get("min")),
        wall_ms_max=_time(wall_ms.get("max")),
        buckets=buckets,
    )
    if totals.count < 1 or sum(buckets.values()) != totals.count or totals.wall_ms_min > totals.wall_ms_max:
        raise UnusableRecordError("bad_body")
    return totals


def by_partition(value: object) -> dict[str, int]:
    """Bytes by partition."""
    if not isinstance(value, dict):
        raise UnusableRecordError("bad_body")
    return {str(partition_id)[:200]: whole(n_bytes) for partition_id, n_bytes in value.items()}


def whole(value: Any) -> int:  # Any: parsed JSON
    """A number of things."""
    if type(value) is not int or not 0 <= value < MAX_NUMBER:
        raise UnusableRecordError("bad_body")
    return value


def _bucket(index: str) -> int:
    if not (index.isascii() and index.isdecimal() and int(index) <= len(BUCKET_ENDS_MS)):
        raise UnusableRecordError("bad_body")
    return int(index)


def _time(value: Any) -> float:  # Any: parsed JSON
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value < MAX_NUMBER:
        raise UnusableRecordError("bad_body")
    return float(value)
