"""What the page of a dry run is called, and its file: the collectors, the projects and the span."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from common.show.dry_run_file import SeriesKey
from common.span import Span
from common.times import iso

MAX_NAMED = 3  # projects in a title


def title(collectors: Sequence[str], series: Iterable[SeriesKey], span: Span) -> str:
    """The title of the page of these collectors and series."""
    found = _projects(series)
    named = ", ".join(found) if len(found) <= MAX_NAMED else f"{len(found)} projects"
    whose = f" of {named}" if found else ""
    return (
        f"Backfill of {', '.join(collectors)}{whose}, {_day(span.since)} to {_day(span.until)} UTC, not sent"
    )


def file_name(collectors: Sequence[str], series: Iterable[SeriesKey], span: Span) -> str:
    """The name of its file, where only a directory was asked for."""
    words = [*collectors, *_projects(series)[:MAX_NAMED], _day(span.since), "to", _day(span.until)]
    return re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(words)).strip("-.")[:150] + ".html"


def _projects(series: Iterable[SeriesKey]) -> list[str]:
    """The projects that series name, each as entity/project."""
    tags = (dict(label.partition(":")[::2] for label in one.labels) for one in series)
    return sorted({"/".join((tag.get("entity", "?"), tag["project"])) for tag in tags if "project" in tag})


def _day(moment: int) -> str:
    return iso(moment)[:16].replace("T", " ")
