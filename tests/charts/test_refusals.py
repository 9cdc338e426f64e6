"""Values that cannot be right are refused before anything is installed, and the refusal names the value."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from common import registry
from support.rendering import (
    CHART,
    HELM,
    ROOT,
    Document,
    RefusedError,
    merged,
    needs_helm,
    of_kind,
    parsed,
    render,
    scenario,
)
from support.servers.loopback import Answer, LoopbackServer, Request

pytestmark = needs_helm
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
SECRET = "0123456789"  # of the cases
CASES = parsed((ROOT / "tests" / "data" / "chart-refusals.yaml").read_text(encoding="utf-8"))


def refusal(*changes: dict[str, Any]) -> str:
    """What Helm says to values that are the default example but for this; a secret is not repeated."""
    with pytest.raises(RefusedError) as error:
        render(scenario("default"), *changes)
    assert SECRET not in str(error.value)
    return str(error.value)


def reasons(*changes: dict[str, Any]) -> dict[str, str]:
    """The reasons that Helm gives, by the value that each names."""
    found: dict[str, str] = {}
    for line in refusal(*changes).splitlines():
        if line.startswith("- "):
            key, _, reason = line[2:].partition(": ")
            found[key] = found.get(key, "") + reason
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_each_wrong_value_is_named_with_its_fix(case: Document) -> None:
    found = reasons(case["values"])
    assert set(found) == set(case["refused"])
    for key, fix in case["refused"].items():
        assert fix in found[key]


def test_without_values_one_line_names_all_that_must_be_set() -> None:
    with pytest.raises(RefusedError) as error:
        render({})
    [line] = [line for line in str(error.value).splitlines() if line.startswith("- ")]
    for key in ("image.repository", "datadog.env", "aws.secretPrefix", "existingSecret"):
        assert key in line


def test_value_of_0_2_0_exists_or_is_refused_with_its_replacement() -> None:
    old = json.loads((ROOT / "tests" / "data" / "chart-0.2.0.json").read_text(encoding="utf-8"))["values"]
    replacements = yaml.safe_load((CHART / "files" / "removed.yaml").read_text(encoding="utf-8"))
    changes: dict[str, Any] = {}
    removed = [path.split(".") for path in old if not exists(path.split("."))]
    for path in removed:
        value: object = 1
        for key in reversed(path):
            value = {key: value}
        changes = merged(changes, value)  # type: ignore[arg-type]
    lines = reasons(changes)
    assert {"timeZone", "backfill.again", "checkpoints", "collectors.xenna.step"} <= set(lines)
    for path in removed:
        prefixes = [".".join(path[:length]) for length in range(1, len(path) + 1)]
        [reason] = [lines[key] for key in prefixes if key in lines]
        assert reason.removeprefix("removed; ") in replacements.values()


def exists(keys: list[str]) -> bool:
    """Whether a value, or a map that holds any keys, is at this path."""
    values = DEFAULTS
    for key in keys:
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


def test_missing_section_is_named_or_does_no_harm() -> None:
    """As `backfill:` is with all its lines commented out: Helm then forgets the defaults."""
    maps = [key for key, value in DEFAULTS.items() if isinstance(value, dict) and value]
    required = [key for key in maps if key in SCHEMA["required"]]
    text = refusal(dict.fromkeys(required))
    assert all(f"{key} is required" in text for key in required)
    assert render(scenario("default"), {key: None for key in maps if key not in required})


def test_collector_set_to_null_is_one_that_is_not_enabled() -> None:
    past = {"backfill": {"enabled": True, "since": "7d", "collectors": ["wandb"]}}
    for names, number in (({*registry.names()} - {"wandb"}, 1), (["wandb"], 0)):
        documents = render(scenario("default"), past, {"collectors": dict.fromkeys(names)})
        assert len(of_kind(documents, "CronJob")) == number


class Namespace(LoopbackServer[Request]):
    """As much of an API server as Helm needs to look up a namespace, which enforces a Pod Security level."""

    level = ""

    def respond(self, request: Request) -> Answer:
        resource = {"name": "namespaces", "kind": "Namespace", "namespaced": False, "verbs": ["get"]}
        labels = {"pod-security.kubernetes.io/enforce": self.level} if self.level else {}
        metadata = {"name": "monitoring", "labels": labels}
        answers: dict[str, object] = {
            "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]},
            "/api/v1/namespaces/monitoring": {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata},
        }
        found = answers.get(request.path)
        return Answer.json(200, found) if found else Answer(404)


@pytest.mark.parametrize(("level", "refused"), [("privileged", False), ("", False), ("baseline", True)])
def test_namespace_that_forbids_hostpath_is_refused(tmp_path: Path, level: str, refused: bool) -> None:
    values = str(CHART / "ci" / "node-records-values.yaml")
    command = [str(HELM), "template", "a", str(CHART), "--values", values, "--namespace", "monitoring"]
    with Namespace() as server:
        server.level = level
        command += ["--dry-run=server", "--kube-apiserver", server.url]
        environment = {"HOME": str(tmp_path)}  # where it caches what a server says
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    expected = (
        "- daemonSet.hostRoot, collectors.gpu_memory.volume.hostPath, collectors.data_plane.volume.hostPath: "
        "the namespace monitoring enforces Pod Security `baseline`"
    )
    assert (expected in ran.stderr) is refused
    assert (ran.returncode != 0) is refused, ran.stderr
