"""Which Python runs a collector: the project's own where there is one, and a sentence where none will do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from hashlib import sha256
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from common.process.environment import NEEDED
from support.project import ROOT, Project

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


def test_without_one_that_will_do_a_single_sentence_says_what_to_run(toys: Project, bare: Path) -> None:
    ran = run(bare, toys, "all", "--push")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"run_collector.py: this Python ({bare}) lacks {', '.join(NEEDED)}, which the service needs: "
        f"run {toys.root}/scripts/setup once\n"
    )
    assert run(bare, toys, "--list").returncode == run(bare, toys, "--help").returncode == 0


def test_the_projects_own_is_used_where_there_is_one(toys: Project, bare: Path) -> None:
    (toys.root / ".venv").symlink_to(sys.prefix)
    ran = run(bare, toys, "all")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "2 ok; 2 samples" in ran.stdout


def test_the_projects_own_is_used_even_where_this_one_would_do(toys: Project) -> None:
    own = toys.root / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\necho own >>"$0.used"\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    assert toys.run("all").returncode == 0
    assert Path(f"{own}.used").read_text() == "own\nown\n"


def test_a_projects_own_that_is_incomplete_is_a_sentence_too(toys: Project, bare: Path) -> None:
    (toys.root / ".venv").symlink_to(bare.parent.parent)
    ran = run(Path(sys.executable), toys, "one", "--push")
    assert (ran.returncode, "Traceback" in ran.stderr + ran.stdout) == (2, False)
    assert f"ConfigurationError: No module named 'pydantic'; this Python ({toys.root}" in ran.stdout
    assert f"lacks it: run {toys.root}/scripts/setup once\n" in ran.stdout


OLD = """
import runpy, sys
sys.version_info = (3, 9, 2)
sys.argv = [{script!r}, "one"]
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.parametrize("own", [True, False])
def test_one_that_is_too_old_hands_over_to_the_projects_own_or_says_what_to_run(
    toys: Project, own: bool
) -> None:
    if own:
        (toys.root / ".venv").symlink_to(sys.prefix)
    code = OLD.format(script=str(toys.root / SCRIPT))
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=toys.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = f"run_collector.py: Python 3.11 or later is needed: run {toys.root}/scripts/setup once\n"
    assert (ran.returncode, ran.stderr) == ((0, "") if own else (2, said))
    assert ("one: ok" in ran.stdout) is own


def test_what_is_looked_for_is_what_the_service_depends_on() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    wanted = {re.split(r"[>\[;]", name)[0] for name in groups["service"]}
    distributions = packages_distributions()
    assert {distributions[name][0] for name in NEEDED} == wanted


def wheel(folder: Path, name: str) -> str:
    """A package of one empty module, as a line of a lock; the same bytes each time."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n",
    }
    with zipfile.ZipFile(path, "w") as made:
        for inside, text in files.items():
            made.writestr(zipfile.ZipInfo(inside), text)
    return f"{name} @ {path.as_uri()} --hash=sha256:{sha256(path.read_bytes()).hexdigest()}\n"


@pytest.mark.slow
def test_setup_makes_an_environment_of_the_lock_and_takes_nothing_from_one_that_is_there(
    tmp_path: Path,
) -> None:
    for folder in ("scripts", "locks"):
        (tmp_path / folder).mkdir()
    for name in ("setup", "environment"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    for group in ("demo", "dev"):
        (tmp_path / "locks" / f"{group}.txt").write_text("")
    lock = tmp_path / "locks" / "service.txt"

    def setup(*names: str) -> str:
        lock.write_text("".join(wheel(tmp_path, name) for name in names))
        environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
        command = [tmp_path / "scripts" / "setup"]
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stderr

    def has(*names: str) -> bool:
        code = f"import {', '.join(names)}"
        return (
            subprocess.run([tmp_path / ".venv" / "bin" / "python", "-c", code], check=False).returncode == 0
        )

    assert "Installing locks/service.txt into .venv (once)" in setup("first")
    assert has("first")
    assert setup("first") == ""
    setup("second")
    assert has("first", "second")
