"""Each monitor alerts on the series it is for, and not on others that are like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from common.datadog.documents import DocumentTarget, monitor_document
from scripts.datadog_documents import all_views
from support.queries import MonitorQuery, Series, alerts, queries
from support.standins import NOW

MONITORS = {
    monitor.key: monitor_document(monitor, DocumentTarget())
    for views in all_views()
    for monitor in views.monitors
}
Points = Mapping[int, float]
NOTHING: dict[str, list[object]] = {"alert": [], "warning": [], "no data": []}


def hour(*values: float, before: int = 0) -> Points:
    """Points of the last ticks, a quarter of an hour apart; the last value is the newest."""
    return {NOW - 60 * (1 + before + 15 * index): value for index, value in enumerate(reversed(values))}


def flat(value: float, minutes: int, before: int = 0) -> Points:
    return {NOW - 60 * (1 + minute): value for minute in range(before, before + minutes, 15)}


class Case(NamedTuple):
    """Points that must alert, and points that must not."""

    fires: Points
    silent: Points
    tags: Mapping[str, str] = {}


HOURS = 3600
CASES = {
    "collector-down": Case(hour(0, 0, 0, 0), hour(0, 0, 1, 0)),
    "collector-down-node": Case(hour(0, 0, 0, 0), hour(0, 0, 1, 0), {"host": "x"}),
    "collector-down-wandb": Case(hour(0, 0, 0, 0), hour(0, 0, 1, 0), {"collector": "wandb"}),
    "units-lost": Case(hour(0, 0, 0, 1), {}),
    "points-dropped": Case(hour(30, 30, 30, 30), hour(0, 0, 0, 0)),
    "gap": Case(hour(0, 0, 900, 0), hour(0, 0, 0, 0)),
    "push-throughput": Case(
        {**flat(10, 1440, 10080), **flat(8.5, 1440)},
        {**flat(10, 1440, 10080), **flat(9.5, 1440)},
        {"ref": "main"},
    ),
    "push-success": Case(flat(75, 240), {**flat(75, 225), **hour(95, before=225)}),
    "crashed-runs": Case({**flat(2, 60, 1440), **flat(14, 60)}, {**flat(20, 60, 1440), **flat(25, 60)}),
    "idle-gpus": Case(hour(3.1 * HOURS, 3.3 * HOURS), hour(2.9 * HOURS, 3.1 * HOURS)),
    "queued-runs": Case(
        hour(*(HOURS * n for n in (4.1, 4.4, 4.6, 4.9))), hour(4.1 * HOURS, 4.4 * HOURS, 300, 1200)
    ),
    "pipeline-stalled": Case(hour(1, 1), hour(0, 1)),
    "pipeline-error": Case(hour(0, 0, 1, 1), hour(0, 0, 0, 0), {"status": "error"}),
    "oom-dump": Case(hour(0, 0, 0, 1), hour(0, 0, 0, 0)),
    "gpu-lost": Case(hour(0, 0, 0, 1), hour(0, 0, 0, 0)),
    "gpu-ecc": Case(hour(0, 1, 1, 1), hour(0, 0, 0, 0), {"kind": "uncorrected"}),
    "gpu-remap": Case(hour(0, 0, 1, 1), hour(0, 0, 0, 0)),
    "gpu-xid": Case(hour(1, before=7), {}),
    "disk-full": Case(hour(96, 96, 97, 97), hour(80, 97, 80, 81)),
    **{
        f"{name}-late": Case(hour(950, 1200, 1800, 2400), hour(1800, 2400, 60, 950))
        for name in ("xenna", "gpu-memory", "data-plane")
    },
}


def series(key: str, points: Points, **tags: str) -> list[Series]:
    """Return series of the monitor's metrics: the first with these points, of shards one at each of them."""
    query = MonitorQuery.read(MONITORS[key]["query"])
    first, *others = queries(query.expression)
    own = {**dict.fromkeys(query.by, "x"), "service": "fleetgauge", **CASES[key].tags, **tags}
    return [
        Series(first.metric, own, points),
        *(Series(one.metric, own, dict.fromkeys(points, 1.0)) for one in others),
    ]


def shards(count: int, up: Mapping[str, Points]) -> list[Series]:
    """Return what the shards of W&B report, of which each knows how many there are."""
    tags = {"env": "x", "service": "fleetgauge", "collector": "wandb"}
    return [
        found
        for shard, points in up.items()
        for found in (
            Series("collector.up", {**tags, "shard": shard}, points),
            Series("collector.shards", {**tags, "shard": shard}, dict.fromkeys(points, float(count))),
        )
    ]


def test_every_monitor_has_its_case() -> None:
    assert set(CASES) == set(MONITORS)


@pytest.mark.parametrize("key", MONITORS)
def test_monitor_alerts_on_its_case_alone(key: str) -> None:
    case = CASES[key]
    found = alerts(MONITORS[key], [*series(key, case.fires), *series(key, case.silent, env="quiet")], NOW)
    [group] = found["alert"]
    assert set(group) == {"x"}
    found = alerts(MONITORS[key], series(key, case.silent), NOW)
    assert found["alert"] == found["warning"] == []
    assert alerts(MONITORS[key], series(key, case.fires, service="another"), NOW) == NOTHING


def test_only_collectors_alert_on_silence() -> None:
    silent = {
        key for key in MONITORS if alerts(MONITORS[key], series(key, flat(1, 60, 20000)), NOW)["no data"]
    }
    assert silent == {"collector-down", "collector-down-node", "collector-down-wandb"}


@pytest.mark.parametrize("collector", ["host", "xenna"])
def test_node_monitor_names_the_silent_host_and_others_leave_nodes_to_it(collector: str) -> None:
    tags = {"env": "x", "service": "fleetgauge", "collector": collector}
    nodes = [
        Series("collector.up", {**tags, "host": "alive"}, hour(1, 1, 1, 1)),
        Series("collector.up", {**tags, "host": "silent"}, hour(1, before=300)),
        Series("collector.up", {**tags, "host": "failing"}, hour(0, 0, 0, 0)),
    ]
    found = alerts(MONITORS["collector-down-node"], nodes, NOW)
    assert found["no data"] == [("x", collector, "silent")]
    assert found["alert"] == [("x", collector, "failing")]
    assert alerts(MONITORS["collector-down"], nodes, NOW) == NOTHING


def test_late_node_is_not_hidden_by_others_in_time() -> None:
    late = series("xenna-late", flat(2000, 60), host="late")
    in_time = series("xenna-late", flat(30, 60, before=7), host="fine")
    assert alerts(MONITORS["xenna-late"], [*late, *in_time], NOW)["alert"] == [("x",)]


def test_wandb_monitor_counts_shards_and_forgets_those_that_are_gone() -> None:
    monitor = MONITORS["collector-down-wandb"]
    up, down, gone = hour(1, 1, 1, 1), hour(0, 0, 0, 0), hour(1, 1, before=300)
    assert alerts(monitor, shards(3, {"0": up, "1": up, "2": up}), NOW) == NOTHING
    assert alerts(monitor, shards(3, {"0": up, "1": down, "2": up}), NOW)["alert"] == [("x",)]
    assert alerts(monitor, shards(3, {"0": up, "1": up, "2": gone}), NOW)["alert"] == [("x",)]
    fewer = [*shards(2, {"0": up, "1": up}), *shards(3, {"2": gone})]
    assert alerts(monitor, fewer, NOW) == NOTHING
    assert alerts(monitor, shards(1, {"0": gone}), NOW)["no data"] == [("x",)]
    assert alerts(MONITORS["collector-down"], shards(3, {"0": down}), NOW) == NOTHING
