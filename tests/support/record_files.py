"""Records as busy fleets write them, of the three kinds: a quarter of an hour, or more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

SPAN = 900  # seconds of one tick
STEP = 10  # seconds between records of a writer
OPERATIONS = ("put", "get", "get_data", "clear")
STAGE_KEYS = (
    *("actors_target", "actors_pending", "actors_ready", "actors_running", "actors_idle"),
    *("tasks_completed", "tasks_failed", "queue_in", "queue_out", "slots_used", "slots_empty"),
    *("speed_tasks_per_s", "throughput_tasks_per_s"),
    *("resource/cpu_util_pct", "resource/mem_gb", "resource/actor_count"),
)
STAGES = 3


def write_records(directory: Path, writers: int, now: int) -> None:
    """Records of so many xenna pipelines, GPU jobs and data-plane ranks, in a folder for each collector."""
    for kind in KINDS:
        write(kind, directory / kind, writers, now)


def write(kind: str, directory: Path, writers: int, now: int, steps: int = 0, span: int = SPAN) -> int:
    """Write a file for each writer, of all its records or the last steps; return how many bytes they have."""
    size = 0
    for writer in range(writers):
        lines = b"".join(orjson.dumps(one) + b"\n" for one in KINDS[kind](writer, now, span)[-9 * steps :])
        folder = directory / f"writer-{writer}" if kind == "gpu_memory" else directory
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ("segment-000001.jsonl" if kind == "gpu_memory" else f"writer-{writer}.jsonl")
        path.write_bytes(lines)
        written = now - (60 if kind == "gpu_memory" else 110)  # right after the last record
        os.utime(path, (written, written))
        size += len(lines)
    return size


def _envelope(kind: str, writer: int, seq: int, at: float) -> dict[str, Any]:
    head = {
        "schema_version": 1,
        "kind": kind,
        "event": "stats",
        "run_id": f"run-{writer:05d}-0123456789abcdef",
    }
    return {
        **head,
        "seq": seq,
        "timestamp": at,
        "host": "node-17",
        "pid": 4711,
        "job": "ants-7",
        "rank": writer,
    }


def _moments(now: int, span: int) -> list[int]:
    end = (now - 120) // STEP * STEP
    return list(range(end - span + STEP, end + STEP, STEP))


def xenna(writer: int, now: int, span: int = SPAN) -> list[dict[str, Any]]:
    """A pipeline of three stages: about 60 points and 2 kB per record."""
    records = []
    for seq, at in enumerate(_moments(now, span)):
        metrics = {"progress": seq * 1.1234567, "pipeline_duration_s": at - now + 1000.5, "num_outputs": seq}
        metrics |= {
            f"cluster/{name}": 64.0 for name in ("total_cpus", "avail_cpus", "total_gpus", "avail_gpus")
        }
        for stage in range(STAGES):
            for place, key in enumerate(STAGE_KEYS):
                metrics[f"stage/a_rather_long_name_of_a_stage_{stage}/{key}"] = (
                    place * 1.2345678901 + seq + stage
                )
        body = {"pipeline_kind": "curate", "run_hash": f"hash-{writer:05d}", "metrics": metrics}
        records.append(_envelope("xenna", writer, seq, at + 0.25) | body)
    return records


def gpu_memory(writer: int, now: int, span: int = SPAN) -> list[dict[str, Any]]:
    """A session that samples every second, with the metadata that trackers write: about 1.2 kB per event."""
    capabilities = {f"supports_{name}": True for name in ("allocator_active", "device_free", "device_total")}
    capabilities |= {f"supports_something_else_{number}": False for number in range(10)}
    records = []
    for at in range(now - 60 - span, now - 60):
        used = 10**9 + (at + writer) % 600 * 10**6
        records.append(
            {
                "schema_version": 4,
                "session_id": f"session-{writer}",
                "job_id": f"job-{writer}",
                "host": f"node-{writer % 16}",
                "rank": writer,
                "local_rank": writer % 8,
                "world_size": 128,
                "pid": 4711,
                "device_id": writer % 8,
                "timestamp_ns": at * 10**9 + 250_000_000,
                "event_type": "warning" if at % 97 == 0 else "sample",
                "allocator_allocated_bytes": used,
                "allocator_reserved_bytes": used + 10**8,
                "allocator_change_bytes": 0,
                "device_used_bytes": used + 2 * 10**8,
                "device_total_bytes": 80 * 2**30,
                "context": "a step of training",
                "metadata": {
                    "backend": "cuda",
                    "sampling_source": "torch",
                    "memory_capabilities": capabilities,
                },
            }
        )
    return records


def data_plane(writer: int, now: int, span: int = SPAN) -> list[dict[str, Any]]:
    """Four operations on two partitions every ten seconds, and what is held; only the first one writes."""
    records: list[dict[str, Any]] = []
    for at in _moments(now, span):
        for op in OPERATIONS:
            for partition_id in ("train", "eval"):
                buckets = {"40": 5, "41": 9, "42": 3, "47": 1}
                wall_ms = {"sum": 250.125 + writer, "min": 10.25, "max": 35.5, "buckets": buckets}
                named = {"op": op, "partition_id": partition_id, "status": "ok", "count": 18, "keys": 4096}
                records.append(
                    _envelope("data_plane", writer, len(records), at)
                    | named
                    | {"bytes": 10**9 + at, "wall_ms": wall_ms}
                )
        held = {"train": 10**9 + at % 1000, "eval": 10**6}
        body: dict[str, Any] = {"interval_s": STEP, "bytes_outstanding": held, "sole_writer": writer == 0}
        body |= {"peak_bytes_outstanding": 2 * 10**9, "keys_outstanding": 8192}
        body |= {"foreign_clears": 0, "keys_overflowed": 0}
        records.append(_envelope("data_plane", writer, len(records), at + 0.01) | body)
    return records


KINDS = {"xenna": xenna, "gpu_memory": gpu_memory, "data_plane": data_plane}
