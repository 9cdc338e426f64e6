"""How often a schedule fires, the step that follows from it, and the deadlines that do not fit it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from support.cron import interval
from support.rendering import needs_helm, of_kind, pod_templates, refusal, render, scenario, variables

pytestmark = needs_helm
RECORDS = {"persistentVolumeClaim": {"claimName": "records"}}
XENNA = {"collectors": {"xenna": {"enabled": True, "volume": RECORDS}}}


def step(*changes: dict[str, Any]) -> str:
    """The step of the only CronJob."""
    [template] = pod_templates(of_kind(render(scenario("default"), *changes), "CronJob")).values()
    return str(variables(template)["FLEETGAUGE_STEP"])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/15 * * * *", "15m"),
        ("*/5 * * * *", "5m"),
        ("*/4 * * * *", "4m"),
        ("*/30 * * * *", "30m"),
        ("*/60 * * * *", "1h"),
        ("*/61 * * * *", "1h"),
        ("5/20 * * * *", "15m"),
        ("7 * * * *", "1h"),
        ("00 * * * *", "1h"),
        ("@hourly", "1h"),
        ("*/7 * * * *", "15m"),
        ("*/45 * * * *", "15m"),
        ("0,30 * * * *", "15m"),
        ("0-30/15 * * * *", "15m"),
        ("0 6 * * *", "15m"),
        ("*/30 6 * * *", "15m"),
        ("*/10 * * * 1-5", "15m"),
        ("@daily", "15m"),
    ],
)
def test_the_step_follows_from_the_schedule(schedule: str, expected: str) -> None:
    times = {"schedule": schedule, "activeDeadlineSeconds": 141}
    assert step(times) == expected
    own = {"collectors": {"wandb": times}}
    assert step(own) == expected


def test_a_minute_is_a_schedule_too() -> None:
    assert step({"schedule": "* * * * *", "activeDeadlineSeconds": 50, "timeout": 20}) == "1m"
    assert step({"schedule": "*/1 * * * *", "activeDeadlineSeconds": 50, "timeout": 20}) == "1m"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"step": "5m"}, "5m"),
        ({"step": "15m"}, "15m"),
        ({"step": "5m", "collectors": {"wandb": {"schedule": "7 * * * *"}}}, "5m"),
        ({"step": "5m", "collectors": {"wandb": {"schedule": "7 * * * *", "step": "1h"}}}, "1h"),
        ({"schedule": "0 6 * * *", "step": "1h"}, "1h"),
    ],
)
def test_a_step_that_is_said_is_used_and_may_be_smaller(changes: dict[str, Any], expected: str) -> None:
    assert step(changes) == expected


MINUTES = ("*", "?", "*/7", "*/61", "8,23", "08,9", "09", "0-59/5", "0/25", "59,0", "1-5,50/3,7")
HOURS = ("*", "*/2", "*/5", "8-18", "08", "0,23", "22-23,1")


def test_the_chart_reckons_how_often_a_schedule_fires_as_cron_does() -> None:
    schedules = [f"{minute} {hour} * * *" for minute, hour in itertools.product(MINUTES, HOURS)]
    made = '{{ range .Values.extraVolumes }}\n- {{ include "fleetgauge.interval" .name }}\n{{ end }}'
    told = {
        "extraVolumes": [{"name": schedule} for schedule in schedules],  # a list that may hold any text
        "extraManifests": [f"kind: Intervals\nmetadata: {{name: a}}\nfound:\n{made}"],
    }
    [intervals] = of_kind(render(scenario("default"), told), "Intervals")
    assert dict(zip(schedules, intervals["found"], strict=True)) == {one: interval(one) for one in schedules}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"step": "16m"}, "step: 16m is more than the 900 s between two runs of `*/15 * * * *`"),
        ({"schedule": "*/7 * * * *", "step": "5m"}, "step: 5m is more than the 240 s between two runs"),
        ({"schedule": "50,5,20 * * * *", "step": "16m"}, "step: 16m is more than the 900 s between two runs"),
        (
            {
                "collectors": {
                    "wandb": {"schedule": "*/5 * * * *", "step": "301s", "activeDeadlineSeconds": 200}
                }
            },
            "collectors.wandb.step: 301s is more than the 300 s between two runs of `*/5 * * * *`",
        ),
        (
            {
                "step": "15m",
                "collectors": {"wandb": {"schedule": "*/5 * * * *", "activeDeadlineSeconds": 200}},
            },
            "collectors.wandb.step: 15m is more than the 300 s between two runs of `*/5 * * * *`",
        ),
        (
            {"activeDeadlineSeconds": 900},
            "activeDeadlineSeconds: 900 s are not less than the 900 s between two runs of `*/15 * * * *`",
        ),
        (
            {"schedule": "*/5 * * * *"},
            "activeDeadlineSeconds: 600 s are not less than the 300 s between two runs of `*/5 * * * *`",
        ),
        ({"schedule": "0,5 * * * *"}, "activeDeadlineSeconds: 600 s are not less than the 300 s between"),
        ({"schedule": "55,2 * * * *"}, "activeDeadlineSeconds: 600 s are not less than the 420 s between"),
        ({"schedule": "8,17 * * * *"}, "activeDeadlineSeconds: 600 s are not less than the 540 s between"),
        (
            {"schedule": "*/5 8-18 * * 1-5"},
            "activeDeadlineSeconds: 600 s are not less than the 300 s between two runs of `*/5 8-18 * * 1-5`",
        ),
        ({"schedule": "0-59/10 * * * MON-FRI"}, "activeDeadlineSeconds: 600 s are not less than the 600 s"),
        ({"schedule": "*/15 9-17 * * *", "step": "16m"}, "step: 16m is more than the 900 s between two runs"),
        ({"step": "020m"}, "step: 020m is more than the 900 s between two runs of `*/15 * * * *`"),
        (
            {"schedule": "@hourly", "activeDeadlineSeconds": 3600},
            "activeDeadlineSeconds: 3600 s are not less",
        ),
        (
            {**XENNA, "schedule": "7 * * * *"},
            "schedule: xenna reads records, and Datadog takes none that are",
        ),
        ({**XENNA, "schedule": "@weekly"}, "schedule: xenna reads records, and Datadog takes none that are"),
        (
            {**XENNA, "daemonSet": {"enabled": True, "collectors": ["xenna"], "every": "26m"}},
            "daemonSet.every: records are read at least every 25 minutes",
        ),
        (
            {"collectors": {"wandb": {"schedule": "*/10 * * * *"}}},
            "collectors.wandb.activeDeadlineSeconds: 600 s are not less than the 600 s between two runs",
        ),
    ],
)
def test_what_does_not_fit_the_schedule_is_refused_in_words(changes: dict[str, Any], said: str) -> None:
    assert [line for line in refusal(changes) if line.startswith(f"- {said}")]


def test_the_refusal_of_a_deadline_says_what_to_write() -> None:
    [said] = [line for line in refusal({"schedule": "*/5 * * * *"}) if line.startswith("- ")]
    assert said.endswith("so that one could be in the way of the next; write less, such as 200")


@pytest.mark.parametrize(
    "changes",
    [
        {"activeDeadlineSeconds": 899},
        {"schedule": "0 6 * * *", "activeDeadlineSeconds": 7200, "step": "1h"},
        {"schedule": "@daily", "activeDeadlineSeconds": 7200},
        {"schedule": "0 6 * * 1", "activeDeadlineSeconds": 172800},
        {"step": "08m"},
        {"schedule": "0,20,40 * * * *", "activeDeadlineSeconds": 1199, "step": "20m"},
        {"collectors": {"wandb": {"schedule": "7 * * * *", "activeDeadlineSeconds": 3599}}},
    ],
)
def test_what_fits_is_accepted(changes: dict[str, Any]) -> None:
    assert len(of_kind(render(scenario("default"), changes), "CronJob")) == 1


def test_a_backfill_stands_on_the_grid_of_the_live_runs() -> None:
    past = {
        "backfill": {"enabled": True, "since": "7d"},
        "schedule": "*/5 * * * *",
        "activeDeadlineSeconds": 200,
    }
    [template] = pod_templates(of_kind(render(scenario("default"), past), "Job")).values()
    assert "--step=5m" in template["spec"]["containers"][0]["args"]
