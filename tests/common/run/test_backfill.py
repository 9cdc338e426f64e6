"""The past, from the command line to a table, a file or the intake: shown, agreed to, sent and continued."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from common.times import iso
from common.window import Window
from support.backfills import NAMES, fixed, held, span_of, truth
from support.project import Project
from support.servers.datadog import Intake
from support.servers.wandb import Wandb
from support.terminal import at_terminal


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


class TestAPerson:
    @pytest.mark.slow
    def test_is_asked_before_anything_is_turned_on(self, fleet: Project, intake: Intake) -> None:
        assert fleet.run("wandb", "--push").returncode == 0  # a metric must exist
        intake.historical.clear()
        asked = ["wandb", *fixed(3), "--push", "--enable-historical"]
        code, shown = at_terminal(fleet, *asked, answer="n\n")
        assert "Historical Metrics Ingestion will be turned on for " in shown
        assert "metrics\r\n  wandb.push_to_main.avg_duration_hours\r\n  wandb." in shown
        assert (code, intake.historical) == (0, set())
        assert fleet.run(*asked, "--yes").returncode == 0
        assert len(intake.series("wandb.runs.active").popitem()[1]) == 12


class TestLooking:
    def test_a_part_is_a_table_a_csv_file_and_a_page(
        self, fleet: Project, wandb: Wandb, intake: Intake
    ) -> None:
        options = fixed(30)
        files = ["--csv", "p.csv", "--html", "p.html"]
        ran = fleet.run("wandb", *options, "--slice", "1/3", *files, FLEETGAUGE_STEP="1800", DD_APP_KEY="")
        assert ran.returncode == 0, ran.stderr
        [row] = [line.split() for line in ran.stdout.splitlines() if "wandb.runs.active" in line]
        assert "20" in row[1:3], "points"
        assert row[-3:] == ["run", "entity:acme", "project:ants"]
        assert "nothing sent (dry run)" in ran.stdout
        assert not intake.requests
        for line, name in zip(ran.stdout.splitlines()[-2:], ("p.csv", "p.html"), strict=True):
            assert line.startswith(f"wrote {name}")
        with (fleet.directory / "p.csv").open() as lines:
            rows = list(csv.DictReader(lines))
        found = {
            (row["metric"], int(row["timestamp"]), tuple(row["tags"].split())): float(row["value"])
            for row in rows
        }
        span = span_of(options)
        part = Window(span.since, span.until, 1800).slice(1, 3)
        assert found == truth(wandb.projects["acme", "ants"], part)
        assert rows[0]["time"] == iso(int(rows[0]["timestamp"]))
        page = (fleet.directory / "p.html").read_text().replace("<wbr>", "")
        assert not [name for name in NAMES if name not in page]
        assert "every 30" in page

    def test_page_without_since_draws_the_last_day_and_the_present(self, fleet: Project) -> None:
        fleet.keep("host")
        ran = fleet.run("wandb", "host", "--html", "p.html")
        assert ran.returncode == 0, ran.stdout
        found = {line.split()[0]: line.split()[1:3] for line in ran.stdout.splitlines() if "." in line[:8]}
        assert "96" in found["wandb.runs.active"], "ticks of a day"
        assert "1" in found["wandb.runs.pending"], "only a live run knows it"
        assert "host.cpu_count" in found
        page = (fleet.directory / "p.html").read_text()
        assert "Dry run of wandb, host, " in page
        assert "Active runs" in page

    def test_a_page_names_once_what_only_the_present_lacks(self, project: Project) -> None:
        body = """
            if context.window.is_live:
                context.report.lose("page 7", "torn")
            yield VALUE(1, context.window.until - 60)
        """
        project.add("reader", body, options=", has_history=True")
        ran = project.run("reader", "--html", "p.html")
        assert ran.returncode == 1
        statuses = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("reader: ")]
        assert statuses == ["partial"]
        page = (project.directory / "p.html").read_text()
        assert page.count('class="status partial"') == page.count("reader lost page 7: torn") == 1

    def test_a_file_that_cannot_be_written_is_said_before_anything_is_read(
        self, fleet: Project, wandb: Wandb, tmp_path: Path
    ) -> None:
        for option in ("--csv", "--html"):
            ran = fleet.run("wandb", "--since", "1h", option, str(tmp_path / "none" / "file"))
            assert ran.returncode == 2
            assert f"{option}: {tmp_path}/none/file cannot be written" in ran.stderr
        assert not wandb.requests

    def test_under_all_what_is_not_configured_is_skipped(self, project: Project) -> None:
        """Also where the application key is missing, which it would need."""
        project.add("reader", "yield VALUE(1, 1)", settings="path: Text", options=", has_history=True")
        for options in (["--push", "--yes"], []):
            ran = project.run("all", "--since", "3h", *options, "--json", DD_APP_KEY="")
            [entry] = json.loads(ran.stdout)["collectors"]
            assert (ran.returncode, entry["status"]) == (0, "skipped"), ran.stdout
