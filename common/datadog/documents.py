"""Make the documents that Datadog takes for dashboards, monitors and metadata.

Pure functions: the same declaration always makes the same document. Each query sets how points combine in
time (`rollup`, `as_count`) and over tags, so that no default decides it.

The declarations are of the types in `common/dashboard.py`; `provisioning.py` writes the documents to Datadog,
`scripts/datadog_documents.py` the files of `docs/datadog/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from common.dashboard import DECIMALS, Dashboard, Draw, Monitor, Widget, short_name
from common.metric import Combine, Kind, Metric
from common.names import normalise_tag

# Seconds of a bucket in which several series combine: their points differ by up to a tick, and in a shorter
# bucket some of them would be missing.
BUCKET = 900
# Seconds that a point may arrive after the time it is true for: a monitor that evaluates earlier would see an
# incomplete bucket, and a new group one without its first points.
DELAY = 300
# Template variables, in the order in which a dashboard shows them.
VARIABLES = ("project", "user", "host", "job", "job_id", "run", "run_hash", "rank")

Document = dict[str, Any]  # Any: JSON

_AGGREGATORS = {Combine.MEAN: "avg", Combine.NONE: "avg"}
_SCALED = ("byte", "second", "watt")  # units that Datadog may show as GiB, min or kW


@dataclass(frozen=True)
class DocumentTarget:
    """What documents are made for: service of the points, recipients, URLs of documentation and W&B.

    It contains all that differs between installations.
    """

    service: str = "fleetgauge"
    notify: tuple[str, ...] = ()
    documents: str = ""
    wandb: str = "https://wandb.ai"

    def page(self, path: str) -> str:
        """Return a page of the documentation, as a link where its URL is known."""
        return f"[{path}]({self.documents.rstrip('/')}/{path})" if self.documents else f"`{path}`"


def dashboard_document(dashboard: Dashboard, target: DocumentTarget) -> Document:
    """Return what Datadog's API and its import accept for a dashboard.

    It has a group per section, after one about the dashboard, and those of VARIABLES that one of its metrics
    has as a tag.
    """
    metrics = {m for widget in dashboard.widgets() for m in (*widget.metrics, *widget.share_of)}
    keys = frozenset().union(*map(_keys, metrics))
    variables = ("env", "service", *(name for name in VARIABLES if name in keys))
    pages = ", ".join(map(target.page, dashboard.pages))
    about = f"{dashboard.about}\n\nDocumentation: {pages}\n" if pages else dashboard.about
    note = {"type": "note", "content": about, "background_color": "white", "font_size": "14"}
    groups = {"About": [note]}
    for title, widgets in dashboard.sections.items():
        groups[title] = [_definition(widget, target) for widget in widgets]
    return {
        "title": dashboard.title,
        "description": dashboard.about,
        "layout_type": "ordered",
        "reflow_type": "auto",  # Datadog arranges the widgets
        "template_variables": [{"name": name, "prefix": name, "defaults": ["*"]} for name in variables],
        "widgets": [
            {
                "definition": {
                    "type": "group",
                    "layout_type": "ordered",
                    "title": title,
                    "widgets": [{"definition": definition} for definition in definitions],
                }
            }
            for title, definitions in groups.items()
        ],
    }


def _keys(metric: Metric) -> frozenset[str]:
    """Return the tags that the series of a metric have; the host is none of the declared ones."""
    return frozenset((*metric.tags, "host") if metric.on_node else metric.tags)


def _definition(widget: Widget, target: DocumentTarget) -> Document:
    """Return the definition of a widget: its request, and what its type needs besides."""
    is_graph = widget.draw in {Draw.LINE, Draw.BARS}
    definition: Document = {
        "type": "timeseries" if is_graph else widget.draw.value,
        "title": widget.title,
        "requests": [_request(widget)],
    }
    if is_graph:
        definition["show_legend"] = True
    if widget.draw is Draw.VALUE:
        unit = _unit(widget, widget.metrics[0])
        # Autoscale turns bytes into GiB, but it would also turn 1,200 runs into 1.2k.
        scaled = unit in _SCALED
        definition |= {"autoscale": scaled, "precision": 1 if scaled else DECIMALS.get(unit, 0)}
    if widget.span:
        definition["time"] = {"live_span": widget.span}
    if widget.link:
        label, url = widget.link
        definition["custom_links"] = [{"label": label, "link": url.replace("https://wandb.ai", target.wandb)}]
    return definition


def _unit(widget: Widget, metric: Metric) -> str:
    """Return the unit that a widget shows a metric in."""
    if widget.share_of:
        return "percent"
    return "hour" if widget.hours and metric.unit == "second" else metric.unit


def _request(widget: Widget) -> Document:
    """Return the queries of a widget and the formulas over them."""
    over_time = widget.draw in {Draw.LINE, Draw.BARS, Draw.HEAT_MAP}
    metrics = dict.fromkeys((*widget.metrics, *widget.share_of))
    names = {metric: f"query{number}" for number, metric in enumerate(metrics, start=1)}
    queries = []
    for metric, name in names.items():
        query = {"data_source": "metrics", "name": name, "query": _widget_query(metric, widget)}
        # A single number over the time of the dashboard: a count adds up, of a gauge the current value is
        # shown.
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
    if widget.colours:
        request["conditional_formats"] = [
            {"comparator": compare, "value": value, "palette": palette}
            for compare, value, palette in widget.colours
        ]
    return request


def _formulas(widget: Widget, names: Mapping[Metric, str]) -> Iterator[Document]:
    """Yield a formula per metric, or one for a share; in a share and a value a missing count is 0.

    A count without points is no data in Datadog, which would make a share or a number empty.
    """
    terms = {m: f"default_zero({name})" if m.kind is Kind.COUNT else name for m, name in names.items()}
    if widget.share_of:
        part = " + ".join(terms[metric] for metric in widget.metrics)
        total = " + ".join(terms[metric] for metric in widget.share_of)
        yield _formula(f"100 * ({part}) / ({total})", "share", "percent")
        return
    for metric in widget.metrics:
        unit = _unit(widget, metric)
        formula = (terms if widget.draw is Draw.VALUE else names)[metric]
        alias = short_name(metric)
        if unit != metric.unit:
            formula, alias = f"{formula} / 3600", re.sub(r" s(econds)?$", " hours", alias)
        yield _formula(formula, alias, unit)


def _formula(formula: str, alias: str, unit: str) -> Document:
    number_format = {"unit": {"type": "canonical_unit", "unit_name": unit}} if unit else None
    return _given(formula=formula, alias=alias, number_format=number_format)


def _given(**fields: object) -> Document:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _widget_query(metric: Metric, widget: Widget) -> str:
    """Return the query of a metric in a widget: its scope, its groups and its rollup."""
    keys = _keys(metric)
    variables = ["$env", "$service", *(f"${name}" for name in VARIABLES if name in keys)]
    series = series_query(metric, [*variables, *widget.where], widget.by)
    if metric.kind is Kind.COUNT:
        return series
    # A group of one series, and a span of its own, leave the bucket to Datadog, which returns 1,500 points. A
    # group that names no owner may have a series of each node, whose points are at different seconds.
    fixed = {*widget.by, *(pair.partition(":")[0] for pair in widget.where)}
    single = keys <= fixed and not fixed.isdisjoint(VARIABLES) and not metric.open_tags
    how = metric.combines.value if metric.combines in {Combine.MAX, Combine.MIN} else "avg"
    return f"{series}.rollup({how})" if single or widget.span else f"{series}.rollup({how}, {BUCKET})"


def series_query(metric: Metric, scope: Iterable[str], by: Sequence[str]) -> str:
    """Return a query that selects series by tags and combines them, for each group of `by`.

    `as_count` has Datadog add up the points of a count in each interval, without interpolation.
    """
    aggregator = _AGGREGATORS.get(metric.combines, metric.combines.value)
    groups = f" by {{{','.join(by)}}}" if by else ""
    counts = ".as_count()" if metric.kind is Kind.COUNT else ""
    return f"{aggregator}:{metric.name}{{{','.join(scope)}}}{groups}{counts}"


def monitor_document(monitor: Monitor, target: DocumentTarget) -> Document:
    """Return what Datadog's API and its import accept for a monitor.

    A monitor of priority 5 notifies no recipients.
    """
    condition = monitor.condition
    options = {
        "thresholds": _given(critical=condition.threshold, warning=condition.warning),
        # Off for sparse data: a point every 15 minutes never fills a window.
        "require_full_window": False,
        "evaluation_delay": DELAY,
        "notify_no_data": monitor.no_data is not None,
        **_given(no_data_timeframe=monitor.no_data, new_group_delay=DELAY if condition.by else None),
    }
    parts = (
        monitor.what,
        f"Why it matters: {monitor.why}",
        f"What to do: {monitor.action}",
        f"Documentation: {target.page(monitor.page)}",
        " ".join(target.notify) if monitor.priority < 5 else "",
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
    """Return the query of a monitor; it is always grouped by `env`, so that one never hides another.

    The threshold in it must be equal to that of the options, or Datadog refuses the monitor.
    """
    condition = monitor.condition
    scope = [normalise_tag(f"service:{service}"), *condition.where]
    series = [series_query(metric, scope, ("env", *condition.by)) for metric in condition.metrics]
    reduced = f"{condition.reduce}(last_{condition.window})"
    if condition.change:
        function, ago = condition.change.split()
        reduced = f"{function}({reduced},last_{ago})"
    # Without an exponent, as numbers in a query are written.
    threshold = f"{Decimal(repr(condition.threshold)):f}".removesuffix(".0")
    return f"{reduced}:{condition.formula.format(*series)} {condition.compare} {threshold}"


def metadata_document(metric: Metric) -> Document:
    """Return description, short name and, where there is one, unit of a metric, as Datadog shows them."""
    return _given(description=metric.help, short_name=short_name(metric), unit=metric.unit or None)
