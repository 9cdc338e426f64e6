"""Declarations of dashboards and monitors: which metrics, under which title, grouped by which tags.

One declaration makes the dashboard in Datadog, the sections of our own page, and the documentation. The
queries are made in `common/datadog/documents.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from common.metric import Metric

DECIMALS = {"percent": 1, "hour": 1, "dollar": 2}  # of a single number in a unit; others are integers


class Draw(StrEnum):
    """The kind of a widget: how Datadog displays a time series, or its type of any other widget."""

    LINE = "line"
    BARS = "bars"
    TOPLIST = "toplist"
    VALUE = "query_value"
    TABLE = "query_table"
    HEAT_MAP = "heatmap"


Colour = tuple[str, float, str]  # comparator, value, palette
Link = tuple[str, str]  # label, URL; {{tag.value}} in it is the value of the widget's group


@dataclass(frozen=True, slots=True)
class Widget:
    """Metrics under one title: one line, row or number for each metric and each value of `by`.

    Several series combine as their metric declares. With `share_of` the widget shows 100 times the sum of
    `metrics` divided by the sum of these. `where` selects series by tags. `span` is a time span of its own,
    `hours` shows seconds as hours.
    """

    title: str
    draw: Draw
    metrics: tuple[Metric, ...] = ()
    by: tuple[str, ...] = ()
    share_of: tuple[Metric, ...] = ()
    where: tuple[str, ...] = ()
    span: str = ""
    hours: bool = False
    colours: tuple[Colour, ...] = ()
    link: Link | None = None


Sections = Mapping[str, tuple[Widget, ...]]  # widgets by the title of their section, in order


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard. `key` names its file and its key in Datadog; `about` explains the numbers."""

    key: str
    title: str
    about: str
    sections: Sections
    pages: tuple[str, ...] = ()  # of the documentation

    def widgets(self) -> list[Widget]:
        """Return every widget, in order."""
        return [widget for widgets in self.sections.values() for widget in widgets]


@dataclass(frozen=True, slots=True)
class Condition:
    """What a monitor compares: `reduce` over the last `window` of its metrics, with `threshold`.

    `formula` has a `{}` for each metric. With `change`, such as `pct_change 1w`, the difference to that long
    ago is compared.
    """

    metrics: tuple[Metric, ...]
    reduce: str
    window: str
    compare: str
    threshold: float
    warning: float | None = None
    by: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    formula: str = "{}"
    change: str = ""


@dataclass(frozen=True, slots=True)
class Monitor:
    """A condition, and the message: what happened, why it matters, what to do, and a page of documentation.

    `reason` is why the threshold is what it is. `no_data` are minutes without points that alert too. A
    monitor of priority 5 does not page: it has no recipients.
    """

    key: str
    title: str
    condition: Condition
    reason: str
    what: str
    why: str
    action: str
    page: str
    no_data: int | None = None
    priority: int = 3


class Views(NamedTuple):
    """The dashboards and monitors of one collector."""

    dashboards: tuple[Dashboard, ...] = ()
    monitors: tuple[Monitor, ...] = ()


def views_of(name: str, metrics: Iterable[Metric]) -> Views:
    """Return what `collectors/<name>/dashboard.py` declares; without one, a chart for every metric."""
    try:
        found: Views = importlib.import_module(f"collectors.{name}.dashboard").VIEWS
    except ModuleNotFoundError as error:
        if error.name != f"collectors.{name}.dashboard":
            raise
        charts = tuple(line(short_name(metric), metric, by=metric.tags) for metric in metrics)
        about = f"Every metric of the collector {name}."
        return Views((Dashboard(name.replace("_", "-"), name, about, {"Metrics": charts}),))
    return found


def short_name(metric: Metric) -> str:
    """Return the last part of a metric's name in words; of a statistic, such as p95, with what it is of."""
    *before, last = metric.name.split(".")
    label = last if len(last) > 3 or len(before) < 2 else f"{before[-1]}_{last}"
    return label.replace("_", " ")


def bad_above(limit: float) -> tuple[Colour, ...]:
    """Return colours of a value that is bad above a limit."""
    return ((">", limit, "white_on_red"), ("<=", limit, "white_on_green"))


def bad_below(limit: float, good: float) -> tuple[Colour, ...]:
    """Return colours of a value that is bad below a limit and good from another one on."""
    return (("<", limit, "white_on_red"), ("<", good, "white_on_yellow"), (">=", good, "white_on_green"))


# Any: the other fields of a widget
def _widget(draw: Draw, title: str, *metrics: Metric, **fields: Any) -> Widget:
    return Widget(title, draw, metrics, **fields)


line, bars, toplist = (partial(_widget, draw) for draw in (Draw.LINE, Draw.BARS, Draw.TOPLIST))
value, table, heat_map = (partial(_widget, draw) for draw in (Draw.VALUE, Draw.TABLE, Draw.HEAT_MAP))
