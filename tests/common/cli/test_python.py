"""Which Python runs a collector: the environment of the project, or a sentence where none will do."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support.project import KEY, Project

pytestmark = pytest.mark.slow

SCRIPT = "scripts/run_collector.py"


@pytest.fixture
def toys(project: Project) -> Project:
    for name in ("one", "two"):
        project.add(name, "yield VALUE(7, context.window.until)")
    return project


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python with the standard library alone."""
    venv.create(tmp_path / "bare", symlinks=True)
    return tmp_path / "bare" / "bin" / "python"


def run(python: Path, project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, project.root / SCRIPT, *arguments],
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_python_without_our_dependencies_says_what_to_run(toys: Project, bare: Path) -> None:
    sentence = (
        f"run_collector.py: this Python ({bare}): No module named 'pydantic': "
        f"run {toys.root}/scripts/setup once\n"
    )
    ran = run(bare, toys, "all")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", sentence)
    ran = run(bare, toys, "one", "--push")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.endswith(sentence)
    assert "Traceback" not in ran.stderr
    assert run(bare, toys, "--list").returncode == run(bare, toys, "--help").returncode == 0


def test_library_that_only_a_push_needs_is_named_by_a_push(toys: Project) -> None:
    (toys.root / "orjson.py").write_text("raise ModuleNotFoundError(\"No module named 'orjson'\")\n")
    assert toys.run("one").returncode == 0
    ran = toys.run("one", "--push", DD_ENV="test", DD_API_KEY=KEY)
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    assert f"No module named 'orjson': run {toys.root}/scripts/setup once" in ran.stdout


def test_environment_of_the_project_is_preferred_also_by_children(toys: Project) -> None:
    own = toys.root / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\necho own >>"$0.used"\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    assert toys.run("all").returncode == 0
    assert Path(f"{own}.used").read_text() == "own\n"
    assert toys.run("one", "--push").returncode == 0
    assert Path(f"{own}.used").read_text() == "own\nown\nown\n"


OLD = """
import runpy, sys
sys.version_info = (3, 9, 2)
sys.argv = [{script!r}, "one"]
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.parametrize("own", [True, False])
def test_python_that_is_too_old_defers_to_the_project_or_says_what_to_run(toys: Project, own: bool) -> None:
    if own:
        (toys.root / ".venv").symlink_to(sys.prefix)
    code = OLD.format(script=str(toys.root / SCRIPT))
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=toys.environment, capture_output=True, text=True, check=False)
    sentence = f"run_collector.py: Python 3.11 or later is needed: run {toys.root}/scripts/setup once\n"
    assert (ran.returncode, ran.stderr) == ((0, "") if own else (2, sentence))
    assert ("one: ok" in ran.stdout) is own
