"""SIGTERM in every state of a run, and two runs at once: it ends, leaves nothing behind and loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.growing_file import add_numbers, held, truth
from support.processes import group_is_empty
from support.project import Project
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.faults import Fault

pytestmark = pytest.mark.slow


@pytest.fixture
def numbers(project: Project, tmp_path: Path) -> Path:
    """The toy collector with a file of thirty seconds to read, and a store."""
    add_numbers(project)
    (tmp_path / "store").mkdir()
    path = tmp_path / "numbers.txt"
    start = int(time.time()) - 3000
    path.write_text("".join(f"{start + n // 3} a {n}\n" for n in range(90)) + "end\n")
    project.environment |= {
        "FLEETGAUGE_STATE": str(tmp_path / "store"),
        "FLEETGAUGE_NUMBERS_PATH": str(path),
    }
    return path


def child_of(run: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()[0])


def end(run: subprocess.Popen[str]) -> None:
    """Ask a run to end; it does, and leaves nobody behind."""
    group = child_of(run)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=30)
    assert run.returncode == 143
    assert group_is_empty(group)


def finish(project: Project, intake: Intake, path: Path) -> None:
    """A later run completes what an interrupted one began."""
    intake.faults.clear()
    ran = project.run("numbers", "--push")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert held(intake) == truth(path)


@pytest.mark.parametrize("point", ["received", "read", "applied", "answered"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_signal_while_a_request_is_under_way(
    project: Project, intake: Intake, numbers: Path, point: str, nth: int
) -> None:
    run: list[subprocess.Popen[str]] = []
    group: list[int] = []
    started = threading.Event()
    seen = 0

    def stop(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            started.wait(30)
            group.append(child_of(run[0]))
            run[0].send_signal(signal.SIGTERM)

    intake.on(point, stop)  # type: ignore[arg-type]  # one of the four points
    run.append(project.start("numbers", "--push"))
    started.set()
    run[0].communicate(timeout=60)
    assert run[0].returncode == 143
    assert group_is_empty(group[0])
    assert intake.value("collector.up") == 0
    finish(project, intake, numbers)


def test_a_signal_while_waiting_to_try_again_ends_the_wait(
    project: Project, intake: Intake, numbers: Path
) -> None:
    refused = threading.Event()
    intake.on("answered", lambda _: refused.set())
    intake.faults.add(Fault(status=503, headers={"Retry-After": "60"}))
    run = project.start("numbers", "--push")
    assert refused.wait(30)
    end(run)
    finish(project, intake, numbers)


def test_a_signal_while_the_intake_hangs(project: Project, intake: Intake, numbers: Path) -> None:
    project.set_constant("datadog/client.py", "RESPONSE_TIMEOUT", "1.0")
    read = threading.Event()
    intake.on("read", lambda _: read.set())
    intake.faults.add(Fault(hang=True), times=None)
    run = project.start("numbers", "--push")
    assert read.wait(30)
    end(run)
    finish(project, intake, numbers)


def blocking(path: Path) -> Callable[[Project], None]:
    """Make the toy wait at a FIFO before its first sample."""

    def change(project: Project) -> None:
        code = project.root / "collectors" / "numbers" / "collector.py"
        text = code.read_text()
        wait = f"    open({str(path)!r}, 'w').write(str(os.getpid()))\n    open({str(path)!r}).read()\n"
        code.write_text(text.replace("def collect(context):\n", f"def collect(context):\n{wait}"))

    os.mkfifo(path)
    return change


def test_a_signal_while_collecting(project: Project, intake: Intake, numbers: Path, tmp_path: Path) -> None:
    blocking(tmp_path / "fifo")(project)
    run = project.start("numbers", "--push")
    child = int((tmp_path / "fifo").read_text())
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=30)
    assert run.returncode == 143
    assert group_is_empty(child)
    assert held(intake) == {}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["directory", "s3"])
def test_of_two_runs_at_once_both_send_the_same_and_the_later_is_stored(
    project: Project,
    intake: Intake,
    numbers: Path,
    tmp_path: Path,
    place: str,
    request: pytest.FixtureRequest,
) -> None:
    if place == "s3":
        aws: Aws = request.getfixturevalue("aws")
        aws.make_bucket("state")
        project.environment |= {**aws.environment, "FLEETGAUGE_STATE": "s3://state/fleet"}
    (tmp_path / "other").mkdir()
    other = Project(tmp_path / "other", project.environment)
    add_numbers(other)
    blocking(tmp_path / "fifo")(project)
    first = project.start("numbers", "--push", "--json")
    (tmp_path / "fifo").read_text()
    time.sleep(1.1)  # so that the other one begins in a later second
    assert other.run("numbers", "--push").returncode == 0
    (tmp_path / "fifo").write_text("go")
    out, err = first.communicate(timeout=30)
    [entry] = json.loads(out)["collectors"]
    assert (first.returncode, entry["status"]) == (0, "ok")
    assert "a run that began later has saved the state document" in err
    assert held(intake) == truth(numbers)
    assert all(
        write.replaced in (None, write.value) for write in intake.write_log if "total" in write.key.metric
    )


@pytest.mark.slow
def test_a_store_that_is_full_makes_the_run_partial_and_loses_nothing(
    project: Project, intake: Intake, numbers: Path
) -> None:
    code = project.root / "collectors" / "numbers" / "collector.py"
    limit = "    import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9))\n"
    text = code.read_text()
    code.write_text(text.replace("def collect(context):\n", f"def collect(context):\n{limit}"))
    ran = project.run("numbers", "--push", "--json")
    [entry] = json.loads(ran.stdout)["collectors"]
    assert (ran.returncode, entry["status"], entry["error"]) == (1, "partial", None)
    assert [unit.partition(": ")[0] for unit in entry["lost"]] == ["the state of earlier runs"]
    assert "File too large" in entry["lost"][0]
    assert (intake.value("collector.up"), held(intake)) == (0, truth(numbers))
    code.write_text(text)
    finish(project, intake, numbers)


@pytest.mark.parametrize("place", ["", "/nonexistent"])
def test_a_store_that_is_not_there_costs_no_point(
    project: Project, intake: Intake, numbers: Path, place: str
) -> None:
    ran = project.run("numbers", "--push", FLEETGAUGE_STATE=place)
    assert ran.returncode == int(bool(place))
    assert ("there is no directory /nonexistent; create it" in ran.stdout) is bool(place)
    assert held(intake) == truth(numbers)


@pytest.mark.slow
def test_a_bad_document_is_counted_and_set_aside(
    project: Project, intake: Intake, numbers: Path, tmp_path: Path
) -> None:
    project.run("numbers", "--push")
    [path] = (tmp_path / "store").glob("numbers-*.json")
    path.write_text("garbage")
    intake.points.clear()
    ran = project.run("numbers", "--push")
    assert ran.returncode == 0
    assert "dropped: 1 bad_state" in ran.stdout
    assert held(intake) == truth(numbers)
    assert path.with_name(f"{path.stem}.bad.json").read_text() == "garbage"


def test_the_age_of_the_last_success_is_reported_also_by_a_run_that_failed(
    project: Project, intake: Intake, numbers: Path, tmp_path: Path
) -> None:
    age = "collector.last_success_age_seconds"
    project.add(
        "toy",
        "if context.settings.bad: os._exit(1)\nyield VALUE(1, context.window.until)",
        "bad: bool = False",
    )
    assert project.run("toy", "--push", FLEETGAUGE_TOY_BAD="1").returncode == 1
    assert intake.value(age) is None
    assert project.run("toy", "--push").returncode == 0
    assert intake.value(age) == 0
    [path] = (tmp_path / "store").glob("toy-*.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "last_success": document["last_success"] - 7000}))
    assert project.run("toy", "--push", FLEETGAUGE_TOY_BAD="1").returncode == 1
    latest = intake.value(age)
    assert latest is not None
    assert latest >= 7000
    intake.points.clear()
    assert project.run("toy", "--push", FLEETGAUGE_TOY_BAD="perhaps").returncode == 2
    latest = intake.value(age)
    assert latest is not None
    assert latest >= 7000
