"""The interval of a schedule, and the step and deadline of runs that follow from it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from support.cron import interval
from support.rendering import container, needs_helm, of_kind, pod_templates, render, scenario, variables

pytestmark = needs_helm
MINUTES = ("*", "?", "*/7", "*/61", "8,23", "08,9", "09", "0-59/5", "0/25", "59,0", "1-5,50/3,7")
HOURS = ("*", "*/2", "*/5", "8-18", "08", "0,23", "22-23,1")
EVERY_DAY = [f"{minute} {hour} * * *" for minute, hour in itertools.product(MINUTES, HOURS)]
EXPECTED = [  # schedule, step, deadline
    ("*/15 * * * *", "15m", 800),
    ("*/5 * * * *", "5m", 200),
    ("*/4 * * * *", "4m", 160),
    ("* * * * *", "1m", 40),
    ("*/60 * * * *", "1h", 3500),
    ("*/61 * * * *", "1h", 3500),
    ("7 * * * *", "1h", 3500),
    ("@hourly", "1h", 3500),
    ("5/20 * * * *", "15m", 1100),
    ("*/7 * * * *", "15m", 160),
    ("*/45 * * * *", "15m", 800),
    ("0,30 * * * *", "15m", 1700),
    ("*/10 * * * 1-5", "15m", 500),
    ("0 6 * * *", "15m", 3600),
    ("0 6 * * 1", "15m", 3600),
    ("@daily", "15m", 3600),
]


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, Any]]:
    """What the chart computes from each schedule, in one rendering."""
    schedules = [*EVERY_DAY, *(schedule for schedule, _, _ in EXPECTED)]
    run = 'include "fleetgauge.run" (list $ "" (list "wandb") (dict "schedule" .name))'
    made = f"{{{{ range .Values.extraVolumeMounts }}}}\n- {{{{ {run} }}}}\n{{{{ end }}}}"
    changes = {
        # a list that may hold any text
        "extraVolumeMounts": [{"name": schedule, "mountPath": "/a"} for schedule in schedules],
        "extraManifests": [f"kind: Runs\nmetadata: {{name: a}}\nfound:\n{made}"],
    }
    [found] = of_kind(render(scenario("default"), changes), "Runs")
    return {each["schedule"]: each for each in found["found"]}


@pytest.mark.parametrize(("schedule", "step", "deadline"), EXPECTED)
def test_step_and_deadline_follow_from_the_schedule(
    runs: dict[str, dict[str, Any]], schedule: str, step: str, deadline: int
) -> None:
    assert (runs[schedule]["step"], runs[schedule]["deadline"]) == (step, deadline)


def test_chart_computes_the_interval_of_a_schedule_as_cron_does(runs: dict[str, dict[str, Any]]) -> None:
    assert [runs[each]["interval"] for each in EVERY_DAY] == [interval(each) for each in EVERY_DAY]
    for schedule, seconds in (("0,50 * * * *", 600), ("0 6 * * 1-5", 86400)):
        assert interval(schedule) == seconds


def test_a_collectors_own_schedule_gives_its_runs_and_backfill_their_step() -> None:
    changes = {"collectors": {"wandb": {"schedule": "*/5 * * * *", "timeout": 10}}}
    documents = render(scenario("default"), {"backfill": {"enabled": True, "since": "7d"}}, changes)
    [cron] = of_kind(documents, "CronJob")
    job = cron["spec"]["jobTemplate"]["spec"]
    assert (cron["spec"]["schedule"], job["activeDeadlineSeconds"]) == ("*/5 * * * *", 200)
    assert variables(job["template"])["FLEETGAUGE_STEP"] == "5m"
    [past] = pod_templates(of_kind(documents, "Job")).values()
    assert "--step=5m" in container(past)["args"]
