"""Looking at a year of ticks costs a fixed memory and few times what reading it does.

Each way of showing a dry run is measured in a process of its own, over files of one, two and four times
1.1 million points in 32 series, and over as many points in 20,000 series. Each way takes turns with reading.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.measure import Claim, Cost, cost, judge, medians, python, smallest  # noqa: E402

STEP, SERIES, TICKS = 900, 32, 365 * 96
MAX_MB, MAX_READINGS = 150.0, 12.0
_BEGIN = f"""
import sys
from collections import deque
from pathlib import Path
from common.show.dry_run_file import DryRunFile
from common.outcome import Outcome, Status
from common.window import Window
outcomes, span = [Outcome("wandb", Status.OK)], Window(0, {{length}}, {STEP})
points = {{{{"wandb": DryRunFile(Path({{path!r}}))}}}}
"""
READ = "deque(points['wandb'], 0)"
WAYS = {
    "table": "from common.show import layout, overview; "
    "deque(overview.show(outcomes, points, layout.Look(160), span), 0)",
    "json": "from common.show import report; report.write_document(outcomes, points, sys.stdout)",
    "csv": "from common.show import csv_file; csv_file.write(Path({path!r} + '.csv'), outcomes, points)",
    "html": "from common.show import page; page.write(Path({path!r} + '.html'), outcomes, points, span)",
}


def write(path: Path, series: int, points: int, piece: int) -> None:
    """A file of so many points: as a backfill writes it, some ticks of every series at a time."""
    names = [f"wandb.metric_{number % 31}" for number in range(series)]
    declared = [
        {"name": name, "type": "gauge", "unit": "run", "help": "A metric."} for name in dict.fromkeys(names)
    ]
    with path.open("w", encoding="utf-8") as lines:
        lines.write(json.dumps({"metrics": declared}) + "\n")
        for start in range(0, points // series, piece):
            ticks = range(start, min(start + piece, points // series))
            for number, name in enumerate(names):
                line = {
                    "metric": name,
                    "type": "gauge",
                    "unit": "run",
                    "host": None,
                    "tags": ["entity:acme", "project:ants", f"series:{number}"],
                    "points": [[tick * STEP, (tick * 7919 + number) % 1009 / 7] for tick in ticks],
                }
                lines.write(json.dumps(line, separators=(",", ":")) + "\n")


def compared(reading: list[str], showing: list[str], rounds: int) -> tuple[float, Cost]:
    """How many times the CPU of reading a file showing it takes, and what showing took."""
    took: list[Cost] = []

    def show() -> float:
        took.append(cost(showing))
        return took[-1].cpu

    cpu = medians(rounds, {"reading": lambda: cost(reading).cpu, "showing": show})
    return cpu["showing"] / cpu["reading"], Cost(cpu["showing"], max(one.peak_mb for one in took))


def main(argv: Sequence[str]) -> int:
    """Measure everything in one run; of each way the worst counts."""
    ticks, many, rounds = (96, 200, 1) if smallest(argv, __doc__) else (TICKS, 20_000, 3)
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    peaks: dict[str, list[float]] = {way: [] for way in WAYS}
    for title, series, times in (
        ("1 year", SERIES, 1),
        ("2 years", SERIES, 2),
        ("4 years", SERIES, 4),
        ("many series", many, 1),
    ):
        points = times * ticks * SERIES
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "samples")
            write(path, series, points, 250 if series == SERIES else 1)
            print(f"{title}: {points:,} points in {series:,} series, {path.stat().st_size / 1e6:.1f} MB")
            begin = _BEGIN.format(length=times * ticks * STEP, path=str(path))
            for way, code in WAYS.items():
                reading, showing = python(begin + READ), python(begin + code.format(path=str(path)))
                ratio, took = compared(reading, showing, rounds)
                ratios[way].append(ratio)
                peaks[way].append(took.peak_mb)
                print(f"  {way:<6}{took.cpu:7.2f} s CPU{ratio:6.1f} x reading{took.peak_mb:6.0f} MB")
    return judge(
        [
            claim
            for way in WAYS
            for claim in (
                Claim(f"{way}: peak MB", max(peaks[way]), MAX_MB),
                Claim(f"{way} / reading", max(ratios[way]), MAX_READINGS),
                Claim(f"{way}: memory of 4 years / of 1", peaks[way][2] / peaks[way][0], 1.2),
            )
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
