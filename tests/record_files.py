"""Records of a busy quarter of an hour, of the three kinds that collectors tail."""

from __future__ import annotations

import json
import time
from pathlib import Path

from fleetgauge.data_plane import OperationTotals
from fleetgauge.data_plane.jsonl import body_of
from fleetgauge.records import RecordWriter

STEP = 10  # seconds between records
SPAN = 900  # seconds that records go back: those of one tick
STAGE_KEYS = ("actors_ready", "tasks_completed", "queue_in", "queue_out", "speed_tasks_per_s", "slots_used")


def write_records(directory: Path, writers: int) -> None:
    """Records of so many xenna pipelines, GPU jobs and data-plane ranks, in a folder for each collector."""
    now = int(time.time())
    moments = range(now - SPAN, now - 60, STEP)
    for kind in ("xenna", "gpu_memory", "data_plane"):
        (directory / kind).mkdir(parents=True)
    for number in range(writers):
        clock = iter(moments)
        with RecordWriter(
            directory / "xenna", "xenna", run_id=f"run{number}", clock=clock.__next__, queue_size=len(moments)
        ) as writer:
            for second in range(len(moments)):
                writer.write("stats", _pipeline(number, second))
        clock = iter(moments)
        with RecordWriter(
            directory / "data_plane",
            "data_plane",
            run_id=f"rank{number}",
            job="ants",
            rank=number,
            clock=clock.__next__,
            queue_size=len(moments),
        ) as writer:
            for _ in moments:
                writer.write("stats", {"op": "put", "partition_id": "p", "status": "ok", **_calls()})
        sink = directory / "gpu_memory" / f"job{number}"
        sink.mkdir()
        lines = [json.dumps(_event(number, second)) for second in moments]
        (sink / "segment-000001.jsonl").write_text("\n".join(lines) + "\n")


def _pipeline(number: int, second: int) -> dict[str, object]:
    stages = ("download", "split", "caption", "embed")
    metrics = {f"stage/{stage}/{key}": second + 0.5 for stage in stages for key in STAGE_KEYS}
    metrics |= {"progress": second / 2, "num_outputs": second, "cluster/total_cpus": 64.0}
    return {
        "pipeline_kind": "curate",
        "run_hash": f"hash{number}",
        "stages": list(stages),
        "metrics": metrics,
    }


def _calls() -> dict[str, object]:
    return dict(body_of(OperationTotals.of_one(1000, 8_000_000, 12.5)))


def _event(number: int, second: int) -> dict[str, object]:
    return {
        "schema_version": 4,
        "session_id": f"session{number}",
        "job_id": f"job{number}",
        "host": "gpu-node",
        "rank": 0,
        "device_id": 0,
        "timestamp_ns": second * 10**9,
        "event_type": "sample",
        "allocator_allocated_bytes": 10**9 + second % 600 * 10**6,
        "allocator_reserved_bytes": 2 * 10**9,
        "device_total_bytes": 80 * 2**30,
    }
