"""Looking at a year of ticks costs a fixed memory and few times what reading it does.

Each way of showing a dry run is measured in a process of its own, over files of one, two and four times
1.1 million points in 32 series, and over as many points in 20,000 series.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.measure import claim, cost, python  # noqa: E402

YEAR, STEP, SERIES, POINTS = 365 * 86_400, 900, 32, 1_121_280
MAX_MB, MAX_READINGS = 150.0, 12.0
_BEGIN = f"""
import sys
sys.path[0] = {str(ROOT)!r}
from collections import deque
from pathlib import Path
from common.show.dry_run_file import DryRunFile
from common.outcome import Outcome, Status
from common.span import Span
outcomes, span = [Outcome("wandb", Status.OK)], Span(0, {{length}}, {STEP})
pieces = {{{{"wandb": DryRunFile(Path({{path!r}}))}}}}
"""
WAYS = {
    "read": "deque(pieces['wandb'], 0)",
    "table": "from common.show import overview; deque(overview.show(outcomes, pieces, span, 160), 0)",
    "json": "from common.show import report; report.write_document(outcomes, pieces, sys.stdout)",
    "csv": "from common.show import csv_file; csv_file.write(Path({path!r} + '.csv'), outcomes, pieces)",
    "html": "from common.show import page; page.write(Path({path!r} + '.html'), outcomes, pieces, span)",
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


def main() -> int:
    """Measure everything in one run."""
    holds = []
    with tempfile.TemporaryDirectory() as folder:
        peaks: dict[str, list[float]] = {way: [] for way in WAYS}
        for title, series, times in (
            ("1 year", SERIES, 1),
            ("2 years", SERIES, 2),
            ("4 years", SERIES, 4),
            ("20,000 series", 20_000, 1),
        ):
            path = Path(folder, "samples")
            write(path, series, times * POINTS, 250 if series == SERIES else 1)
            print(f"{title}: {times * POINTS:,} points, {path.stat().st_size / 1e6:.0f} MB")
            reading = 0.0
            for way, code in WAYS.items():
                begin = _BEGIN.format(length=times * YEAR, path=str(path))
                took = cost(python(begin + code.format(path=str(path))))
                reading = reading or took.cpu
                ratio = took.cpu / reading
                print(f"  {way:<6} {took.cpu:6.2f} s CPU, {ratio:4.1f} x reading, {took.peak_mb:4.0f} MB")
                if series == SERIES:
                    peaks[way].append(took.peak_mb)
                holds.append(claim(f"{way} of {title}, MB", took.peak_mb, MAX_MB))
                holds.append(claim(f"{way} of {title}, times as long as reading it", ratio, MAX_READINGS))
    for way, (once, _, four_times) in peaks.items():
        holds.append(claim(f"{way}: memory of 4 years by that of 1", four_times / once, 1.2))
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
