"""What a line of a xenna file says: a record of ours, or the older plain form without run and number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from common.records.ingest import UnusableRecordError, envelope, text, timestamp
from fleetgauge.records import Event, Json

KIND = "xenna"


class Record(NamedTuple):
    """One record. `run` tells runs apart; `ended_well` is None unless this is the run's end."""

    run: str
    timestamp: float
    pipeline_kind: str
    run_hash: str
    rank: str | None
    metrics: Mapping[str, Any]  # Any: each value is judged alone
    plain: bool = False
    ended_well: bool | None = None

    def tags(self) -> dict[str, str]:
        """The tags that tell this run's series from others'."""
        named = {"pipeline_kind": self.pipeline_kind, "run_hash": self.run_hash, "rank": self.rank or ""}
        return {key: value for key, value in named.items() if value}


def interpret(value: Json, head: str) -> Record | None:
    """The record a line holds; None for another kind's. `head` tells plain runs of different files apart."""
    if "schema_version" in value:
        return _record(value)
    if isinstance(value.get("metrics"), dict) and "timestamp" in value:
        kind, run_hash = text(value, "pipeline_kind"), text(value, "run_hash")
        run = f"plain:{head}:{kind}:{run_hash}"
        return Record(run, timestamp(value), kind, run_hash, None, value["metrics"], plain=True)
    raise UnusableRecordError("not_a_record")


def _record(value: Json) -> Record | None:
    known = envelope(value, KIND)
    if known is None:
        return None
    metrics = value.get("metrics")
    return Record(
        run=known.run,
        timestamp=known.timestamp,
        pipeline_kind=text(value, "pipeline_kind"),
        run_hash=text(value, "run_hash"),
        rank=known.rank,
        metrics=metrics if isinstance(metrics, dict) else {},
        ended_well=value.get("status") == "ok" if known.event is Event.END else None,
    )
