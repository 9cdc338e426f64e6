"""`--check` finds whatever would make a push fail, names all of it, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.collector import Context
from common.errors import SourceError
from common.metric import Series
from common.options import Mode
from common.outcome import Status
from support.backfills import APP_KEY
from support.project import Project
from support.servers.aws import Aws
from support.servers.datadog import Intake
from support.standins import NOW
from support.toy_runs import VALUE, Toy

READER = "path: Text"
LOOK = 'context.memory["line"] = 1\nyield VALUE(1, context.window.until)'


@pytest.fixture
def reader(project: Project, tmp_path: Path) -> Project:
    """A service with a collector that remembers, and a store for it."""
    project.add("reader", LOOK, settings=READER)
    (tmp_path / "store").mkdir()
    project.environment |= {
        "FLEETGAUGE_READER_PATH": "x",
        "FLEETGAUGE_STATE": str(tmp_path / "store"),
    }
    return project


def check(project: Project, *options: str, **extra: str) -> tuple[int, str]:
    ran = project.run("reader", "--check", *options, **extra)
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stdout


@pytest.mark.slow
def test_it_says_that_state_can_be_kept_and_changes_none(
    reader: Project, intake: Intake, tmp_path: Path
) -> None:
    assert reader.run("reader", "--push").returncode == 0
    [kept] = (tmp_path / "store").glob("reader-*.json")
    before = kept.read_bytes(), kept.stat().st_mtime_ns
    code, said = check(reader)
    assert code == 0, said
    assert f"state can be stored in {tmp_path}/store" in said
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before
    assert {path.name.replace(kept.stem, "key") for path in (tmp_path / "store").iterdir()} == {
        "key.json",
        "key.check.json",
    }


def test_without_a_store_it_says_what_is_not_known(reader: Project) -> None:
    code, said = check(reader, FLEETGAUGE_STATE="")
    assert code == 0, said
    assert "FLEETGAUGE_STATE is not set" in said
    assert "collector.gap_seconds" in said


def test_the_old_name_of_the_setting_is_refused_with_the_new_one(reader: Project) -> None:
    code, said = check(reader, FLEETGAUGE_CHECKPOINTS="/data")
    assert code == 2
    assert "FLEETGAUGE_CHECKPOINTS (it is FLEETGAUGE_STATE now)" in said


def test_an_s3_role_that_may_only_read(reader: Project, aws: Aws) -> None:
    aws.make_bucket("state")
    role = aws.allow_only("s3:GetObject", "s3:ListBucket")
    code, said = check(reader, **{**role, "FLEETGAUGE_STATE": "s3://state/fleet"})
    assert code == 1
    assert ".check.json: AccessDenied; check that the bucket exists and that the role has" in said


def test_everything_that_is_wrong_is_named_at_once(project: Project, tmp_path: Path) -> None:
    project.add("reader", LOOK, settings=READER + "\npages: int = 1")
    ran = project.run(
        *("reader", "--check"),
        FLEETGAUGE_READER_PAGES="many",
        FLEETGAUGE_READER_PATH="x",
        FLEETGAUGE_STATE=str(tmp_path / "absent"),
        DD_API_KEY="two words",
        DD_ENV="",
    )
    assert ran.returncode == 2
    for said in (
        *("FLEETGAUGE_READER_PAGES: Input should be a valid integer", "absent; create it"),
        *("DD_API_KEY: it holds a space", "DD_ENV is not set"),
    ):
        assert said in ran.stdout


def test_a_collector_may_name_several_things_that_are_wrong(reader: Project) -> None:
    path = reader.root / "collectors" / "reader" / "collector.py"
    body = 'yield "good"\n    yield SourceError("a is gone")\n    raise ConfigurationError("b is misspelt")'
    path.write_text(path.read_text().replace('yield "nothing to check"', body))
    code, said = check(reader)
    assert code == 2
    assert "reader: failed\n  a is gone; b is misspelt\n  good\n" in said


def test_under_all_what_is_not_configured_is_skipped(reader: Project) -> None:
    ran = reader.run("all", "--check", FLEETGAUGE_READER_PATH="", FLEETGAUGE_STATE="/nonexistent")
    assert ran.returncode == 0, ran.stdout
    assert "reader: skipped" in ran.stdout


def test_progress_is_what_was_looked_at_and_all_errors_are_one(toy: Toy) -> None:
    found = ["fine", SourceError("gone"), "good"]
    toy.answers(lambda _: iter(()), check=lambda _: iter(found))
    outcome = toy.run(Mode.CHECK)
    assert toy.person.progressed == [("checking", number, None) for number in (1, 2, 3)]
    assert [one for one in outcome.findings if one in found] == ["fine", "good"]
    assert outcome.error is not None
    assert outcome.error.message == "gone"


def test_without_a_check_of_its_own_a_collector_collects_once(toy: Toy) -> None:
    def collect(context: Context[Any]) -> Iterator[Series]:
        yield VALUE.series((NOW - 60, NOW), (1, 2))
        context.report.lose("page 2", "gone")

    toy.answers(collect, check=None)
    outcome = toy.run(Mode.CHECK)
    assert "collected 2 points of 1 metrics, and sent nothing" in outcome.findings
    assert (outcome.status, outcome.lost, toy.intake.points) == (Status.PARTIAL, ["page 2: gone"], {})


class TestPast:
    """With --since, the application key is looked at too, and nothing of the past is computed or sent."""

    def test_a_key_that_is_good(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", "--since", "7d", "--check")
        assert ran.returncode == 0, ran.stdout
        assert f"the application key has the permission metrics_read at {intake.url}" in ran.stdout
        assert intake.points == {}

    @pytest.mark.parametrize(
        ("key", "said"),
        [
            ("", "DD_APP_KEY is not set"),
            ("another", "check that DD_APP_KEY is valid"),
            ("a b", "DD_APP_KEY: it"),
        ],
    )
    def test_one_that_is_not(self, fleet: Project, key: str, said: str) -> None:
        ran = fleet.run("wandb", "--since", "7d", "--check", DD_APP_KEY=key)
        assert ran.returncode == 2
        assert said in ran.stdout

    def test_without_it_the_key_is_not_asked_for(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", "--check", DD_APP_KEY="another")
        assert ran.returncode == 0, ran.stdout
        assert {"DD-APPLICATION-KEY" in request.headers for request in intake.requests} == {False}
        assert APP_KEY not in ran.stdout

    def test_a_collector_that_knows_only_the_present_says_so(self, project: Project) -> None:
        project.keep("host")
        ran = project.run("host", "--since", "7d", "--check", DD_APP_KEY=APP_KEY)
        assert ran.returncode == 2
        assert "host cannot answer for the past" in ran.stdout
