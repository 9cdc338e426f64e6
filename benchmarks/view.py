"""Looking at years of ticks takes little memory beside the points, and little more than printing each point.

A dry run keeps its points in memory. One, two and four times 1.1 million points in 32 series are made as a
backfill makes them, and as many points in 20,000 series. Each way of showing them has a process of its own,
in which it takes turns with printing every point.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.measure import Claim, cost, judge, python, smallest  # noqa: E402
from common.run.backfill import MAX_BATCH_POINTS  # noqa: E402

STEP, SERIES, TICKS = 900, 32, 365 * 96
MAX_BYTES, MAX_MB, MAX_PRINTINGS = 20.0, 30.0, 3.0
_PROGRAM = """
import json, os, sys, tempfile
from pathlib import Path
from time import process_time
from benchmarks.measure import medians
from common.metric import gauge
from common.outcome import Outcome, Status
from common.show import export, page, table
from common.show.points import Points
from common.dashboard import Dashboard, Section, line
from common.window import Window
from rich.console import Console

series, ticks, step, together, rounds = {sizes}
span = Window(0, ticks * step, step)
metrics = [gauge("wandb.metric_%d" % number, "run", "A metric.", "series") for number in range(31)]
points = Points(metrics, series, span.since, span.until, many_ticks=True)
for start in range(1, ticks + 1, together):
    some = range(start, min(start + together, ticks + 1))
    for number in range(series):
        values = [(tick * 7919 + number) % 1009 / 7 for tick in some]
        points.add(metrics[number % 31].series([tick * step for tick in some], values, series=str(number)))
    points.flush()
outcomes, found = [Outcome("toy", Status.OK)], {{"toy": points}}
charts = tuple(line(metric.name, metric, by=metric.tags) for metric in metrics)
dashboards = {{"toy": [Dashboard("toy", "Toy", "Every metric.", (Section("All", charts),))]}}
nowhere = open(os.devnull, "w")
folder = Path(tempfile.mkdtemp(dir={folder!r}))

def printing():
    for part in points:
        for second, value in zip(part.times, part.values):
            nowhere.write("%d %r" % (second, value))

def showing():
    {way}

def cpu(work):
    before = process_time()
    work()
    return process_time() - before

print(json.dumps(medians(rounds, {{"printing": lambda: cpu(printing), "showing": lambda: cpu(showing)}})))
"""
NOTHING = "pass"
WAYS = {
    "table": "table.show(table.Output(nowhere, Console(file=nowhere, width=160)), outcomes, found, span)",
    "lines": "table.show(table.Output(nowhere), outcomes, found, span)",
    "json": "export.write_json(outcomes, found, nowhere)",
    "csv": "export.write_csv(folder / 'points.csv', outcomes, found)",
    "html": "page.write_page(folder / 'page.html', outcomes, found, span, dashboards)",
}


class Measured(NamedTuple):
    """What showing the points once took, how many times that is of printing them, and the peak."""

    cpu: float
    printings: float
    peak_mb: float


def measure(way: str, series: int, ticks: int, rounds: int) -> Measured:
    """Make points in a new process, in batches as large as those of a backfill, and show them."""
    sizes = (series, ticks, STEP, MAX_BATCH_POINTS // series, rounds)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        took = cost(python(_PROGRAM.format(sizes=sizes, way=way, folder=folder)), output=output)
        output.seek(0)
        cpu = json.load(output)
    return Measured(cpu["showing"], cpu["showing"] / cpu["printing"], took.peak_mb)


def main(argv: Sequence[str]) -> int:
    """Measure everything in one run; of each way the worst counts."""
    ticks, many, rounds = (96, 200, 1) if smallest(argv, __doc__) else (TICKS, 20_000, 3)
    printings: dict[str, list[float]] = {way: [] for way in WAYS}
    beside: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks = []
    for title, series, times in (
        ("1 year", SERIES, 1),
        ("2 years", SERIES, 2),
        ("4 years", SERIES, 4),
        ("many series", many, 1),
    ):
        length = times * ticks * SERIES // series
        peaks.append(measure(NOTHING, series, length, 1).peak_mb)
        print(f"{title}: {length * series:,} points in {series:,} series, {peaks[-1]:.0f} MB")
        for way, code in WAYS.items():
            took = measure(code, series, length, rounds)
            printings[way].append(took.printings)
            beside[way].append(took.peak_mb - peaks[-1])
            ratio = f"{took.printings:6.1f} x printing"
            print(f"  {way:<6}{took.cpu:7.2f} s CPU{ratio}{beside[way][-1]:6.0f} MB more")
    claims = [Claim("bytes of a point", (peaks[2] - peaks[0]) * 2**20 / (3 * ticks * SERIES), MAX_BYTES)]
    for way in WAYS:
        claims.append(Claim(f"{way}: MB beside the points", max(beside[way]), MAX_MB))
        claims.append(Claim(f"{way} / printing", max(printings[way]), MAX_PRINTINGS))
    return judge(claims)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
