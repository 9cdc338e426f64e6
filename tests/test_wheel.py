"""What is installed into a job's environment, and that it works there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleetgauge import __version__
from support.checkout import Checkout
from support.project import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    [built] = build(tmp_path_factory.mktemp("wheel")).glob("*.whl")
    return built


def build(folder: Path, root: Path = ROOT) -> Path:
    subprocess.run([root / "scripts" / "build", str(folder)], check=True, capture_output=True)
    return folder


def test_the_wheel_holds_the_probes_and_needs_nothing(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fleetgauge"}
    assert "fleetgauge/py.typed" in names
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert {"extra ==" in line for line in required} == {True}
    assert metadata.startswith("Metadata-Version: 2.3\n")


def test_built_again_elsewhere_and_later_it_is_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    copy = Checkout(tmp_path / "elsewhere")
    for path in copy.root.glob("fleetgauge/**/*.py"):
        os.utime(path, (0, 0))
    first, second = wheel.parent, build(tmp_path / "built", copy.root)
    names = sorted(path.name for path in first.iterdir())
    assert names == [f"fleetgauge-{__version__}-py3-none-any.whl", f"fleetgauge-{__version__}.tar.gz"]
    assert sorted(path.name for path in second.iterdir()) == names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


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
    pytest.skip(f"needs python{version}: there is none on this machine")


PROGRAM = """\
import json, sys
import collectors, common, fleetgauge
from fleetgauge.compute import collect_compute_metadata
from fleetgauge.records import RecordWriter
assert common.OWNER == collectors.OWNER == "the job", "the job's own packages come first"
with RecordWriter(sys.argv[1], "demo", run_id="r1") as writer:
    writer.write("start", {})
said = {"version": fleetgauge.__version__, "described": collect_compute_metadata()}
print(json.dumps({**said, "python": sys.version_info[:2]}))
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
    assert said["version"] == __version__
    assert said["described"]["compute.cpu_count"] >= 1
    [record] = map(json.loads, (tmp_path / "records.jsonl").read_text().splitlines())
    assert (record["kind"], record["event"], record["run_id"]) == ("demo", "start", "r1")
