"""What no schema of Kubernetes says: Pod Security `restricted`, cron syntax, deadlines, names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest

from common.cli.supervise import AT_ONCE, GRACE
from common.run.run import REPORT_TIMEOUT
from fleetgauge import __version__
from support.cron import interval
from support.rendering import (
    SCENARIOS,
    Document,
    container,
    needs_helm,
    of_kind,
    pod_templates,
    render,
    scenario,
)

pytestmark = needs_helm
ALLOWED_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
}
ENUMS = {
    "concurrencyPolicy": {"Allow", "Forbid", "Replace"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "restartPolicy": {"Always", "Never", "OnFailure"},
    "completionMode": {"Indexed", "NonIndexed"},
    "fsGroupChangePolicy": {"Always", "OnRootMismatch"},
    "effect": {"NoExecute", "NoSchedule", "PreferNoSchedule"},
    "action": {"Count", "FailIndex", "FailJob", "Ignore"},
    "operator": {"Equal", "Exists", "In", "NotIn"},
    "protocol": {"TCP", "UDP", "SCTP"},
}


def against_restricted(pod: Document) -> Iterator[str]:
    """What the standard `restricted` would refuse in a pod with one container."""
    if any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
        yield "namespaces of the host"
    for volume in pod.get("volumes", []):
        if not set(volume) - {"name"} <= ALLOWED_VOLUMES:
            yield f"volume {volume}"
    both = pod.get("securityContext", {}) | container({"spec": pod}).get("securityContext", {})
    if both.get("runAsNonRoot") is not True or not both.get("runAsUser", 1):
        yield "root"
    if both.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "seccomp"
    if both.get("allowPrivilegeEscalation") is not False or both.get("privileged"):
        yield "privileges"
    capabilities = both.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if both.get("sysctls") or both.get("procMount") or any(map(has_host_port, pod["containers"])):
        yield "ports of the host, sysctls or proc"


def has_host_port(container: Document) -> bool:
    return any("hostPort" in port for port in container.get("ports", []))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_pod_satisfies_pod_security_restricted_and_more(name: str) -> None:
    for template in pod_templates(render(scenario(name))).values():
        pod = template["spec"]
        mounted = [volume for volume in pod["volumes"] if {"hostPath", "nfs"} & {*volume}]
        assert name in {"node-records", "schedules"} or mounted == [], "which need less restricted namespaces"
        rest = [volume for volume in pod["volumes"] if volume not in mounted]
        assert list(against_restricted({**pod, "volumes": rest})) == []
        assert container(template)["securityContext"]["readOnlyRootFilesystem"] is True
        security = pod["securityContext"]
        assert {security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {10001}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}} in pod["volumes"]
        assert {"name": "tmp", "mountPath": "/tmp"} in container(template)["volumeMounts"]  # noqa: S108
        for first in pod.get("initContainers", []):
            assert list(against_restricted({**pod, "containers": [first]})) == []
        assert container(template)["resources"]["limits"]["memory"] in {"128Mi", "384Mi"}


def test_weak_security_context_violates_pod_security() -> None:
    weak = {
        "podSecurityContext": {"runAsNonRoot": False, "seccompProfile": {"type": "Unconfined"}},
        "securityContext": {"allowPrivilegeEscalation": True, "capabilities": {"drop": ["CHOWN"]}},
        "extraVolumes": [{"name": "etc", "hostPath": {"path": "/etc"}}],
    }
    for template in pod_templates(render(scenario("default"), weak)).values():
        assert len(list(against_restricted(template["spec"]))) == 5


def walk(value: object) -> Iterator[tuple[str, object]]:
    """Every key and value of a document, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


@pytest.mark.parametrize("name", SCENARIOS)
def test_enumerated_fields_hold_values_of_kubernetes(name: str) -> None:
    for document in render(scenario(name)):
        for key, value in walk(document):
            assert key not in ENUMS or value in ENUMS[key], key


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [("*/15 * * * *", 900), ("7 * * * *", 3600), ("0,50 * * * *", 600), ("0 6 * * 1-5", 86400)],
)
def test_interval_of_a_schedule(schedule: str, seconds: int) -> None:
    assert interval(schedule) == seconds


@pytest.mark.parametrize("name", SCENARIOS)
def test_deadline_of_a_run_is_after_its_timeouts_and_before_the_next_run(name: str) -> None:
    for cron in of_kind(render(scenario(name)), "CronJob"):
        if cron["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboards":
            continue
        job = cron["spec"]["jobTemplate"]["spec"]
        pod = job["template"]["spec"]
        arguments = container(job["template"])["args"]
        [timeout] = [float(text.partition("=")[2]) for text in arguments if text.startswith("--timeout=")]
        names = [text for text in arguments if not text.startswith("--")]
        longest = math.ceil(len(names) / AT_ONCE) * (timeout + GRACE) + len(names) * REPORT_TIMEOUT
        assert longest < job["activeDeadlineSeconds"]
        ended = job["activeDeadlineSeconds"] + pod["terminationGracePeriodSeconds"]
        assert ended < interval(cron["spec"]["schedule"])
        assert cron["spec"]["concurrencyPolicy"] == "Forbid"
        assert 10 <= cron["spec"]["startingDeadlineSeconds"] < interval(cron["spec"]["schedule"])


@pytest.mark.parametrize(
    "release",
    [
        *("a" * 53, "fleetgauge", "x", "team-fleetgauge-" + "b" * 37),
        *("123", "team.fleetgauge", "a" * 28 + "." + "b" * 20),
    ],
)
@pytest.mark.parametrize("name", SCENARIOS)
def test_names_of_objects_are_short_enough_for_any_release(name: str, release: str) -> None:
    documents = render(scenario(name), {"fullnameOverride": ""}, release=release)
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(set(names)) == len(names)
    for document in documents:
        longest = 63 if document["kind"] == "Job" else 52
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", document["metadata"]["name"])
        assert len(document["metadata"]["name"]) <= longest
    for key, value in walk(documents):
        if key in {"labels", "matchLabels"} and isinstance(value, dict):
            assert all(
                re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", text) for text in value.values()
            )


def test_long_releases_with_the_same_prefix_share_no_name() -> None:
    first, second = (
        {document["metadata"]["name"] for document in render(scenario("schedules"), release="a" * 52 + last)}
        for last in "bc"
    )
    assert not first & second


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_object_has_the_standard_labels_and_its_namespace(name: str) -> None:
    for document in render(scenario(name), {"extraManifests": []}, release="one"):
        labels = document["metadata"]["labels"]
        assert document["metadata"]["namespace"] == "monitoring"
        assert labels["app.kubernetes.io/name"] == "fleetgauge"
        assert labels["app.kubernetes.io/instance"] == "one"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/version"] == __version__
        assert labels["helm.sh/chart"] == f"fleetgauge-{__version__}"
