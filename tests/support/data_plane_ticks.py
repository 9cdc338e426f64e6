"""Records of a data plane as a test wants them, and what the collector makes of them tick by tick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collectors.data_plane.collector import COLLECTOR
from fleetgauge.data_plane import OperationTotals
from fleetgauge.data_plane.jsonl import body_of
from support.xenna_ticks import NOW, Points, Ticks

START = NOW // 60 * 60 - 120  # of a bucket


class DataPlaneTicks(Ticks):
    collector = COLLECTOR


def envelope(seq: int, ago: float, rank: int | None = 0, **more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "kind": "data_plane",
        "event": "stats",
        "run_id": f"run-{rank}",
        "seq": seq,
        "timestamp": NOW - ago,
        "host": "node-1",
        "pid": 7,
        "job": "ants",
        **({} if rank is None else {"rank": rank}),
        **more,
    }


def added_up(*calls: tuple[int, int, float]) -> OperationTotals:
    first, *rest = (OperationTotals.of_one(*call) for call in calls)
    return sum(rest, start=first)


def operations(
    seq: int, ago: float, *calls: tuple[int, int, float], rank: int | None = 0, **more: Any
) -> dict[str, Any]:
    """A record of some calls, each of them (keys, bytes, wall_ms)."""
    named = {"op": "put", "partition_id": "p", "status": "ok"} | body_of(added_up(*calls or [(2, 8, 1.0)]))
    return envelope(seq, ago, rank, **(named | more))


def held(
    seq: int, ago: float, by_partition: Mapping[str, int], rank: int | None = 0, **more: Any
) -> dict[str, Any]:
    """What the only client of a job holds, unless told otherwise."""
    outstanding = {
        "writes": True,
        "unknown": "",
        "bytes_outstanding": dict(by_partition),
        "peak_bytes_outstanding": 100,
        "keys_outstanding": 5,
    }
    return envelope(seq, ago, rank, **(outstanding | more))


def short(points: Points) -> dict[tuple[str, tuple[str, ...], int], float]:
    """What is of the data plane itself, with names cut short and times in seconds ago."""
    return {
        (name.removeprefix("data_plane."), tags, NOW - at): value
        for (name, tags, at), value in points.items()
        if ".ingest." not in name
    }


def the(points: Points, name: str) -> dict[tuple[tuple[str, ...], int], float]:
    return {(tags, ago): value for (found, tags, ago), value in short(points).items() if found == name}
