"""What the tiers of `./scripts/test` rely on: fewer examples, and a list of what was skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT

pytestmark = pytest.mark.slow

SKIPPED = """
import pytest
from support.requirements import needs, skip_without

@needs("chromium", None)
def test_marked():
    pass

@needs("chromium", "/usr/bin/chromium")
def test_run():
    pass

@pytest.fixture
def image():
    skip_without("podman, runc", "not installed")

@pytest.mark.parametrize("number", [1, 2])
def test_fixture(image, number):
    pass
"""
PROPERTIES = """
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

counts = {"default": 0, "own": 0, "few": 0}

@given(st.integers())
def test_default(number):
    counts["default"] += 1

class TestOwn:
    @settings(max_examples=50)
    @given(st.integers())
    def test_own(self, number):
        counts["own"] += 1

@settings(max_examples=3)
@given(st.integers())
def test_few(number):
    counts["few"] += 1

class Machine(RuleBasedStateMachine):
    @rule(number=st.integers())
    def step(self, number):
        pass

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40)

def test_counts():
    assert [*counts.values(), TestMachine.settings.max_examples] == [10, 5, 1, 4]
"""


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run files of tests with our configuration, in a process of their own."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-pconftest", *options]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    command += ["--hypothesis-profile=quick", str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_quick_run_tries_a_tenth_and_lists_what_it_skips(tmp_path: Path) -> None:
    ran = run(tmp_path, "--required=buildah", "-pno:randomly", skipped=SKIPPED, properties=PROPERTIES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *_, chromium, podman, last = ran.stdout.splitlines()
    assert chromium == "    1 needs chromium: it is not installed"
    assert podman == "    2 needs podman, runc: not installed"
    assert "6 passed, 3 skipped" in last


@pytest.mark.parametrize(
    ("processes", "required", "missing"),
    [("-n0", "buildah chromium", "chromium"), ("-n1", "runc podman", "podman, runc")],
)
def test_a_run_fails_where_something_required_is_missing(
    tmp_path: Path, processes: str, required: str, missing: str
) -> None:
    ran = run(tmp_path, f"--required={required}", processes, skipped=SKIPPED)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-2] == f"FAILED: required, and yet missing: {missing}"
