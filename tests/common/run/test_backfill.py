"""The past, from the command line to a table, a file or the intake: shown, agreed to and sent."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from common.times import iso
from support.backfills import NAMES, fixed, held
from support.project import Project
from support.servers.datadog import Intake
from support.servers.wandb import Wandb
from support.terminal import at_terminal


def test_files_of_parts_have_every_point_that_a_push_sends(
    fleet: Project, wandb: Wandb, intake: Intake
) -> None:
    options, found = fixed(30), {}
    for part in ("0/3", "1/3", "2/3"):
        files = ["--csv", "p.csv", "--html", "p.html"]
        ran = fleet.run("wandb", *options, "--slice", part, *files, DD_APP_KEY="")
        assert ran.returncode == 0, ran.stderr
        [row] = [line.split() for line in ran.stdout.splitlines() if "wandb.runs.active" in line]
        assert ("40" in row[1:3], row[-3:]) == (True, ["run", "entity:acme", "project:ants"])
        assert "nothing sent (dry run)" in ran.stdout
        for line, name in zip(ran.stdout.splitlines()[-2:], ("p.csv", "p.html"), strict=True):
            assert line.startswith(f"wrote {name}")
        page = (fleet.directory / "p.html").read_text().replace("<wbr>", "")
        assert not [name for name in NAMES if name not in page]
        with (fleet.directory / "p.csv").open() as lines:
            for point in csv.DictReader(lines):
                assert point["time"] == iso(int(point["timestamp"]))
                key = (point["metric"], int(point["timestamp"]), tuple(point["tags"].split()))
                found[key] = float(point["value"])
    assert not intake.requests
    wandb.requests.clear()
    ran = fleet.run("wandb", *options, "--push", "--yes")
    assert ran.returncode == 0, ran.stderr
    assert held(intake) == found
    assert len({at for _, at, _ in found}) == 120
    assert len(wandb.requests) == 1
    assert "about " in ran.stderr
    assert "visible within 14 hours" in ran.stderr


def test_a_page_names_once_what_only_the_present_lacks(project: Project) -> None:
    body = r"""
        if context.window.is_live:
            context.report.lose("page \ud800", "torn")
        yield VALUE(1, context.window.until - 60)
    """
    project.add("reader", body, options=", has_history=True")
    ran = project.run("reader", "--html", "p.html")
    assert ran.returncode == 1
    statuses = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("reader: ")]
    assert statuses == ["partial"]
    page = (project.directory / "p.html").read_text()
    assert page.count('class="status partial"') == page.count(r"reader lost page \ud800: torn") == 1


@pytest.mark.slow
def test_person_is_asked_before_anything_is_turned_on(fleet: Project, intake: Intake) -> None:
    assert fleet.run("wandb", "--push").returncode == 0  # a metric must exist
    intake.historical.clear()
    asked = ["wandb", *fixed(3), "--push", "--enable-historical"]
    code, shown = at_terminal(fleet, *asked, answer="n\n")
    assert "Historical Metrics Ingestion will be turned on for " in shown
    assert "metrics\r\n  wandb.push_to_main.avg_duration_hours\r\n  wandb." in shown
    assert (code, intake.historical) == (0, set())
    assert fleet.run(*asked, "--yes").returncode == 0
    assert len(intake.series("wandb.runs.active").popitem()[1]) == 12


def test_page_without_since_draws_the_last_day_and_the_present(fleet: Project) -> None:
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


def test_file_that_cannot_be_written_is_named_before_anything_is_read(
    fleet: Project, wandb: Wandb, tmp_path: Path
) -> None:
    for option in ("--csv", "--html"):
        ran = fleet.run("wandb", "--since", "1h", option, str(tmp_path / "none" / "file"))
        assert ran.returncode == 2
        assert f"{option}: {tmp_path}/none/file cannot be written" in ran.stderr
    assert not wandb.requests


def test_under_all_what_is_not_configured_is_skipped(project: Project) -> None:
    """Also where the application key is missing, which it would need."""
    project.add("reader", "yield VALUE(1, 1)", settings="path: Text", options=", has_history=True")
    for options in (["--push", "--yes"], []):
        ran = project.run("all", "--since", "3h", *options, "--json", DD_APP_KEY="")
        [entry] = json.loads(ran.stdout)["collectors"]
        assert (ran.returncode, entry["status"]) == (0, "skipped"), ran.stdout
