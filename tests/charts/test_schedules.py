"""The interval of a schedule, and the step and deadline of runs that follow from it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from support.cron import interval
from support.rendering import (
    container,
    needs_helm,
    of_kind,
    pod_templates,
    render,
    scenario,
    variables,
)

pytestmark = needs_helm
MINUTES = ("*", "?", "*/7", "*/61", "8,23", "08,9", "09", "0-59/5", "0/25", "59,0", "1-5,50/3,7")
HOURS = ("*", "*/2", "*/5", "8-18", "08", "0,23", "22-23,1")


@pytest.mark.parametrize(
    ("schedule", "step", "deadline"),
    [
        ("*/15 * * * *", "15m", 800),
        ("*/5 * * * *", "5m", 200),
        ("*/4 * * * *", "4m", 160),
        ("* * * * *", "1m", 40),
        ("*/1 * * * *", "1m", 40),
        ("*/60 * * * *", "1h", 3500),
        ("*/61 * * * *", "1h", 3500),
        ("7 * * * *", "1h", 3500),
        ("00 * * * *", "1h", 3500),
        ("@hourly", "1h", 3500),
        ("5/20 * * * *", "15m", 1100),
        ("*/7 * * * *", "15m", 160),
        ("*/45 * * * *", "15m", 800),
        ("0,30 * * * *", "15m", 1700),
        ("*/10 * * * 1-5", "15m", 500),
        ("0 6 * * *", "15m", 3600),
        ("0 6 * * 1", "15m", 3600),
        ("@daily", "15m", 3600),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_step_and_deadline_follow_from_the_schedule(
    schedule: str, step: str, deadline: int, own: bool
) -> None:
    times = {"schedule": schedule, "timeout": 10}
    changes: dict[str, Any] = {"collectors": {"wandb": times}} if own else times
    [cron] = of_kind(render(scenario("default"), changes), "CronJob")
    job = cron["spec"]["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] == deadline
    assert variables(job["template"])["FLEETGAUGE_STEP"] == step


def test_chart_computes_the_interval_of_a_schedule_as_cron_does() -> None:
    schedules = [f"{minute} {hour} * * *" for minute, hour in itertools.product(MINUTES, HOURS)]
    made = '{{ range .Values.extraVolumeMounts }}\n- {{ include "fleetgauge.interval" .name }}\n{{ end }}'
    changes = {
        # a list that may hold any text
        "extraVolumeMounts": [{"name": schedule, "mountPath": "/a"} for schedule in schedules],
        "extraManifests": [f"kind: Intervals\nmetadata: {{name: a}}\nfound:\n{made}"],
    }
    [intervals] = of_kind(render(scenario("default"), changes), "Intervals")
    assert dict(zip(schedules, intervals["found"], strict=True)) == {
        each: interval(each) for each in schedules
    }


@pytest.mark.parametrize(
    "changes", [{"schedule": "*/5 * * * *"}, {"collectors": {"wandb": {"schedule": "*/5 * * * *"}}}]
)
def test_backfill_has_the_step_of_the_live_runs(changes: dict[str, Any]) -> None:
    past = {"backfill": {"enabled": True, "since": "7d"}}
    [template] = pod_templates(of_kind(render(scenario("default"), past, changes), "Job")).values()
    assert "--step=5m" in container(template)["args"]
