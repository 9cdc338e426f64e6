"""What is installed into a job's environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from project import ROOT


def test_the_wheel_holds_the_probes_and_needs_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fleetgauge"}
    assert "fleetgauge/py.typed" in names
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert all("extra ==" in line for line in required)
