"""Signals while waiting for the intake lose nothing, and the age of the last success is known."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from support.kill_harness import BODY, add_seconds, wrong_seconds
from support.processes import alive, ended
from support.project import Project
from support.servers.datadog import Intake
from support.servers.faults import Fault

pytestmark = pytest.mark.slow


@pytest.fixture
def seconds(project: Project, tmp_path: Path) -> Project:
    """The service with a collector that answers for every second, a store, and one run behind it."""
    add_seconds(project, tmp_path / "store")
    assert project.run("seconds", "--push").returncode == 0
    return project


def child_of(run: subprocess.Popen[str]) -> int:
    threads = Path(f"/proc/{run.pid}/task").glob("*/children")
    return int(" ".join(children.read_text() for children in threads))


def finish(project: Project, intake: Intake) -> None:
    """Let a later run complete what an interrupted one began."""
    intake.faults.clear()
    ran = project.run("seconds", "--push")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert wrong_seconds(intake) == []


@pytest.mark.parametrize("fault", [Fault(status=503, headers={"Retry-After": "60"}), Fault(hang=True)])
def test_signal_while_waiting_for_the_intake_ends_the_wait(
    seconds: Project, intake: Intake, fault: Fault
) -> None:
    reached = threading.Event()
    intake.on("read", lambda _: reached.set())
    intake.faults.add(fault)
    run = seconds.start("seconds", "--push")
    assert reached.wait(30)
    group = child_of(run)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=30)
    assert (run.returncode, ended(group), alive(group)) == (143, True, [])
    finish(seconds, intake)


def test_age_of_the_last_success_is_reported_also_for_a_child_that_died(
    project: Project, intake: Intake, tmp_path: Path
) -> None:
    age = "collector.last_success_age_seconds"
    store = tmp_path / "store"
    store.mkdir()
    project.environment["FLEETGAUGE_STATE"] = str(store)
    body = f"if context.settings.bad: os._exit(1)\n{BODY}"
    project.add("toy", body, settings="bad: bool = False")
    assert project.run("toy", "--push", FLEETGAUGE_TOY_BAD="1").returncode == 1
    assert intake.value(age) is None
    assert project.run("toy", "--push").returncode == 0
    assert intake.value(age) == 0
    [path] = store.glob("toy-*.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "last_success": document["last_success"] - 7000}))
    for bad, code in (("1", 1), ("perhaps", 2)):  # the parent reports, then the child itself
        intake.points.clear()
        assert project.run("toy", "--push", FLEETGAUGE_TOY_BAD=bad).returncode == code
        assert (intake.value(age) or 0) >= 7000
        assert intake.value("collector.up") == 0
