"""The second half of docs/adding-a-collector.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.project import ROOT, Project
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow

PAGE = (
    (ROOT / "docs" / "adding-a-collector.md")
    .read_text(encoding="utf-8")
    .partition("# Adding a kind of record")[2]
)
INIT, METRICS, COLLECTOR = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
KEY = "test-api-key"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "service").mkdir()
    (tmp_path / "state").mkdir()
    project = Project(tmp_path / "service", {"DD_ENV": "test", "DD_API_KEY": KEY})
    folder = project.root / "collectors" / "steps"
    folder.mkdir()
    for name, text in (("__init__", INIT), ("metrics", METRICS), ("collector", COLLECTOR)):
        (folder / f"{name}.py").write_text(text)
    project.directory = tmp_path
    return project


def write(folder: Path, name: str, at: int, *steps: tuple[float, object]) -> None:
    folder.mkdir(exist_ok=True)
    head = {"schema_version": 1, "kind": "steps", "event": "stats", "run_id": name, "job": "ants"}
    lines = [
        json.dumps(head | {"seq": seq, "timestamp": at + seq, "loss": loss, "tokens": tokens})
        for seq, (loss, tokens) in enumerate(steps)
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def set_sent_until(state: Path, at: int) -> None:
    """Let the next run begin at a time, whenever the tick is."""
    [path] = state.glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sent_until": at}))


def test_the_code_is_short_and_tidy(project: Project) -> None:
    assert len(COLLECTOR.splitlines()) < 100
    ruff = Path(sys.executable).parent / "ruff"
    for command in (["check"], ["format", "--diff"]):
        settings = f"--config={ROOT / 'pyproject.toml'}"
        arguments = [str(ruff), *command, "--quiet", "--no-cache", settings, "collectors/steps"]
        ran = subprocess.run(arguments, cwd=project.root, capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.returncode) == ("", 0)


def test_two_pushes_send_gauges_and_sums_once(project: Project, tmp_path: Path) -> None:
    at = int(time.time()) - 600
    (tmp_path / "records").mkdir()
    with Intake(key=KEY) as intake:
        environment = {
            "FLEETGAUGE_STEPS_PATHS": str(tmp_path / "records"),
            "FLEETGAUGE_STATE": str(tmp_path / "state"),
            "FLEETGAUGE_DD_URL": intake.url,
        }
        project.run("steps", "--push", **environment)
        set_sent_until(tmp_path / "state", at)
        write(tmp_path / "records", "a", at, (9.5, 100), (8.5, 100), (7.5, "many"))
        write(tmp_path / "records", "b", at + 1, (5.5, 30), (4.5, 30))
        for path in (tmp_path / "records").iterdir():
            os.utime(path, (at + 100, at + 100))  # so that the first run has all that was dropped
        first, second = (project.run("steps", "--push", "--json", **environment) for _ in range(2))
        [tokens] = intake.series("steps.tokens").values()
        [loss] = intake.series("steps.loss").values()
    assert tokens == {at: 100, at + 1: 130, at + 2: 30}
    assert loss == {at: 9.5, at + 1: 5.5, at + 2: 4.5}  # of two runs in one second, the larger run_id
    for ran, dropped in ((first, {"bad_body": 1}), (second, {})):
        [outcome] = json.loads(ran.stdout)["collectors"]
        assert (outcome["status"], outcome["dropped"]) == ("ok", dropped), ran.stderr


def test_the_check_prints_what_the_page_shows(project: Project, tmp_path: Path) -> None:
    at = int(time.time()) - 600
    write(tmp_path / "records", "a", at, (9.5, 100))
    write(tmp_path / "records", "b", at, (9.5, 100), (8.5, 1))
    with Intake(key=KEY) as intake:
        ran, bad = (
            project.run("steps", "--check", FLEETGAUGE_STEPS_PATHS=paths, FLEETGAUGE_DD_URL=intake.url)
            for paths in ("records", "record")
        )
    [shown] = re.findall(r"```console\n\$ .*? --check\n(.*?)```", PAGE, re.DOTALL)
    printed = re.sub(r"\d\.\d s", "0.0 s", ran.stdout).replace(f"{tmp_path}/", "")
    assert printed.startswith(shown), ran.stdout + ran.stderr
    assert bad.returncode == 2
    error = f"FLEETGAUGE_STEPS_PATHS: cannot read {tmp_path}/record: it does not exist"
    assert error in bad.stdout + bad.stderr
