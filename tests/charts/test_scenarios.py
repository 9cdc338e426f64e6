"""Every example of values: its golden file, and what must be true of the objects of any release."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from common import registry
from common.cli.arguments import parser
from common.cli.supervise import AT_ONCE, GRACE
from common.options import Mode
from common.run.run import REPORT_TIMEOUT
from support.cron import interval
from support.rendering import (
    CHART,
    GOLDEN,
    HELM,
    ROOT,
    SCENARIOS,
    Document,
    container,
    example,
    kind_of,
    needs_helm,
    notes,
    of_kind,
    parsed,
    pod_templates,
    render,
    scenario,
)

pytestmark = needs_helm
OLDEST, NEWEST = "1.27", "1.37"
VOLUMES = {"configMap", "csi", "emptyDir", "persistentVolumeClaim"}
LESS_RESTRICTED = {"node-records": {"hostPath"}, "schedules": {"nfs"}}
examples = pytest.mark.parametrize("name", SCENARIOS)


@examples
def test_scenario_renders_to_its_golden_file(name: str) -> None:
    assert len([*GOLDEN.glob("*")]) == len(SCENARIOS)
    golden = parsed((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8"))
    assert example(name) == golden, "right as it is? run tests/support/rendering.py and read its diff"


def validate(document: Document, version: str) -> None:
    """Against the schema of a version; objects that an operator of the cluster has to know have none."""
    if not document["apiVersion"].startswith("external-secrets."):
        assert kubernetes_validate.validate(document, version, strict=True) == version


@examples
def test_each_object_is_valid_in_the_oldest_and_newest_kubernetes(name: str) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"
    for version in (OLDEST, NEWEST):
        for document in example(name, version if name == "shards" else ""):  # which alone depends on it
            validate(document, version)
    with pytest.raises(kubernetes_validate.ValidationError):
        validate({**document, "unknown": 1}, NEWEST)


@pytest.mark.parametrize("name", ["existing-secret", "platform"])
def test_names_of_digits_stay_strings(name: str) -> None:
    numbers = {
        "fullnameOverride": "1",
        "nameOverride": "2",
        "image": {"pullSecrets": ["3"]},
        "serviceAccount": {"name": "4"},
        "priorityClassName": "5",
    }
    if name == "existing-secret":
        numbers |= {"existingSecret": "6", "proxy": {"existingSecret": "7"}, "state": {"existingClaim": "8"}}
    for document in render(scenario(name), numbers, release="123", namespace="456"):
        validate(document, NEWEST)
        labels = document["metadata"].get("labels", {})
        assert all(isinstance(text, str) for text in (document["metadata"]["namespace"], *labels.values()))


@examples
def test_every_pod_satisfies_pod_security_restricted_and_more(name: str) -> None:
    """But for the volumes of a node's and of other machines' directories, which need another namespace."""
    for template in pod_templates(example(name)).values():
        pod = template["spec"]
        kinds = {kind for volume in pod["volumes"] for kind in volume} - {"name"}
        assert kinds <= VOLUMES | LESS_RESTRICTED.get(name, set())
        assert not {"hostNetwork", "hostPID", "hostIPC"} & {*pod}
        for each in [*pod["containers"], *pod.get("initContainers", [])]:
            context = pod["securityContext"] | each["securityContext"]
            assert context["runAsNonRoot"] is context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is context.get("privileged", False) is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False


@examples
def test_deadline_of_a_run_is_after_its_timeouts_and_before_the_next_run(name: str) -> None:
    for cron in of_kind(example(name), "CronJob"):
        if cron["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboards":
            continue
        job = cron["spec"]["jobTemplate"]["spec"]
        arguments = container(job["template"])["args"]
        [timeout] = [float(text.partition("=")[2]) for text in arguments if text.startswith("--timeout=")]
        names = [text for text in arguments if not text.startswith("--")]
        longest = math.ceil(len(names) / AT_ONCE) * (timeout + GRACE) + len(names) * REPORT_TIMEOUT
        ended = job["activeDeadlineSeconds"] + job["template"]["spec"]["terminationGracePeriodSeconds"]
        assert longest < job["activeDeadlineSeconds"] < ended < interval(cron["spec"]["schedule"])
        assert cron["spec"]["concurrencyPolicy"] == "Forbid"
        assert 10 <= cron["spec"]["startingDeadlineSeconds"] < interval(cron["spec"]["schedule"])


@examples
def test_command_line_accepts_the_arguments_of_every_pod(name: str) -> None:
    for key, template in pod_templates(example(name)).items():
        if "command" not in container(template):
            options = parser().parse_args(container(template)["args"])
            assert set(options.names) <= set(registry.names())
            assert options.mode is (Mode.CHECK if key.startswith("Test/") else Mode.PUSH)


@examples
def test_notes_name_objects_of_the_release(name: str) -> None:
    found = {f"{each['kind'].lower()}/{each['metadata']['name']}": each for each in example(name)}
    text = notes(name)
    named = set(re.findall(r"(?:cronjob|daemonset|job)/[a-z][\w-]*", text))
    assert named <= set(found)
    assert {key for key in found if key.startswith("daemonset/")} <= named


def walk(value: object) -> Iterator[tuple[str, object]]:
    """Every key and value of a document, however deep."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


LONG = ["a" * 53, "team-fleetgauge-" + "b" * 37, "a" * 28 + "." + "b" * 20, "fleetgauge-" + "c" * 35]


def test_names_of_objects_are_short_enough_for_any_release() -> None:
    volume = {"persistentVolumeClaim": {"claimName": "records"}}
    own = {"enabled": True, "schedule": "*/5 * * * *", "volume": volume}
    everything = {
        "dashboards": {"schedule": "7 3 * * *"},
        "collectors": {"gpu_memory": own, "data_plane": own},
    }
    seen: set[str] = set()
    for release in (*LONG, "a" * 52 + "b", "123", "team.fleetgauge"):
        documents = render(scenario("platform"), everything, release=release)
        names = [(document["kind"], document["metadata"]["name"]) for document in documents]
        assert len(set(names)) == len(names) == 10
        assert not seen.intersection(name for _, name in names), "two releases share no name"
        seen.update(name for _, name in names)
        for kind, name in names:
            assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
            assert len(name) <= (63 if kind == "Job" else 52)
        for key, value in walk(documents):
            if key in {"labels", "matchLabels"} and isinstance(value, dict):
                for text in value.values():
                    assert re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", text)


def test_objects_of_0_2_0_keep_their_names_and_selectors() -> None:
    """Neither can change in an upgrade: another name is another object, and a selector is immutable."""
    old = json.loads((ROOT / "tests" / "data" / "chart-0.2.0.json").read_text(encoding="utf-8"))["objects"]
    for name, objects in old.items():
        found = {}
        for document in render(scenario(name)):
            spec = document.get("spec", {})
            key = f"{kind_of(document)}/{document['metadata']['name']}"
            found[key] = spec.get("selector", spec.get("podSelector"))
        assert objects.items() <= found.items()


def test_helm_lint_without_values_passes() -> None:
    command = [str(HELM), "lint", "charts/fleetgauge"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout
    assert not re.search(r"\[(WARNING|ERROR)\]|recommended", ran.stdout)


def test_examples_of_the_page_about_deploying_are_releases() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    kinds = [[kind_of(document) for document in render(yaml.safe_load(values))] for values in examples]
    assert kinds == [
        ["ServiceAccount", "CronJob", "Test"],
        ["ServiceAccount", "CronJob", "Test"],
        ["ServiceAccount", "DaemonSet", "CronJob", "Test"],
    ]
