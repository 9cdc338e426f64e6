"""A backfill from files against one live read of the same bytes: CPU and peak memory.

A week of xenna records: a hundred runs that all last the week, so that every pass has to look into every
file. Each way runs in a process of its own and only counts the samples that it gets.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT)]

from benchmarks.measure import Claim, cost, judge, medians, smallest  # noqa: E402

BEGIN = 1_794_182_400
WEEK = 7 * 86400
RUNS = 100
RECORDS = 500
STAGES = ("download", "caption", "some_rather_long_name_of_a_stage")
STAGE_KEYS = ("actors_ready", "actors_running", "tasks_completed", "queue_in", "queue_out", "slots_used")
LIMIT = 3.0
ROUNDS = 3


def body(run: int, number: int) -> dict[str, Any]:
    """What a record of a pipeline holds: some figures of the whole, and of each stage."""
    metrics: dict[str, float] = {"progress": number / 5.001, "pipeline_duration_s": number * 60.123456}
    metrics |= {"cluster/total_cpus": 64.0, "cluster/total_gpus": 8.0, "main_loop_rate_hz": 56.177 + number}
    for stage, name in enumerate(STAGES):
        for place, key in enumerate(STAGE_KEYS):
            metrics[f"stage/{name}/{key}"] = place * 1.2345678901 + number + stage
    notes = [
        {"name": f"Stage {stage:02d}", "class": name, "note": "x" * 900} for stage, name in enumerate(STAGES)
    ]
    return {"pipeline_kind": "curate", "run_hash": f"hash-{run:05d}", "metrics": metrics, "stages": notes}


def write(directory: Path, runs: int) -> None:
    """A file per run, about 4 kB per record, a record every twenty minutes."""
    for run in range(runs):
        path = directory / f"{run}.jsonl"
        with path.open("w") as file:
            for number in range(RECORDS):
                head = {"schema_version": 1, "kind": "xenna", "event": "stats", "run_id": str(run)}
                head |= {"seq": number, "timestamp": BEGIN + run + number * WEEK / RECORDS}
                file.write(json.dumps(head | body(run, number)) + "\n")
        os.utime(path, (BEGIN + WEEK, BEGIN + WEEK))


def read(directory: str, *, live: bool) -> int:
    """The samples of the week, by a replay or by a single tick that takes times as old as these."""
    from collectors.xenna.collector import COLLECTOR, XennaIngest, XennaSettings
    from common.collector import Context
    from common.config.settings import ConfigurationFile, load
    from common.metric import Sample
    from common.net.retry import Deadline
    from common.records.window import Tick, Window
    from common.span import Span

    now = BEGIN + WEEK + 7200
    environ = {"FLEETGAUGE_XENNA_PATHS": directory, "FLEETGAUGE_XENNA_BYTES_PER_TICK": str(10**9)}
    settings = load(XennaSettings, "xenna", environ=environ, file=ConfigurationFile())
    context = Context(settings, now, now, "node", {}, Deadline(3600), logging.getLogger("benchmark"))
    if live:
        items = XennaIngest(context, Tick(Window(now, 0, now), now, WEEK)).collect()
    else:
        assert COLLECTOR.backfill
        items = COLLECTOR.backfill(context, Span(BEGIN, BEGIN + WEEK, 900))()
    return sum(isinstance(item, Sample) and ".run" not in item.metric.name for item in items)


def main(argv: list[str]) -> int:
    """Each way in a process of its own, in turn."""
    if len(argv) == 2:
        print(read(argv[0], live=argv[1] == "live"), file=sys.stderr)
        return 0
    few = smallest(argv, __doc__)
    runs = 2 if few else RUNS
    peaks: dict[str, float] = {}

    def cpu(way: str) -> float:
        spent, peaks[way] = cost([sys.executable, __file__, name, way])
        return spent

    with tempfile.TemporaryDirectory() as name:
        write(Path(name), runs)
        size = sum(path.stat().st_size for path in Path(name).iterdir())
        took = medians(1 if few else ROUNDS, {way: partial(cpu, way) for way in ("live", "replay")})
    print(f"{size / 1e6:.0f} MB in {runs} files")
    print(f"CPU s: one live read {took['live']:.1f}, replay {took['replay']:.1f}")
    return judge(
        [
            Claim("CPU of a replay / of one live read", took["replay"] / took["live"], LIMIT),
            Claim("peak MB of a replay", peaks["replay"], 150),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
