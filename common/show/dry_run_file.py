"""How the samples of a dry run travel from the child to the parent: a file of JSON lines.

The first line declares the metrics in the order of the catalogue; every other one is a part of a series.
It is read as often as asked and never held whole: a year of ticks is more than a million points.

Standard library only, because the parent is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Declared(NamedTuple):
    """A metric as its collector declares it; the parent imports no collector."""

    name: str
    type: str
    unit: str
    help: str
    combines: str = "none"


class Chart(NamedTuple):
    """Metrics under one title, as their collector declares it; `by` is None for a line per series."""

    title: str
    metrics: tuple[str, ...] = ()
    by: tuple[str, ...] | None = None
    share_of: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    text: str = ""


class Board(NamedTuple):
    """A dashboard: its title, where it is in Datadog, and its charts by the titles of its sections."""

    title: str
    url: str
    sections: tuple[tuple[str, tuple[Chart, ...]], ...]


class SeriesKey(NamedTuple):
    """What tells one series from another."""

    metric: str
    tags: tuple[str, ...]
    host: str | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags, with the host as one more."""
        return (*self.tags, f"host:{self.host}") if self.host else self.tags


class SeriesPoints(NamedTuple):
    """Some points of one series: seconds and the values true at them."""

    series: SeriesKey
    type: str
    unit: str
    seconds: tuple[int, ...]
    values: tuple[float, ...]


class DryRunFile:
    """What one collector left; nothing, where it could not even begin."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def declared(self) -> list[Declared]:
        """Every metric that the collector may emit, in order."""
        for first in self._lines():
            return [Declared(**metric) for metric in first["metrics"]]
        return []

    def boards(self) -> list[Board]:
        """How the metrics are looked at, in order; where nobody declared it, in a chart for each."""
        first = next(self._lines(), None)
        if first is None:
            return []
        if "boards" not in first:
            charts = tuple(Chart(metric["name"], (metric["name"],)) for metric in first["metrics"])
            return [Board("", "", (("", charts),))]
        return [
            Board(title, url, tuple((name, tuple(map(_chart, charts))) for name, charts in sections))
            for title, url, sections in first["boards"]
        ]

    def __iter__(self) -> Iterator[SeriesPoints]:
        """The points in the order in which they were written."""
        lines = self._lines()
        next(lines, None)
        for line in lines:
            series = SeriesKey(line["metric"], tuple(line["tags"]), line["host"])
            seconds, values = zip(*line["points"], strict=True)
            yield SeriesPoints(series, line["type"], line["unit"], seconds, values)

    # Any: the first line has other keys than the rest.
    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open(encoding="utf-8") as lines:
            for line in lines:
                if not line.endswith("\n"):
                    return  # the child was ended while it wrote; its outcome says so
                yield json.loads(line)


# Any: what JSON makes of a chart
def _chart(fields: list[Any]) -> Chart:
    return Chart._make(tuple(one) if isinstance(one, list) else one for one in fields)
