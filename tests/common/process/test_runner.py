"""The parent and its children, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import TextIO

import pytest

from common.job import Backfill, Job, Mode
from common.outcome import Status
from common.process.progress import Lines
from common.process.protocol import Progress, Question
from common.process.runner import Runner
from common.show.dry_run_file import DryRunFile
from common.times import iso
from support.processes import ended
from support.project import Project
from support.servers.datadog import Intake

pytestmark = pytest.mark.slow


def up(intake: Intake, name: str) -> float | None:
    return intake.value("collector.up", tags=(f"collector:{name}",))


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_a_pushed_run_delivers_the_samples_and_reports_on_itself(project: Project, intake: Intake) -> None:
    project.add(
        "toy",
        "yield VALUE(7, context.window.until, kind='a')\nyield VALUE(8, context.window.until, kind='b')",
    )
    ran = project.run("toy", "--push")
    assert ran.returncode == 0, ran.stderr
    assert intake.value("toy.value", tags=("kind:a",)) == 7
    assert intake.value("toy.value", tags=("kind:b",)) == 8
    assert up(intake, "toy") == 1
    assert intake.value("collector.samples") == 2
    assert intake.value("collector.points_sent") == 2
    assert intake.value("collector.requests") == 0
    assert intake.value("collector.points_dropped", tags=("reason:not_finite",)) == 0
    assert "1 ok; 2 points sent" in ran.stdout
    for key in intake.points:
        assert {"env:test", "service:fleetgauge"} <= set(key.tags)
    assert intake.notes == []


@pytest.mark.parametrize(
    ("body", "value"), [("yield VALUE(7, context.window.until)", 1), ("os._exit(3)\nyield", 0)]
)
def test_what_a_collector_of_a_node_reports_about_itself_carries_the_node(
    project: Project, intake: Intake, body: str, value: int
) -> None:
    project.add("toy", body, options=", per_node=True")
    project.add("other", body)
    for node in ("node-7", "node-8"):
        project.run("toy", "other", "--push", FLEETGAUGE_NODE_NAME=node)
    for node in ("node-7", "node-8"):
        assert intake.value("collector.up", tags=("collector:toy",), host=node) == value
    hosts = {host for tags, host in intake.series("collector.up") if "collector:other" in tags}
    assert hosts == {None}


def test_a_pushed_run_and_a_dry_run_answer_for_the_tick(project: Project, intake: Intake) -> None:
    project.add("toy", "yield VALUE(context.now - context.window.until, context.window.until)")
    project.run("toy", "--push", FLEETGAUGE_STEP="30m")
    [(_, points)] = intake.series("toy.value").items()
    [(second, ahead)] = points.items()
    assert second % 1800 == 0
    assert 0 <= ahead < 1800
    [sample] = project.document("toy", FLEETGAUGE_STEP="30m")["collectors"][0]["samples"]
    assert sample["timestamp"] % 1800 == 0
    assert 0 <= sample["value"] < 1800


def test_every_sets_the_grid_of_the_ticks(project: Project, intake: Intake, fifo: Path) -> None:
    project.add("toy", f"yield VALUE(1, context.window.until)\nopen({str(fifo)!r}, 'w').close()")
    run = project.start("toy", "--push", "--every", "1s", FLEETGAUGE_STEP="30m")
    for _ in range(2):
        fifo.read_text()
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=30)
    assert run.returncode == 143
    [(_, points)] = intake.series("toy.value").items()
    assert any(second % 1800 for second in points)


def test_a_child_past_its_deadline_is_stopped_and_reports_by_itself(project: Project, intake: Intake) -> None:
    project.add("toy", "yield VALUE(7, context.window.until)\ntime.sleep(3600)")
    document = json.loads((ran := project.run("toy", "--push", "--json", "--timeout", "5")).stdout)
    assert ran.returncode == 1
    error = document["collectors"][0]["error"]
    assert error["type"] == "DeadlinePassed"
    assert re.fullmatch(
        r"its deadline of 5 s passed in collectors\.toy\.collector, line \d+", error["message"]
    )
    assert up(intake, "toy") == 0


@pytest.mark.parametrize("variable", ["DD_API_KEY", "WANDB_API_KEY"])
def test_a_key_that_is_refused_is_a_matter_of_configuration(fleet: Project, variable: str) -> None:
    ran = fleet.run("wandb", "--push", **{variable: "f" * 40})
    assert ran.returncode == 2
    assert re.search(f"check (that )?{variable}", ran.stdout)


def test_a_child_that_ignores_its_deadline_is_killed_with_everything_it_started(
    project: Project, intake: Intake, tmp_path: Path
) -> None:
    project.set_constant("process/running_child.py", "DEADLINE_GRACE", "0.2")
    project.add(
        "toy",
        f"""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        started = subprocess.Popen(["sleep", "3600"])
        Path({str(tmp_path / "pid")!r}).write_text(str(started.pid))
        time.sleep(3600)
        yield
        """,
    )
    ran = project.run("toy", "--push", "--json", "--timeout", "5")
    assert ran.returncode == 1
    error = json.loads(ran.stdout)["collectors"][0]["error"]
    assert error["type"] == "Ended"
    assert "deadline of 5 s" in error["message"]
    assert up(intake, "toy") == 0
    assert ended(int((tmp_path / "pid").read_text()))


GARBAGE = """
for descriptor in range(3, 30):
    try:
        os.write(descriptor, b'not a report')
    except OSError:
        pass
os._exit(0)
yield
"""


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (
            "os.kill(os.getpid(), signal.SIGKILL)\nyield",
            "Crashed",
            "the child was killed by signal 9 without a report",
        ),
        ("os._exit(3)\nyield", "Crashed", "ended with code 3"),
        ("os._exit(0)\nyield", "Crashed", "ended with code 0"),
        (GARBAGE, "GarbledReport", "cannot be read"),
        (GARBAGE.replace("report", r"report\n"), "GarbledReport", "cannot be read"),
    ],
)
def test_a_child_that_cannot_speak_is_reported_on_by_the_parent(
    project: Project, intake: Intake, body: str, kind: str, message: str
) -> None:
    project.add("toy", body)
    ran = project.run("toy", "--push", "--json")
    assert ran.returncode == 1
    [entry] = json.loads(ran.stdout)["collectors"]
    assert entry["error"]["type"] == kind
    assert message in entry["error"]["message"]
    assert 0 < entry["seconds"] < 60
    assert up(intake, "toy") == 0


def test_a_crash_is_reported_only_of_a_live_push(project: Project, intake: Intake) -> None:
    project.add("toy", "os._exit(3)\nyield", options=", has_history=True")
    for options in ((), ("--since", "20m", "--push", "--yes")):
        ran = project.run("toy", *options)
        assert ran.returncode == 1
        assert "Crashed: the child ended with code 3 without a report" in ran.stdout
    assert intake.points == {}


def test_what_a_finished_child_started_does_not_outlive_it(project: Project, tmp_path: Path) -> None:
    project.add(
        "toy",
        f"""
        started = subprocess.Popen(["sleep", "3600"])
        Path({str(tmp_path / "pid")!r}).write_text(str(started.pid))
        yield VALUE(1, context.window.until)
        """,
    )
    assert project.run("toy").returncode == 0
    assert ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_children_and_is_still_reported(
    project: Project, intake: Intake, fifo: Path, number: signal.Signals, code: int
) -> None:
    body = f"open({str(fifo)!r}, 'w').write(str(os.getpid()))\ntime.sleep(3600)\nyield"
    project.add("toy", body)
    run = project.start("toy", "--push")
    child = int(fifo.read_text())
    run.send_signal(number)
    out, _ = run.communicate(timeout=30)
    assert run.returncode == code
    assert f"Interrupted: interrupted by {number.name}\n" in out
    assert up(intake, "toy") == 0
    assert ended(child)


def test_a_collector_that_was_not_started_when_the_signal_came_is_reported_too(
    project: Project, intake: Intake, fifo: Path
) -> None:
    for name in ("a", "b"):
        project.add(name, f"open({str(fifo)!r}, 'w').write('x')\ntime.sleep(3600)\nyield")
    project.add("c", "yield VALUE(1, context.window.until)")
    run = project.start("all", "--push")
    with fifo.open() as running:
        started = ""
        while len(started) < 2:
            started += running.read(1)
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=30)
    assert run.returncode == 143
    assert [up(intake, name) for name in "abc"] == [0, 0, 0]


def test_a_child_ends_when_its_parent_is_killed(project: Project, fifo: Path) -> None:
    project.add("toy", f"open({str(fifo)!r}, 'w').write(str(os.getpid()))\ntime.sleep(3600)\nyield")
    run = project.start("toy", "--push")
    child = int(fifo.read_text())
    run.kill()
    run.communicate(timeout=30)
    assert ended(child)


@pytest.mark.parametrize("stuck", [False, True])
def test_what_a_child_started_ends_too_when_the_parent_is_killed(
    project: Project, fifo: Path, stuck: bool
) -> None:
    project.set_constant("process/runner.py", "INTERRUPT_GRACE", "0.2")
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])" if stuck else "pass"
    project.add(
        "toy",
        f"""
        {block}
        started = subprocess.Popen(["sleep", "3600"])
        open({str(fifo)!r}, "w").write(f"{{os.getpid()}} {{started.pid}}")
        time.sleep(3600)
        yield
        """,
    )
    run = project.start("toy", "--push")
    child, started = map(int, fifo.read_text().split())
    run.kill()
    run.communicate(timeout=30)
    assert ended(child)
    assert ended(started)


def test_two_collectors_run_at_once_and_never_three(project: Project, tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        os.mkfifo(tmp_path / name)
        # Each waits for the other: one at a time would end at the deadline.
        project.add(
            name,
            f"""
            log = os.open({str(tmp_path / "log")!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.write(log, b"+")
            threading.Thread(target=lambda: open({str(tmp_path / other)!r}, "w").close()).start()
            open({str(tmp_path / name)!r}).read()
            os.write(log, b"-")
            yield VALUE(1, context.window.until)
            """,
        )
    for name in ("c", "d"):
        project.add(
            name,
            f"""
            log = os.open({str(tmp_path / "log")!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.write(log, b"+")
            os.write(log, b"-")
            yield VALUE(1, context.window.until)
            """,
        )
    ran = project.run("all", "--timeout", "20")
    assert ran.returncode == 0, ran.stdout
    running = most = 0
    for sign in (tmp_path / "log").read_text():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert most == 2


def test_what_was_yielded_before_an_error_is_delivered(project: Project, intake: Intake) -> None:
    project.add("toy", "yield VALUE(7, context.window.until)\nraise SourceError('the source went away')")
    ran = project.run("toy", "--push", "--json")
    entry = json.loads(ran.stdout)["collectors"][0]
    assert ran.returncode == 1
    assert (entry["status"], entry["points_sent"]) == ("partial", 1)
    assert entry["error"] == {"type": "SourceError", "message": "the source went away"}
    assert intake.value("toy.value") == 7
    assert up(intake, "toy") == 0


def test_a_dry_run_that_fails_midway_is_as_partial_as_a_pushed_one(project: Project) -> None:
    project.add("toy", "yield VALUE(7, context.window.until)\nraise SourceError('the source went away')")
    [entry] = project.document("toy")["collectors"]
    assert entry["status"] == "partial"
    assert [sample["value"] for sample in entry["samples"]] == [7]


def test_a_collector_that_fails_before_its_first_sample_sends_only_that_it_is_down(
    project: Project, intake: Intake
) -> None:
    project.add("toy", "raise SourceError('no')\nyield")
    entry = project.document("toy", "--push")["collectors"][0]
    assert entry["status"] == "failed"
    assert "toy.value" not in intake.names()
    assert up(intake, "toy") == 0


def test_a_lost_unit_makes_the_run_partial_and_is_named(project: Project, intake: Intake) -> None:
    project.add("toy", "context.report.lose('project b', 'no access')\nyield VALUE(7, context.window.until)")
    ran = project.run("toy", "--push")
    assert ran.returncode == 1
    assert "lost project b: no access" in ran.stdout
    assert intake.value("toy.value") == 7
    assert up(intake, "toy") == 0


def test_of_many_lost_units_the_first_are_named(project: Project) -> None:
    project.add(
        "toy",
        "for n in range(5000): context.report.lose(f'file {n}', 'x' * 500)\nyield VALUE(7, context.now)",
    )
    lost = project.document("toy")["collectors"][0]["lost"]
    assert len(lost) == 21
    assert lost[0].startswith("file 0: xxx")
    assert lost[-1] == "and 4980 more"


def test_dropped_records_are_counted_and_change_nothing_else(project: Project, intake: Intake) -> None:
    project.add(
        "toy", "context.report.drop('bad_record', 3)\nyield VALUE(float('nan'), context.window.until)"
    )
    ran = project.run("toy", "--push")
    assert ran.returncode == 0
    assert "dropped: 3 bad_record, 1 not_finite" in ran.stdout
    assert intake.value("collector.points_dropped", tags=("reason:bad_record",)) == 3
    assert intake.value("collector.points_dropped", tags=("reason:not_finite",)) == 1
    assert up(intake, "toy") == 1


def test_a_collector_with_nothing_to_say_is_empty_and_up(project: Project, intake: Intake) -> None:
    project.add("toy", "yield from ()")
    ran = project.run("toy", "--push", "--json")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["status"] == "empty"
    assert up(intake, "toy") == 1


def test_a_metric_that_is_not_declared_is_a_defect(project: Project) -> None:
    project.add("toy", "yield gauge('toy.other', 'item', 'Another.')(1, context.window.until)")
    ran = project.run("toy", "--json")
    error = json.loads(ran.stdout)["collectors"][0]["error"]
    assert ran.returncode == 1
    assert error == {"type": "ValueError", "message": "toy yielded toy.other, which it does not declare"}
    assert "Traceback" in json.loads(ran.stderr.splitlines()[0])["error.stack"]


def test_one_broken_collector_does_not_take_down_another(project: Project, intake: Intake) -> None:
    project.add("good", "yield VALUE(1, context.window.until)")
    project.add("broken", "yield")
    (project.root / "collectors" / "broken" / "collector.py").write_text("import no_such_module\n")
    document = project.document("all", "--push")
    assert [entry["status"] for entry in document["collectors"]] == ["failed", "ok"]
    assert "no_such_module" in document["collectors"][0]["error"]["message"]
    assert (up(intake, "broken"), up(intake, "good")) == (0, 1)


def test_an_intake_that_is_down_fails_the_run(project: Project, intake: Intake) -> None:
    project.set_constant("net/retry.py", "MAX_ATTEMPTS", "2")
    project.add("toy", "yield VALUE(1, context.window.until)")
    intake.close()
    ran = project.run("toy", "--push", "--json")
    assert ran.returncode == 1
    entry = json.loads(ran.stdout)["collectors"][0]
    assert (entry["status"], entry["error"]["type"]) == ("failed", "DeliveryError")
    assert "(tried 2 times)" in entry["error"]["message"]


def test_what_libraries_print_goes_to_stderr(project: Project) -> None:
    project.add("toy", "print('noise')\nyield VALUE(1, context.window.until)")
    ran = project.run("toy", "--json")
    assert json.loads(ran.stdout)["status"] == "ok"
    assert "noise" in ran.stderr


def test_a_job_in_a_directory_with_its_own_common_still_runs_ours(project: Project, tmp_path: Path) -> None:
    project.add("toy", "yield VALUE(1, context.window.until)")
    for name in ("common", "collectors", "logging"):
        (tmp_path / "job" / name).mkdir(parents=True)
        (tmp_path / "job" / name / "__init__.py").write_text("raise RuntimeError('not this one')\n")
    project.directory = tmp_path / "job"
    ran = project.run("toy")
    assert ran.returncode == 0, ran.stderr


def test_what_a_child_answers_for_is_told_by_the_time_it_starts(tmp_path: Path) -> None:
    """It may have waited for others, and what was sendable when it was asked for may not be any more."""
    began = int(time.time())
    job = Job("host", Mode.DRY_RUN, timeout=30, samples_path=str(tmp_path / "samples"))
    [outcome] = Runner({"PATH": os.environ["PATH"]}, Lines()).run([job])
    assert outcome.status is Status.OK
    seconds = {second for piece in DryRunFile(tmp_path / "samples") for second in piece.seconds}
    assert min(seconds) >= began


class Watching(Lines):
    """Writes down all that children say of their progress."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Progress]] = []

    def progress(self, collector: str, progress: Progress) -> None:
        self.told.append((collector, progress))


def test_a_child_reports_its_progress(fleet: Project) -> None:
    now, watching = int(time.time()), Watching()
    past = Backfill(now - 1800, now, ("--since", "30m"))
    [outcome] = Runner(fleet.environment, watching).run([Job("wandb", Mode.PUSH, 60, backfill=past)])
    assert outcome.points_sent > 20
    assert watching.told[0][1].doing == "listing the runs of acme/ants"


class Undecided(Lines):
    """Somebody who thinks about one question for ever, and agrees to every other."""

    def __init__(self, answers: TextIO, question: str) -> None:
        super().__init__()
        self._answers = answers
        self._question = question
        self.asked: list[str] = []

    @property
    def answers(self) -> TextIO:
        return self._answers

    def ask(self, collector: str, question: Question) -> bool | None:
        self.asked.append(question.text)
        return None if self._question in question.text else True


def test_who_waits_to_be_asked_is_asked_when_the_one_before_it_has_ended(fleet: Project) -> None:
    now = int(time.time()) // 900 * 900
    jobs = [
        Job(
            "wandb",
            Mode.PUSH,
            seconds,
            backfill=Backfill(now - ago, now, ("--since", str(ago)), ask=True),
        )
        for seconds, ago in ((8, 3600), (60, 86400))
    ]
    reading, writing = os.pipe()
    with os.fdopen(reading) as answers, os.fdopen(writing, "w"):
        undecided = Undecided(answers, f"points, {iso(now - 3600)}")
        first, second = Runner(fleet.environment, undecided).run(jobs)
    assert first.error is not None
    assert first.error.message.endswith("while waiting for somebody to agree")
    assert second.status is Status.OK
    assert len(undecided.asked) == 2
