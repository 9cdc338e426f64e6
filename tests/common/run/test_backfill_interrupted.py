"""A backfill that ends early logs a command that sends the rest: run again, it ends as if it had not."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from common.times import iso
from support.backfills import APP_KEY, fixed, held, span_of, truth
from support.project import Project
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.servers.wandb import Wandb

SERIES = "/api/v2/series"


def continuing(stderr: str) -> list[str]:
    """Return the arguments of the command that continues."""
    [command] = re.findall(r"to continue: run_collector\.py ([^\"]*)", stderr)
    return shlex.split(command)


def two_values(intake: Intake) -> list[object]:
    return [write for write in intake.write_log if write.replaced not in (None, write.value)]


@pytest.mark.slow
def test_what_was_refused_on_the_way_is_sent_by_the_command_that_continues(
    fleet: Project, wandb: Wandb, intake: Intake
) -> None:
    fleet.set_constant("datadog/payloads.py", "POINT_LIMIT", "500")
    intake.faults.add(Fault(), times=3, match=SERIES)
    intake.faults.add(Fault(status=403), match=SERIES)
    options = fixed(30)
    first = fleet.run("wandb", *options, "--push", "--yes")
    assert first.returncode == 2
    assert len(intake.points) == pytest.approx(1500, abs=200)
    again = fleet.run(*continuing(first.stderr))
    assert again.returncode == 0, again.stdout
    assert held(intake) == truth(wandb.projects["acme", "ants"], span_of(options))
    assert two_values(intake) == []


@pytest.mark.slow
def test_a_project_that_was_lost_is_named_and_the_same_command_sends_it(
    fleet: Project, wandb: Wandb, intake: Intake
) -> None:
    fleet.environment["WANDB_PROJECTS"] = "acme/ants,acme/bees"
    options = fixed(3)
    first = fleet.run("wandb", *options, "--push", "--yes")
    assert (first.returncode, "lost acme/bees" in first.stdout) == (1, True)
    wandb.add("acme", "bees", wandb.projects["acme", "ants"])
    assert fleet.run("wandb", *options, "--push", "--yes").returncode == 0
    assert {tag for key in intake.points for tag in key.tags if tag.startswith("project:")} == {
        "project:ants",
        "project:bees",
    }
    assert two_values(intake) == []


class TestFiles:
    NAME = "xenna.pipeline.progress"

    @pytest.fixture
    def pipelines(self, project: Project, intake: Intake, tmp_path: Path) -> Project:
        """A pipeline that wrote a record a minute for ten hours, and one line of garbage."""
        project.keep("xenna")
        self.start = int(time.time()) // 3600 * 3600 - 13 * 3600
        lines = [_record(number + 1, self.start + 60 * number) for number in range(600)]
        (tmp_path / "records.jsonl").write_text("\n".join([*lines[:100], "{garbage", *lines[100:]]) + "\n")
        project.environment |= {
            "DD_APP_KEY": APP_KEY,
            "FLEETGAUGE_XENNA_PATHS": str(tmp_path / "*.jsonl"),
        }
        return project

    def expected(self, since: int, until: int) -> dict[int, float]:
        seconds = {self.start + 60 * number: (number + 1) / 10 for number in range(600)}
        return {second: value for second, value in seconds.items() if since <= second < until}

    def arrived(self, intake: Intake) -> dict[int, float]:
        return {key.second: value for key, value in intake.points.items() if key.metric == self.NAME}

    @pytest.mark.slow
    def test_killed_in_every_window_it_ends_as_if_it_had_not_been(
        self, pipelines: Project, intake: Intake
    ) -> None:
        """SIGTERM logs the command that continues; after a SIGKILL the same command is run again."""
        since, until = self.start + 1800, self.start + 5 * 3600
        span = ["--since", iso(since), "--until", iso(until)]
        arguments = ["xenna", *span, "--push", "--yes", "--only-enabled"]
        intake.historical.add(self.NAME)
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            stderr = _signalled(pipelines, intake, arguments, number)
            if number == signal.SIGTERM:
                arguments = continuing(stderr)
        ran = pipelines.run(*arguments)
        assert ran.returncode == 0, ran.stdout
        assert self.arrived(intake) == self.expected(since, until)
        assert two_values(intake) == []

    def test_a_span_is_read_out_of_files_and_a_bad_line_counts_once(
        self, pipelines: Project, intake: Intake
    ) -> None:
        since, until = self.start + 3600, self.start + 5 * 3600
        options = ["--since", iso(since), "--until", iso(until), "--push", "--yes", "--only-enabled"]
        intake.historical.add(self.NAME)
        [entry] = pipelines.document("xenna", *options)["collectors"]
        assert (entry["status"], entry["dropped"]) == ("ok", {"not_json": 1})
        assert self.arrived(intake) == self.expected(since, until)
        assert intake.names() == [self.NAME]


def _signalled(project: Project, intake: Intake, arguments: list[str], number: int) -> str:
    """Send a signal to a run once it has sent its second window; return what it logged."""
    run: list[subprocess.Popen[str]] = []
    started = threading.Event()
    before = len(intake.payloads)

    def stop(_: object) -> None:
        if len(intake.payloads) == before + 2 and started.wait(30):
            run[0].send_signal(number)

    intake.on("applied", stop)
    run.append(project.start(*arguments))
    started.set()
    _, stderr = run[0].communicate(timeout=60)
    assert run[0].returncode in {128 + number, -number}
    return stderr


def _record(seq: int, at: float) -> str:
    """Return a line that a pipeline leaves behind."""
    return json.dumps(
        {
            "schema_version": 1,
            "kind": "xenna",
            "event": "stats",
            "run_id": "r1",
            "seq": seq,
            "timestamp": at,
            "host": "node-1",
            "pid": 7,
            "pipeline_kind": "curate",
            "run_hash": "3f9d",
            "metrics": {"progress": seq / 10},
            "stages": [],
        }
    )
