"""What a run says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from common.metric import Series
from common.outcome import Outcome, RunCounts, Status
from common.run import health
from common.shards import Shard
from support.standins import NOW

TICK, BEGAN = NOW - 100, NOW - 7


def reported(outcome: Outcome, **known: Any) -> list[Series]:
    return list(health.self_metrics(outcome, tick=TICK, began=BEGAN, ended=NOW, **known))


def test_every_number_of_the_run_is_reported_at_its_own_time() -> None:
    outcome = Outcome(
        "wandb",
        Status.OK,
        seconds=1.25,
        counts=RunCounts(7, 5, 3, {"too_old": 2, "odd": 4}, {"late": 2}),
    )
    every = reported(outcome, clock_skew=-0.5, last_success=NOW - 40, gap=1800)
    assert [(one.metric.name, one.tags, *one.times, *one.values) for one in every] == [
        ("collector.up", ("collector:wandb",), TICK, 1),
        ("collector.shards", ("collector:wandb",), TICK, 1),
        ("collector.samples", ("collector:wandb",), BEGAN, 7),
        ("collector.points_sent", ("collector:wandb",), BEGAN, 5),
        ("collector.requests", ("collector:wandb",), BEGAN, 3),
        ("collector.duration_seconds", ("collector:wandb",), NOW, 1.25),
        ("collector.clock_skew_seconds", ("collector:wandb",), NOW, -0.5),
        ("collector.last_success_age_seconds", ("collector:wandb",), NOW, 40),
        ("collector.gap_seconds", ("collector:wandb",), NOW, 1800),
        ("collector.points_dropped", ("collector:wandb", "reason:in_future"), BEGAN, 0),
        ("collector.points_dropped", ("collector:wandb", "reason:not_finite"), BEGAN, 0),
        ("collector.points_dropped", ("collector:wandb", "reason:odd"), BEGAN, 4),
        ("collector.points_dropped", ("collector:wandb", "reason:series_cap"), BEGAN, 0),
        ("collector.points_dropped", ("collector:wandb", "reason:tag_collision"), BEGAN, 0),
        ("collector.points_dropped", ("collector:wandb", "reason:too_old"), BEGAN, 2),
        ("collector.units_lost", ("collector:wandb", "reason:late"), BEGAN, 2),
        ("collector.units_lost", ("collector:wandb", "reason:unreadable"), BEGAN, 0),
    ]
    assert {one.metric for one in every} == set(health.METRICS)
    assert {one.host for one in every} == {None}


@pytest.mark.parametrize(
    ("status", "up"), [(Status.OK, 1), (Status.EMPTY, 1), (Status.PARTIAL, 1), (Status.FAILED, 0)]
)
def test_it_is_up_unless_it_failed(status: Status, up: int) -> None:
    assert [one.values for one in reported(Outcome("host", status)) if one.metric is health.UP] == [(up,)]


def test_what_is_not_known_is_absent_and_what_is_zero_is_not() -> None:
    names = {one.metric for one in reported(Outcome("host", Status.OK))}
    assert names == set(health.METRICS) - {health.SHARDS, health.SKEW, health.LAST_SUCCESS, health.GAP}
    assert health.SKEW(0.0, NOW, collector="host") in reported(Outcome("host", Status.OK), clock_skew=0.0)
    assert health.GAP(0, NOW, collector="host") in reported(Outcome("host", Status.OK), gap=0)


def test_the_host_and_the_shard_are_on_every_metric() -> None:
    every = reported(Outcome("wandb", Status.OK), host="node-1", shard=Shard(1, 3))
    assert {one.host for one in every} == {"node-1"}
    assert all("shard:1" in one.tags for one in every)


def test_an_age_is_never_negative() -> None:
    [age] = [
        one
        for one in reported(Outcome("host", Status.OK), last_success=NOW + 5)
        if one.metric is health.LAST_SUCCESS
    ]
    assert age.values == (0,)
