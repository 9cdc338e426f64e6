"""A backfill from files against one live read of the same bytes: CPU and peak memory.

    python benchmarks/replay.py

A week of xenna records: a hundred runs that all last the week, so that every pass has to look into every
file. Each way runs in a process of its own and only counts the samples that it gets.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT)]

from benchmarks.measure import claim, cost  # noqa: E402
from benchmarks.xenna import body  # noqa: E402

BEGIN = 1_794_182_400
WEEK = 7 * 86400
RUNS = 100
RECORDS = 500
LIMIT = 3.0


def write(directory: Path) -> None:
    """A file per run, about 4 kB per record, a record every twenty minutes."""
    for run in range(RUNS):
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


def main() -> int:
    """Each way in a process of its own."""
    if len(sys.argv) == 3:
        print(read(sys.argv[1], live=sys.argv[2] == "live"), file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        size = sum(path.stat().st_size for path in Path(name).iterdir())
        command = [sys.executable, __file__, name]
        live, replay = cost([*command, "live"]), cost([*command, "replay"])
    print(f"{size / 1e6:.0f} MB in {RUNS} files")
    print(f"CPU s: one live read {live.cpu:.1f}, replay {replay.cpu:.1f}")
    print(f"peak MB: one live read {live.peak_mb:.0f}, replay {replay.peak_mb:.0f}")
    return 0 if claim("CPU of a replay, of one live read", replay.cpu / live.cpu, LIMIT) else 1


if __name__ == "__main__":
    sys.exit(main())
