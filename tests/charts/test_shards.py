"""Runs of W&B that several pods share: an Indexed Job in which each index is retried by itself."""

from __future__ import annotations

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from support.rendering import (
    Document,
    container,
    needs_helm,
    of_kind,
    pod_templates,
    refusal,
    render,
    scenario,
)

pytestmark = needs_helm
RECORDS = {"enabled": True, "volume": {"persistentVolumeClaim": {"claimName": "records"}}}


def jobs(*values: dict[str, Any], kubernetes: str = "1.37") -> dict[str, Document]:
    """The Jobs of every CronJob, by its name."""
    found = of_kind(render(*values, kubernetes=kubernetes), "CronJob")
    return {cron["metadata"]["name"]: cron["spec"]["jobTemplate"]["spec"] for cron in found}


@pytest.mark.parametrize("kubernetes", ["1.27", "1.28", "1.29", "1.37"])
def test_shards_are_the_indices_of_a_job_that_no_index_can_fail(kubernetes: str) -> None:
    for document in render(scenario("shards"), kubernetes=kubernetes):
        assert kubernetes_validate.validate(document, kubernetes, strict=True) == kubernetes
    job = jobs(scenario("shards"), kubernetes=kubernetes)["fleetgauge-wandb"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 8, 8)
    assert "--shard=/8" in container(job["template"])["args"]
    assert [volume["name"] for volume in job["template"]["spec"]["volumes"]] == ["tmp"]
    assert job["template"]["spec"]["restartPolicy"] == "Never", "which a limit per index needs"
    assert not {"podFailurePolicy", "maxFailedIndexes", "successPolicy"} & set(job)
    limits = {key: value for key, value in job.items() if key.startswith("backoffLimit")}
    each = kubernetes in {"1.29", "1.37"}
    assert limits == ({"backoffLimitPerIndex": 0} if each else {"backoffLimit": 8})
    given = jobs(scenario("shards"), {"backoffLimit": 2}, kubernetes=kubernetes)["fleetgauge-wandb"]
    assert given.get("backoffLimitPerIndex", 2) == 2
    assert given.get("backoffLimit", 8) == 8


def test_versions_of_providers_are_understood() -> None:
    for version, key in (("v1.28.15-eks-1", "backoffLimit"), ("v1.29.0-gke.7", "backoffLimitPerIndex")):
        assert key in jobs(scenario("shards"), kubernetes=version)["fleetgauge-wandb"]


def test_one_shard_is_an_ordinary_run() -> None:
    for job in jobs(scenario("default"), {"shards": 1}).values():
        assert "completionMode" not in job
        assert job["backoffLimit"] == 0
        assert not [text for text in container(job["template"])["args"] if "shard" in text]


def test_only_live_runs_of_wandb_have_shards() -> None:
    past = {"backfill": {"enabled": True, "since": "7d"}, "daemonSet": {"enabled": True}}
    for name, template in pod_templates(render(scenario("shards"), past)).items():
        shared = [text for text in container(template)["args"] if text.startswith("--shard")]
        assert bool(shared) is (name == "CronJob/fleetgauge-wandb")


def test_wandb_alone_needs_no_schedule_of_its_own() -> None:
    assert jobs(scenario("default"), {"shards": 64})["fleetgauge"]["completions"] == 64


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"host": {"enabled": True}}, "set collectors.wandb.schedule, for a CronJob without host"),
        (
            {"xenna": RECORDS, "data_plane": RECORDS},
            "set collectors.wandb.schedule, for a CronJob without data_plane, xenna",
        ),
        ({"xenna": RECORDS, "wandb": {"enabled": False}}, "enable collectors.wandb, or write shards: 1"),
    ],
)
def test_shards_of_other_collectors_are_refused_with_the_other_ways(
    values: dict[str, Any], said: str
) -> None:
    [line] = [line for line in refusal({"shards": 2, "collectors": values}) if line.startswith("- ")]
    assert line.startswith(f"- shards: only W&B can be divided between pods; {said}. For other collectors: ")
    assert "on every node by daemonSet" in line
    assert "several releases, each with paths of its own" in line
