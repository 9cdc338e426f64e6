"""What the workflows may do, and what has to pass before a release; only the hosting can run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from support.project import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(path: Path) -> dict[str, Any]:
    """Return a workflow; YAML reads its key `on` as true."""
    loaded: dict[str | bool, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else str(key): value for key, value in loaded.items()}


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every job with its name, as `workflow.job`."""
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield f"{path.stem}.{name}", job


def test_pull_requests_can_write_nothing_and_read_no_secret() -> None:
    assert not any("secrets." in path.read_text() for path in WORKFLOWS)
    for path in WORKFLOWS:
        workflow = load(path)
        assert workflow["permissions"] == {}, path
        if "pull_request" in workflow["on"]:
            assert all(job["permissions"] == {"contents": "read"} for job in workflow["jobs"].values())
        assert "pull_request_target" not in workflow["on"]


def test_nothing_is_released_before_the_tests_passed() -> None:
    needs = {name: job.get("needs") for name, job in jobs()}
    assert (needs["image.image"], needs["image.chart"]) == ("test", "image")
    assert (needs["wheel.build"], needs["wheel.publish"]) == ("test", "build")


def test_every_promised_python_is_tested() -> None:
    promised = re.findall(r"Python :: (\d+\.\d+)", (ROOT / "pyproject.toml").read_text())
    jobs = load(ROOT / ".github" / "workflows" / "test.yml")["jobs"]
    [version] = [
        step["with"]["python-version"] for step in jobs["all"]["steps"] if "setup-python" in str(step)
    ]
    assert [version, *jobs["fast"]["strategy"]["matrix"]["python"]] == promised


def test_commands_use_existing_scripts() -> None:
    commands = [step["run"] for _, job in jobs() for step in job.get("steps", ()) if "run" in step]
    named = {name for command in commands for name in re.findall(r"(?:scripts|\.ci)/\w[\w.-]*", command)}
    assert ".ci/run" in named
    assert [name for name in named if not (ROOT / name).is_file()] == []
