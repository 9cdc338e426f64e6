"""The past as a person or a program looks at it, before anything is sent."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from common.times import iso
from support.backfills import NAMES, fixed, span_of, truth
from support.project import Project
from support.servers.datadog import Intake
from support.servers.wandb import Wandb


def test_a_dry_run_shows_the_past_and_sends_nothing(fleet: Project, wandb: Wandb, intake: Intake) -> None:
    options = fixed(30)
    ran = fleet.run("wandb", *options, "--json", DD_APP_KEY="", DD_API_KEY="")
    document = json.loads(ran.stdout)
    [entry] = document["collectors"]
    found = {(one["metric"], one["timestamp"], tuple(one["tags"])): one["value"] for one in entry["samples"]}
    assert found == truth(wandb.projects["acme", "ants"], span_of(options))
    assert entry["status"] == "ok"
    assert not intake.requests


class TestLooking:
    def test_the_table_has_a_row_per_series(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", *fixed(30), DD_APP_KEY="")
        assert ran.returncode == 0, ran.stderr
        [row] = [line.split() for line in ran.stdout.splitlines() if "wandb.runs.active" in line]
        assert row[:2] == ["wandb.runs.active", "120"]
        assert row[-3:] == ["run", "entity:acme", "project:ants"]
        assert "nothing sent (dry run)" in ran.stdout
        assert not intake.requests

    def test_what_was_written_where_is_said_at_the_end(self, fleet: Project) -> None:
        ran = fleet.run("wandb", *fixed(3), "--csv", "p.csv", "--html", "p.html")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines()[-2:] == ["wrote p.csv", "wrote p.html"]
        assert (fleet.directory / "p.csv").is_file()

    def test_every_point_can_be_had_as_csv(self, fleet: Project, wandb: Wandb, tmp_path: Path) -> None:
        options, path = fixed(5), tmp_path / "points.csv"
        assert fleet.run("wandb", *options, "--csv", str(path)).returncode == 0
        with path.open() as lines:
            rows = list(csv.DictReader(lines))
        found = {
            (row["metric"], int(row["timestamp"]), tuple(row["tags"].split())): float(row["value"])
            for row in rows
        }
        assert found == truth(wandb.projects["acme", "ants"], span_of(options))
        assert rows[0]["time"] == iso(int(rows[0]["timestamp"]))

    def test_a_page_names_every_metric_of_the_part_that_was_asked_for(
        self, fleet: Project, tmp_path: Path
    ) -> None:
        path = tmp_path / "week.html"
        ran = fleet.run("wandb", *fixed(30), "--slice", "1/3", "--html", str(path), FLEETGAUGE_STEP="1800")
        assert ran.returncode == 0, ran.stderr
        page = path.read_text().replace("<wbr>", "")
        assert not [name for name in NAMES if name not in page]
        assert "every 30 min" in page

    def test_page_without_since_draws_the_last_day_and_the_present(self, fleet: Project) -> None:
        fleet.keep("host")
        ran = fleet.run("wandb", "host", "--html", "p.html")
        assert ran.returncode == 0, ran.stdout
        found = {line.split()[0]: line.split()[1] for line in ran.stdout.splitlines() if "." in line[:8]}
        assert found["wandb.runs.active"] == "96"  # ticks of a day
        assert found["wandb.runs.pending"] == "1"  # which only a live run knows
        assert "host.cpu_count" in found
        page = (fleet.directory / "p.html").read_text()
        assert "Dry run of wandb, host, " in page
        assert "Active runs" in page

    @pytest.mark.parametrize("option", ["--csv", "--html"])
    def test_a_file_that_cannot_be_written_is_said_before_anything_is_read(
        self, fleet: Project, wandb: Wandb, tmp_path: Path, option: str
    ) -> None:
        ran = fleet.run("wandb", "--since", "1h", option, str(tmp_path / "none" / "file"))
        assert ran.returncode == 2
        assert f"{option}: {tmp_path}/none/file cannot be written" in ran.stderr
        assert not wandb.requests


class TestThePresentOnly:
    def test_under_all_it_is_skipped(self, fleet: Project) -> None:
        fleet.keep("host")
        ran = fleet.run("all", "--since", "1h")
        assert ran.returncode == 0, ran.stdout
        assert "host: skipped" in ran.stdout
        assert "wandb: ok" in ran.stdout
