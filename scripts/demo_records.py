"""Write the records of the demo's jobs: half an hour of a pipeline, of GPU memory and of a data plane.

The probes themselves write those of the pipeline and of the data plane, with a simulated clock; those of GPU
memory have the form that stormlog writes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from fleetgauge.data_plane import JsonlEvents, MetricsDataPlaneClient
from fleetgauge.records import RecordWriter

SPAN = 1800  # seconds
GIB = 2**30
STAGES = ("download", "caption", "embed")


def write_records(folder: Path, now: float) -> None:
    """Write the records of all jobs up to now, one folder per collector."""
    for write, name in ((_xenna, "xenna"), (_gpu_memory, "gpu_memory"), (_data_plane, "data_plane")):
        directory = folder / name
        directory.mkdir(parents=True, exist_ok=True)
        write(directory, int(now))


def _xenna(directory: Path, now: int) -> None:
    """Write the records of a pipeline that ended well some minutes ago, and of one that is running."""
    for run_hash, began, ended in (("3f9d", now - SPAN, now - 900), ("77b2", now - 1200, None)):
        clock = Clock(began)
        body = {"pipeline_kind": "curate", "run_hash": run_hash, "stages": list(STAGES)}
        with RecordWriter(directory, "xenna", run_id=f"demo-{run_hash}", clock=clock) as writer:
            while clock.now < (ended or now):
                writer.write(
                    "stats", body | {"metrics": _progress(clock.now - began, (ended or now) - began)}
                )
                clock.now += 60
            if ended:
                writer.write("end", body | {"status": "ok", "metrics": {}})
        os.utime(writer.path, (clock.now, clock.now))


def _progress(elapsed: float, span: float) -> dict[str, float]:
    """Return the metrics of a pipeline of 2,400 inputs after so many seconds, as cosmos-xenna names them."""
    inputs, done = 2400, int(2400 * min(1.0, elapsed / span))
    rate = done / elapsed if elapsed else 0.0
    metrics: dict[str, float] = {
        "pipeline_duration_s": elapsed,
        "main_loop_rate_hz": 9.8,
        "progress": 100 * done / inputs,
        "num_initial_inputs": inputs,
        "num_input_remaining": inputs - done,
        "num_outputs": done,
        "inputs_processed_per_s": rate,
        "outputs_per_s": rate,
        "tasks_failed": done // 800,
        "progress_stages": 96 * done / inputs,
        "cluster/total_cpus": 64,
        "cluster/avail_cpus": 20,
        "cluster/total_gpus": 8,
        "cluster/avail_gpus": 2,
        "cluster/total_mem_gb": 512,
        "cluster/avail_mem_gb": 310,
        "cluster/total_obj_store_gb": 150,
        "cluster/avail_obj_store_gb": 96.5,
    }
    for index, stage in enumerate(STAGES):
        stage_metrics = {
            "actors_target": 0,
            "actors_pending": 0,
            "actors_ready": 4,
            "actors_running": 4 - index,
            "actors_idle": index,
            "tasks_completed": max(0, done - 40 * index),
            "tasks_failed": 0,
            "queue_in": 12 * index,
            "queue_out": 3,
            "slots_used": 8 - 2 * index,
            "slots_empty": 2 * index,
            "speed_tasks_per_s": 0.4,
            "throughput_tasks_per_s": 1.3,
            "bottleneck": int(index == 1),
            "resource/cpu_util_pct": 180 - 40 * index,
            "resource/mem_gb": 6.5,
            "resource/actor_count": 4,
        }
        metrics |= {f"stage/{stage}/{name}": value for name, value in stage_metrics.items()}
    return metrics


def _gpu_memory(directory: Path, now: int) -> None:
    """Write the sinks of two ranks of a job; the second ran out of memory and was restarted."""
    ran_out = now - 1200
    for rank, began in enumerate((now - SPAN, ran_out + 60)):
        sink = directory / f"rank-{rank}"
        sink.mkdir()
        sessions = [_session("demo-session", "running", rank, began, None)]
        if rank == 1:
            sessions.insert(0, _session("demo-session-before", "interrupted", rank, ran_out - 7200, ran_out))
        (sink / "manifest.json").write_text(json.dumps({"schema_version": 2, "sessions": sessions}))
        events = (json.dumps(event) for event in _memory_events(rank, began, now))
        (sink / "segment-000001.jsonl").write_text("".join(f"{event}\n" for event in events))
    dumped = gmtime(ran_out)
    dump = directory / f"oom_dump_{strftime('%Y%m%dT%H%M%SZ', dumped)}_1"
    dump.mkdir()
    created = {"created_at_utc": strftime("%Y-%m-%dT%H:%M:%SZ", dumped), "reason": "out of memory"}
    (dump / "manifest.json").write_text(json.dumps(created | {"backend": "cuda"}))


def _session(name: str, status: str, rank: int, began: int, ended: int | None) -> dict[str, Any]:
    return {
        "session_id": f"{name}-{rank}",
        "status": status,
        "job_id": "ants-7",
        "host": "gpu-node-3",
        "pid": 4711 + rank,
        "rank": rank,
        "local_rank": rank,
        "world_size": 2,
        "source": "stormlog.tracker",
        "started_at_ns": began * 10**9,
        "ended_at_ns": ended and ended * 10**9,
    }


def _memory_events(rank: int, began: int, now: int) -> Iterator[dict[str, Any]]:
    """Yield a sample every thirty seconds, rising to a warning and, on rank 1, to a critical one."""
    common = {
        "schema_version": 4,
        "session_id": f"demo-session-{rank}",
        "job_id": "ants-7",
        "host": "gpu-node-3",
        "rank": rank,
        "local_rank": rank,
        "world_size": 2,
        "pid": 4711 + rank,
        "device_id": rank,
    }
    for at in range(began, now, 30):
        elapsed = at - now + 3000
        allocated = int((30 + 12 * math.sin(elapsed / 180) + elapsed / (150 - 30 * rank)) * GIB)
        reserved = allocated + 6 * GIB
        share = reserved / (80 * GIB)
        kind = "critical" if share > 0.92 else "warning" if share > 0.84 else "sample"
        yield common | {
            "timestamp_ns": at * 10**9,
            "event_type": kind,
            "context": "a step of training",
            "allocator_allocated_bytes": allocated,
            "allocator_reserved_bytes": reserved,
            "allocator_change_bytes": 0,
            "device_total_bytes": 80 * GIB,
            "device_used_bytes": min(79 * GIB, reserved + GIB),
            "metadata": {"backend": "cuda"},
        }


@dataclass
class Clock:
    """A clock that only moves when it is set."""

    now: float

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Tensor:
    """The part of a tensor that gives its size."""

    shape: tuple[int, ...]

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> int:
        return 4


@dataclass
class Store:
    """A data plane whose calls advance the clock."""

    clock: Clock

    def put_samples(self, sample_ids: Sequence[str], *_: object, **__: object) -> None:
        self.clock.now += 0.004 * len(sample_ids)

    def get_samples(self, sample_ids: Sequence[str], *_: object, **__: object) -> None:
        self.clock.now += 0.001 * len(sample_ids)
        if int(self.clock.now) % 97 == 0:
            raise TimeoutError

    def clear_samples(self, sample_ids: Sequence[str], *_: object) -> None:
        self.clock.now += 0.0005 * len(sample_ids)


def _data_plane(directory: Path, now: int) -> None:
    """Write the records of a job that puts 64 rollouts of 1 MiB every 20 s, reads them and clears most."""
    clock = Clock(now - SPAN)
    sink = JsonlEvents(f"{directory}/", interval_s=10, job="ants-7", rank=0, clock=clock)
    client = MetricsDataPlaneClient(Store(clock), sink, sole_writer=True, clock=clock)
    for step in range(0, SPAN, 20):
        clock.now = now - SPAN + step
        keys = [f"rollout-{step}-{number}" for number in range(64)]
        client.put_samples(keys, "train", {"tokens": Tensor((64, 262_144))})
        with suppress(TimeoutError):  # a trainer would ignore it as well
            client.get_samples(keys, "train", ["tokens"])
        client.clear_samples(keys[:60], "train")
        sink.flush()  # the clock is ahead of the sink's own thread otherwise
    sink.close()
