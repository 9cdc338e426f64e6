"""Every example of values: it lints, it is valid Kubernetes, and it renders to exactly what is on file."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from support.rendering import (
    CHART,
    GOLDEN,
    HELM,
    ROOT,
    SCENARIOS,
    Document,
    golden_chart,
    kind_of,
    needs_helm,
    render,
    rendered_text,
    scenario,
)

pytestmark = needs_helm
MIN_VERSION, NEWEST = "1.27", "1.37"


def of_kubernetes(documents: list[Document]) -> list[Document]:
    """All but the objects that an operator of the cluster has to know."""
    return [document for document in documents if not document["apiVersion"].startswith("external-secrets.")]


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_renders_to_its_golden_file(name: str) -> None:
    golden = list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")))
    assert render(scenario(name), chart=golden_chart()) == golden, (
        "right as it is? run tests/support/rendering.py and read its diff"
    )


def test_every_scenario_has_a_golden_file() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*")) == SCENARIOS
    assert len(SCENARIOS) == 10


@pytest.mark.parametrize("version", [MIN_VERSION, NEWEST])
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_object_is_valid_in_the_oldest_and_newest_kubernetes(name: str, version: str) -> None:
    for document in of_kubernetes(render(scenario(name), kubernetes=version)):
        assert kubernetes_validate.validate(document, version, strict=True) == version


@pytest.mark.parametrize("name", SCENARIOS)
def test_names_of_digits_stay_strings(name: str) -> None:
    numbers = {
        "fullnameOverride": "1",
        "nameOverride": "2",
        "image": {"pullSecrets": ["3"]},
        "serviceAccount": {"name": "4"},
        "priorityClassName": "5",
    }
    if "existingSecret" in scenario(name):
        numbers |= {"existingSecret": "6", "proxy": {"existingSecret": "7"}, "state": {"existingClaim": "8"}}
    for document in of_kubernetes(render(scenario(name), numbers, release="123", namespace="456")):
        assert kubernetes_validate.validate(document, NEWEST, strict=True) == NEWEST
        assert isinstance(document["metadata"]["namespace"], str)
        assert all(isinstance(text, str) for text in document["metadata"]["labels"].values())


def test_the_oldest_and_newest_kubernetes_are_those_that_the_chart_names() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">={MIN_VERSION}.0-0"
    assert f"Kubernetes {MIN_VERSION} to {NEWEST}" in (CHART / "README.md").read_text(encoding="utf-8")


def test_validator_refuses_an_unknown_field() -> None:
    [document, *_] = render(scenario("default"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**document, "unknown": 1}, NEWEST, strict=True)


def test_helm_lint_without_values_passes() -> None:
    command = [str(HELM), "lint", "charts/fleetgauge"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout
    assert not re.search(r"\[(WARNING|ERROR)\]|recommended", ran.stdout)


def test_chart_metadata_is_complete() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    kind, _, content = chart["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(content).startswith(b'<svg xmlns="http://www.w3.org/2000/svg" ')
    changes = yaml.safe_load(chart["annotations"]["artifacthub.io/changes"])
    assert {change["kind"] for change in changes} <= {"added", "changed", "fixed", "removed", "security"}
    assert {tuple(sorted(change)) for change in changes} == {("description", "kind")}
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith(chart["annotations"]["artifacthub.io/license"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_rendered_yaml_passes_yamllint(name: str) -> None:
    values = (CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8")
    linter = [
        sys.executable,
        "-m",
        "yamllint",
        "--strict",
        "--config-file",
        str(ROOT / ".yamllint.yaml"),
        "-",
    ]
    ran = subprocess.run(linter, input=rendered_text(values), capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("", 0)


def test_examples_of_the_page_about_deploying_are_releases() -> None:
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert len(page.split()) <= 1500
    examples = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    kinds = [[kind_of(document) for document in render(yaml.safe_load(values))] for values in examples]
    assert kinds == [
        ["ServiceAccount", "CronJob", "Test"],
        ["ServiceAccount", "CronJob", "Test"],
        ["ServiceAccount", "DaemonSet", "CronJob", "Test"],
    ]


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


def test_readme_lists_every_value_under_its_heading() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    page = (CHART / "README.md").read_text(encoding="utf-8")
    for key in yaml.safe_load(text):
        heading = text[: text.index(f"\n{key}:")].rpartition("\n## ")[2].splitlines()[0]
        assert page[: page.index(f"| `{key}")].rpartition("\n### ")[2].splitlines()[0] == heading


def test_the_examples_do_not_ship_with_the_chart() -> None:
    assert "ci/" in (CHART / ".helmignore").read_text(encoding="utf-8").splitlines()
