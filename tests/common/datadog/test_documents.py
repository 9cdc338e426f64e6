"""What Datadog is given: understood by the official models to the last field, and true to the metrics."""

from __future__ import annotations

import re
from typing import Any

import pytest

from common.dashboard import Dashboard, Monitor
from common.datadog.documents import DocumentTarget, dashboard_document, monitor_document
from common.metric import Combine, Kind, Metric
from scripts.datadog_documents import all_views, documents, every_metric, stale
from support.queries import MonitorQuery, Series, parse, queries, widget_values

METRICS = {metric.name: metric for metric in every_metric()}
BOARDS = [board for views in all_views() for board in views.dashboards]
MONITORS = [monitor for views in all_views() for monitor in views.monitors]
TARGET = DocumentTarget("ant-farm", ("@slack-ants",), "https://git.example.com/fleetgauge")


def widgets(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for group in document["widgets"] for one in group["definition"]["widgets"]]


def requests(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [ask for one in widgets(document) for ask in one["definition"].get("requests", [])]


def keys_of(metric: Metric) -> set[str]:
    return {*metric.tags, "env", "service", "host"}


def test_documents_are_those_that_the_repository_has() -> None:
    made = documents()
    assert {path: path.read_text() for path in made} == made
    assert stale() == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.key)
def test_every_metric_and_tag_of_a_dashboards_queries_is_declared(board: Dashboard) -> None:
    document = dashboard_document(board, TARGET)
    variables = {one["name"] for one in document["template_variables"]}
    for query in (query for ask in requests(document) for query in ask["queries"]):
        [series] = queries(parse(query["query"]))
        metric = METRICS[series.metric]
        used = {part.lstrip("$").partition(":")[0] for part in series.scope}
        assert {*used, *series.by} <= keys_of(metric), query
        assert {part[1:] for part in series.scope if part.startswith("$")} == variables & (
            {"env", "service", *metric.tags} | ({"host"} if metric.on_node else set())
        )
        assert series.is_count is (metric.kind is Kind.COUNT)
        assert series.space == {"mean": "avg", "none": "avg"}.get(metric.combines, metric.combines)


@pytest.mark.parametrize(
    ("title", "tags"), [("Active runs", {}), ("Files", {}), ("Sessions by status", {"status": "active"})]
)
def test_sums_over_nodes_have_each_node_whatever_its_second(title: str, tags: dict[str, str]) -> None:
    found = [
        (widget.metrics[0], one["definition"]["requests"][0])
        for board in BOARDS
        if board.key in {"pipelines", "gpu-memory"}
        for widget, one in zip(board.widgets(), widgets(dashboard_document(board, TARGET))[1:], strict=True)
        if widget.title == title
    ]
    for metric, request in found:
        nodes = [Series(metric.name, {**tags, "host": str(at)}, {9000 + at: 2.0}) for at in (10, 500)]
        assert [*widget_values(request, nodes, 0, 10_000)[0].values()] == [4]
    assert found


def test_widgets_and_monitors_combine_only_what_adds_up() -> None:
    for widget in (widget for board in BOARDS for widget in board.widgets()):
        fixed = {*widget.by, *(pair.partition(":")[0] for pair in widget.where)}
        for metric in (*widget.metrics, *widget.share_of):
            assert metric.combines is not Combine.NONE or {*metric.tags} <= fixed, widget.title
            assert not widget.share_of or metric.combines is Combine.SUM, widget.title
    for condition in (monitor.condition for monitor in MONITORS):
        fixed = {*condition.by, *(pair.lstrip("!").partition(":")[0] for pair in condition.where)}
        for metric in condition.metrics:
            assert metric.combines is not Combine.NONE or {*metric.tags} <= fixed
        if condition.warning is not None:
            assert (condition.warning < condition.threshold) is (condition.compare == ">")


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.key)
def test_monitor_has_a_declared_query_its_threshold_and_its_message(monitor: Monitor) -> None:
    document = monitor_document(monitor, TARGET)
    query = MonitorQuery.read(document["query"])
    for series in queries(query.expression):
        used = {part.lstrip("!").partition(":")[0] for part in series.scope}
        assert {*series.by, *used} <= keys_of(METRICS[series.metric])
        assert "service:ant-farm" in series.scope
        assert series.by[0] == "env"
    assert query.limit == document["options"]["thresholds"]["critical"]
    assert 1 <= document["priority"] <= 5
    assert ("@slack-ants" in document["message"]) is (monitor.key != "units-lost")
    named = set(re.findall(r"\{\{(\w+)\.name\}\}", document["name"] + document["message"]))
    assert named <= set(query.by)


def test_every_metric_is_on_a_dashboard_but_one_that_is_always_zero() -> None:
    shown = {m.name for board in BOARDS for one in board.widgets() for m in (*one.metrics, *one.share_of)}
    assert METRICS.keys() - shown == {"xenna.stage.actors_target"}


def test_service_is_spelled_as_its_points_and_links_are_to_the_own_wandb() -> None:
    target = DocumentTarget("Ant Farm", wandb="https://wandb.ants.dev")
    assert "{service:ant_farm" in monitor_document(MONITORS[0], target)["query"]
    links = [
        link["link"]
        for board in BOARDS
        for one in widgets(dashboard_document(board, target))
        for link in one["definition"].get("custom_links", [])
    ]
    assert {link.partition("/{{")[0] for link in links} == {"https://wandb.ants.dev"}
