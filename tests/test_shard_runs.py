"""Pods of an Indexed CronJob, really run from the image with the indices that Kubernetes would give them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.shards import Shard
from support.containers import Engine, Pod, needs_containers, running
from support.project import KEY
from support.release import RECORDS, SECRETS, Release
from support.rendering import container, of_kind
from support.servers.aws import Aws
from support.servers.datadog import Intake, Push
from support.servers.fleet import plausible_day
from support.servers.wandb import Wandb

pytestmark = [pytest.mark.slow, needs_containers]
SHARDS, PROJECTS = 3, 8
KILLED = next(index for index in range(SHARDS) if Shard(index, SHARDS).owns("acme/p0"))
VALUES = {
    "collectors": {
        **{name: {"enabled": False} for name in ("host", *RECORDS)},
        "wandb": {"settings": {"projects": ["acme/*"]}},
    },
    "state": {"existingClaim": ""},
}
Values = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
def release(image: str, intake: Intake, aws: Aws, tmp_path: Path) -> Iterator[Release]:
    """A release with W&B alone and several projects, that reads and writes nothing but loopback."""
    with Wandb(KEY) as wandb:
        for number in range(PROJECTS):
            wandb.add("acme", f"p{number}", plausible_day(time.time(), 20 + number, seed=number))
        yield Release(image, intake, wandb, aws, tmp_path)


def of_projects(intake: Intake) -> Values:
    """How many runs each project has had, and which other series there are, whenever the tick was."""
    return {
        (key.metric, key.tags): value if key.metric == "wandb.runs.total_recent" else 1
        for key, value in intake.points.items()
        if key.metric.startswith("wandb.")
    }


@contextmanager
def shard(engine: Engine, release: Release, index: int) -> Iterator[Pod]:
    """The pod of one index of the Job that the CronJob makes."""
    [cron] = of_kind(release.render(VALUES, {"shards": SHARDS}), "CronJob")
    job = cron["spec"]["jobTemplate"]["spec"]
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"] == SHARDS
    number = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}  # as the Job controller does
    container(job["template"])["env"].append(number)
    with running(engine, job["template"], secrets=SECRETS, claims=release.claims) as pod:
        yield pod


def test_a_killed_index_costs_its_own_share_and_a_retry_makes_up_for_it(
    engine: Engine, release: Release
) -> None:
    intake = release.intake
    with running(engine, release.template("CronJob", VALUES), secrets=SECRETS) as pod:
        assert pod.wait(180) == 0, pod.log()
    whole = of_projects(intake)
    assert sum(name == "wandb.runs.total_recent" for name, _ in whole) == PROJECTS
    intake.points.clear()

    for index in {*range(SHARDS)} - {KILLED}:
        with shard(engine, release, index) as pod:
            assert pod.wait(180) == 0, pod.log()
    others = of_projects(intake)
    assert set() < set(others.items()) < set(whole.items()), "their shares, and nothing else"

    before = len(intake.write_log)
    killed: list[Push] = []

    def kill(request: Push) -> None:
        """While the intake has its first points and it does not know yet."""
        if not killed:
            killed.append(request)
            engine.run("podman", "kill", "--signal", "KILL", pod.container)

    with shard(engine, release, KILLED) as pod:
        intake.on("applied", kill)
        assert pod.wait(180) == 137, pod.log()
    with shard(engine, release, KILLED) as pod:
        assert pod.wait(180) == 0, pod.log()
    again = {(key.metric, key.tags) for key, *_ in intake.write_log[before:]}
    assert not again & others.keys(), "the others' points are left alone"
    assert of_projects(intake) == whole
    tags = {tag for found, _ in intake.series("collector.up") for tag in found if tag.startswith("shard:")}
    assert tags == {f"shard:{index}" for index in range(SHARDS)}
