"""What a line of a xenna file says: a record of ours, or the older plain form without run and number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from common.records.envelope import UnusableRecordError, envelope, text, timestamp
from common.records.tail import Entry
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
    value = entry.value
    if "schema_version" in value:
        return _record(entry)
    if isinstance(value.get("metrics"), dict) and "timestamp" in value:
        kind, run_hash = text(value, "pipeline_kind"), text(value, "run_hash")
        run = f"plain:{head}:{kind}:{run_hash}"
        return Record(run, timestamp(value), _tags(kind, run_hash), kind, value["metrics"], plain=True)
    raise UnusableRecordError("not_a_record", "metrics", value.get("metrics"))


def _record(entry: Entry) -> Record | None:
    value, known = entry.value, envelope(entry, KIND)
    if known is None:
        return None
    kind, metrics = text(value, "pipeline_kind"), value.get("metrics")
    return Record(
        writer=known.run,
        timestamp=known.timestamp,
        group=_tags(kind, text(value, "run_hash"), known.rank or ""),
        pipeline_kind=kind,
        metrics=metrics if isinstance(metrics, dict) else {},
        ended_well=value.get("status") == "ok" if known.event is Event.END else None,
    )


def _tags(kind: str, run_hash: str, rank: str = "") -> tuple[str, ...]:
    named = (("pipeline_kind", kind), ("rank", rank), ("run_hash", run_hash))
    return tuple(f"{name}:{value}" for name, value in named if value)
