"""Live ticks and backfills of the same files leave the same points, and those recorded of real samples.

`tests/data/records_expected/<name>.json.gz` has the points of a sample, as lists of metric, tags, host, times
(as differences) and values.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.record_fleets import (
    BEGIN,
    SETTLE,
    STEP,
    Disk,
    Fleet,
    Line,
    Points,
    Shape,
    fleet,
    ticks_over,
    time_of,
)
from support.record_model import PRESENT
from support.record_runs import Runs, differences
from support.record_truth import truth

DATA = Path(__file__).parents[1] / "data"
EXPECTED = DATA / "records_expected"
DAY = 86400


class Sample(NamedTuple):
    """Files that grow, when ticks run over them, and the points that were recorded of them."""

    fleet: Fleet
    ticks: tuple[int, ...]
    expected: Points


def samples() -> Iterator[tuple[str, Fleet]]:
    """Yield the sinks that stormlog wrote, and the dumps of real pipelines as records."""
    for tagged in ("true", "false"):
        suffix = "tagged" if tagged == "true" else "untagged"
        for sink in sorted(path.parent for path in (DATA / "stormlog").glob("*/manifest.json")):
            made, at = Fleet("gpu_memory", {"tag_job_id": tagged}), 0
            for path in sorted(sink.glob("segment-*.jsonl")):
                for line in path.read_bytes().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        at = max(at, math.ceil(time_of("gpu_memory", json.loads(line))) + 1)
                    made.lines.append(Line(at, f"sink/{path.name}", line))
            manifest = (sink / "manifest.json").read_bytes()
            made.documents.append((made.lines[0].written, "sink/manifest.json", manifest))
            yield f"stormlog-{sink.name}-{suffix}", made
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
        yield f"pipelines-{suffix}", made


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


SAMPLES = dict(samples())


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> Sample:
    made = SAMPLES[request.param]
    document = json.loads(gzip.decompress((EXPECTED / f"{request.param}.json.gz").read_bytes()))
    expected = {
        (metric, tuple(tags), host, at): value
        for metric, tags, host, steps, values in document["points"]
        for at, value in zip(accumulate(steps), values, strict=True)
    }
    begin = BEGIN if made.kind == "xenna" else made.lines[0].written // STEP * STEP
    return Sample(made, ticks_over(made, begin), expected)


def compared(sample: Sample, points: Points, *, present: bool) -> Points:
    """Return the points that were recorded, with or without those of the tick itself."""
    hidden = (".ingest.", "sessions.interrupted", "oom_dumps", "runs.ended")
    until = (sample.ticks[-1] // STEP * STEP - SETTLE) // 60 * 60
    return {
        key: value
        for key, value in points.items()
        if not any(name in key[0] for name in hidden) and (present if key[0] in PRESENT else key[3] < until)
    }


def live(made: Fleet, ticks: tuple[int, ...], folder: Path, *, store: bool) -> Runs:
    """Run all ticks over growing files."""
    folder.mkdir()
    disk, runs = Disk(made, folder), Runs(made.kind, folder, made.settings, store=store)
    for now in ticks:
        disk.advance(now)
        assert runs.run(now).report.lost == []
    return runs


@pytest.mark.parametrize("store", [True, False], ids=["with a store", "without a store"])
def test_live_ticks_leave_the_recorded_points(sample: Sample, store: bool, tmp_path: Path) -> None:
    runs = live(sample.fleet, sample.ticks, tmp_path / "records", store=store)
    expected = compared(sample, sample.expected, present=True)
    assert differences(compared(sample, runs.points, present=True), expected) == []


def test_a_backfill_leaves_the_recorded_points(sample: Sample, tmp_path: Path) -> None:
    Disk(sample.fleet, tmp_path).advance(sample.ticks[-1])
    runs = Runs(sample.fleet.kind, tmp_path, sample.fleet.settings)
    since, until = sample.ticks[0] // 3600 * 3600 - 3600, sample.ticks[-1] // 900 * 900
    points = runs.backfill(since, until, now=sample.ticks[-1] + DAY)
    expected = compared(sample, sample.expected, present=False)
    assert differences(compared(sample, points, present=False), expected) == []
    assert [ran.report.lost for ran in runs.ran if ran.report.lost] == []


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("xenna", {}),
        ("xenna", {"stage_run_hash": "false"}),
        ("xenna", {"stage_run_hash": "false", "aggregate_interval": "300"}),
        ("gpu_memory", {}),
        ("gpu_memory", {"tag_job_id": "false"}),
        ("data_plane", {}),
        ("data_plane", {"tag_job": "false"}),
        ("data_plane", {"tag_rank": "false"}),
        ("data_plane", {"tag_partition_id": "false"}),
        ("data_plane", {"tag_job": "false", "tag_rank": "false", "tag_partition_id": "false"}),
    ],
    ids=repr,
)
def test_a_backfill_of_a_fleet_leaves_what_its_records_amount_to(
    kind: str, settings: dict[str, str], tmp_path: Path
) -> None:
    shape = Shape(seconds=2000, writers=8, intervals=(20, 45), rivals=True, repeats=0.05)
    made = fleet(kind, 5, shape, **settings)
    Disk(made, tmp_path).advance(made.last)
    points = Runs(kind, tmp_path, settings).backfill(BEGIN, BEGIN + 2 * 3600, now=BEGIN + DAY)
    found = truth(made)
    assert differences(points, found.gauges | found.sums) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("xenna", {}),
        ("xenna", {"stage_run_hash": "false", "aggregate_interval": "300"}),
        ("gpu_memory", {}),
        ("gpu_memory", {"tag_job_id": "false"}),
        ("data_plane", {}),
        ("data_plane", {"tag_job": "false", "tag_rank": "false", "aggregate_interval": "900"}),
    ],
    ids=repr,
)
def test_live_ticks_over_a_day_equal_one_backfill_of_it(
    kind: str, settings: dict[str, str], tmp_path: Path
) -> None:
    made = fleet(kind, 9, Shape(seconds=DAY, intervals=(200, 301), rivals=True, repeats=0.05), **settings)
    ticks = ticks_over(made)
    runs = live(made, ticks, tmp_path / "records", store=True)
    hidden = {metric.name for metric in runs.collector.live_only}
    sent = {key: value for key, value in runs.points.items() if key[0] not in hidden}
    until = ticks[-1] // 3600 * 3600
    points = runs.backfill(BEGIN - 3600, until, now=until + DAY)
    assert points
    assert differences(points, sent) == []
