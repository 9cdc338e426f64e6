"""What the two tiers of `./scripts/test` rely on: fewer examples, and a list of what was skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT

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

@pytest.mark.skip(reason="no name of a requirement")
def test_other():
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
    print("examples:", *counts.values(), TestMachine.settings.max_examples)
"""


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with our configuration, in a process of its own."""
    (folder / "test_file.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-pconftest", *options]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    return subprocess.run(
        [*command, str(folder)], env=environment, capture_output=True, text=True, check=False
    )


def test_run_ends_with_a_list_of_what_was_skipped(tmp_path: Path) -> None:
    ran = run(tmp_path, SKIPPED, "--required=buildah")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-5:-1] == [
        f"{' skipped for want of a requirement ':=^80}",
        "    1 needs chromium: it is not installed",
        "    2 needs podman, runc: not installed",
        "    1 no name of a requirement",
    ]


@pytest.mark.parametrize(
    ("processes", "required", "missing"),
    [("-n0", "buildah chromium", "chromium"), ("-n1", "runc podman", "podman, runc")],
)
def test_a_run_fails_where_something_required_is_missing(
    tmp_path: Path, processes: str, required: str, missing: str
) -> None:
    ran = run(tmp_path, SKIPPED, f"--required={required}", processes)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-2] == f"FAILED: required, and yet missing: {missing}"


@pytest.mark.parametrize(
    ("profile", "counts"), [("quick", "10 5 1 4"), ("thorough", "100 50 3 40")], ids=["quick", "thorough"]
)
def test_the_quick_profile_tries_a_tenth_of_the_examples(tmp_path: Path, profile: str, counts: str) -> None:
    ran = run(tmp_path, PROPERTIES, f"--hypothesis-profile={profile}", "-s", "-pno:randomly")
    assert f"examples: {counts}\n" in ran.stdout, ran.stdout + ran.stderr
