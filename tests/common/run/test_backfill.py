"""The past, from the command line to the intake: allowed, agreed to and sent."""

from __future__ import annotations

import os
import pty
import signal
import subprocess

import pytest

from support.backfills import NAMES, fixed, held, pushes, span_of, truth
from support.project import Project
from support.servers.datadog import Intake
from support.servers.wandb import Wandb


class TestPush:
    def test_every_tick_of_the_span_arrives_as_it_was_and_nothing_else(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        options = fixed(30)
        ran = fleet.run("wandb", *options, "--push", "--yes")
        assert ran.returncode == 0, ran.stderr
        expected = truth(wandb.projects["acme", "ants"], span_of(options))
        assert held(intake) == expected
        assert len({at for _, at, _ in expected}) == 120
        assert len(wandb.requests) == 1
        assert "about " in ran.stderr
        assert "visible within 14 hours" in ran.stderr

    @pytest.mark.slow
    def test_a_live_tick_and_a_backfill_write_the_same_points(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        live = {key: value for key, value in held(intake).items() if key[0] in NAMES}
        assert len(live) > 20
        intake.points.clear()
        assert fleet.run("wandb", "--since", "20m", "--push", "--yes").returncode == 0
        assert {key: value for key, value in held(intake).items() if key in live} == live

    @pytest.mark.slow
    def test_parts_in_parallel_add_up_to_the_whole(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        options = fixed(5)
        started = [
            fleet.start("wandb", *options, "--push", "--yes", "--slice", f"{part}/3") for part in range(2)
        ]
        last = fleet.run("wandb", *options, "--push", "--yes", "--slice", "/3", JOB_COMPLETION_INDEX="2")
        assert [*(run.wait(60) for run in started), last.returncode] == [0, 0, 0]
        for run in started:
            run.communicate()
        assert held(intake) == truth(wandb.projects["acme", "ants"], span_of(options))
        assert len(intake.write_log) == len(intake.points)


class TestPreflight:
    @pytest.mark.slow
    def test_where_ingestion_is_off_nothing_is_sent_and_the_command_is_named(
        self, fleet: Project, intake: Intake
    ) -> None:
        intake.historical -= {"wandb.runs.active", "wandb.sweep.active_sweeps"}
        ran = fleet.run("wandb", "--since", "3h", "--push", "--yes")
        assert ran.returncode == 2
        assert pushes(intake) == 0
        assert "wandb.runs.active" in ran.stdout
        assert "wandb.sweep.active_sweeps" in ran.stdout
        assert "wandb.runs.failed_24h" not in ran.stdout
        assert "run_collector.py wandb --since 3h --push --enable-historical --yes" in ran.stdout
        part = fleet.run("wandb", *fixed(3), "--push", "--yes", "--slice", "0/2")
        assert "--slice 0/2 --push --enable-historical" in part.stdout

    @pytest.mark.slow
    def test_it_can_be_turned_on_first(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0  # a metric must exist
        intake.historical.clear()
        ran = fleet.run("wandb", *fixed(3), "--push", "--yes", "--enable-historical")
        assert ran.returncode == 0, ran.stdout
        assert "wandb.runs.active" in intake.historical
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 12


def on_a_terminal(project: Project, answer: bytes | signal.Signals, *arguments: str) -> tuple[int, str]:
    """Run with a terminal for its input and its messages; the exit code, and what the terminal showed.

    When it asks, it is answered with a line or a signal.
    """
    master, slave = pty.openpty()
    run = subprocess.Popen(
        project.command(*arguments),
        env={**project.environment, "TERM": "xterm", "COLUMNS": "120"},
        stdin=slave,
        stdout=subprocess.DEVNULL,
        stderr=slave,
        cwd=project.directory,
        start_new_session=True,
    )
    os.close(slave)
    shown, answered = b"", False
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        shown += chunk
        if b"[y/N]" in shown and not answered:
            answered = True
            if isinstance(answer, signal.Signals):
                run.send_signal(answer)
            else:
                os.write(master, answer)
    os.close(master)
    return run.wait(60), shown.decode(errors="replace")


class TestAPerson:
    @pytest.mark.slow
    def test_is_asked_before_anything_is_turned_on(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        intake.historical.clear()
        code, shown = on_a_terminal(fleet, b"n\n", "wandb", *fixed(3), "--push", "--enable-historical")
        assert "Historical Metrics Ingestion will be turned on for " in shown
        assert "metrics\r\n  wandb.push_to_main.avg_duration_hours\r\n  wandb." in shown
        assert (code, intake.historical) == (0, set())

    def test_may_interrupt_instead_of_answering(self, fleet: Project, intake: Intake) -> None:
        code, _ = on_a_terminal(fleet, signal.SIGINT, "wandb", *fixed(3), "--push")
        assert (code, pushes(intake)) == (130, 0)
