"""Every benchmark runs to its end at its smallest size and judges its claims. Speed is not tested."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import CANNOT_RUN
from support.project import ROOT

pytestmark = pytest.mark.slow

BENCHMARKS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "measure")


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda path: path.stem)
def test_it_runs_to_its_end_and_judges_its_claims(benchmark: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(benchmark), "--smallest"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    if ran.returncode == CANNOT_RUN:
        pytest.skip(ran.stderr.strip().removeprefix("cannot run: "))
    assert "Traceback" not in ran.stderr, ran.stderr
    verdict = re.search(r"^claims: (\d+), failed: (\d+)$", ran.stdout.splitlines()[-1])
    assert verdict, ran.stdout + ran.stderr
    claims, failed = map(int, verdict.groups())
    assert ran.stdout.count("holds\n") == claims - failed
    assert ran.stdout.count("FAILS\n") == failed
    assert ran.returncode == (1 if failed else 0)
