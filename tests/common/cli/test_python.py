"""Which Python runs a collector: the environment of the project, or a sentence where none will do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from support.project import ROOT, Project

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


def test_setup_installs_the_lock_and_removes_nothing(tmp_path: Path) -> None:
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
