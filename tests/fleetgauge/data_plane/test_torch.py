"""What is claimed of bytes holds for real tensors, in an environment of their own: they weigh a gigabyte."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.requirements import skip_without

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / ".venv-torch"
SECONDS = 300  # a few, and importing torch takes longest


def test_every_claim_about_bytes_holds_for_torch_and_tensordict(tmp_path: Path) -> None:
    if not (HOME / "made").exists():
        skip_without("torch", "scripts/torch-environment has not been run; arrays of its protocol were used")
    claims = "tests/fleetgauge/data_plane/test_row_bytes.py"
    ran = subprocess.run(
        [HOME / "bin/python", "-m", "pytest", "--verbose", "--noconftest", "-p", "no:cacheprovider", claims],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = set(re.findall(r"::(\S+) PASSED", ran.stdout))
    with_arrays = {name for name in passed if "arrays" in name}
    assert len(with_arrays) >= 14
    assert {name.replace("arrays", "torch") for name in with_arrays} <= passed
