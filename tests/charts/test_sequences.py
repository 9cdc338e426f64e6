"""A release from its first day to its last, as Helm asks a cluster for it: nothing left, nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.rendering import CHART, HELM, container, needs_helm, scenario

from .kubernetes import Kubernetes

pytestmark = needs_helm
RUN = "CronJob/fleetgauge"
CLAIM = "PersistentVolumeClaim/fleetgauge-checkpoints"
PAST = {"backfill": {"enabled": True, "since": "7d"}, "checkpoints": {"s3": "s3://bucket"}}
CREATED: dict[str, Any] = {"checkpoints": {"persistentVolumeClaim": {"create": True}}}


class Cluster(Kubernetes):
    """A cluster, and Helm to talk to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Helm with a home of its own."""
        home = {f"HELM_{place}_HOME": str(self._folder / place) for place in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), **home}
        command = [str(HELM), *words, "--namespace", "monitoring", "--kube-apiserver", self.url]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def apply(self, verb: str, name: str, *changes: dict[str, Any], options: tuple[str, ...] = ()) -> str:
        """Install or upgrade with an example and changes; what was said about it."""
        files = [str(CHART / "ci" / f"{name}-values.yaml")]
        for number, change in enumerate(changes):
            path = self._folder / f"{number}.json"
            path.write_text(json.dumps(change))
            files.append(str(path))
        values = [word for file in files for word in ("--values", file)]
        ran = self.helm(verb, "fleetgauge", str(CHART), *values, *options)
        return ran.stderr + ran.stdout

    def jobs(self, component: str) -> list[str]:
        """The names of Jobs that are there, by what they are for."""
        return [name for name in self.names if name.startswith(f"Job/fleetgauge-{component}")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as server:
        yield server


@pytest.mark.slow
def test_a_release_comes_changes_and_goes_without_a_trace(cluster: Cluster) -> None:
    assert "STATUS: deployed" in cluster.apply("install", "platform")
    [past] = cluster.jobs("backfill")
    account, policy, nodes = (
        "ServiceAccount/fleetgauge",
        "NetworkPolicy/fleetgauge",
        "DaemonSet/fleetgauge-host",
    )
    assert cluster.names == sorted([RUN, account, policy, nodes, past])
    assert {verb for verb, _ in cluster.take_done()} == {"created"}

    assert "STATUS: deployed" in cluster.apply("upgrade", "platform")
    assert cluster.take_done() == [], "the same values change nothing"
    asked = {request.path.rpartition("/")[2] for request in cluster.requests if request.method == "GET"}
    assert "persistentvolumeclaims" not in asked, "which whoever installs this may have no right to list"

    assert "STATUS: deployed" in cluster.apply("upgrade", "platform", {"suspend": True})
    assert cluster.take_done() == [("changed", RUN)]
    assert cluster.objects["CronJob", "fleetgauge"]["spec"]["suspend"] is True

    assert cluster.helm("rollback", "fleetgauge").returncode == 0
    assert cluster.take_done() == [("changed", RUN)]

    off = {
        "daemonSet": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "backfill": {"enabled": False},
    }
    assert "STATUS: deployed" in cluster.apply("upgrade", "platform", off)
    assert {done for done in cluster.take_done() if done[0] == "deleted"} == {
        ("deleted", nodes),
        ("deleted", policy),
        ("deleted", past),
    }
    assert cluster.helm("uninstall", "fleetgauge").returncode == 0
    assert cluster.objects == {}


def test_a_test_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.apply("install", "default")
    cluster.take_done()
    ran = cluster.helm("test", "fleetgauge")
    assert ran.returncode == 0, ran.stderr
    check = "Job/fleetgauge-check"
    assert cluster.take_done() == [("created", check), ("deleted", check)]
    assert cluster.helm("uninstall", "fleetgauge").returncode == 0
    assert cluster.objects == {}


def test_a_rollback_makes_the_job_of_a_backfill_again_which_then_knows_that_it_is_done(
    cluster: Cluster,
) -> None:
    cluster.apply("install", "default", PAST)
    [first] = cluster.jobs("backfill")
    cluster.apply("upgrade", "default", {**PAST, "backfill": {"enabled": False}})
    assert cluster.jobs("backfill") == []
    assert cluster.helm("rollback", "fleetgauge").returncode == 0
    assert cluster.jobs("backfill") == [first]
    once = [
        container(job["spec"]["template"])["args"]
        for (kind, _), job in cluster.objects.items()
        if kind == "Job"
    ]
    assert "--once=first" in once[0], "what ends it at once is tested where it is done"


def test_a_new_image_makes_another_job_of_the_same_backfill_and_takes_the_old_one_away(
    cluster: Cluster,
) -> None:
    cluster.apply("install", "default", PAST)
    [first] = cluster.jobs("backfill")
    assert "STATUS: deployed" in cluster.apply("upgrade", "default", PAST, {"image": {"tag": "9.9.9"}})
    [second] = cluster.jobs("backfill")
    assert first != second


@pytest.mark.slow
def test_a_claim_that_binds_at_first_use_is_waited_for_in_vain_unless_it_is_bound_now(
    cluster: Cluster,
) -> None:
    waiting = ("--wait", "--timeout", "3s")
    said = cluster.apply("install", "default", CREATED, options=waiting)
    assert "context deadline exceeded" in said
    assert cluster.helm("uninstall", "fleetgauge").returncode == 0
    now = {"checkpoints": {"persistentVolumeClaim": {"create": True, "bindNow": True}}}
    said = cluster.apply("install", "default", now, options=waiting)
    assert "STATUS: deployed" in said
    [bind] = cluster.jobs("bind")
    cluster.take_done()
    assert "STATUS: deployed" in cluster.apply("upgrade", "default", now, options=waiting)
    assert cluster.take_done() == [("deleted", bind)], "once the claim is bound it is of no use"
    assert cluster.helm("uninstall", "fleetgauge").returncode == 0
    assert cluster.objects == {}


def test_a_claim_that_is_kept_is_all_that_stays_and_the_next_release_takes_it_up(cluster: Cluster) -> None:
    assert "STATUS: deployed" in cluster.apply("install", "claim")
    assert cluster.helm("uninstall", "fleetgauge").returncode == 0
    assert cluster.names == [CLAIM]
    cluster.take_done()
    assert "STATUS: deployed" in cluster.apply("install", "claim")
    assert ("created", CLAIM) not in cluster.take_done()


def test_access_modes_that_cannot_change_are_refused_before_anything_is_touched(cluster: Cluster) -> None:
    cluster.apply("install", "default", CREATED)
    cluster.take_done()
    shared = {"persistentVolumeClaim": {"create": True, "accessModes": ["ReadWriteMany"]}}
    said = cluster.apply("upgrade", "default", {**PAST, "checkpoints": shared})
    assert (
        "- checkpoints.persistentVolumeClaim.accessModes: the claim fleetgauge-checkpoints has "
        "ReadWriteOnce, and Kubernetes changes no claim; make another one with ReadWriteMany, "
        "name it in existingClaim and set create: false"
    ) in said
    assert cluster.take_done() == []
    assert cluster.jobs("backfill") == []
    other = {"persistentVolumeClaim": {"create": False, "existingClaim": "shared"}}
    assert "STATUS: deployed" in cluster.apply("upgrade", "default", {**PAST, "checkpoints": other})
    assert CLAIM not in cluster.names


def test_so_is_a_storage_class_that_cannot_change(cluster: Cluster) -> None:
    cluster.apply("install", "claim")
    cluster.take_done()
    fast = {"checkpoints": {"persistentVolumeClaim": {"storageClassName": "fast"}}}
    said = cluster.apply("upgrade", "claim", fast, {"image": {"tag": "9.9.9"}})
    assert (
        "- checkpoints.persistentVolumeClaim.storageClassName: the claim fleetgauge-checkpoints has gp3, "
        "and Kubernetes changes no claim; make another one with fast"
    ) in said
    assert cluster.take_done() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claim", "backfill", "daemonset"])
def test_what_can_never_change_is_never_changed(cluster: Cluster, name: str) -> None:
    """A real API server refuses half of such an upgrade; this one does, too."""
    assert scenario(name)
    assert "STATUS: deployed" in cluster.apply("install", name)
    changes: list[dict[str, Any]] = [
        {"image": {"digest": "", "tag": "9.9.9"}},
        {"resources": {"limits": {"memory": "512Mi"}}},
        {"commonLabels": {"team": "a"}},
        {"podLabels": {"team": "a"}, "datadog": {"env": "staging"}},
        {"nodeSelector": {"pool": "a"}, "verbose": True},
    ]
    for change in changes:
        assert "STATUS: deployed" in cluster.apply("upgrade", name, change)
    for revision in range(1, len(changes) + 1):
        ran = cluster.helm("rollback", "fleetgauge", str(revision))
        assert ran.returncode == 0, ran.stderr
    assert cluster.helm("uninstall", "fleetgauge").returncode == 0
    assert cluster.names == ([CLAIM] if name == "claim" else [])


@pytest.mark.parametrize(("level", "refused"), [("privileged", False), ("", False), ("baseline", True)])
def test_a_namespace_that_lets_no_pod_mount_its_node_is_known_before_anything_is_made(
    cluster: Cluster, level: str, refused: bool
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    space = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "monitoring", "labels": labels}}
    cluster.objects["Namespace", "monitoring"] = space
    said = cluster.apply("install", "node-records")
    expected = (
        "- collectors.gpu_memory.volume.hostPath, collectors.data_plane.volume.hostPath: the namespace "
        "monitoring enforces Pod Security `baseline`, under which no pod mounts a part of its node"
    )
    assert (expected in said) is refused
    assert ("STATUS: deployed" in said) is not refused
    assert bool(cluster.take_done()) is not refused


@pytest.mark.parametrize(("modes", "refused"), [(["ReadWriteOnce"], True), (["ReadWriteMany"], False)])
def test_a_claim_of_ones_own_that_one_node_holds_at_a_time_is_known_before_shards_fight_for_it(
    cluster: Cluster, modes: list[str], refused: bool
) -> None:
    claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "own"}}
    cluster.objects["PersistentVolumeClaim", "own"] = {**claim, "spec": {"accessModes": modes}}
    store = {"checkpoints": {"persistentVolumeClaim": {"existingClaim": "own"}}}
    said = cluster.apply("install", "default", {"shards": 2, **store})
    expected = "- shards: pods on several nodes share the checkpoints, and the claim own is for one node"
    assert (expected in said) is refused
    assert ("STATUS: deployed" in said) is not refused
