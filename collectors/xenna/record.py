"""What a line of a xenna file says: a record of ours, or the older plain form without run and number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fleetgauge.records import SCHEMA_VERSION, Event, Json, identity

KIND = "xenna"


class Unusable(Exception):  # noqa: N818  # it is counted, never reported
    """A line that is JSON and still no record; the message is the reason it is counted under."""


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
        kind, run_hash = _text(value, "pipeline_kind"), _text(value, "run_hash")
        run = f"plain:{head}:{kind}:{run_hash}"
        return Record(run, _timestamp(value), kind, run_hash, None, value["metrics"], plain=True)
    raise Unusable("not_a_record")


def _record(value: Json) -> Record | None:
    if value.get("kind") != KIND:
        return None
    version = value["schema_version"]
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise Unusable("unknown_schema_version")
    known = identity(value)
    event = value.get("event")
    if known is None or event not in tuple(Event):
        raise Unusable("not_a_record")
    metrics = value.get("metrics")
    rank = value.get("rank")
    return Record(
        run=known[0],
        timestamp=_timestamp(value),
        pipeline_kind=_text(value, "pipeline_kind"),
        run_hash=_text(value, "run_hash"),
        rank=None if rank is None else str(rank)[:20],
        metrics=metrics if isinstance(metrics, dict) else {},
        ended_well=value.get("status") == "ok" if event == Event.END else None,
    )


def _text(value: Json, key: str) -> str:
    text = value.get(key)
    return "" if text is None else str(text)[:200]


def _timestamp(value: Json) -> float:
    """Seconds since the epoch, from a number or from ISO 8601, which is UTC where it does not say."""
    stamp = value.get("timestamp")
    if isinstance(stamp, str):
        try:
            moment = datetime.fromisoformat(stamp)
        except ValueError:
            raise Unusable("bad_timestamp") from None
        stamp = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not math.isfinite(stamp):
        raise Unusable("bad_timestamp")
    if not 0 < stamp < 2**33:
        raise Unusable("bad_timestamp")
    return float(stamp)
