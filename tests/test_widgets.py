"""Every widget and monitor, evaluated over the points that the demo leaves in Datadog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from common.dashboard import Widget
from common.datadog.documents import DocumentTarget, dashboard_document, monitor_document
from common.metric import Combine, Kind, Metric
from scripts import demo
from scripts.datadog_documents import all_views
from support.queries import AUTO, MISSING, MonitorQuery, Series, alerts, queries, widget_values
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.wandb import Wandb

pytestmark = pytest.mark.slow

BOARDS = [board for views in all_views() for board in views.dashboards]
MONITORS = [monitor for views in all_views() for monitor in views.monitors]


class Held(NamedTuple):
    """What Datadog holds after the demo's push."""

    series: list[Series]
    now: int

    def of(self, metric: Metric) -> list[Series]:
        return [one for one in self.series if one.metric == metric.name]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    folder = tmp_path_factory.mktemp("demo")
    with Aws() as aws, Intake(key=demo.KEY, app_key=demo.APP_KEY) as intake, Wandb(key=demo.KEY) as wandb:
        environment = demo.prepare(folder, aws, intake, wandb)
        assert demo.run(["all", "--push"], environment, quiet=True) == 0
        series = []
        for name in intake.names():
            for (tags, host), points in intake.series(name).items():
                own = dict(tag.split(":", 1) for tag in tags) | ({"host": host} if host else {})
                series.append(Series(name, own, points))
        yield Held(series, int(time.time()) + 60)


def drawn() -> list[tuple[Widget, dict[str, Any]]]:
    """Every widget with its request."""
    found = []
    for board in BOARDS:
        made = [
            one["definition"]
            for group in dashboard_document(board, DocumentTarget())["widgets"]
            for one in group["definition"]["widgets"]
        ]
        for widget, definition in zip(board.widgets(), made[1:], strict=True):
            found += [(widget, request) for request in definition.get("requests", ())]
    return found


def test_no_formula_of_a_widget_is_empty(held: Held) -> None:
    empty = {
        widget.title
        for widget, request in drawn()
        if not all(widget_values(request, held.series, held.now - 4 * 3600, held.now))
    }
    assert empty == set()


def test_values_and_toplists_equal_what_was_sent(held: Held) -> None:
    start, checked = held.now - 4 * 3600, 0
    for widget, request in drawn():
        if widget.where or request["response_format"] != "scalar":
            continue
        for formula, shown in enumerate(widget_values(request, held.series, start, held.now)):
            for group, value in shown.items():
                if widget.share_of:
                    expected = 100 * total(held, widget.metrics, group) / total(held, widget.share_of, group)
                else:
                    metric = widget.metrics[formula]
                    hours = widget.hours and metric.unit == "second"
                    found = combined(metric, members(held, metric, widget.by, group), widget.by)
                    expected = found / 3600 if hours else found
                assert value == pytest.approx(expected), (widget.title, group)
                checked += 1
    assert checked > 80


def total(held: Held, metrics: tuple[Metric, ...], group: tuple[str, ...]) -> float:
    assert group == (), "shares are of everything"
    return sum(combined(metric, held.of(metric), ()) for metric in metrics if held.of(metric))


def members(held: Held, metric: Metric, by: tuple[str, ...], group: tuple[str, ...]) -> list[Series]:
    return [one for one in held.of(metric) if tuple(one.tags.get(key, MISSING) for key in by) == group]


def combined(metric: Metric, series: list[Series], by: tuple[str, ...]) -> float:
    """Return the number that stands for series: counts added up over time, gauges of the last tick."""
    if metric.kind is Kind.COUNT:
        return sum(sum(one.points.values()) for one in series)
    tags = {*metric.tags, *(["host"] if metric.on_node else [])}
    is_single = tags <= {*by} and bool({"project", "host", "job"} & {*by}) and not metric.open_tags
    width = AUTO if is_single else 900
    newest = max(max(one.points) // width for one in series)
    last = []
    for one in series:
        seconds = [second for second in one.points if second // width == newest]
        if seconds:
            values = [one.points[second] for second in seconds]
            how = {Combine.MAX: max, Combine.MIN: min}.get(metric.combines)
            last.append(how(values) if how else sum(values) / len(values))
    result = metric.combines.of(last)
    assert result is not None
    return result


def test_counts_over_time_add_up_to_what_was_sent(held: Held) -> None:
    checked = 0
    for widget, request in drawn():
        if request["response_format"] == "scalar" or widget.share_of or widget.where:
            continue
        shown = widget_values(request, held.series, 0, held.now)
        for metric, values in zip(widget.metrics, shown, strict=True):
            if metric.kind is Kind.COUNT and values:
                sent = sum(sum(one.points.values()) for one in held.of(metric))
                assert sum(values.values()) == pytest.approx(sent), widget.title
                checked += 1
    assert checked >= 8


def test_every_monitor_can_be_evaluated_and_only_the_demos_troubles_alert(held: Held) -> None:
    alerting, evaluated = set(), set()
    for monitor in MONITORS:
        document = monitor_document(monitor, DocumentTarget())
        found = alerts(document, held.series, held.now)
        assert found["no data"] == [], monitor.key
        if found["alert"]:
            alerting.add(monitor.key)
        selected = queries(MonitorQuery.read(document["query"]).expression)[0].select(held.series)
        assert not any(MISSING in group for group in selected), monitor.key
        evaluated |= {monitor.key} if selected else set()
    assert len(evaluated) >= len(MONITORS) - 4, evaluated
    assert alerting <= {"gpu-xid", "gpu-ecc", "oom-dump", "idle-gpus", "gpu-lost", "pipeline-error"}, alerting
