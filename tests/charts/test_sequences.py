"""A release from its first day to its last, as Helm asks a cluster for it: nothing left, nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.rendering import CHART, HELM, needs_helm, scenario

from .kubernetes import Kubernetes

pytestmark = needs_helm
RUN = "CronJob/fleetgauge"
PAST = {"backfill": {"enabled": True, "since": "7d"}}


class Cluster(Kubernetes):
    """A cluster, and Helm to talk to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Helm with a home of its own."""
        home = {f"HELM_{kind}_HOME": str(self._folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}
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
def test_release_is_installed_changed_and_removed_completely(cluster: Cluster) -> None:
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


def test_helm_test_leaves_no_object(cluster: Cluster) -> None:
    cluster.apply("install", "default")
    cluster.take_done()
    ran = cluster.helm("test", "fleetgauge")
    assert ran.returncode == 0, ran.stderr
    check = "Job/fleetgauge-check"
    assert cluster.take_done() == [("created", check), ("deleted", check)]
    assert cluster.helm("uninstall", "fleetgauge").returncode == 0
    assert cluster.objects == {}


def test_rollback_creates_the_job_of_a_backfill_again(cluster: Cluster) -> None:
    cluster.apply("install", "default", PAST)
    [first] = cluster.jobs("backfill")
    cluster.apply("upgrade", "default")
    assert cluster.jobs("backfill") == []
    assert cluster.helm("rollback", "fleetgauge").returncode == 0
    assert cluster.jobs("backfill") == [first]


def test_upgrade_of_the_image_replaces_the_job_of_a_backfill(
    cluster: Cluster,
) -> None:
    cluster.apply("install", "default", PAST)
    [first] = cluster.jobs("backfill")
    assert "STATUS: deployed" in cluster.apply("upgrade", "default", PAST, {"image": {"tag": "9.9.9"}})
    [second] = cluster.jobs("backfill")
    assert first != second


@pytest.mark.slow
@pytest.mark.parametrize("name", ["backfill", "daemonset", "dashboards"])
def test_upgrade_and_rollback_change_no_immutable_field(cluster: Cluster, name: str) -> None:
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
    assert cluster.objects == {}


@pytest.mark.parametrize(("level", "refused"), [("privileged", False), ("", False), ("baseline", True)])
def test_namespace_that_forbids_hostpath_is_refused_before_install(
    cluster: Cluster, level: str, refused: bool
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    space = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "monitoring", "labels": labels}}
    cluster.objects["Namespace", "monitoring"] = space
    output = cluster.apply("install", "node-records")
    expected = (
        "- collectors.gpu_memory.volume.hostPath, collectors.data_plane.volume.hostPath: the namespace "
        "monitoring enforces Pod Security `baseline`"
    )
    assert (expected in output) is refused
    assert ("STATUS: deployed" in output) is not refused
    assert bool(cluster.take_done()) is not refused
