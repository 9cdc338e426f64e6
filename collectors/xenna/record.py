"""What a line of a xenna file says: a record of ours, or the older plain form without run and number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from collectors.xenna.metrics import RUN_TAGS
from common.records.entry import Entry
from common.records.envelope import UnusableRecordError, envelope, text, timestamp
from fleetgauge.records import Event

KIND = "xenna"


class Record(NamedTuple):
    """One record. `writer` tells runs apart, `group` is a run's tags; only an end tells `ended_well`."""

    writer: str
    timestamp: float
    group: tuple[str, ...]
    pipeline_kind: str
    metrics: Mapping[str, Any]  # Any: each value is judged alone
    plain: bool = False
    ended_well: bool | None = None


def interpret(entry: Entry, head: str) -> Record | None:
    """The record a line holds; None for another kind's. `head` tells plain runs of different files apart."""
    value, metrics = entry.value, entry.value.get("metrics")
    kind, run_hash = text(value, "pipeline_kind"), text(value, "run_hash")
    if "schema_version" in value:
        known = envelope(entry, KIND)
        if known is None:
            return None
        run, at, event, _, rank = known
        ended_well = value.get("status") == "ok" if event is Event.END else None
        metrics = metrics if isinstance(metrics, dict) else {}
        return Record(run, at, _tags(kind, rank, run_hash), kind, metrics, ended_well=ended_well)
    if isinstance(metrics, dict) and "timestamp" in value:
        run = f"plain:{head}:{kind}:{run_hash}"
        return Record(run, timestamp(value), _tags(kind, None, run_hash), kind, metrics, plain=True)
    raise UnusableRecordError("not_a_record", "metrics", metrics)


def _tags(*values: str | None) -> tuple[str, ...]:
    return tuple(f"{name}:{value}" for name, value in zip(RUN_TAGS, values, strict=True) if value)
