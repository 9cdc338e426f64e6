"""Records as a test wants them, in a folder that a collector reads as a live run would."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.errors import FleetgaugeError
from common.outcome import Report
from common.window import Window
from fleetgauge.data_plane import OperationTotals
from fleetgauge.data_plane.sinks import operations_body
from support.record_fleets import STEP, Points
from support.record_runs import Ran, Runs

NOW = 1_794_790_800  # a tick: a run without state answers for [NOW - 960, NOW - 60)
GIB = 2**30

Json = dict[str, Any]
Short = dict[tuple[str, tuple[str, ...], int], float]  # by name, tags and seconds before NOW


class Folder(Runs):
    """A folder of records and the runs of a collector over it, the first at NOW."""

    def __init__(self, kind: str, path: Path, *, store: bool = True, **settings: str) -> None:
        super().__init__(kind, path, settings, store=store)
        self.kind = kind
        self.path = path

    def write(self, *records: Mapping[str, Any] | bytes, to: str = "", modified: float = NOW) -> Path:
        """Append records, or lines as they are, to a file that was last written at a time."""
        path = self.path / (to or ("sink/segment-000001.jsonl" if self.kind == "gpu_memory" else "a.jsonl"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for record in records:
                file.write((record if isinstance(record, bytes) else json.dumps(record).encode()) + b"\n")
        os.utime(path, (modified, modified))
        return path

    def tick(self, now: int = NOW) -> Ran:
        """Run once; what was lost or dropped is in the report."""
        return self.run(now)

    def dry_run(self, now: int = NOW) -> Report:
        """Read what a push stored, but answer for the tick as if none had been sent; return the report."""
        window = self.collector.due(self.settings, now, STEP, None, now - 3600)
        context = self._context(window, now, json.loads(self._memory))
        list(self.collector.collect(context))
        return context.report

    def check(self, now: int = NOW) -> list[str | FleetgaugeError]:
        """Return what `--check` finds."""
        assert self.collector.check
        return list(self.collector.check(self._context(Window(now - 900, now, 900), now, {})))

    def damage_memory(self, value: object) -> None:
        """Replace each part of what the last run remembered."""
        self._memory = json.dumps(dict.fromkeys(json.loads(self._memory), value))

    def points_at(self, now: int = NOW) -> Short:
        """Run once, and return its points without those about the present and the reading."""
        return {key: value for key, value in self.short(self.run(now).sent).items() if key[2] > NOW - now}

    def short(self, points: Points) -> Short:
        """Return points by name without the kind, tags, and seconds before NOW."""
        return {
            (name.removeprefix(f"{self.kind}."), tags, NOW - at): value
            for (name, tags, _, at), value in points.items()
        }


def named(points: Short, name: str) -> dict[tuple[tuple[str, ...], int], float]:
    """Return the points of one metric, by tags and seconds ago."""
    return {(tags, ago): value for (found, tags, ago), value in points.items() if found == name}


def envelope(kind: str, seq: int, ago: float, body: Mapping[str, Any]) -> Json:
    """Return a record: the fields that all have, and a body, which may replace them."""
    head = {"schema_version": 1, "kind": kind, "event": "stats", "run_id": "r1", "seq": seq}
    return {**head, "timestamp": NOW - ago, "host": "node-1", "pid": 7, **body}


def xenna(seq: int, ago: float, metrics: Mapping[str, Any] | None = None, **more: Any) -> Json:
    """Return a record of a pipeline."""
    body: Json = {"pipeline_kind": "curate", "run_hash": "abc", "stages": [], "xenna_version": "0.5.12"}
    body["metrics"] = {"progress": 50.0} if metrics is None else dict(metrics)
    return envelope("xenna", seq, ago, body | more)


def operations(
    seq: int, ago: float, *calls: tuple[int, int, float], rank: int | None = 0, **more: Any
) -> Json:
    """Return a record of some calls of a data-plane client, each of them (keys, bytes, wall_ms)."""
    totals = OperationTotals()
    for call in calls or [(2, 8, 1.0)]:
        totals.add(*call)
    named = {"op": "put", "partition_id": "p", "status": "ok", **operations_body(totals)}
    return envelope("data_plane", seq, ago, _client(rank) | named | more)


def outstanding(
    seq: int, ago: float, by_partition: Mapping[str, int], rank: int | None = 0, **more: Any
) -> Json:
    """Return what a client has put and not cleared, as the only one of its job that writes."""
    body = {
        "sole_writer": True,
        "bytes_outstanding": dict(by_partition),
        "peak_bytes_outstanding": 100,
        "keys_outstanding": 5,
    }
    return envelope("data_plane", seq, ago, _client(rank) | body | more)


def _client(rank: int | None) -> Json:
    return {"job": "ants", "run_id": f"run-{rank}", **({} if rank is None else {"rank": rank})}


def event(ago: float, allocated: int | None = GIB, kind: str = "sample", **more: Any) -> Json:
    """Return an event of GPU memory."""
    return {
        "schema_version": 4,
        "event_type": kind,
        "timestamp_ns": round((NOW - ago) * 1_000_000_000),
        "session_id": "s1",
        "job_id": "j1",
        "rank": 0,
        "host": "node-1",
        "device_id": 0,
        "allocator_allocated_bytes": allocated,
        "allocator_reserved_bytes": 2 * GIB,
        "device_used_bytes": 4 * GIB,
        "device_total_bytes": 16 * GIB,
        **more,
    }


def _of_xenna(writer: str, number: int, at: float) -> Json:
    metrics = {"progress": number + 0.5, "stage/a/queue_in": number, "cluster/total_cpus": 8.0}
    return xenna(number, NOW - at, metrics, run_id=writer, run_hash=writer)


def _of_data_plane(writer: str, number: int, at: float) -> Json:
    return operations(number, NOW - at, (1, number, 2.0), run_id=writer, job=writer)


def _of_gpu_memory(writer: str, number: int, at: float) -> Json:
    return event(
        NOW - at, number, "warning" if number % 5 == 0 else "sample", session_id=writer, job_id=writer
    )


# A record of each kind by its writer, its number and its time.
MAKERS: Mapping[str, Callable[[str, int, float], Json]] = {
    "xenna": _of_xenna,
    "gpu_memory": _of_gpu_memory,
    "data_plane": _of_data_plane,
}
