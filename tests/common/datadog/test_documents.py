"""What Datadog is given: understood by the official models to the last field, and true to the metrics."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from datadog_api_client.v1.model.dashboard import Dashboard as DashboardModel
from datadog_api_client.v1.model.metric_metadata import MetricMetadata
from datadog_api_client.v1.model.monitor import Monitor as MonitorModel

from common.dashboard import Dashboard, Draw, Monitor
from common.datadog.documents import DocumentTarget, dashboard_document, metadata_document, monitor_document
from common.metric import Combine, Kind, Metric
from scripts.datadog_documents import all_views, every_metric
from support.queries import MonitorQuery, parse, queries
from support.strict_models import findings

METRICS = {metric.name: metric for metric in every_metric()}
BOARDS = [board for views in all_views() for board in views.dashboards]
MONITORS = [monitor for views in all_views() for monitor in views.monitors]
TARGET = DocumentTarget("ant-farm", ("@slack-ants",), "https://git.example.com/fleetgauge")
VARIABLES = {"env", "service", "project", "user", "host", "job", "job_id", "run", "run_hash", "rank"}

on_every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.key)
on_every_monitor = pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.key)


def widgets(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for group in document["widgets"] for one in group["definition"]["widgets"]]


def requests(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [ask for one in widgets(document) for ask in one["definition"].get("requests", [])]


def keys_of(metric: Metric) -> set[str]:
    return {*metric.tags, "env", "service", "host"}


def test_dashboards_and_monitors_are_understood_to_the_last_field() -> None:
    for board in BOARDS:
        assert findings(dashboard_document(board, TARGET), DashboardModel) == []
    for monitor in MONITORS:
        assert findings(monitor_document(monitor, TARGET), MonitorModel) == []


def test_metadata_is_understood_and_has_the_unit_of_the_metric() -> None:
    for metric in METRICS.values():
        made = metadata_document(metric)
        assert findings(made, MetricMetadata) == []
        assert (made["description"], made.get("unit", "")) == (metric.help, metric.unit)


@on_every_board
def test_every_metric_and_tag_of_a_dashboards_queries_is_declared(board: Dashboard) -> None:
    document = dashboard_document(board, TARGET)
    variables = {one["name"] for one in document["template_variables"]}
    assert variables <= VARIABLES
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


def test_widgets_and_monitors_combine_only_what_adds_up() -> None:
    for widget in (widget for board in BOARDS for widget in board.widgets()):
        fixed = {*widget.by, *(pair.lstrip("!").partition(":")[0] for pair in widget.where)}
        for metric in (*widget.metrics, *widget.share_of):
            assert metric.combines is not Combine.NONE or {*metric.tags} <= fixed, widget.title
            assert not widget.share_of or metric.combines is Combine.SUM, widget.title
    for condition in (monitor.condition for monitor in MONITORS):
        fixed = {*condition.by, *(pair.lstrip("!").partition(":")[0] for pair in condition.where)}
        for metric in condition.metrics:
            assert metric.combines is not Combine.NONE or {*metric.tags} <= fixed
        if condition.warning is not None:
            assert (condition.warning < condition.threshold) is (condition.compare == ">")


def test_titles_of_a_group_are_unique_and_bars_show_counts_only() -> None:
    for widgets in (widgets for board in BOARDS for widgets in board.sections.values()):
        assert len({widget.title for widget in widgets}) == len(widgets)
        for widget in widgets:
            counts = {metric.kind for metric in widget.metrics} == {Kind.COUNT}
            assert counts or widget.draw is not Draw.BARS, widget.title


def test_a_widget_of_a_month_and_of_single_series_leaves_the_bucket_to_datadog() -> None:
    made = {
        one["definition"].get("title"): queries(
            parse(one["definition"]["requests"][0]["queries"][0]["query"])
        )
        for board in BOARDS
        for one in widgets(dashboard_document(board, TARGET))
        if "requests" in one["definition"]
    }
    seconds = {title: found[0].seconds for title, found in made.items()}
    assert seconds["Steps per second by config, last 30 days"] is None
    assert seconds["GPU utilization by GPU"] == 900  # of which a node may have several types
    assert seconds["GPU power by host"] == 900
    assert seconds["Load (1 min) by host"] is None


def test_whole_numbers_have_no_decimals_and_durations_are_hours() -> None:
    for board in BOARDS:
        for one in widgets(dashboard_document(board, TARGET)):
            definition = one["definition"]
            if definition["type"] == "query_value" and not definition["autoscale"]:
                format_ = definition["requests"][0]["formulas"][0].get("number_format", {})
                unit = format_.get("unit", {}).get("unit_name", "")
                decimals = {"percent": 1, "hour": 1, "dollar": 2}.get(unit, 0)
                assert definition["precision"] == decimals, definition["title"]
    [idle] = [widget for board in BOARDS for widget in board.widgets() if widget.title == "Idle runs"]
    board = next(board for board in BOARDS if idle in board.widgets())
    [made] = [
        one["definition"]
        for one in widgets(dashboard_document(board, replace(TARGET, wandb="https://wandb.ants.dev")))
        if one["definition"].get("title") == "Idle runs"
    ]
    assert made["requests"][0]["formulas"][1] == {
        "formula": "query2 / 3600",
        "alias": "run hours",
        "number_format": {"unit": {"type": "canonical_unit", "unit_name": "hour"}},
    }
    [link] = made["custom_links"]
    assert link["link"].startswith("https://wandb.ants.dev/{{entity.value}}/{{project.value}}/runs/")
    assert {"entity", "project", "run_id"} <= {*idle.by}


def test_every_overview_but_that_of_sweeps_has_colours() -> None:
    for board in BOARDS:
        title, overview = next(iter(board.sections.items()))
        assert title == "Overview"
        assert any(widget.colours for widget in overview), board.key


@on_every_board
def test_widgets_are_in_their_groups_and_show_the_units_of_their_metrics(board: Dashboard) -> None:
    made = dashboard_document(board, TARGET)
    about, *groups = made["widgets"]
    assert [group["definition"]["title"] for group in groups] == [*board.sections]
    assert board.about in about["definition"]["widgets"][0]["definition"]["content"]
    declared = board.widgets()
    drawn = [one["definition"] for one in widgets(made) if "requests" in one["definition"]]
    assert [one["title"] for one in drawn] == [widget.title for widget in declared]
    for widget, definition in zip(declared, drawn, strict=True):
        [request] = definition["requests"]
        if not widget.share_of:
            units = [
                one.get("number_format", {}).get("unit", {}).get("unit_name", "")
                for one in request["formulas"]
            ]
            hours = {"second": "hour"} if widget.hours else {}
            assert units == [hours.get(metric.unit, metric.unit) for metric in widget.metrics]


@on_every_monitor
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
    link = f"[{monitor.page}](https://git.example.com/fleetgauge/{monitor.page})"
    parts = [monitor.what, f"Why it matters: {monitor.why}", f"What to do: {monitor.action}"]
    recipients = ["@slack-ants"] if monitor.key != "units-lost" else []
    assert document["message"] == "\n\n".join([*parts, f"Documentation: {link}", *recipients])
    named = set(re.findall(r"\{\{(\w+)\.name\}\}", document["name"] + document["message"]))
    assert named <= set(query.by)


def test_every_metric_is_on_a_dashboard_but_one_that_is_always_zero() -> None:
    shown = {m.name for board in BOARDS for one in board.widgets() for m in (*one.metrics, *one.share_of)}
    assert METRICS.keys() - shown == {"xenna.stage.actors_target"}


def first(document: dict[str, Any]) -> Any:
    return document["widgets"][1]["definition"]["widgets"][0]["definition"]


@pytest.mark.parametrize(
    "plant",
    [
        lambda board, _: first(board).update(type="query_valu"),
        lambda board, _: first(board)["requests"][0]["queries"][0].update(agregator="last"),
        lambda board, _: first(board).update(precision="four"),
        lambda _, monitor: monitor["options"]["thresholds"].update(critical="much"),
        lambda _, monitor: monitor.update(tags="fleetgauge"),
    ],
)
def test_a_planted_error_is_found(plant: Callable[[Any, Any], object]) -> None:
    board = copy.deepcopy(dashboard_document(BOARDS[0], TARGET))
    monitor = copy.deepcopy(monitor_document(MONITORS[0], TARGET))
    plant(board, monitor)
    assert findings(board, DashboardModel) or findings(monitor, MonitorModel)


def test_a_query_that_does_not_read_as_one_is_refused() -> None:
    for text in ("up{service:x} by {env} < 1)", "up{service:x by {env} < 1", "up{service:x} by {env}"):
        with pytest.raises(ValueError, match="not a query of ours"):
            MonitorQuery.read(f"max(last_1h):max:collector.{text}")


def test_the_service_is_spelled_as_its_points_are() -> None:
    document = monitor_document(MONITORS[0], DocumentTarget("Ant Farm"))
    assert "{service:ant_farm" in document["query"]
    assert document["message"].endswith("`")  # without recipients by default
