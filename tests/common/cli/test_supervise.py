"""A live push: a parent with one child per collector, and what becomes of children that misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from common.cli.supervise import pause, supervise
from common.options import Options
from common.outcome import ErrorSummary, Outcome, Report, Status
from common.run.session import node_of
from support.processes import ended
from support.project import Project
from support.servers.datadog import Intake
from support.standins import core_settings

# Sleeps in C without giving up the GIL: no handler, thread or deadline of the child can run.
HANG_IN_C = "import ctypes\nctypes.PyDLL(None).sleep(3600)\nyield"
# Everything a child can write to, its outcome among them.
GARBAGE = """
for descriptor in range(3, 30):
    try:
        os.write(descriptor, {})
    except OSError:
        pass
yield VALUE(1, context.now)
"""
START = """
started = subprocess.Popen(["sleep", "3600"])
Path(__file__).with_name("pid").write_text(str(started.pid))
"""


def up(intake: Intake, name: str) -> float | None:
    return intake.value("collector.up", tags=(f"collector:{name}",))


FAILED = Outcome(
    "host",
    Status.PARTIAL,
    seconds=1.5,
    report=Report(dropped=Counter(too_old=2), lost=["a: gone"], lost_by_reason=Counter(unreadable=1)),
    error=ErrorSummary("SourceError", "no answer", configuration=True, status=403, details=["b"]),
)


def test_outcome_is_one_line_and_read_back_as_it_was() -> None:
    for outcome in (FAILED, Outcome("host", Status.OK)):
        line = outcome.encode()
        assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
        assert Outcome.decode(line) == outcome


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b'{"status": "lost"}', b"\xff", b'{"status": "ok"}', b"[" * 99_999]
)
def test_anything_else_is_no_outcome(line: bytes) -> None:
    with pytest.raises(ValueError, match="no outcome"):
        Outcome.decode(line)


@pytest.mark.parametrize(("now", "seconds"), [(600, 60), (601.5, 58.5), (659, 1)])
def test_next_run_is_at_a_multiple_of_the_interval(now: float, seconds: float) -> None:
    assert pause(now, 60) == seconds


def test_nodes_are_spread_over_the_interval_and_keep_their_offset() -> None:
    offsets = {f"node-{number}": pause(600, 60, f"node-{number}") for number in range(1000)}
    tenths = Counter(int(offset // 6) for offset in offsets.values())
    assert len(tenths) == 10
    assert min(tenths.values()) > 50
    for node, offset in offsets.items():
        assert pause(600 + offset + 7, 60, node) == pytest.approx(53)


@pytest.mark.parametrize(
    ("name", "environ", "node"),
    [
        ("host", {"FLEETGAUGE_NODE_NAME": "node-7"}, "node-7"),
        ("host", {}, socket.gethostname()),
        ("xenna", {"FLEETGAUGE_NODE_NAME": "node-7", "FLEETGAUGE_NODE_LOCAL": "on"}, "node-7"),
        ("xenna", {"FLEETGAUGE_NODE_NAME": "node-7"}, None),
    ],
)
def test_only_collectors_of_a_node_have_one(name: str, environ: dict[str, str], node: str | None) -> None:
    assert node_of(name, core_settings(**environ)) == node


def test_ready_file_follows_outcomes_and_three_refusals_in_a_row_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = ErrorSummary("DeliveryError", "it failed")
    refused = Outcome("host", Status.FAILED, error=ErrorSummary("RefusedError", "no", True, 403))
    outcomes = {
        "good": Outcome("host", Status.OK),
        "bad": Outcome("host", Status.FAILED, error=error),
        "lost": Outcome("host", Status.PARTIAL, report=Report(lost=["GPU 3: it is lost"])),
        "skipped": Outcome("host", Status.SKIPPED, error=error),
        "refused": refused,
    }
    bad_runs = ["bad", "good", "bad", "bad", "lost", "bad", "bad", "bad", "skipped"]
    refusals = ["refused", "refused", "good", "refused", "refused", "refused"]
    runs = [outcomes[name] for name in bad_runs + refusals]
    (tmp_path / "runs").write_bytes(b"".join(run.encode() for run in [*runs, outcomes["good"]]))
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\ncat {tmp_path}/runs\nexec sleep 60\n")
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    file = tmp_path / "ready"
    file.touch()  # by an earlier process
    shown: list[Outcome] = []
    existed: list[bool] = []

    def show(outcome: Outcome) -> None:
        shown.append(outcome)
        existed.append(file.exists())  # as the run before left it

    environ = {"PATH": os.environ["PATH"], "FLEETGAUGE_READY_FILE": str(file)}
    assert not supervise(["host"], Options(every=86_400), [], environ, show)
    assert shown == runs
    assert [*map(int, existed)] == [0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0]
    assert not file.exists()
    environ["FLEETGAUGE_READY_FILE"] = str(tmp_path)  # which cannot be removed, because it is a directory
    assert not supervise(["host"], Options(every=86_400), [], environ, lambda _: None)
    assert "FLEETGAUGE_READY_FILE" in caplog.text


def test_report_that_hangs_does_not_stop_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    released, reports = threading.Event(), list[bool]()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr("common.run.run.report_failure", lambda *_: reports.append(released.wait(5)))
    monkeypatch.setattr("common.cli.supervise.MAX_REPORT", 0)
    assert supervise(["host"], Options(), [], {}, lambda _: released.set() if not reports else None)
    assert released.is_set()


def test_parent_that_can_start_no_more_threads_reports_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    reported, shown = list[str](), list[Outcome]()
    start = [threading.Thread.start]  # of the thread that waits for the child

    def start_once(thread: threading.Thread) -> None:
        if not start:
            raise RuntimeError("can't start new thread")
        start.pop()(thread)

    monkeypatch.setattr(threading.Thread, "start", start_once)
    monkeypatch.setattr(sys, "executable", "/nothing")
    monkeypatch.setattr(
        "common.run.run.report_failure", lambda outcome, *_: reported.append(outcome.collector)
    )
    assert supervise(["host"], Options(), [], {}, shown.append)
    assert (reported, [outcome.status for outcome in shown]) == (["host"], [Status.FAILED])


@pytest.mark.slow
def test_push_delivers_points_and_self_metrics(project: Project, intake: Intake) -> None:
    project.add("toy", "context.report.drop('bad_record', 3)\nyield VALUE(7, context.window.until)")
    project.add("empty", "yield from ()")
    project.add("node", "yield VALUE(1, context.now)", init="PER_NODE = True")
    project.add(
        "loser", "context.report.lose('project b', 'no access')\nyield VALUE(8, context.window.until)"
    )
    ran = project.run("all", "--push", "--json", FLEETGAUGE_NODE_NAME="node-7", FLEETGAUGE_STEP="30m")
    assert ran.returncode == 1
    document = json.loads(ran.stdout)
    assert {entry["collector"]: entry["status"] for entry in document["collectors"]} == {
        "empty": "empty",
        "loser": "partial",
        "node": "ok",
        "toy": "ok",
    }
    assert (intake.value("toy.value"), intake.value("loser.value")) == (7, 8)
    assert {key.second % 1800 for key in intake.points if key.metric == "toy.value"} == {0}
    assert [up(intake, name) for name in ("toy", "empty", "loser")] == [1, 1, 1]
    assert intake.value("collector.up", tags=("collector:node",), host="node-7") == 1
    assert intake.value("collector.units_lost", tags=("collector:loser", "reason:unreadable")) == 1
    assert intake.value("collector.points_dropped", tags=("collector:toy", "reason:bad_record")) == 3
    assert all({"env:test", "service:fleetgauge"} <= set(key.tags) for key in intake.points)


@pytest.mark.slow
def test_child_without_an_outcome_is_failed_and_reported_by_the_parent(
    project: Project, intake: Intake
) -> None:
    """Each of them among others, which are not affected."""
    project.set_constant("cli/supervise.py", "GRACE", "0.5")
    bodies = {
        "code": ("os._exit(0)\nyield", "ended with code 0 without a report"),
        "exit": ("os._exit(3)\nyield", "ended with code 3 without a report"),
        "garbage": (GARBAGE.format("b'not an outcome\\n'"), "no outcome"),
        "hang": (HANG_IN_C, "deadline of 4 s passed"),
        "killed": (START + "os.kill(os.getpid(), signal.SIGKILL)\nyield", "was killed by signal 9"),
        "list": (GARBAGE.format("b'[]\\n'"), "no outcome"),
        "long": (GARBAGE.format("b'x' * 65536") * 20, "longer than 1,000,000 bytes"),
        "sleeps": (START + "time.sleep(3600)\nyield", "deadline of 4 s passed"),
        "term": ("os.kill(os.getpid(), signal.SIGTERM)\nyield", "ended with code 143"),
    }
    for name, (body, _) in bodies.items():
        project.add(name, body)
    project.add("good", START + "yield VALUE(1, context.window.until)")
    project.add("fails", "yield VALUE(7, context.window.until)\nraise SourceError('it went away')")
    ran = project.run("all", "--push", "--json", "--timeout", "4")
    assert (ran.returncode, "Traceback" in ran.stderr) == (1, False), ran.stderr
    entries = {entry["collector"]: entry for entry in json.loads(ran.stdout)["collectors"]}
    for name, (_, message) in bodies.items():
        assert entries[name]["status"] == "failed", entries[name]
        assert entries[name]["error"]["type"] == "ChildError"
        assert message in entries[name]["error"]["message"]
        assert up(intake, name) == 0
    assert (entries["good"]["status"], up(intake, "good")) == ("ok", 1)
    assert entries["fails"]["error"] == {"type": "SourceError", "message": "it went away"}
    assert (up(intake, "fails"), "fails.value" in intake.names()) == (0, False)
    for name in ("killed", "sleeps", "good"):  # what they started has ended with them
        assert ended(int((project.root / "collectors" / name / "pid").read_text()))


@pytest.mark.slow
def test_single_child_that_hangs_with_the_gil_is_ended_at_its_deadline(
    project: Project, intake: Intake
) -> None:
    project.set_constant("cli/supervise.py", "GRACE", "0.5")
    project.add("toy", HANG_IN_C, init="PER_NODE = True")
    ran = project.run("toy", "--push", "--timeout", "2", FLEETGAUGE_NODE_NAME="node-7")
    assert ran.returncode == 1
    assert "deadline of 2 s passed" in ran.stdout
    assert intake.value("collector.up", tags=("collector:toy",), host="node-7") == 0


@pytest.mark.slow
def test_child_that_cannot_be_started_is_failed(project: Project) -> None:
    project.add("toy", "yield VALUE(1, context.now)")
    limit = "import os, resource, sys\nresource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))\n"
    launcher = project.root / "limited.py"
    launcher.write_text(f"{limit}os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n")
    command = project.command("toy", "--push")
    ran = project.run_command([command[0], str(launcher), *command[1:]])
    assert (ran.returncode, "Traceback" in ran.stderr) == (1, False)
    assert "the child could not be started: Too many open files" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_children_and_what_they_started_end_with_the_parent(
    project: Project, intake: Intake, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    body = "started = subprocess.Popen(['sleep', '3600'])\n"
    body += f"open({str(fifo)!r}, 'w').write(f'{{os.getpid()}} {{started.pid}}\\n')\n"
    # Where the parent has a handler, it ends also what cannot notice that its parent is gone.
    body += "time.sleep(3600)\nyield" if number == signal.SIGKILL else HANG_IN_C
    for name in ("a", "b"):
        project.add(name, body)
    project.add("c", "yield VALUE(1, context.now)")  # which is not started yet
    run = project.start("all", "--push")
    lines: list[str] = []
    with fifo.open() as pipe:
        while len(lines) < 2:
            lines += pipe.readline().splitlines()
    run.send_signal(number)
    shown, logged = run.communicate(timeout=30)
    assert (run.returncode, shown) == (code, "")
    if number != signal.SIGKILL:
        assert logged == f"run_collector.py: interrupted by {number.name}\n"
    assert all(ended(int(pid)) for line in lines for pid in line.split())
    assert intake.points == {}


# Writes how many children the parent has.
COUNT = """
threads = Path(f"/proc/{os.getppid()}/task").glob("*/children")
siblings = sum(len(children.read_text().split()) for children in threads)
Path(__file__).with_name("siblings").write_text(str(siblings))
"""


@pytest.mark.slow
def test_two_children_run_at_once_and_never_three(project: Project, tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        os.mkfifo(tmp_path / name)
        # Each waits for the other: one at a time would end at the deadline.
        meet = f"threading.Thread(target=lambda: open({str(tmp_path / other)!r}, 'w').close()).start()\n"
        meet += f"open({str(tmp_path / name)!r}).read()\n"
        project.add(name, f"{COUNT}{meet}yield VALUE(1, context.now)")
    for name in ("c", "d"):
        project.add(name, f"{COUNT}yield VALUE(1, context.now)")
    ran = project.run("all", "--push", "--timeout", "20")
    assert ran.returncode == 0, ran.stdout
    counted = [
        int((project.root / "collectors" / name / "siblings").read_text()) for name in ("a", "b", "c", "d")
    ]
    assert max(counted) == 2
