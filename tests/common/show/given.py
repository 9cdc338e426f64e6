"""Points with any names and values, also such as no sink would let through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from common.dashboard import Dashboard, line, views_of
from common.metric import Metric, Series
from common.outcome import Outcome
from common.show.page import write_page
from common.show.points import Points
from common.window import Window


class GivenPoints(Points):
    """The points of a dry run that found these series."""

    def __init__(self, metrics: Iterable[Metric], found: Sequence[Series]) -> None:
        super().__init__(metrics, cap=0, oldest=0, newest=0)
        self._found = found

    def __iter__(self) -> Iterator[Series]:
        return iter(self._found)


def draw_page(path: Path, outcome: Outcome, points: Points, span: Window) -> Path:
    """Write the page of one collector, with the dashboards that it declares."""
    name = outcome.collector
    boards = views_of(name, points.metrics).dashboards if name == "wandb" else one_chart_each(points)
    return write_page(path, [outcome], {name: points}, span, {name: boards})


def one_chart_each(points: Points) -> tuple[Dashboard, ...]:
    """Return a dashboard with a chart for every metric."""
    charts = tuple(line(metric.name, metric, by=metric.tags) for metric in points.metrics)
    return (Dashboard("all", "All", "Every metric.", {"Metrics": charts}),)
