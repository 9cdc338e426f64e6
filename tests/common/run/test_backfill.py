"""The past, from the command line to the intake: allowed, agreed to and sent."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from support.backfills import APP_KEY, NAMES, fixed, held, pushes, span_of, truth
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
    def test_sending_it_again_changes_nothing(self, fleet: Project, intake: Intake) -> None:
        options = fixed(3)
        assert fleet.run("wandb", *options, "--push", "--yes").returncode == 0
        before, writes = held(intake), len(intake.write_log)
        assert fleet.run("wandb", *options, "--push", "--yes").returncode == 0
        assert held(intake) == before
        assert len(intake.write_log) == 2 * writes

    @pytest.mark.slow
    def test_a_live_tick_and_a_backfill_write_the_same_points(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        live = {key: value for key, value in held(intake).items() if key[0] in NAMES}
        assert len(live) > 20
        intake.points.clear()
        assert fleet.run("wandb", "--since", "20m", "--push", "--yes").returncode == 0
        assert {key: value for key, value in held(intake).items() if key in live} == live

    def test_the_state_document_is_not_changed_and_no_self_metric_is_sent(
        self, fleet: Project, intake: Intake, tmp_path: Path
    ) -> None:
        assert fleet.run("wandb", *fixed(3), "--push", "--yes").returncode == 0
        assert not [name for name in intake.names() if name.startswith("collector.")]
        assert list((tmp_path / "store").glob("wandb-*.json")) == []

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

    def test_without_a_store_it_is_sent_all_the_same(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", *fixed(2), "--push", "--yes", FLEETGAUGE_STATE="")
        assert ran.returncode == 0, ran.stderr
        assert len({at for _, at, _ in held(intake)}) == 8


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

    def test_only_what_is_enabled_can_be_sent(self, fleet: Project, intake: Intake) -> None:
        intake.historical &= {"wandb.runs.active", "wandb.runs.failed_24h"}
        ran = fleet.run("wandb", *fixed(3), "--push", "--yes", "--only-enabled")
        assert ran.returncode == 0, ran.stderr
        assert intake.names() == ["wandb.runs.active", "wandb.runs.failed_24h"]
        assert len(intake.points) == 24
        said = [json.loads(line)["message"] for line in ran.stderr.splitlines()]
        number = len(NAMES) - 2
        told = said.index(
            f"Historical Metrics Ingestion is off, so that these are left out: {number} metrics"
        )
        assert said[told + 1].startswith("wandb.push_to_main")

    def test_where_nothing_is_enabled_nothing_is_sent_and_that_is_no_success(
        self, fleet: Project, intake: Intake
    ) -> None:
        intake.historical.clear()
        ran = fleet.run("wandb", *fixed(3), "--push", "--yes", "--only-enabled")
        assert ran.returncode == 2
        assert "Historical Metrics Ingestion is off for all metrics: nothing was sent" in ran.stdout

    def test_more_series_than_the_cap_are_refused(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", *fixed(3), "--push", "--yes", FLEETGAUGE_SERIES_CAP="7")
        assert ran.returncode == 2
        assert "more than 7 series (FLEETGAUGE_SERIES_CAP)" in ran.stdout
        assert not intake.points

    def test_more_steps_than_can_be_computed_are_refused(self, fleet: Project, wandb: Wandb) -> None:
        ran = fleet.run("wandb", "--since", "30d", "--step", "1s")
        assert ran.returncode == 2
        assert "has 2,592,000 steps of 1 s, more than 500,000: widen --step" in ran.stdout
        assert not wandb.requests

    @pytest.mark.slow
    def test_it_can_be_turned_on_first(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0  # a metric must exist
        intake.historical.clear()
        ran = fleet.run("wandb", *fixed(3), "--push", "--yes", "--enable-historical")
        assert ran.returncode == 0, ran.stdout
        assert "wandb.runs.active" in intake.historical
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 12

    @pytest.mark.slow
    def test_each_refusal_is_told_with_its_reason(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        intake.historical.clear()
        intake.tag_configured = {"wandb.runs.active"}
        pushed = pushes(intake)
        ran = fleet.run("wandb", "--since", "3h", "--push", "--yes", "--enable-historical")
        assert ran.returncode == 2
        assert re.search(r"wandb\.runs\.active: .*tag configuration", ran.stdout)
        assert pushes(intake) == pushed
        again = fleet.run(
            "wandb", "--since", "3h", "--push", "--yes", "--enable-historical", "--only-enabled"
        )
        assert again.returncode == 0
        assert re.search(r"wandb\.runs\.active: .*not turned on: it has a tag configuration", again.stderr)
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 1
        assert len(intake.series("wandb.runs.failed_24h").popitem()[1]) >= 12

    def test_without_an_application_key_it_says_where_it_looked_before_it_lists_a_run(
        self, fleet: Project, intake: Intake, wandb: Wandb
    ) -> None:
        ran = fleet.run("wandb", "--since", "3h", "--push", "--yes", DD_APP_KEY="")
        assert ran.returncode == 2
        assert "DD_APP_KEY" in ran.stdout
        assert "the environment" in ran.stdout
        assert (pushes(intake), wandb.most_at_once) == (0, 0)

    def test_the_last_hour_needs_neither_the_key_nor_the_switch(self, fleet: Project, intake: Intake) -> None:
        intake.historical.clear()
        ran = fleet.run("wandb", "--since", "50m", "--push", "--yes", DD_APP_KEY="")
        assert ran.returncode == 0, ran.stdout
        assert len(intake.series("wandb.runs.active").popitem()[1]) in {3, 4}

    @pytest.mark.slow
    def test_live_push_is_not_given_the_application_key(self, project: Project, tmp_path: Path) -> None:
        project.add(
            "nosy",
            """
            (Path('seen') / str(time.time_ns())).write_text(str(dict(os.environ)))
            yield VALUE(1, context.window.until)
            """,
        )
        (project.root / "seen").mkdir()
        project.run("nosy", "--push", DD_APP_KEY=APP_KEY)
        [seen] = [path.read_text() for path in (project.root / "seen").iterdir()]
        assert APP_KEY not in seen


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
    def test_is_asked_and_may_decline(self, fleet: Project, intake: Intake) -> None:
        code, shown = on_a_terminal(fleet, b"n\n", "wandb", *fixed(3), "--push")
        assert re.search(r"wandb: about [\d,]+ points, .* to .*, 12 ticks; .*\r?\nSend it\? \[y/N\]", shown)
        assert (code, pushes(intake)) == (0, 0)

    @pytest.mark.slow
    def test_is_asked_before_anything_is_turned_on(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0
        intake.historical.clear()
        code, shown = on_a_terminal(fleet, b"n\n", "wandb", *fixed(3), "--push", "--enable-historical")
        assert "Historical Metrics Ingestion will be turned on for " in shown
        assert "metrics\r\n  wandb.push_to_main.avg_duration_hours\r\n  wandb." in shown
        assert (code, intake.historical) == (0, set())

    def test_is_asked_and_may_agree(self, fleet: Project, intake: Intake) -> None:
        code, _ = on_a_terminal(fleet, b"y\n", "wandb", *fixed(3), "--push")
        assert (code, len(intake.series("wandb.runs.active").popitem()[1])) == (0, 12)

    def test_is_not_asked_who_said_yes(self, fleet: Project, intake: Intake) -> None:
        code, shown = on_a_terminal(fleet, b"", "wandb", *fixed(3), "--push", "--yes")
        assert (code, "[y/N]" in shown, pushes(intake) > 0) == (0, False, True)
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 12

    def test_may_interrupt_instead_of_answering(self, fleet: Project, intake: Intake) -> None:
        code, _ = on_a_terminal(fleet, signal.SIGINT, "wandb", *fixed(3), "--push")
        assert (code, pushes(intake)) == (130, 0)
