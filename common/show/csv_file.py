"""Every sample of a dry run as a row of a CSV file, for a spreadsheet or a notebook."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from common.outcome import Outcome
from common.show.output import output_file
from common.show.points import SeriesPoints
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


def _time(second: int) -> str:
    """The moment as `iso` writes it: days and times of day are few, however many seconds there are."""
    day, time = divmod(second, 86_400)
    return _date(day) + _time_of_day(time)


@lru_cache(maxsize=4096)
def _date(day: int) -> str:
    return iso(day * 86_400)[:10]


@cache
def _time_of_day(second: int) -> str:
    return iso(second)[10:]


def _defused(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
