"""`--check` finds whatever would make a push fail, names all of it, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.collector import Context
from common.errors import ConfigurationError, SourceError
from common.metric import Series
from common.options import Backfill, Mode
from common.outcome import Status
from common.times import iso
from support.backfills import APP_KEY
from support.project import Project
from support.servers.datadog import Intake
from support.standins import NOW
from support.toy_runs import VALUE, Toy


def test_state_can_be_stored_and_is_left_alone(toy: Toy) -> None:
    toy.keep_state()
    toy.answers(lambda context: iter([VALUE(1, context.now)]))
    toy.push()
    [kept] = toy.store.iterdir()
    before = kept.read_bytes(), kept.stat().st_mtime_ns
    outcome = toy.run(Mode.CHECK)
    assert (outcome.status, outcome.report.findings) == (Status.OK, [f"state can be stored in {toy.store}"])
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before
    assert {path.name for path in toy.store.iterdir()} == {kept.name, f"{kept.stem}.check.json"}


def test_without_a_store_it_says_what_is_not_known(toy: Toy) -> None:
    toy.answers(lambda _: iter(()))
    [found] = toy.run(Mode.CHECK).report.findings
    assert "FLEETGAUGE_STATE is not set" in found
    assert "collector.gap_seconds" in found


@pytest.mark.parametrize(
    ("wrong", "type_name"),
    [
        ([SourceError("gone")], "SourceError"),
        ([SourceError("gone"), ConfigurationError("odd")], "ConfigurationError"),
    ],
)
def test_all_that_a_collector_finds_is_named(toy: Toy, wrong: list[Exception], type_name: str) -> None:
    toy.answers(lambda _: iter(()), check=lambda _: iter(["fine", *wrong, "good"]))
    outcome = toy.run(Mode.CHECK, environ={"FLEETGAUGE_STATE": "/none/at/all"})
    assert outcome.report.findings == ["fine", "good"]
    looked_at = len(wrong) + 2
    assert toy.person.progressed == [("checking", number + 1, None) for number in range(looked_at)]
    assert outcome.error is not None
    texts = [*map(str, wrong), "FLEETGAUGE_STATE: there is no directory /none/at/all; create it"]
    assert (outcome.error.type, outcome.error.message) == (type_name, "; ".join(texts))


def test_without_a_check_of_its_own_a_collector_collects_once(toy: Toy) -> None:
    def collect(context: Context[Any]) -> Iterator[Series]:
        yield VALUE.series((NOW - 60, NOW), (1, 2))
        context.report.lose("page 2", "gone")

    toy.answers(collect, check=None)
    outcome = toy.run(Mode.CHECK)
    assert "collected 2 points of 1 metrics, and sent nothing" in outcome.report.findings
    assert (outcome.status, outcome.report.lost, toy.intake.points) == (Status.PARTIAL, ["page 2: gone"], {})


def test_a_collector_that_knows_only_the_present_says_so_for_the_past(toy: Toy) -> None:
    toy.answers(lambda _: iter(()))
    past = Backfill(NOW - 3600, NOW)
    toy.environ["FLEETGAUGE_STATE"] = "/none/at/all"
    outcome = toy.run(Mode.CHECK, backfill=past)
    assert "toy cannot answer for the past" in str(outcome.error)
    assert "there is no directory /none/at/all" in str(outcome.error)
    assert toy.run(Mode.CHECK, backfill=past, named=False).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (("toy.value", "kind=a"), None),
        (("toy.valeu",), "--explain: toy has no metric 'toy.valeu' (did you mean 'toy.value'?)"),
        (("toy.value", "kin=a"), "--explain: toy.value has no tag 'kin'; it has: kind"),
        (("toy.value",), "--explain: toy cannot list what its values are of"),
    ],
)
def test_value_is_explained_by_its_rows(toy: Toy, asked: tuple[str, ...], error: str | None) -> None:
    def explain(context: Context[Any], metric: object, tags: dict[str, str]) -> list[dict[str, object]]:
        return [{"tags": tags, "metric": metric, "at": context.window.until}]

    toy.answers(lambda _: iter(()), **({} if asked == ("toy.value",) else {"explain": explain}))
    outcome = toy.run(Mode.EXPLAIN, explain=asked)
    if error:
        assert outcome.error is not None
        assert (outcome.error.message, outcome.error.configuration) == (error, True)
    else:
        tick = NOW // 900 * 900
        assert outcome.report.tables == {"runs": [{"tags": {"kind": "a"}, "metric": VALUE, "at": tick}]}
        assert outcome.report.findings == [f"toy.value kind=a at {iso(tick)}: 1 rows"]


def test_everything_that_is_wrong_is_named_at_once(project: Project, tmp_path: Path) -> None:
    project.add("reader", "yield VALUE(1, context.window.until)", settings="pages: int = 1")
    ran = project.run(
        *("reader", "--check"),
        FLEETGAUGE_READER_PAGES="many",
        FLEETGAUGE_STATE=str(tmp_path / "absent"),
        DD_API_KEY="two words",
        DD_ENV="",
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    for text in (
        *("FLEETGAUGE_READER_PAGES: Input should be a valid integer", "absent; create it"),
        *("DD_API_KEY: it holds a space", "DD_ENV is not set"),
    ):
        assert text in ran.stdout


class TestPast:
    """With --since, the application key is looked at too, and nothing of the past is computed or sent."""

    @pytest.mark.parametrize(
        ("key", "code", "text"),
        [
            (APP_KEY, 0, "the application key has the permission metrics_read at http://"),
            ("", 2, "DD_APP_KEY is not set"),
            ("another", 2, "check that DD_APP_KEY is valid"),
            ("a b", 2, "DD_APP_KEY: it"),
        ],
    )
    def test_the_application_key_is_checked(
        self, fleet: Project, intake: Intake, key: str, code: int, text: str
    ) -> None:
        ran = fleet.run("wandb", "--since", "7d", "--check", DD_APP_KEY=key)
        assert (ran.returncode, text in ran.stdout) == (code, True), ran.stdout
        assert intake.points == {}

    def test_without_it_the_key_is_not_asked_for(self, fleet: Project, intake: Intake) -> None:
        ran = fleet.run("wandb", "--check", DD_APP_KEY="another")
        assert ran.returncode == 0, ran.stdout
        assert {"DD-APPLICATION-KEY" in request.headers for request in intake.requests} == {False}
        assert APP_KEY not in ran.stdout
