"""Scenarios of record files whose points were recorded from the version before windows.

`tests/data/records_expected/<name>.json.gz` holds what that version left in the intake after all ticks of a
scenario: `points` as `[metric, tags, host, times, values]`, times as differences, and `digest`, of the input.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from support.record_fleets import BEGIN, SETTLE, STEP, Fleet, Line, Points, Shape, fleet, time_of

DATA = Path(__file__).parents[1] / "data"
EXPECTED = DATA / "records_expected"
CASE_NOW = 1_794_790_000  # when the cases in tests/data/records are read

# Metrics that answer for the time of the tick itself.
PRESENT = (
    "xenna.run.last_record_age_seconds",
    "xenna.run.stalled",
    "xenna.runs.active",
    "gpu_memory.sessions",
)
# Metrics that are not compared: they have changed, or are about reading.
CHANGED = (
    "xenna.runs.ended",
    "gpu_memory.sessions.interrupted",
    "gpu_memory.oom_dumps",
    "gpu_memory.peak_allocated_bytes",
)


class Scenario(NamedTuple):
    """Files that grow, and when ticks run over them."""

    name: str
    fleet: Fleet
    ticks: tuple[int, ...]

    @property
    def compared_until(self) -> int:
        """The end of the last bucket that every version has sent in the end."""
        width = int(self.fleet.settings.get("aggregate_interval", "60"))
        return (self.ticks[-1] // STEP * STEP - SETTLE) // width * width

    @property
    def digest(self) -> str:
        """A fingerprint of everything that is read."""
        made = self.fleet
        text = repr(
            (self.ticks, made.settings, [line[:3] for line in made.lines], made.moves, made.documents)
        )
        return blake2b(text.encode(), digest_size=8).hexdigest()


def ticks_over(made: Fleet, begin: int = BEGIN, more: int = 3) -> tuple[int, ...]:
    """Return the times of runs: every step, each a few seconds after it, and some after the last write."""
    steps = range(begin, made.last + more * STEP, STEP)
    return tuple(at + 3 + number * 7 % 38 for number, at in enumerate(steps))


# Not in these fleets, because the former version differed: two live writers with the same tags, of which it
# showed one; xenna's older form in files that are rotated, which it took for one run per file; and pipelines
# that share a file and fall silent, of which it showed all, and this one shows the last that wrote.
_GENERATED: dict[str, tuple[str, int, Shape, dict[str, str]]] = {
    "xenna-tagged": ("xenna", 1, Shape(plain_rotation=False, shared=False), {}),
    "xenna-untagged": ("xenna", 2, Shape(plain_rotation=False, shared=False), {"stage_run_hash": "false"}),
    "xenna-wide-buckets": (
        "xenna",
        3,
        Shape(plain_rotation=False, writers=6, seconds=6000),
        {"stage_run_hash": "false", "aggregate_interval": "300"},
    ),
    "xenna-one-long-run": (
        "xenna",
        4,
        Shape(plain_rotation=False, shared=False, writers=1, restarts=False, intervals=(10,)),
        {},
    ),
    "gpu-memory-tagged": ("gpu_memory", 1, Shape(), {}),
    "gpu-memory-untagged": ("gpu_memory", 2, Shape(writers=6), {"tag_job_id": "false"}),
    "gpu-memory-every-second": (
        "gpu_memory",
        3,
        Shape(writers=2, seconds=2400, intervals=(1,), restarts=False),
        {},
    ),
    "gpu-memory-wide-buckets": (
        "gpu_memory",
        4,
        Shape(intervals=(5, 15)),
        {"tag_job_id": "false", "aggregate_interval": "120"},
    ),
    "data-plane-tagged": ("data_plane", 1, Shape(seconds=7200), {}),
    "data-plane-without-rank": ("data_plane", 2, Shape(writers=6), {"tag_rank": "false"}),
    "data-plane-without-job": ("data_plane", 3, Shape(), {"tag_job": "false"}),
    "data-plane-without-partition": (
        "data_plane",
        4,
        Shape(writers=3, seconds=7200),
        {"tag_partition_id": "false"},
    ),
    "data-plane-untagged": (
        "data_plane",
        5,
        Shape(writers=6),
        {"tag_rank": "false", "tag_job": "false", "tag_partition_id": "false", "aggregate_interval": "600"},
    ),
}


def scenarios() -> list[Scenario]:
    """Return all scenarios."""
    return [*_generated(), *_cases(), *_sinks(), *_pipelines()]


def _generated() -> Iterator[Scenario]:
    for name, (kind, seed, shape, settings) in _GENERATED.items():
        for another in (0, 100):
            made = fleet(kind, seed + another, shape, **settings)
            silent_and_shared = kind == "xenna" and shape.shared
            ticks = ticks_over(made, more=0 if silent_and_shared else 3)
            yield Scenario(f"{name}-{seed + another}", made, ticks)


def _cases() -> Iterator[Scenario]:
    """Yield the cases of tests/data/records: files that are there as they are when the first tick begins."""
    for case in sorted(path.parent for path in (DATA / "records").glob("*/*/expected.json")):
        settings = case / "settings.json"
        made = Fleet(case.parent.name, json.loads(settings.read_text()) if settings.exists() else {})
        for path in sorted(case.rglob("*.jsonl")):
            for line in path.read_bytes().splitlines(keepends=True):
                made.lines.append(Line(CASE_NOW, str(path.relative_to(case)), line))
        yield Scenario(
            f"case-{case.parent.name}-{case.name}".replace("_", "-"),
            made,
            (CASE_NOW, CASE_NOW + STEP, CASE_NOW + 2 * STEP),
        )


def _sinks() -> Iterator[Scenario]:
    """Yield the sinks that stormlog wrote, line by line as they were written."""
    for sink in sorted(path.parent for path in (DATA / "stormlog").glob("*/manifest.json")):
        for tagged in ("true", "false"):
            made = Fleet("gpu_memory", {"tag_job_id": tagged})
            at = 0
            for path in sorted(sink.glob("segment-*.jsonl")):
                for line in path.read_bytes().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        at = max(at, math.ceil(time_of("gpu_memory", json.loads(line))) + 1)
                    made.lines.append(Line(at, f"sink/{path.name}", line))
            first = made.lines[0].written
            made.documents.append((first, "sink/manifest.json", (sink / "manifest.json").read_bytes()))
            name = f"stormlog-{sink.name}-{'tagged' if tagged == 'true' else 'untagged'}"
            yield Scenario(name, made, ticks_over(made, first // STEP * STEP))


def _pipelines() -> Iterator[Scenario]:
    """Yield the dumps of real pipelines as records, a file for each."""
    for tagged in ("true", "false"):
        made = Fleet("xenna", {"stage_run_hash": tagged})
        for number, path in enumerate(sorted((DATA / "xenna").glob("*.jsonl"))):
            dumps = [json.loads(line) for line in path.read_text().splitlines()]
            shift = BEGIN + 900.0 + number * 700 - dumps[0]["unix"]
            for seq, dump in enumerate(dumps):
                record: dict[str, Any] = {"schema_version": 1, "kind": "xenna", "event": "stats"}
                record |= {"run_id": path.stem, "seq": seq, "timestamp": dump["unix"] + shift}
                record |= {"pipeline_kind": dump["mode"], "run_hash": path.stem, "metrics": flat(dump)}
                content = json.dumps(record).encode() + b"\n"
                made.lines.append(Line(math.ceil(record["timestamp"]), f"{path.stem}.jsonl", content))
        yield Scenario(f"pipelines-{'tagged' if tagged == 'true' else 'untagged'}", made, ticks_over(made))


def flat(dump: dict[str, Any]) -> dict[str, float]:
    """Return some metrics of a dump of a pipeline's statistics."""
    stats = dump["stats"]
    metrics: dict[str, float] = {
        "num_initial_inputs": stats["num_initial_input_tasks"],
        "num_input_remaining": stats["num_input_tasks_remaining"],
        "num_outputs": stats["num_outputs"],
        "pipeline_duration_s": stats["time"] - stats["start_time"],
    }
    for pool in stats["actor_pools"]:
        stage = f"stage/{pool['name'].partition(' - ')[2].lower()}"
        metrics |= {f"{stage}/actors_{key}": value for key, value in pool["actor_stats"].items()}
        metrics[f"{stage}/tasks_completed"] = pool["task_stats"]["total_completed"]
        metrics[f"{stage}/queue_in"] = pool["task_stats"]["input_queue_size"]
        metrics[f"{stage}/speed_tasks_per_s"] = pool["processing_speed_tasks_per_second"]
    return metrics


def compared(scenario: Scenario, points: Points, *, present: bool = True) -> Points:
    """Return the points that must be the same in both versions, with or without those of the tick itself."""
    return {
        key: value
        for key, value in points.items()
        if ".ingest." not in key[0]
        and not key[0].startswith(("collector.", *CHANGED))
        and (present if key[0] in PRESENT else key[3] < scenario.compared_until)
    }


def expected(scenario: Scenario) -> Points:
    """Return what the former version left in the intake for a scenario."""
    document = json.loads(gzip.decompress((EXPECTED / f"{scenario.name}.json.gz").read_bytes()))
    if document["digest"] != scenario.digest:
        raise ValueError(f"the files of {scenario.name} are not those that were recorded")
    return {
        (metric, tuple(tags), host, at): value
        for metric, tags, host, steps, values in document["points"]
        for at, value in zip(accumulate(steps), values, strict=True)
    }
