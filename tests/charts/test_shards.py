"""Runs that several pods share: an Indexed Job of which one index costs its own share only."""

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
BUCKET = {"checkpoints": {"s3": "s3://bucket"}}


def jobs(*values: dict[str, Any], kubernetes: str = "1.37") -> dict[str, Document]:
    """The Jobs of every CronJob, by its name."""
    found = of_kind(render(*values, kubernetes=kubernetes), "CronJob")
    return {cron["metadata"]["name"]: cron["spec"]["jobTemplate"]["spec"] for cron in found}


@pytest.mark.parametrize("kubernetes", ["1.27", "1.28", "1.29", "1.37"])
def test_shards_are_the_indices_of_a_job_that_no_index_can_fail(kubernetes: str) -> None:
    for document in render(scenario("shards"), kubernetes=kubernetes):
        assert kubernetes_validate.validate(document, kubernetes, strict=True) == kubernetes
    found = jobs(scenario("shards"), kubernetes=kubernetes)
    assert set(found) == {"fleetgauge", "fleetgauge-data-plane"}
    for name, shards in (("fleetgauge", 8), ("fleetgauge-data-plane", 4)):
        job = found[name]
        assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", shards, shards)
        assert f"--shard=/{shards}" in container(job["template"])["args"]
        assert job["template"]["spec"]["restartPolicy"] == "Never", "which a limit per index needs"
        assert not {"podFailurePolicy", "maxFailedIndexes", "successPolicy"} & set(job)
        limits = {key: value for key, value in job.items() if key.startswith("backoffLimit")}
        each = kubernetes in {"1.29", "1.37"}
        assert limits == ({"backoffLimitPerIndex": 0} if each else {"backoffLimit": shards})
    given = jobs(scenario("shards"), {"backoffLimit": 2}, kubernetes=kubernetes)["fleetgauge"]
    assert given.get("backoffLimitPerIndex", 2) == 2
    assert given.get("backoffLimit", 8) == 8


def test_versions_of_providers_are_understood() -> None:
    for version, key in (("v1.28.15-eks-1", "backoffLimit"), ("v1.29.0-gke.7", "backoffLimitPerIndex")):
        assert key in jobs(scenario("shards"), kubernetes=version)["fleetgauge"]


def test_one_shard_is_an_ordinary_run() -> None:
    for shards in ({}, {"shards": 1}):
        [job] = jobs(scenario("default"), shards).values()
        assert "completionMode" not in job
        assert job["backoffLimit"] == 0
        assert not [text for text in container(job["template"])["args"] if "shard" in text]
    alone = {"collectors": {"data_plane": {"shards": 1}}}
    assert "completionMode" not in jobs(scenario("shards"), alone)["fleetgauge-data-plane"]
    others = {"collectors": {"data_plane": {"shards": None}}}
    assert jobs(scenario("shards"), others)["fleetgauge-data-plane"]["completions"] == 8


def test_only_scheduled_runs_are_shared() -> None:
    past = {"backfill": {"enabled": True, "since": "7d"}}
    for name, template in pod_templates(render(scenario("shards"), past)).items():
        shared = [text for text in container(template)["args"] if text.startswith("--shard")]
        assert bool(shared) is name.startswith("CronJob/")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"shards": 2, "collectors": {"host": {"enabled": True}}},
            "shards: host measures the node it runs on, which no other pod can do for it",
        ),
        (
            {"collectors": {"host": {"enabled": True, "schedule": "7 * * * *", "shards": 2}}},
            "collectors.host.shards: host measures the node",
        ),
        (
            {"collectors": {"wandb": {"shards": 2}}},
            "collectors.wandb.shards: it is for a schedule of its own",
        ),
        (
            {"shards": 2, "checkpoints": {"persistentVolumeClaim": {"create": True}}},
            "shards: pods on several nodes share the checkpoints, and the claim fleetgauge-checkpoints is",
        ),
        (
            {
                "collectors": {"xenna": {**RECORDS, "schedule": "7 * * * *", "shards": 3}},
                "checkpoints": {
                    "persistentVolumeClaim": {"create": True, "accessModes": ["ReadWriteOncePod"]}
                },
            },
            "collectors.xenna.shards: pods on several nodes share the checkpoints",
        ),
    ],
)
def test_what_cannot_be_shared_is_refused(values: dict[str, Any], said: str) -> None:
    assert [line for line in refusal(values) if line.startswith(f"- {said}")]


def test_what_can_be_shared_is_not_refused() -> None:
    host = {"host": {"enabled": True, "schedule": "7 * * * *", "shards": 1}}
    many = {"persistentVolumeClaim": {"create": True, "accessModes": ["ReadWriteMany"]}}
    found = jobs(scenario("default"), {"shards": 64, "collectors": host, "checkpoints": many})
    assert found["fleetgauge"]["completions"] == 64
    assert "completions" not in found["fleetgauge-host"]
    assert jobs(scenario("default"), {"shards": 2})["fleetgauge"]["completions"] == 2, "W&B needs no store"
