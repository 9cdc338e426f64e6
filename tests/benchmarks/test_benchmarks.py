"""Every benchmark runs to its end at its smallest size and judges its claims. Speed is not tested."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import container
from benchmarks.measure import CANNOT_RUN, judge
from support.containers import Engine, needs_containers
from support.project import ROOT

pytestmark = pytest.mark.slow

BENCHMARKS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "measure")


def test_every_benchmark_ends_with_the_shared_verdict() -> None:
    assert [path.stem for path in BENCHMARKS if not re.search(r"\bjudge\(", path.read_text())] == []


@pytest.mark.parametrize(
    "benchmark", [path for path in BENCHMARKS if path.stem != "container"], ids=lambda path: path.stem
)
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


@needs_containers
def test_the_container_is_measured_too_in_the_image_that_all_tests_share(
    engine: Engine, image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = container.measure(engine, image, tmp_path, container.SMALLEST)
    assert [claim.name for claim in claims] == [
        "exit code under the chart's limit",
        "smallest limit / the chart's limit",
    ]
    assert judge(claims) == 0  # memory, not time
