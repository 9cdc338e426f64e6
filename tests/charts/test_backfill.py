"""The Job that fills a span of the past: its parts and its name."""

from __future__ import annotations

from typing import Any

import pytest

from support.rendering import Document, container, needs_helm, of_kind, render, scenario, variables

pytestmark = needs_helm


def job(*values: dict[str, Any]) -> Document:
    """The Job of a release."""
    [found] = of_kind(render(*values), "Job")
    return found


def test_a_backfill_is_cut_into_slices_that_run_side_by_side() -> None:
    made = job(scenario("backfill"))["spec"]
    assert (made["completionMode"], made["completions"], made["parallelism"]) == ("Indexed", 8, 4)
    assert container(made["template"])["args"] == [
        *("wandb", "--push", "--yes", "--since=2026-11-07T00:00Z", "--until=2026-11-14T00:00Z"),
        *("--step=15m", "--slice=/8", "--enable-historical", "--timeout=3600"),
    ]
    drained, wrong = made["podFailurePolicy"]["rules"]
    assert drained["action"] == "Ignore"
    assert drained["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert (wrong["action"], wrong["onExitCodes"]["values"]) == ("FailJob", [2])
    assert made["backoffLimit"] == 24, "three for each of eight parts, which it counts together"


def test_a_backfill_in_one_piece_is_an_ordinary_job() -> None:
    whole = {"backfill": {"enabled": True, "since": "7d", "onlyEnabled": True, "step": "1h"}}
    made = job(scenario("default"), whole)["spec"]
    assert "completionMode" not in made
    expected = ["wandb", "--push", "--yes", "--since=7d", "--step=1h", "--only-enabled", "--timeout=3600"]
    assert container(made["template"])["args"] == expected
    days = job(scenario("default"), whole, {"backfill": {"step": "2d"}})["spec"]["template"]
    assert "--step=2d" in container(days)["args"]
    assert "FLEETGAUGE_STEP" not in variables(days), "which may be an hour at most"


@pytest.mark.slow
def test_another_span_is_another_job_because_a_job_cannot_change() -> None:
    names = {
        job(scenario("backfill"), {"backfill": {"since": since}})["metadata"]["name"]
        for since in ("2026-11-07T00:00Z", "2026-11-06T00:00Z")
    }
    assert len(names) == 2
    again = job(scenario("backfill"), {"backfill": {"backoffLimit": 0}})
    assert again["metadata"]["name"] == job(scenario("backfill"))["metadata"]["name"]


@pytest.mark.parametrize("name", ["backfill", "claim"])
def test_a_backfill_has_no_state(name: str) -> None:
    template = job(scenario(name), {"backfill": {"enabled": True, "since": "2026-11-07T00:00Z"}})["spec"][
        "template"
    ]
    assert "FLEETGAUGE_STATE" not in variables(template)
    assert [volume["name"] for volume in template["spec"]["volumes"]] == ["tmp"]
