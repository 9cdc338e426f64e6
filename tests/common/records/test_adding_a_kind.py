"""Somebody follows the second half of docs/adding-a-collector.md to the letter, in a copy of the project."""

from __future__ import annotations

import json
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
    (tmp_path / "checkpoints").mkdir()
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


def test_it_is_short_and_tidy(project: Project) -> None:
    assert len((INIT + METRICS + COLLECTOR).splitlines()) < 150
    ruff = Path(sys.executable).parent / "ruff"
    for command in (["check"], ["format", "--diff"]):
        settings = f"--config={ROOT / 'pyproject.toml'}"
        arguments = [str(ruff), *command, "--quiet", "--no-cache", settings, "collectors/steps"]
        ran = subprocess.run(arguments, cwd=project.root, capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.returncode) == ("", 0)


def test_it_counts_shows_drops_and_resumes(project: Project, tmp_path: Path) -> None:
    at = int(time.time()) - 600
    write(tmp_path / "records", "a", at, (9.5, 100), (8.5, 100), (7.5, "many"))
    write(tmp_path / "records", "b", at + 1, (5.5, 30), (4.5, 30))
    with Intake(key=KEY) as intake:
        environment = {
            "FLEETGAUGE_STEPS_PATHS": str(tmp_path / "records"),
            "FLEETGAUGE_CHECKPOINTS": str(tmp_path / "checkpoints"),
            "FLEETGAUGE_DD_URL": intake.url,
        }
        for _ in range(2):
            ran = project.run("steps", "--push", "--json", **environment)
            assert ran.returncode == 0, ran.stderr
        [outcome] = json.loads(ran.stdout)["collectors"]
        [tokens] = intake.series("steps.tokens").values()
        [loss] = intake.series("steps.loss").values()
    assert tokens == {at: 100, at + 1: 130, at + 2: 30}
    assert {second: loss[second] for second in (at, at + 2)} == {at: 9.5, at + 2: 4.5}
    assert outcome["status"] == "ok"


def test_the_check_says_what_the_page_says(project: Project, tmp_path: Path) -> None:
    at = int(time.time()) - 600
    write(tmp_path / "records", "a", at, (9.5, 100))
    write(tmp_path / "records", "b", at, (9.5, 100), (8.5, 1))
    with Intake(key=KEY) as intake:
        place = {"FLEETGAUGE_DD_URL": intake.url, "FLEETGAUGE_CHECKPOINTS": "checkpoints"}
        ran = project.run("steps", "--check", FLEETGAUGE_STEPS_PATHS="records", **place)
        bad = project.run("steps", "--check", FLEETGAUGE_STEPS_PATHS="record", **place)
    [shown] = re.findall(r"```console\n\$ .*? --check\n(.*?)```", PAGE, re.DOTALL)
    said = re.sub(r"\d\.\d s", "0.0 s", ran.stdout).replace(f"{tmp_path}/", "")
    assert said.startswith(shown), ran.stdout + ran.stderr
    assert bad.returncode == 2
    assert "FLEETGAUGE_STEPS_PATHS: cannot look into" in bad.stdout + bad.stderr
