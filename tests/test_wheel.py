"""What is installed into a job's environment, and that it works there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from project import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_probes_and_needs_nothing(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fleetgauge"}
    assert "fleetgauge/py.typed" in names
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert all("extra ==" in line for line in required)


def interpreter(version: str) -> str:
    """A Python of this version that really runs; a version manager's shim may not."""
    roots = [Path(sys.base_prefix).parent, Path.home() / ".pyenv" / "versions"]
    found = [path for root in roots for path in sorted(root.glob(f"{version}.*/bin/python"))]
    for candidate in [*map(str, found), f"python{version}"]:
        try:
            ran = subprocess.run([candidate, "-V"], capture_output=True, text=True, check=False, timeout=60)
        except OSError:
            continue
        if ran.returncode == 0 and ran.stdout.startswith(f"Python {version}."):
            return candidate
    pytest.skip(f"there is no Python {version} on this machine")


PROGRAM = """\
import json, sys
import collectors, common
from fleetgauge.compute import collect_compute_metadata
from fleetgauge.records import RecordWriter
assert common.OWNER == collectors.OWNER == "the job", "the job's own packages come first"
with RecordWriter(sys.argv[1], "demo", run_id="r1") as writer:
    writer.write("start", {})
print(json.dumps({"python": sys.version_info[:2], "described": collect_compute_metadata()}))
"""


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_it_works_in_an_empty_environment_beside_a_job_with_its_own_common(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    python = interpreter(version)
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True, capture_output=True)
    installed = str(tmp_path / "venv" / "bin" / "python")
    install = [installed, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    for package in ("common", "collectors"):
        (tmp_path / "job" / package).mkdir(parents=True)
        (tmp_path / "job" / package / "__init__.py").write_text('OWNER = "the job"\n')
    ran = subprocess.run(
        [installed, "-c", PROGRAM, str(tmp_path / "records.jsonl")],
        cwd=tmp_path / "job",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert ".".join(map(str, said["python"])) == version
    assert said["described"]["compute.cpu_count"] >= 1
    [record] = map(json.loads, (tmp_path / "records.jsonl").read_text().splitlines())
    assert (record["kind"], record["event"], record["run_id"]) == ("demo", "start", "r1")
