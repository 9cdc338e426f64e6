"""Each monitor tells of the series it is for, and is silent about those that only look like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from common.datadog.documents import Target, monitor_document
from scripts.datadog_documents import all_views
from support.monitor_queries import Query, Series, told

MONITORS = {
    monitor.key: monitor_document(monitor, Target()) for views in all_views() for monitor in views.monitors
}
Points = Mapping[int, float]


def hour(*values: float, before: int = 0) -> Points:
    """The last ticks, a quarter of an hour apart; the last value is the newest."""
    return {before + 15 * place: value for place, value in enumerate(reversed(values))}


def flat(value: float, minutes: int, before: int = 0) -> Points:
    return dict.fromkeys(range(before, before + minutes, 15), value)


class Case(NamedTuple):
    """Points that must be told of, and those that must not."""

    fires: Points
    silent: Points
    tags: Mapping[str, str] = {}


CASES = {
    "collector-down": Case(hour(0, 0, 0, 0), hour(0, 0, 1, 0)),
    "points-dropped": Case(hour(30, 30, 30, 30), hour(0, 0, 0, 0)),
    "gap": Case(hour(0, 0, 900, 0), hour(0, 0, 0, 0)),
    "clock": Case(hour(-500, -500, -500, -500), hour(3, -2, 500, 1)),
    "push-throughput": Case(
        {**flat(10, 1440, 10080), **flat(8.5, 1440)},
        {**flat(10, 1440, 10080), **flat(9.5, 1440)},
        {"ref": "main"},
    ),
    "push-success": Case(flat(75, 240), {**flat(75, 225), 225: 95}),
    "crashed-runs": Case({**flat(2, 60, 1440), **flat(14, 60)}, {**flat(20, 60, 1440), **flat(25, 60)}),
    "idle-gpus": Case(hour(11000, 11900), hour(9000, 11000)),
    "queued-runs": Case(hour(15000, 15900, 16800, 17700), hour(15000, 15900, 300, 1200)),
    "pipeline-stalled": Case(hour(1, 1), hour(0, 1)),
    "pipeline-error": Case(hour(0, 0, 1, 1), hour(0, 0, 0, 0), {"status": "error"}),
    "oom-dump": Case(hour(0, 0, 0, 1), hour(0, 0, 0, 0)),
    "gpu-lost": Case(hour(0, 0, 0, 1), hour(0, 0, 0, 0)),
    "gpu-ecc": Case(hour(0, 1, 1, 1), hour(0, 0, 0, 0), {"kind": "uncorrected"}),
    "gpu-remap": Case(hour(0, 0, 1, 1), hour(0, 0, 0, 0)),
    "gpu-xid": Case({7: 1}, {}),
    "disk-full": Case(hour(96, 96, 97, 97), hour(80, 97, 80, 81)),
    **{
        f"{name}-late": Case(hour(950, 1200, 1800, 2400), hour(1800, 2400, 60, 950))
        for name in ("xenna", "gpu-memory", "data-plane")
    },
}


def series(key: str, points: Points, **more: str) -> Series:
    query = Query.read(MONITORS[key]["query"])
    tags = {**dict.fromkeys(query.by, "x"), "service": "fleetgauge", **CASES[key].tags, **more}
    return Series(tags, points)


def test_every_monitor_has_its_case() -> None:
    assert set(CASES) == set(MONITORS)


@pytest.mark.parametrize("key", MONITORS)
def test_it_tells_of_what_it_is_for(key: str) -> None:
    said = told(MONITORS[key], [series(key, CASES[key].fires), series(key, CASES[key].silent, env="quiet")])
    [group] = said["alert"]
    assert set(group) == {"x"}


@pytest.mark.parametrize("key", MONITORS)
def test_it_is_silent_about_what_only_looks_like_it(key: str) -> None:
    said = told(MONITORS[key], [series(key, CASES[key].silent)])
    assert said["alert"] == said["warning"] == []


@pytest.mark.parametrize("key", MONITORS)
def test_what_is_another_services_is_not_looked_at(key: str) -> None:
    said = told(MONITORS[key], [series(key, CASES[key].fires, service="another")])
    assert said == {"alert": [], "warning": [], "no data": []}


def test_a_collector_that_falls_silent_is_told_and_other_silence_is_not() -> None:
    silent = {key for key in MONITORS if told(MONITORS[key], [series(key, flat(1, 60, 20000))])["no data"]}
    assert silent == {"collector-down"}


def test_corrected_errors_and_pull_requests_are_not_told() -> None:
    assert told(MONITORS["gpu-ecc"], [series("gpu-ecc", hour(9, 9), kind="corrected")])["alert"] == []
    slower = CASES["push-throughput"].fires
    assert told(MONITORS["push-throughput"], [series("push-throughput", slower, ref="pr")])["alert"] == []


def test_a_warning_comes_before_the_alarm() -> None:
    assert told(MONITORS["disk-full"], [series("disk-full", hour(90, 91, 90, 92))])["warning"] != []
    assert told(MONITORS["push-success"], [series("push-success", flat(85, 240))])["warning"] != []
    assert told(MONITORS["points-dropped"], [series("points-dropped", hour(1, 0, 0, 0))])["warning"] != []
