"""Every sample of a dry run as a row of a CSV file, for a spreadsheet or a notebook."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from common.outcome import Outcome
from common.show.dry_run_file import SeriesPoints
from common.show.output import output_file
from common.times import iso

COLUMNS = ("time", "timestamp", "metric", "type", "unit", "host", "tags", "value")


def write(path: Path, outcomes: Iterable[Outcome], points: Mapping[str, Iterable[SeriesPoints]]) -> None:
    """Write the file; raises ConfigurationError where it cannot be."""
    with output_file(path, "--csv") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for outcome in outcomes:
            for part in points.get(outcome.collector, ()):
                metric, tags, host = part.series
                same = tuple(map(_defused, (metric, part.type, part.unit, host or "", " ".join(tags))))
                rows.writerows(
                    (_time(second), second, *same, value)
                    for second, value in zip(part.seconds, part.values, strict=True)
                )


_time = lru_cache(maxsize=4096)(iso)  # the series of a tick share its time


def _defused(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
