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


@pytest.mark.parametrize(
    ("processes", "required", "missing"),
    [("-n0", "buildah", ""), ("-n0", "buildah chromium", "chromium"), ("-n1", "runc podman", "podman, runc")],
)
def test_quick_run_lists_what_it_skips_and_fails_where_that_is_required(
    tmp_path: Path, processes: str, required: str, missing: str
) -> None:
    """With our configuration, in a process of its own; properties try a tenth of their examples."""
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    (tmp_path / "test_properties.py").write_text(PROPERTIES)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-pconftest", processes]
    command += [f"--required={required}", "-pno:randomly", "--hypothesis-profile=quick", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == (1 if missing else 0), ran.stdout + ran.stderr
    *lines, last = ran.stdout.splitlines()
    if missing:
        assert lines.pop() == f"FAILED: required, and yet missing: {missing}"
    assert lines[-2:] == [
        "    1 needs chromium: it is not installed",
        "    2 needs podman, runc: not installed",
    ]
    assert "6 passed, 3 skipped" in last
