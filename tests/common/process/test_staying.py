"""A command line that stays: one child for many ticks, replaced where it is not as good as a new one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConfigurationError
from common.job import Job, Mode
from common.outcome import Failure, Outcome, Status
from common.process.staying import Watch, delay, pause
from support.processes import alive, ended
from support.project import KEY, Project
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.servers.faults import Fault

pytestmark = pytest.mark.slow

# Says of each tick which process it is in, and how many there were before.
TELL = """
collect.ticks = getattr(collect, "ticks", 0) + 1
told = {"pid": os.getpid(), "tick": collect.ticks, "now": context.now, "memory": dict(context.memory)}
told |= {"stays": context.stays, "deadline": context.deadline.seconds}
yield VALUE(collect.ticks, context.now)
with open(os.environ["FLEETGAUGE_TOY_FIFO"], "w") as fifo:
    json.dump(told, fifo)
"""
SETTINGS = "fifo: Text\n"


class Staying:
    """A run with `--every`, and what its ticks tell."""

    def __init__(self, run: subprocess.Popen[str], fifo: Path) -> None:
        self.run = run
        self._fifo = fifo

    def tick(self) -> dict[str, Any]:
        """Wait for the next tick."""
        told: dict[str, Any] = json.loads(self._fifo.read_text())
        return told

    def stop(self) -> tuple[int, str]:
        self.run.send_signal(signal.SIGTERM)
        shown, logged = self.run.communicate(timeout=30)
        return self.run.returncode, shown + logged


@contextmanager
def staying(project: Project, body: str = "", *arguments: str, **extra: str) -> Iterator[Staying]:
    project.add("toy", TELL + body, settings=SETTINGS)
    fifo = project.root / "fifo"
    os.mkfifo(fifo)
    run = project.start("toy", "--push", "--every", "1s", *arguments, FLEETGAUGE_TOY_FIFO=str(fifo), **extra)
    try:
        yield Staying(run, fifo)
    finally:
        run.kill()
        run.communicate()


def test_one_child_takes_one_job_after_another_each_with_its_own_now(
    project: Project, intake: Intake
) -> None:
    project.set_constant("process/running_child.py", "MAX_AGE", "60.0")  # far less than clocks show
    with staying(project) as run:
        told = [run.tick() for _ in range(3)]
        assert run.stop()[0] == 143
    assert len({one["pid"] for one in told}) == 1
    assert [one["tick"] for one in told] == [1, 2, 3]
    assert told[0]["now"] < told[1]["now"] < told[2]["now"]
    assert all(one["stays"] for one in told)
    assert ended(told[0]["pid"])
    [points] = intake.series("toy.value").values()
    assert {told[0]["now"]: 1, told[1]["now"]: 2}.items() <= points.items()


def test_a_single_run_does_not_stay(project: Project, intake: Intake) -> None:
    project.add("toy", "yield VALUE(int(context.stays), context.window.until)")
    assert project.run("toy", "--push").returncode == 0
    assert intake.value("toy.value") == 0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise SourceError('the source is down')", "the source is down"),
        ("raise RuntimeError('a defect')", "a defect"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        ("time.sleep(3600)", "deadline of 3 s passed"),
        (
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\ntime.sleep(3600)",
            "did not end by itself",
        ),
        ("collect.kept = os.urandom(100_000_000)", ""),
        (
            "import threading as t\nt.Thread(None, t.Event().wait, 'fleetgauge-nvml', daemon=True).start()",
            "",
        ),
    ],
    ids=["fails", "breaks", "is killed", "hangs", "cannot be asked to end", "grows", "hangs in the driver"],
)
def test_a_child_that_fails_hangs_or_grows_is_replaced_and_the_next_tick_comes(
    project: Project, body: str, why: str
) -> None:
    project.set_constant("process/running_child.py", "DEADLINE_GRACE", "0.5")
    with staying(project, body, "--timeout", "3" if "3600" in body else "60") as run:
        first, second = run.tick(), run.tick()
        code, said = run.stop()
    assert first["pid"] != second["pid"]
    assert second["tick"] == 1
    assert ended(first["pid"])
    assert code == 143
    assert why in said


@pytest.mark.parametrize(("interval", "seconds"), [("30s", 105), ("31s", 7.8)])
def test_a_tick_ends_before_the_next_is_due_unless_they_come_too_quickly_for_that(
    project: Project, interval: str, seconds: float
) -> None:
    with staying(project, "", "--every", interval) as run:
        assert run.tick()["deadline"] == pytest.approx(seconds, abs=0.1)


def test_a_child_stays_while_the_intake_is_down(project: Project, intake: Intake) -> None:
    project.set_constant("net/retry.py", "MAX_WAIT", "0.1")
    intake.faults.add(Fault(status=503), times=None)
    with staying(project, "context.memory['seen'] = collect.ticks", "--timeout", "10") as run:
        first, second = run.tick(), run.tick()
        intake.faults.clear()
        third, fourth = run.tick(), run.tick()
    assert len({one["pid"] for one in (first, second, third, fourth)}) == 1
    # What a tick observed is remembered whatever becomes of its delivery, also without a store.
    assert [one["memory"] for one in (first, second, fourth)] == [{}, {"seen": 1}, {"seen": 3}]


def test_a_changed_configuration_file_replaces_the_child(project: Project, tmp_path: Path) -> None:
    config = tmp_path / "fleetgauge.toml"
    config.write_text("series_cap = 100\n")
    with staying(project, "", "--config", str(config)) as run:
        first, second = run.tick(), run.tick()
        config.write_text("series_cap = 1000\n")
        # A tick may have been under way when the file changed.
        later = [run.tick(), run.tick()]
    assert first["pid"] == second["pid"] != later[-1]["pid"]


def test_a_child_that_is_too_old_is_replaced(project: Project) -> None:
    project.set_constant("process/running_child.py", "MAX_AGE", "0.0")
    with staying(project) as run:
        assert run.tick()["pid"] != run.tick()["pid"]


def test_asked_to_stop_in_a_later_tick_it_delivers_what_it_has_and_reports(
    project: Project, intake: Intake
) -> None:
    with staying(project, "if collect.ticks == 2:\n    time.sleep(3600)") as run:
        run.tick()
        second = run.tick()
        code, said = run.stop()
    assert code == 143
    assert "interrupted by SIGTERM" in said
    assert intake.value("toy.value", at=second["now"]) == 2
    assert intake.value("collector.up") == 0
    assert ended(second["pid"])


def test_what_a_child_left_behind_ends_with_it(project: Project) -> None:
    with staying(project, "collect.left = subprocess.Popen(['sleep', '60'])", "--every", "1h") as run:
        group = run.tick()["pid"]
        assert run.run.stdout is not None
        while "1 ok" not in run.run.stdout.readline():  # from then on it waits for the next tick
            pass
        assert run.stop()[0] == 143
        assert alive(group) == []


def test_the_child_ends_when_its_parent_is_gone(project: Project) -> None:
    with staying(project) as run:
        run.tick()
        child = run.tick()["pid"]
        run.run.kill()
        assert ended(child)


def test_the_key_is_read_once_and_again_after_a_refusal(project: Project, intake: Intake, aws: Aws) -> None:
    aws.put_secret("dev/datadog", {"DD_API_KEY": KEY})
    environment = {**aws.environment, "FLEETGAUGE_SECRET_PREFIX": "dev", "DD_API_KEY": ""}
    with staying(project, "", **environment) as run:
        first, second = run.tick(), run.tick()
        run.tick()
        assert aws.asked("secretsmanager") == 1
        intake.faults.add(Fault(status=403, body=b'{"errors": ["Forbidden"]}'), times=1)
        for _ in range(3):
            last = run.tick()
        assert aws.asked("secretsmanager") == 2
        run.stop()
    assert first["pid"] == second["pid"] != last["pid"]


def test_a_key_that_is_refused_in_three_ticks_running_ends_the_process(
    project: Project, intake: Intake
) -> None:
    intake.faults.add(Fault(status=403, body=b'{"errors": ["Forbidden"]}'), times=None)
    with staying(project) as run:
        for _ in range(3):
            run.tick()
        _, said = run.run.communicate(timeout=30)
    assert run.run.returncode == 2
    assert "Datadog refused the key in 3 ticks running: giving up" in said


def test_a_stranger_that_refuses_does_not_end_it(project: Project, intake: Intake) -> None:
    intake.faults.add(Fault(status=403, body=b"<html>blocked by policy</html>"), times=None)
    with staying(project) as run:
        for _ in range(5):
            run.tick()
        code, said = run.stop()
    assert code == 143
    assert "refused the key" not in said


def test_the_ready_file_goes_at_the_start_and_comes_with_the_first_good_tick(
    project: Project, tmp_path: Path
) -> None:
    ready, seen = tmp_path / "ready", tmp_path / "seen"
    ready.touch()  # by an earlier process
    look = f"print(os.path.exists({str(ready)!r}), file=open({str(seen)!r}, 'a'), flush=True)"
    with staying(project, look, FLEETGAUGE_READY_FILE=str(ready)) as run:
        run.tick()
        run.tick()  # the first one is over
        assert seen.read_text().startswith("False\n")
        assert ready.exists()


def outcome(error: str | None = None, status: int | None = None, **fields: Any) -> Outcome:
    failure = Failure(error, "it failed", status=status) if error else None
    return Outcome("toy", Status.FAILED if error else Status.OK, error=failure, **fields)


def test_the_ready_file_stays_through_two_bad_ticks(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    watch = Watch(str(file))
    seen = []
    good, bad = [outcome()], [outcome("DeliveryError")]
    lost = [Outcome("toy", Status.PARTIAL, lost=["GPU 3: it is lost"])]
    skipped = [Outcome("toy", Status.SKIPPED, error=Failure("BusyError", "another run holds it"))]
    for tick in (bad, good, bad, bad, lost, bad, bad, bad, bad, skipped, []):
        watch.note(tick)
        seen.append(file.exists())
    assert seen == [False, True, True, True, True, True, True, False, False, True, True]


def test_only_refusals_in_a_row_count() -> None:
    watch = Watch("")
    refused, other, unauthorized = ([outcome("RefusedError", code)] for code in (403, 413, 401))
    counts = []
    for tick in (refused, refused, other, refused, unauthorized, refused, refused, [], refused):
        watch.note(tick)
        counts.append(watch.refused)
    assert counts == [1, 2, 0, 1, 0, 1, 2, 0, 1]


def test_a_ready_file_that_cannot_be_removed_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="FLEETGAUGE_READY_FILE"):
        Watch(str(tmp_path))


def later(names: list[str], node: str, local: str = "") -> float:
    environ = {"FLEETGAUGE_NODE_NAME": node, "FLEETGAUGE_NODE_LOCAL": local}
    return delay(names, Job(names[0], Mode.PUSH, 0, 60), environ, 60)


def test_nodes_are_spread_over_the_interval_each_at_its_own_time() -> None:
    delays = [later(["xenna"], f"node-{number}", "on") for number in range(1000)]
    assert delays == [later(["xenna"], f"node-{number}", "on") for number in range(1000)]
    assert all(0 <= one < 60 for one in delays)
    tenths = [sum(6 * tenth <= one < 6 * tenth + 6 for one in delays) for tenth in range(10)]
    assert min(tenths) > 50
    assert later(["host"], "node\udcff") > 0
    assert later(["host", "xenna"], "node-7", "True") == later(["host"], "node-7")
    assert later(["host"], "") == later(["host"], socket.gethostname())


def test_what_is_not_of_a_node_runs_at_whole_intervals() -> None:
    assert later(["wandb"], "node-7") == later(["host", "xenna"], "node-7", "no") == 0


@pytest.mark.parametrize(
    ("now", "later", "seconds"), [(600, 0, 60), (601.5, 0, 58.5), (600, 7, 7), (607, 7, 60), (659, 7, 8)]
)
def test_the_next_tick_is_as_late_in_its_interval_as_every_other(
    now: float, later: float, seconds: float
) -> None:
    assert pause(now, 60, later) == seconds
