"""A store that is read-only, full or gone costs a collector that needs none only what takes a memory."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.project import Project
from support.servers.aws import Aws
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow

COUNTS = """\
runs = context.state.get("runs", 0)
yield VALUE(runs, context.at)
if context.remembers:
    yield TOTAL(1, context.at)
yield Mark({"runs": runs + 1})
"""
# Root obeys the rights of a directory only without this capability.
OBEYING = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []


@pytest.fixture
def toy(project: Project, tmp_path: Path) -> Project:
    """A collector that counts its runs, and has run once."""
    project.add("toy", COUNTS)
    (tmp_path / "store").mkdir()
    project.environment["FLEETGAUGE_CHECKPOINTS"] = str(tmp_path / "store")
    assert project.run("toy", "--push").returncode == 0
    return project


def pushed(project: Project, *under: str) -> tuple[int, dict[str, Any]]:
    """The exit code and entry of a push, perhaps under another program."""
    ran = subprocess.run(
        [*under, *project.command("toy", "--push", "--json")],
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    [entry] = json.loads(ran.stdout)["collectors"]
    return ran.returncode, entry


def assert_it_did_without(intake: Intake, found: tuple[int, dict[str, Any]], why: str) -> None:
    code, entry = found
    assert (code, entry["status"], entry["error"]) == (1, "partial", None)
    [lost] = entry["lost"]
    assert lost.startswith("what needs the memory of earlier runs: ")
    assert why in lost
    assert intake.value("toy.value") == 0, "what an earlier run left is not to be relied on"
    assert intake.value("collector.up") == 0
    assert intake.value("collector.gap_seconds") is None


@pytest.mark.parametrize("places", [["store"], ["store/toy*.lock", "store"]])
def test_a_store_that_is_read_only(toy: Project, intake: Intake, tmp_path: Path, places: list[str]) -> None:
    """Whether the lock is out of reach, too, or can still be held."""
    for path in (found for place in places for found in tmp_path.glob(place)):
        path.chmod(0o555 if path.is_dir() else 0o444)
    intake.points.clear()
    assert_it_did_without(intake, pushed(toy, *OBEYING), "Permission denied")
    assert "toy.total" not in intake.names()
    (tmp_path / "store").chmod(0o755)
    for path in tmp_path.glob("store/*.lock"):
        path.chmod(0o600)
    assert pushed(toy)[0] == 0
    assert intake.value("toy.value") == 1, "it goes on where it was"


@pytest.mark.parametrize("needs", ["*.lock", "*.json"])
def test_a_store_that_is_full(toy: Project, intake: Intake, tmp_path: Path, needs: str) -> None:
    """Whether not even the lock has room for its holder, or just the document has none."""
    [file] = (tmp_path / "store").glob(needs)
    room = file.stat().st_size - 9
    intake.points.clear()
    assert_it_did_without(intake, pushed(toy, "prlimit", f"--fsize={room}"), "File too large")
    assert "toy.total" not in intake.names()


def test_a_store_that_fills_up_while_it_runs(toy: Project, intake: Intake) -> None:
    code = toy.root / "collectors" / "toy" / "collector.py"
    limit = "def collect(context):\n    import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9))\n"
    code.write_text(code.read_text().replace("def collect(context):\n", limit))
    returned, entry = pushed(toy)
    assert (returned, entry["status"], len(entry["lost"])) == (1, "partial", 1)
    assert intake.value("toy.value") == 1, "at the start it still had its memory"


def test_a_store_that_is_not_there(toy: Project, intake: Intake, tmp_path: Path) -> None:
    intake.points.clear()
    toy.environment["FLEETGAUGE_CHECKPOINTS"] = str(tmp_path / "elsewhere")
    assert_it_did_without(intake, pushed(toy), "does not exist; create it")


def test_an_s3_that_may_be_read_and_not_written(project: Project, intake: Intake, aws: Aws) -> None:
    project.add("toy", COUNTS)
    aws.make_bucket("checkpoints")
    project.environment |= {**aws.environment, "FLEETGAUGE_CHECKPOINTS": "s3://checkpoints/fleet"}
    assert project.run("toy", "--push").returncode == 0
    intake.points.clear()
    project.environment |= aws.allow_only("s3:GetObject", "s3:ListBucket")
    assert_it_did_without(intake, pushed(project), "cannot save the checkpoint s3://checkpoints/fleet/toy")


def test_a_store_that_another_run_holds_is_left_to_it(toy: Project, intake: Intake, tmp_path: Path) -> None:
    intake.points.clear()
    [lock] = tmp_path.glob("store/*.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (tmp_path / "store").chmod(0o555)
        code, entry = pushed(toy, *OBEYING)
        full, other = pushed(toy, "prlimit", "--fsize=0")
    assert (code, entry["status"], full, other["status"]) == (0, "skipped", 0, "skipped")
    assert intake.points == {}
