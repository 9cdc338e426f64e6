"""A year of 15-minute ticks over 100,000 W&B runs takes at most 60 s of CPU and 500 MB, within all limits.

The intake runs in this process, each size in one of its own. Twice the runs over twice the time must cost
no more than about twice as much. The runs come through the collector's own reader, as W&B would send them.
A payload over any of the intake's limits would be refused and end the benchmark.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, python, smallest  # noqa: E402
from collectors.wandb.collector import fleet_series  # noqa: E402
from collectors.wandb.evaluate import Rules, evaluate_many  # noqa: E402
from collectors.wandb.ledger import is_in_reach  # noqa: E402
from collectors.wandb.metrics import THROUGHPUT  # noqa: E402
from collectors.wandb.runs import SECOND, Run, RunReader  # noqa: E402
from collectors.wandb.settings import Project  # noqa: E402
from common.config.configuration import Configuration  # noqa: E402
from common.datadog.sink import DatadogSink  # noqa: E402
from common.metric import Series  # noqa: E402
from common.net.retry import Deadline  # noqa: E402
from common.times import iso  # noqa: E402
from common.window import Window  # noqa: E402
from support.servers.datadog import Intake  # noqa: E402

KEY = "benchmark-key"
RUNS, DAYS = 100_000, 365
STEP, DAY = 900, 86_400
BATCH = 100_000  # points that are sent at once
SHARES = (4, 2, 1)
STATES = ["finished"] * 6 + ["failed", "crashed", "killed", "preempted"]


class Size(NamedTuple):
    """What one size took, in CPU seconds and MB, and what it came to."""

    computed: float
    pushed: float
    points: int
    series: int
    peak_mb: float
    payloads: int = 0


def fleet(count: int, span: Window) -> Iterator[Run]:
    """Runs of all three kinds, spread over the span."""
    chance = random.Random(1)  # noqa: S311  # repeatable, not secret
    reader = RunReader("github.sky.*", None, 1)
    names = ("train.{0}", "agent.sweep.{0}", "github.sky.{1}.{0:07x}.config{2}.1")
    for number in range(count):
        start = chance.randrange(span.since, span.until)
        ref, config = chance.choice(("main", "pr12")), chance.randrange(5)
        node = {
            "id": f"run-{number}",
            "displayName": names[number % 3].format(number, ref, config),
            "state": chance.choice(STATES),
            "createdAt": iso(start),
            "heartbeatAt": iso(start + round(chance.lognormvariate(0.5, 1.2) * 3600)),
            "sweepName": f"s{number % 50}" if number % 3 == 1 else None,
            "config": "{}",
            "summaryMetrics": json.dumps({key: chance.uniform(1e4, 5e4) for key in THROUGHPUT}),
            "runInfo": {"gpuCount": chance.choice((1, 4, 8))} if number % 7 else None,
        }
        if run := reader.read(node, []):
            yield run


def child(url: str, runs: int, days: int, now: int) -> None:
    """Compute one size twice, as a backfill does: to count what it would send, and to send it."""
    gc.set_threshold(100_000)  # as the service's children do
    until = now // STEP * STEP
    span = Window(until - days * DAY, until, STEP)
    fleet_of_span = list(fleet(runs, span))

    def items() -> Iterator[Series]:
        for ticks in (
            span.ticks[start : start + DAY // STEP] for start in range(0, days * DAY // STEP, DAY // STEP)
        ):
            reach = ticks[0] * SECOND, ticks[-1] * SECOND, Rules().window * SECOND
            near = [run for run in fleet_of_span if is_in_reach(run, *reach)]
            yield from fleet_series(Project("acme", "ants"), [*evaluate_many(near, ticks, Rules())])

    began = time.process_time()
    series: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for item in items():
        series[item.metric.name, item.tags] += len(item.times)
    computed = time.process_time() - began
    environ = {"DD_ENV": "bench", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": url}
    found = Configuration(environ, None)
    sink = DatadogSink(found.datadog(), found.core, Deadline(3600), since=span.since)
    began, waiting = time.process_time(), 0
    for item in items():
        sink.add(item)
        waiting += len(item.times)
        if waiting >= BATCH:
            sink.flush()
            waiting = 0
    sink.flush()
    pushed = time.process_time() - began
    points = series.total()
    if sink.points_sent != points or sink.dropped:
        raise SystemExit(f"{sink.points_sent} of {points} points were sent; dropped: {dict(sink.dropped)}")
    print(json.dumps(Size(computed, pushed, points, len(series), _peak_mb())))


def _peak_mb() -> float:
    """The most memory of this program. What getrusage says is no less than that of whoever started it."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1]) / 1024


class _Everything(set[str]):
    """Historical ingestion is on for every name."""

    def __contains__(self, _: object) -> bool:
        return True


def measure(runs: int, days: int) -> Size:
    """One size, in a process of its own."""
    with Intake(KEY) as intake:
        intake.historical = _Everything()
        arguments = (intake.url, runs, days, int(time.time()))
        command = python(f"from benchmarks.backfill import child; child{arguments!r}")
        ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return Size(*json.loads(ran.stdout))._replace(payloads=len(intake.requests))


def main(argv: Sequence[str]) -> int:
    """Each size is twice the one before."""
    runs, days = (2_000, 8) if smallest(argv, __doc__) else (RUNS, DAYS)
    columns = ("runs", "days", "points", "series", "computed", "pushed", "peak", "payloads")
    print("".join(f"{column:>11}" for column in columns))
    sizes = []
    for share in SHARES:
        size = measure(runs // share, days // share)
        sizes.append(size)
        print(
            f"{runs // share:11,}{days // share:11}{size.points:11,}{size.series:11,}"
            f"{size.computed:9.1f} s{size.pushed:9.1f} s{size.peak_mb:8.0f} MB{size.payloads:11,}"
        )
    costs = [size.computed + size.pushed for size in sizes]
    return judge(
        [
            Claim("CPU seconds to compute the largest", sizes[-1].computed, 60),
            Claim("peak MB of computing and pushing it", sizes[-1].peak_mb, 500),
            Claim("CPU, from each size to its double", max(b / a for a, b in pairwise(costs)), 2.5),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
