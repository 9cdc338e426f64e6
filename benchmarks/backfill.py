"""A year of 15-minute ticks over 100,000 runs takes less than 60 s and 500 MB, and fits all limits.

The intake runs in this process, each size in one of its own; twice the runs over twice the time must cost
no more than about twice as much. A payload over any of the intake's limits would be refused and end the run.

Run with `python benchmarks/backfill.py`; it ends with status 1 if a claim does not hold.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import claim  # noqa: E402
from servers.datadog import Intake  # noqa: E402

KEY = "benchmark-key"
RUNS, DAYS = 100_000, 365
SIZES = (1, 2, 4)

_CODE = """
import gc, json, random, resource, sys, time
gc.set_threshold(100_000)
sys.path[:1] = [{root!r}]
from collectors.wandb.collector import samples
from collectors.wandb.evaluate import Rules, evaluate_many
from collectors.wandb.metrics import THROUGHPUT
from collectors.wandb.runs import SECOND, Kind, Run, State, Target
from collectors.wandb.settings import Project
from common.config.configuration import Configuration
from common.datadog import DatadogSink
from common.execution.delivery import Delivery
from common.metric import Mark
from common.execution.backfill_state import Survey
from common.net.retry import Deadline
from common.span import Span

until = {now} // 900 * 900
span = Span(until - {days} * 86400, until, 900)
chance = random.Random(1)
states = [State.FINISHED] * 6 + [State.FAILED, State.CRASHED, State.KILLED, State.PREEMPTED]
targets = [Target(ref, f"config{{number}}") for ref in ("main", "pr") for number in range(5)]

def run(number):
    kind = Kind(number % 3)
    start = round(chance.uniform(span.since, span.until) * SECOND)
    seen = start + round(chance.lognormvariate(0.5, 1.2) * 3600) * SECOND
    push = kind is Kind.PUSH_TO_MAIN
    return Run(f"run-{{number}}", chance.choice(states), kind, start, seen, seen - start,
               chance.choice((1, 4, 8)), number % 7 == 0, f"s{{number % 50}}" if kind is Kind.SWEEP else None,
               chance.choice(targets) if push else None,
               {{key: chance.uniform(1e4, 5e4) for key in THROUGHPUT}} if push else {{}})

runs = [run(number) for number in range({runs})]

def items():
    project = Project("acme", "ants")
    for figures in evaluate_many(runs, span.ticks, Rules()):
        yield from samples(project, figures, live=False)
        yield Mark({{"tick": figures.at}})

began = time.process_time()
survey = Survey.of(items(), time.time)
computed = time.process_time() - began
found = Configuration(dict(DD_ENV="bench", DD_API_KEY={key!r}, FLEETGAUGE_DD_URL={url!r}), None)
sink = DatadogSink(found.datadog(), found.core, Deadline(3600), oldest=span.since)
delivery = Delivery(sink, None)
began = time.process_time()
for item in items():
    delivery.take(item)
delivery.flush()
pushed = time.process_time() - began
assert sink.points_sent == survey.points.total() and not sink.dropped, (sink.points_sent, sink.dropped)
print(json.dumps([computed, pushed, sink.points_sent, len(survey.series),
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measure(share: int) -> tuple[float, float, int, int, float, int]:
    """One size: CPU seconds to compute and to push, points, series, peak MB and payloads."""
    with Intake(KEY) as intake:
        intake.historical = _Everything()
        code = _CODE.format(
            root=str(ROOT),
            now=int(time.time()),
            days=DAYS // share,
            runs=RUNS // share,
            key=KEY,
            url=intake.url,
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if ran.returncode:
            raise SystemExit(ran.stderr)
        computed, pushed, points, series, peak = json.loads(ran.stdout)
        return computed, pushed, points, series, peak, len(intake.requests)


class _Everything(set[str]):
    """Historical ingestion is on for every name."""

    def __contains__(self, _: object) -> bool:
        return True


def main() -> int:
    print(
        f"{'runs':>8}{'days':>6}{'points':>11}{'series':>8}{'computed':>11}{'pushed':>9}{'peak':>9}{'payloads':>10}"
    )
    costs = []
    for share in reversed(SIZES):
        computed, pushed, points, series, peak, payloads = measure(share)
        costs.append((computed, computed + pushed, peak))
        print(
            f"{RUNS // share:8,}{DAYS // share:6}{points:11,}{series:8,}"
            f"{computed:9.1f} s{pushed:7.1f} s{peak:6.0f} MB{payloads:10,}"
        )
    growth = [later[1] / before[1] for before, later in pairwise(costs)]
    holds = [
        claim("CPU seconds to compute a year of 100,000 runs", costs[-1][0], 60),
        claim("peak MB of computing and pushing it", costs[-1][2], 500),
        claim("growth of the CPU time from each size to its double", max(growth), 2.5),
    ]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
