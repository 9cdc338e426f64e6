"""A year of 15-minute ticks over 100,000 W&B runs, with usage by 120 groups, costs little and grows linearly.

The points are made as a backfill makes them and go through the table that checks and joins series; sending
them is the matter of `delivery.py`, whose floor is measured in the same run. Each size is a process of its
own. Twice the runs over twice the time must cost no more than about twice as much. The runs come through the
collector's own reader, as W&B would send them.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.delivery import workers  # noqa: E402
from benchmarks.measure import Claim, judge, python, smallest  # noqa: E402
from collectors.wandb.ledger import Ledger  # noqa: E402
from collectors.wandb.metrics import THROUGHPUT  # noqa: E402
from collectors.wandb.runs import Run, RunReader  # noqa: E402
from collectors.wandb.settings import Project, WandbSettings  # noqa: E402
from common.config.sources import Configuration  # noqa: E402
from common.datadog.payloads import Encoding  # noqa: E402
from common.datadog.series import SeriesTable  # noqa: E402
from common.times import iso  # noqa: E402
from common.window import Window  # noqa: E402

RUNS, DAYS = 100_000, 365
STEP, DAY = 900, 86_400
SHARES = (4, 2, 1)
STATES = ["finished"] * 6 + ["failed", "crashed", "killed", "preempted"]
GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla T4")
USERS = 40  # with each type of GPU: 120 groups
ROUNDS = 5


class Size(NamedTuple):
    """What one size took, in CPU seconds and MB, and what it came to."""

    made: float
    points: int
    series: int
    peak_mb: float


def settings(usage: bool) -> WandbSettings:
    """Return settings with prices for two of the three types."""
    environ = {
        "WANDB_API_KEY": "benchmark-key",
        "WANDB_PROJECTS": "acme/ants",
        "FLEETGAUGE_WANDB_USAGE": str(usage),
        "FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49,a100=1.79",
    }
    return Configuration(environ, None).table(WandbSettings, "wandb")


def fleet(count: int, span: Window, options: WandbSettings) -> Iterator[Run]:
    """Runs of all three kinds, spread over the span."""
    chance = random.Random(1)  # noqa: S311  # repeatable, not secret
    reader = RunReader("github.sky.*", None, 1, options.owners)
    names = ("train.{0}", "agent.sweep.{0}", "github.sky.{1}.{0:07x}.config{2}.1")
    for number in range(count):
        start = chance.randrange(span.since, span.until)
        ref, config = chance.choice(("main", "pr12")), chance.randrange(5)
        writer = {"gpu_count": chance.choice((1, 4, 8)), "gpu": chance.choice(GPUS)}
        node = {
            "id": f"run-{number}",
            "displayName": names[number % 3].format(number, ref, config),
            "state": chance.choice(STATES),
            "createdAt": iso(start),
            "heartbeatAt": iso(start + round(chance.lognormvariate(0.5, 1.2) * 3600)),
            "sweepName": f"s{number % 50}" if number % 3 == 1 else None,
            "config": json.dumps({"_wandb": {"value": {"e": {"w": writer}}}}),
            "summaryMetrics": json.dumps({key: chance.uniform(1e4, 5e4) for key in THROUGHPUT}),
            "user": {"username": f"user{chance.randrange(USERS)}"},
        }
        if run := reader.read(node, []):
            yield run


def child(runs: int, days: int, now: int, usage: bool) -> None:
    """Make the points of one size, and feed them to the table."""
    gc.set_threshold(100_000)  # as the service's children do
    until = now // STEP * STEP
    span = Window(until - days * DAY, until, STEP)
    options = settings(usage)
    ledger = Ledger(Project("acme", "ants"), [*fleet(runs, span, options)], span.ticks, options)
    table = SeriesTable(("env:bench", "service:fleetgauge"), 10**9, span.since, span.until)
    points, names = 0, set()
    began = time.process_time()
    for stretch in ledger.stretches():
        for each in stretch:
            table.add(each)
        for metric, tags, _, times, _ in table.drain():
            points += len(times)
            names.add((metric, tags))
    made = time.process_time() - began
    if table.dropped:
        raise SystemExit(f"dropped: {dict(table.dropped)}")
    print(json.dumps(Size(made, points, len(names), _peak_mb())))


def _peak_mb() -> float:
    """The most memory of this program. What getrusage says is no less than that of whoever started it."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1]) / 1024


def measure(runs: int, days: int, *, usage: bool = True) -> Size:
    """One size, in a process of its own."""
    arguments = (runs, days, int(time.time()), usage)
    command = python(f"from benchmarks.backfill import child; child{arguments!r}")
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    size = Size(*json.loads(ran.stdout))
    print(
        f"{runs:11,}{days:11}{size.points:13,}{size.series:11,}{size.made:9.1f} s"
        f"{1e6 * size.made / size.points:9.2f} µs{size.peak_mb:8.0f} MB{'' if usage else '  without usage'}"
    )
    return size


def floor(points: int) -> float:
    """Return the microseconds a point that the cheapest sender takes, with thirty points a series."""
    with workers(points, 30, Encoding.GZIP, ("floor",)) as (sender,):
        return 1e6 * statistics.median(sender.send() for _ in range(ROUNDS)) / points


def main(argv: Sequence[str]) -> int:
    """Each size is twice the one before."""
    tiny = smallest(argv, __doc__)
    runs, days = (2_000, 8) if tiny else (RUNS, DAYS)
    columns = ("runs", "days", "points", "series", "made", "a point", "peak")
    print("".join(f"{column:>{13 if column == 'points' else 11}}" for column in columns))
    sizes = [measure(runs // share, days // share) for share in SHARES]
    plain = measure(runs, days, usage=False)
    cheapest = floor(2_000 if tiny else 100_000)
    print(f"the floor of delivery.py: {cheapest:.2f} µs a point")
    of_point = 1e6 * sizes[-1].made / sizes[-1].points
    return judge(
        [
            Claim("CPU a point / floor of a delivery", of_point / cheapest, 1.0),
            Claim("the same without usage", 1e6 * plain.made / plain.points / cheapest, 4.6),
            Claim("peak MB of the largest", sizes[-1].peak_mb, 165),
            Claim("CPU, from each size to its double", max(b.made / a.made for a, b in pairwise(sizes)), 2.5),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
