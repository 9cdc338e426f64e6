"""Pods of an Indexed CronJob, really run from the image with the indices that Kubernetes would give them."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.collector import load_collector
from support.containers import USER, Engine, Pod, needs_containers, running
from support.growing_file import KEY
from support.release import SECRETS, Release
from support.rendering import Document, container, of_kind
from support.servers.aws import Aws
from support.servers.datadog import Intake, Push
from support.servers.wandb import Wandb

pytestmark = [pytest.mark.slow, needs_containers]
SHARDS, KILLED = 3, 1
WRITERS = 6
ONLY = {name: {"enabled": False} for name in ("data_plane", "host", "wandb")}
SHARED = {
    "collectors": {**ONLY, "xenna": {"settings": {"stalled_after": "1d"}}},
    "checkpoints": {"persistentVolumeClaim": {"accessModes": ["ReadWriteMany"]}},
}
KINDS = ("gpu_memory", "xenna")
# What is true at the time of a tick itself is another after the next.
LIVE_ONLY = {metric.name for kind in KINDS for metric in load_collector(kind).live_only}
Points = dict[tuple[str, tuple[str, ...], str | None, int], float]


@pytest.fixture
def release(image: str, intake: Intake, aws: Aws, tmp_path: Path) -> Iterator[Release]:
    """A release with two kinds of records, that reads and writes nothing but loopback."""
    with Wandb(KEY) as wandb:
        made = Release(image, intake, wandb, aws, tmp_path)
        made.fill(WRITERS)
        yield made


def own_points(intake: Intake) -> Points:
    """What the records themselves say: the same, whoever reads them and when."""
    return {
        (key.metric, key.tags, key.host, key.second): value
        for key, value in intake.points.items()
        if key.metric.partition(".")[0] in KINDS and key.metric not in LIVE_ONLY
    }


def total(intake: Intake, metric: str) -> float:
    """The newest value of each shard, added up."""
    return sum(points[max(points)] for points in intake.series(metric).values())


class Shards:
    """The pods of the Job that a CronJob makes."""

    def __init__(self, engine: Engine, release: Release) -> None:
        self._engine, self._release = engine, release
        [cron] = of_kind(release.render(SHARED, {"shards": SHARDS}), "CronJob")
        self._job: Document = cron["spec"]["jobTemplate"]["spec"]
        assert self._job["completionMode"] == "Indexed"
        assert self._job["completions"] == self._job["parallelism"] == SHARDS

    @contextmanager
    def pod(self, index: int) -> Iterator[Pod]:
        """The pod of one index."""
        template = copy.deepcopy(self._job["template"])
        told = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}  # as the Job controller does
        container(template)["env"].append(told)
        with running(self._engine, template, secrets=SECRETS, claims=self._release.claims) as pod:
            yield pod

    def run(self, index: int) -> None:
        """One index, to its end."""
        with self.pod(index) as pod:
            assert pod.wait(180) == 0, pod.log()

    def kill(self, index: int) -> None:
        """One index, killed while the intake has its first points and it does not know yet."""
        known: list[int] = []

        def end(_: Push) -> None:
            if not known:
                known.append(index)
                self._engine.run("podman", "kill", "--signal", "KILL", pod.container)

        with self.pod(index) as pod:
            self._release.intake.on("applied", end)
            assert pod.wait(180) == 137, pod.log()
        assert known == [index]


def test_a_killed_index_costs_its_own_share_and_the_next_tick_makes_up_for_it(
    engine: Engine, release: Release
) -> None:
    intake = release.intake
    alone = release.folder / "alone"
    alone.mkdir()
    os.chown(alone, USER, USER)
    claims = {**release.claims, "fleetgauge-checkpoints": alone}
    with running(engine, release.template("CronJob", SHARED), secrets=SECRETS, claims=claims) as pod:
        assert pod.wait(180) == 0, pod.log()
    whole = own_points(intake)
    assert {name.partition(".")[0] for name, *_ in whole} == set(KINDS)
    intake.points.clear()

    shards = Shards(engine, release)
    for index in {*range(SHARDS)} - {KILLED}:
        shards.run(index)
    others = own_points(intake)
    assert others.items() < whole.items(), "their shares, and nothing else"

    before = len(intake.write_log)
    shards.kill(KILLED)
    shards.run(KILLED)
    again = {(key.metric, key.tags, key.host, key.second) for key, *_ in intake.write_log[before:]}
    assert not again & others.keys(), "the others' points are left alone"
    assert own_points(intake) == whole
    for name in ("xenna.runs.active", "gpu_memory.ingest.files"):
        tags = {tag for found, _ in intake.series(name) for tag in found if tag.startswith("shard:")}
        assert tags == {f"shard:{index}" for index in range(SHARDS)}
        assert total(intake, name) == WRITERS
