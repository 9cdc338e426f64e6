"""What the page of a dry run is called: the collectors, the projects and the span."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from common.show.overview import from_to
from common.show.points import SeriesKey
from common.window import Window

MAX_NAMED = 3  # projects in a title


def page_title(collectors: Sequence[str], series: Iterable[SeriesKey], span: Window) -> str:
    """The title of the page of these collectors and series."""
    found = _projects(series)
    named = ", ".join(found) if len(found) <= MAX_NAMED else f"{len(found)} projects"
    whose = f" of {named}" if found else ""
    return f"Dry run of {', '.join(collectors)}{whose}, {from_to(span.since, span.until)}"


def _projects(series: Iterable[SeriesKey]) -> list[str]:
    """The projects that series name, each as entity/project."""
    tags = (dict(label.partition(":")[::2] for label in one.labels) for one in series)
    return sorted({"/".join((tag.get("entity", "?"), tag["project"])) for tag in tags if "project" in tag})
