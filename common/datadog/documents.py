"""Dashboards, monitors and metadata as the documents that Datadog takes.

Pure functions from declarations: the same declaration always makes the same document. Queries say outright
how points become one in time (`rollup`) and how series become one over tags, so that no default decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from common.dashboard import Dashboard, Draw, Monitor, Section, Widget, short_name
from common.metric import Combine, Kind, Metric
from common.names import normalise_tag

# Seconds that each point of a chart stands for, at least: points of different hosts and runs lie up to a tick
# apart, and in a shorter stretch a sum would miss some of them.
STRETCH = 900
COLUMNS = 12
DELAY = 300  # seconds that a point may come after the time it is true for
MAX_DESCRIPTION = 400 - len(" [fleetgauge:00000000]")  # which provisioning adds

Document = dict[str, Any]  # Any: JSON

_AGGREGATORS = {Combine.MEAN: "avg", Combine.NONE: "avg"}
_SIZES = {Draw.VALUE: (4, 2), Draw.NOTE: (6, 2)}
_TYPES = {
    Draw.LINE: "timeseries",
    Draw.BARS: "timeseries",
    Draw.TOPLIST: "toplist",
    Draw.VALUE: "query_value",
    Draw.TABLE: "query_table",
    Draw.HEAT_MAP: "heatmap",
}


@dataclass(frozen=True)
class Target:
    """What documents are made for: the service of the points, the recipients, the documentation's URL."""

    service: str = "fleetgauge"
    notify: tuple[str, ...] = ()
    documents: str = ""

    def page(self, path: str) -> str:
        """A page of the documentation, as a link where it is known where it stands."""
        return f"[{path}]({self.documents.rstrip('/')}/{path})" if self.documents else f"`{path}`"


def dashboard_document(board: Dashboard, target: Target) -> Document:
    """What Datadog's API and its import take for a dashboard."""
    metrics = {m for widget in board.widgets() for m in (*widget.metrics, *widget.share_of)}
    names = [name for name in ("project", "user", "host") if any(_has(metric, name) for metric in metrics)]
    variables = ["env", "service", *names]
    pages = ", ".join(map(target.page, board.pages))
    about = f"{board.about}\n\nDocumentation: {pages}\n" if pages else board.about
    groups = [Section("About", (Widget(board.title, Draw.NOTE, text=about),)), *board.sections]
    return {
        "title": board.title,
        "description": board.about,
        "layout_type": "ordered",
        "reflow_type": "fixed",
        "template_variables": [
            {"name": name, "prefix": name, "available_values": [], "defaults": ["*"]} for name in variables
        ],
        "widgets": [*_stacked(groups, variables)],
    }


def _has(metric: Metric, variable: str) -> bool:
    return variable in metric.tags or (variable == "host" and metric.on_node)


def _stacked(groups: Iterable[Section], variables: Iterable[str]) -> Iterator[Document]:
    """Groups one below the other, each as high as what is in it."""
    top = 0
    for group in groups:
        inside, height = _rows(group.widgets, variables)
        layout = {"x": 0, "y": top, "width": COLUMNS, "height": height + 1}
        definition = {
            "type": "group",
            "layout_type": "ordered",
            "title": group.title,
            "show_title": True,
            "widgets": inside,
        }
        yield {"definition": definition, "layout": layout}
        top += height + 1


def _rows(widgets: Iterable[Widget], variables: Iterable[str]) -> tuple[list[Document], int]:
    """Widgets side by side as long as there is room; the last of a row takes what is left of it."""
    placed: list[Document] = []
    x = y = tallest = 0
    for widget in widgets:
        width, height = _SIZES.get(widget.draw, (6, 4))
        if x + width > COLUMNS:
            placed[-1]["layout"]["width"] += COLUMNS - x
            x, y, tallest = 0, y + tallest, 0
        layout = {"x": x, "y": y, "width": width, "height": height}
        placed.append({"definition": _definition(widget, variables), "layout": layout})
        x, tallest = x + width, max(tallest, height)
    placed[-1]["layout"]["width"] += COLUMNS - x
    return placed, y + tallest


def _definition(widget: Widget, variables: Iterable[str]) -> Document:
    if widget.draw is Draw.NOTE:
        return {"type": "note", "content": widget.text, "background_color": "white", "font_size": "14"}
    made: Document = {
        "type": _TYPES[widget.draw],
        "title": widget.title,
        "requests": [_request(widget, variables)],
    }
    if made["type"] == "timeseries":
        made |= {"show_legend": True, "legend_layout": "auto", "legend_columns": ["avg", "max", "value"]}
        made["yaxis"] = {"include_zero": True}
    if widget.draw is Draw.VALUE:
        made |= {"autoscale": True, "precision": 1}
    if widget.span:
        made["time"] = {"live_span": widget.span}
    return made


def _request(widget: Widget, variables: Iterable[str]) -> Document:
    over_time = widget.draw in {Draw.LINE, Draw.BARS, Draw.HEAT_MAP}
    asked = dict.fromkeys((*widget.metrics, *widget.share_of))
    names = {metric: f"query{number}" for number, metric in enumerate(asked, start=1)}
    queries = []
    for metric, name in names.items():
        query = {"data_source": "metrics", "name": name, "query": _query(metric, widget, variables)}
        if not over_time:
            query["aggregator"] = "sum" if metric.kind is Kind.COUNT else "last"
        queries.append(query)
    request: Document = {
        "formulas": [*_formulas(widget, names)],
        "queries": queries,
        "response_format": "timeseries" if over_time else "scalar",
    }
    if widget.draw in {Draw.LINE, Draw.BARS}:
        request["display_type"] = widget.draw.value
    if widget.draw in {Draw.TOPLIST, Draw.TABLE}:
        request["sort"] = {"count": 25, "order_by": [{"type": "formula", "index": 0, "order": "desc"}]}
    return request


def _formulas(widget: Widget, names: Mapping[Metric, str]) -> Iterator[Document]:
    if widget.share_of:
        part = " + ".join(names[metric] for metric in widget.metrics)
        whole = " + ".join(names[metric] for metric in widget.share_of)
        yield {"formula": f"100 * ({part}) / ({whole})", "alias": "share", **_unit("percent")}
        return
    for metric in widget.metrics:
        yield {"formula": names[metric], "alias": short_name(metric), **_unit(metric.unit)}


def _unit(name: str) -> Document:
    if not name:
        return {}
    return {"number_format": {"unit": {"type": "canonical_unit", "unit_name": name}}}


def _query(metric: Metric, widget: Widget, variables: Iterable[str]) -> str:
    own = [f"${name}" for name in variables if name in {"env", "service"} or _has(metric, name)]
    rolled = ".as_count()"
    if metric.kind is not Kind.COUNT:
        how = metric.combines.value if metric.combines in {Combine.MAX, Combine.MIN} else "avg"
        rolled = f".rollup({how}, {STRETCH})"
    return _series(metric, [*own, *widget.where], widget.by) + rolled


def _series(metric: Metric, scope: Iterable[str], by: Iterable[str]) -> str:
    aggregator = _AGGREGATORS.get(metric.combines, metric.combines.value)
    grouped = ",".join(by)
    return f"{aggregator}:{metric.name}{{{','.join(scope)}}}" + (f" by {{{grouped}}}" if grouped else "")


def monitor_document(monitor: Monitor, target: Target) -> Document:
    """What Datadog's API and its import take for a monitor."""
    thresholds = {"critical": monitor.threshold}
    if monitor.warning is not None:
        thresholds["warning"] = monitor.warning
    options: Document = {
        "thresholds": thresholds,
        "require_full_window": False,
        "evaluation_delay": DELAY,
        "include_tags": True,
        "notify_audit": False,
        "notify_no_data": monitor.no_data is not None,
    }
    if monitor.no_data is not None:
        options["no_data_timeframe"] = monitor.no_data
    if monitor.by:
        options["new_group_delay"] = DELAY
    parts = (
        monitor.what,
        f"Why it matters: {monitor.why}",
        f"What to do: {monitor.todo}",
        f"Documentation: {target.page(monitor.page)}",
        " ".join(target.notify),
    )
    return {
        "name": monitor.title,
        "type": "query alert",
        "query": monitor_query(monitor, target.service),
        "message": "\n\n".join(filter(None, parts)),
        "tags": [normalise_tag(f"service:{target.service}"), "integration:fleetgauge"],
        "priority": monitor.priority,
        "options": options,
    }


def monitor_query(monitor: Monitor, service: str) -> str:
    """The condition; `env` is always told apart, so that one that is quiet never hides another."""
    scope = [normalise_tag(f"service:{service}"), *monitor.where]
    series = _series(monitor.metric, scope, ("env", *monitor.by))
    if monitor.metric.kind is Kind.COUNT:
        series += ".as_count()"
    if monitor.absolute:
        series = f"abs({series})"
    reduced = f"{monitor.reduce}(last_{monitor.window})"
    if monitor.change:
        reduced = f"{'pct_change' if monitor.percent else 'change'}({reduced},last_{monitor.change})"
    return f"{reduced}:{series} {monitor.compare} {_number(monitor.threshold)}"


def metadata_document(metric: Metric) -> Document:
    """Unit, description and short name, as Datadog shows them."""
    text = metric.help
    if len(text) > MAX_DESCRIPTION:
        text = text[: MAX_DESCRIPTION - 3].rstrip() + "..."
    unit = {"unit": metric.unit} if metric.unit else {}
    return {"description": text, "short_name": short_name(metric), **unit}


def _number(value: float) -> str:
    """As it is written in a query: without an exponent."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0")
