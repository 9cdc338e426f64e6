"""How metrics are looked at, as declarations: dashboards of sections and widgets, and monitors.

Knows which metric stands where, under which title, grouped by what. One declaration makes the dashboard in
Datadog, the layout of our own page and the documentation; how any of them is drawn is known elsewhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from common.metric import Combine, Metric

ANYWHERE = ("env", "service")  # tags of every point


class Draw(StrEnum):
    """What a widget looks like."""

    LINE = "line"
    BARS = "bars"
    TOPLIST = "toplist"
    VALUE = "query value"
    TABLE = "table"
    HEAT_MAP = "heat map"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Widget:
    """Some metrics under one title: one line, row or number for each metric and each value of `by`.

    Several series combine as their metric declares. With `share_of` what is shown is 100 times the sum of
    `metrics` by the sum of these: a percentage that is right for any number of series, where the mean of
    their percentages is not. `where` keeps only series with these tags; `span` is a time of the widget's own.
    """

    title: str
    draw: Draw
    metrics: tuple[Metric, ...] = ()
    by: tuple[str, ...] = ()
    share_of: tuple[Metric, ...] = ()
    where: tuple[str, ...] = ()
    span: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        if bool(self.metrics) is (self.draw is Draw.NOTE) or bool(self.text) is not (self.draw is Draw.NOTE):
            raise ValueError(f"{self.title}: a note has a text, and every other widget has metrics")
        for metric in (*self.metrics, *self.share_of):
            _check_tags(self.title, metric, self.by, self.where)
            if self.share_of and metric.combines is not Combine.SUM:
                raise ValueError(f"{self.title}: {metric.name} does not add up, so it has no share")


@dataclass(frozen=True, slots=True)
class Section:
    """Widgets that belong together."""

    title: str
    widgets: tuple[Widget, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page. `key` names its file, and is how it is found again; `about` says what the numbers mean."""

    key: str
    title: str
    about: str
    sections: tuple[Section, ...]
    pages: tuple[str, ...] = ()  # of the documentation

    def widgets(self) -> list[Widget]:
        """Every widget, in order."""
        return [widget for section in self.sections for widget in section.widgets]


@dataclass(frozen=True, slots=True)
class Monitor:
    """When somebody is told: once `reduce` over the last `window` of the metric is beyond `threshold`.

    With `change` it is the difference to that long ago, with `percent` in percent of what was then.
    `reason` is why the threshold is what it is; the message is made of what happened, why it matters, what
    to do, and the page of the documentation. With `no_data`, minutes of silence tell somebody, too.
    """

    key: str
    title: str
    metric: Metric
    reduce: str
    window: str
    compare: str
    threshold: float
    reason: str
    what: str
    why: str
    todo: str
    page: str
    by: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    change: str = ""
    percent: bool = False
    absolute: bool = False
    warning: float | None = None
    no_data: int | None = None
    priority: int = 3

    def __post_init__(self) -> None:
        _check_tags(self.key, self.metric, self.by, self.where)
        if self.warning is not None and (self.warning < self.threshold) is not (self.compare == ">"):
            raise ValueError(f"{self.key}: the warning must come before the threshold")


def _check_tags(title: str, metric: Metric, by: Iterable[str], where: Iterable[str]) -> None:
    """Raise where a tag is not the metric's own, or more would be combined than can be."""
    fixed = [pair.partition(":")[0] for pair in where]
    known = {*metric.tags, *ANYWHERE, *(("host",) if metric.on_node else ())}
    if wrong := [key for key in (*by, *fixed) if key not in known]:
        raise ValueError(f"{title}: {metric.name} does not declare the tag {', '.join(wrong)}")
    if metric.combines is Combine.NONE and (over := set(metric.tags) - {*by, *fixed}):
        raise ValueError(f"{title}: {metric.name} does not combine over {', '.join(sorted(over))}")


@dataclass(frozen=True, slots=True)
class Views:
    """How one collector is looked at: its dashboards, what it adds to *fleetgauge itself*, its monitors.

    A metric that is on no dashboard has the reason in `unseen`.
    """

    dashboards: tuple[Dashboard, ...] = ()
    itself: tuple[Section, ...] = ()
    monitors: tuple[Monitor, ...] = ()
    unseen: Mapping[Metric, str] = field(default_factory=dict)

    def metrics(self) -> set[Metric]:
        """Every metric that some widget shows."""
        sections = [section for one in self.dashboards for section in one.sections] + [*self.itself]
        widgets = [widget for section in sections for widget in section.widgets]
        return {metric for widget in widgets for metric in (*widget.metrics, *widget.share_of)}


def views_of(name: str, metrics: Iterable[Metric]) -> Views:
    """What `collectors/<name>/dashboard.py` declares; without one, a chart for every metric."""
    try:
        found: Views = importlib.import_module(f"collectors.{name}.dashboard").VIEWS
    except ModuleNotFoundError as error:
        if error.name != f"collectors.{name}.dashboard":
            raise
        charts = tuple(line(short_name(metric), metric, by=metric.tags) for metric in metrics)
        about = f"Every metric of the collector {name}."
        return Views((Dashboard(name.replace("_", "-"), name, about, (Section("Metrics", charts),)),))
    return found


def with_itself(own: Views, others: Iterable[Views]) -> Views:
    """The runner's own views, to the one dashboard of which every collector adds its sections."""
    [board] = own.dashboards
    added = (section for one in others for section in one.itself)
    return replace(own, dashboards=(replace(board, sections=(*board.sections, *added)),))


def short_name(metric: Metric) -> str:
    """The last part of its name in words; of a statistic, such as p95 or max, with what it is of."""
    *before, last = metric.name.split(".")
    words = last if len(last) > 3 or len(before) < 2 else f"{before[-1]}_{last}"
    return words.replace("_", " ")


# Any: the other fields of a widget
def _drawn(draw: Draw) -> Callable[..., Widget]:
    def make(title: str, *metrics: Metric, **more: Any) -> Widget:
        return Widget(title, draw, metrics, **more)

    return make


line, bars, toplist, value = map(_drawn, (Draw.LINE, Draw.BARS, Draw.TOPLIST, Draw.VALUE))
table, heat_map, note = map(_drawn, (Draw.TABLE, Draw.HEAT_MAP, Draw.NOTE))
