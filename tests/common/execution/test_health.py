"""What a run says about itself."""

from __future__ import annotations

import pytest

from common.execution import health
from common.metric import Sample
from common.outcome import Outcome, Status
from support.standins import NOW


def reported(
    outcome: Outcome, skew: float | None = None, success: int | None = None, gap: int | None = None
) -> list[Sample]:
    return list(health.samples(outcome, NOW, skew, success, gap))


def test_every_number_of_the_run_is_reported_at_its_end() -> None:
    outcome = Outcome(
        "wandb",
        Status.OK,
        seconds=1.25,
        samples=7,
        points_sent=5,
        requests=3,
        dropped={"too_old": 2, "odd": 4},
    )
    samples = reported(outcome, skew=-0.5, success=NOW - 40, gap=1800)
    assert [(one.metric.name, one.tags, one.value) for one in samples] == [
        ("collector.up", ("collector:wandb",), 1),
        ("collector.duration_seconds", ("collector:wandb",), 1.25),
        ("collector.samples", ("collector:wandb",), 7),
        ("collector.points_sent", ("collector:wandb",), 5),
        ("collector.requests", ("collector:wandb",), 3),
        ("collector.clock_skew_seconds", ("collector:wandb",), -0.5),
        ("collector.last_success_age_seconds", ("collector:wandb",), 40),
        ("collector.gap_seconds", ("collector:wandb",), 1800),
        ("collector.points_dropped", ("collector:wandb", "reason:in_future"), 0),
        ("collector.points_dropped", ("collector:wandb", "reason:not_finite"), 0),
        ("collector.points_dropped", ("collector:wandb", "reason:odd"), 4),
        ("collector.points_dropped", ("collector:wandb", "reason:series_cap"), 0),
        ("collector.points_dropped", ("collector:wandb", "reason:tag_collision"), 0),
        ("collector.points_dropped", ("collector:wandb", "reason:too_old"), 2),
    ]
    assert {one.metric for one in samples} == set(health.METRICS)
    assert {(one.timestamp, one.host) for one in samples} == {(NOW, None)}


@pytest.mark.parametrize(
    ("status", "up"), [(Status.OK, 1), (Status.EMPTY, 1), (Status.PARTIAL, 0), (Status.FAILED, 0)]
)
def test_it_is_up_only_when_everything_was_read_and_delivered(status: Status, up: int) -> None:
    assert [one.value for one in reported(Outcome("host", status)) if one.metric is health.UP] == [up]


def test_what_is_not_known_is_absent_and_what_is_zero_is_not() -> None:
    names = {one.metric for one in reported(Outcome("host", Status.OK))}
    assert names == set(health.METRICS) - {health.SKEW, health.LAST_SUCCESS, health.GAP}
    assert health.SKEW(0.0, NOW, collector="host") in reported(Outcome("host", Status.OK), 0.0)
    assert health.GAP(0, NOW, collector="host") in reported(Outcome("host", Status.OK), gap=0)
