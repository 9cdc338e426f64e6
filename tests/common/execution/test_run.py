"""What a run tells its collector, its parent and whoever reads its outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.collector import Context
from common.errors import SourceError
from common.execution.backfill import BackfillRun
from common.execution.inspection import InspectionRun
from common.job import DATADOG, Backfill, Job, Mode
from common.metric import Mark, Sample, gauge
from common.outcome import Status
from common.show.dry_run_file import DryRunFile
from support.servers.datadog import Intake
from support.standins import NOW
from support.toy_runs import VALUE, Items, Toy


@pytest.fixture
def intake(toy: Toy) -> Intake:
    return toy.intake


def test_a_collector_is_told_what_kind_of_run_it_is_part_of(toy: Toy, intake: Intake, tmp_path: Path) -> None:
    def collect(context: Context[Any]) -> Items:
        yield VALUE(context.now - context.sendable_since, NOW, kind="sendable")
        yield VALUE(int(context.fills), NOW, kind="fills")
        yield VALUE(int(context.remembers), NOW, kind="remembers")
        yield VALUE(context.deadline.seconds, NOW, kind="time")

    toy.answers(collect)
    outcome = toy.run(timeout=59.5)
    assert (outcome.status, outcome.requests, outcome.missed_ticks) == (Status.OK, 0, 0)
    assert toy.found() == {"sendable": 3600 - 60 - 30, "fills": 0, "remembers": 0, "time": 49.5}
    toy.run(timeout=40, environ={"FLEETGAUGE_CHECKPOINTS": str(tmp_path)})
    assert (toy.found()["remembers"], toy.found()["time"]) == (1, 32)
    toy.run(Mode.PUSH)
    assert intake.value("toy.value", tags=("kind:fills",)) == 1


def test_what_a_collector_logs_says_of_which_service_it_is(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    def collect(context: Context[Any]) -> Items:
        context.log.warning("here it is")
        yield VALUE(1, NOW)

    toy.answers(collect)
    toy.run(environ={"DD_VERSION": "1.2.3", "DD_SERVICE": "gauges"})
    [line] = map(json.loads, capsys.readouterr().err.splitlines())
    told = {key: value for key, value in line.items() if key.startswith("dd.")}
    assert (line["message"], line["collector"]) == ("here it is", "toy")
    assert told == {"dd.service": "gauges", "dd.env": "test", "dd.version": "1.2.3"}


def test_a_push_knows_the_clock_of_the_intake_and_a_dry_run_asks_nobody(toy: Toy, intake: Intake) -> None:
    def collect(context: Context[Any]) -> Items:
        told = context.intake_clock()
        yield VALUE(-1 if told is None else told, NOW, kind="clock")

    toy.answers(collect)
    toy.run(ahead=30)
    assert (toy.found(), intake.requests) == ({"clock": -1}, [])
    toy.run(Mode.PUSH, ahead=30)
    assert intake.value("toy.value") == NOW - 30


def test_a_dry_run_sees_what_a_push_left_and_leaves_it(toy: Toy, tmp_path: Path) -> None:
    def collect(context: Context[Any]) -> Items:
        seen = context.state.get("runs", 0)
        assert isinstance(seen, int)
        if not context.fills:
            yield VALUE(seen, context.now, kind="seen")
        yield Mark({"runs": seen + 1})

    toy.answers(collect)
    toy.environ["FLEETGAUGE_CHECKPOINTS"] = str(tmp_path)
    past: dict[str, Any] = {
        "now": 1_700_000_000,
        "ahead": 1_700_000_000 - NOW,
    }  # or a store would not believe it
    assert [toy.run(Mode.PUSH, **past).dropped for _ in range(2)] == [{}, {}]
    before = {path: path.read_bytes() for path in tmp_path.glob("toy-*.json")}
    assert len(before) == 1
    assert toy.run(**past).status is Status.OK
    assert toy.found() == {"seen": 2}
    assert {path: path.read_bytes() for path in tmp_path.glob("toy-*.json")} == before
    [kept] = before
    kept.write_text("{")
    assert toy.run(Mode.PUSH, **past).dropped == {"bad_checkpoint": 1}


def test_a_first_run_that_lost_something_claims_no_success(toy: Toy, intake: Intake, tmp_path: Path) -> None:
    def collect(context: Context[Any]) -> Items:
        context.lose("unit", "gone")
        yield VALUE(1, NOW)

    toy.answers(collect, resumes=True)
    assert toy.run(Mode.PUSH, environ={"FLEETGAUGE_CHECKPOINTS": str(tmp_path)}).status is Status.PARTIAL
    assert "collector.up" in intake.names()
    assert "collector.last_success_age_seconds" not in intake.names()


@pytest.mark.parametrize(("stays", "seconds"), [(False, "4e-09"), (True, "2e-09")])
def test_a_child_that_stays_keeps_half_of_little_time_back(toy: Toy, stays: bool, seconds: str) -> None:
    outcome = InspectionRun(Job(DATADOG, Mode.CHECK, NOW, 4e-9, stays=stays), toy.environ).run()
    assert outcome.error is not None
    assert outcome.error.message == f"the deadline of {seconds} s has passed"


@pytest.mark.parametrize(("units", "last"), [(20, "unit 19: gone"), (21, "and 1 more")])
def test_lost_units_are_named_up_to_twenty(toy: Toy, units: int, last: str) -> None:
    def collect(context: Context[Any]) -> Items:
        for number in range(units):
            context.lose(f"unit {number}", "gone")
        yield VALUE(1, NOW)

    toy.answers(collect)
    outcome = toy.run()
    assert (outcome.status, len(outcome.lost), outcome.lost[-1]) == (Status.PARTIAL, units, last)


def test_a_dry_run_without_a_file_and_a_backfill_without_a_span_are_defects(toy: Toy) -> None:
    toy.answers(lambda _: iter(()))
    outcome = toy.run(samples_path=None)
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.configuration) == ("ValueError", False)
    assert outcome.error.message == "a dry run needs a file for its samples"
    outcome = BackfillRun(Job("toy", Mode.PUSH, NOW, 60), toy.environ).run()
    assert outcome.error is not None
    assert outcome.error.message == "a backfill needs a span"


def test_what_is_not_declared_is_a_defect_and_what_came_before_it_is_sent(toy: Toy, intake: Intake) -> None:
    other = gauge("toy.another", "", "x")
    toy.answers(lambda _: iter([VALUE(1, NOW), other(1, NOW), VALUE(2, NOW)]))
    outcome = toy.run(Mode.PUSH)
    assert (outcome.status, outcome.samples, outcome.points_sent) == (Status.PARTIAL, 1, 1)
    assert outcome.error is not None
    assert outcome.error.message == "toy yielded toy.another, which it does not declare"
    assert intake.value("toy.value") == 1


def test_two_spellings_are_refused_in_a_live_run_and_one_series_of_the_past(toy: Toy, intake: Intake) -> None:
    spelt = [VALUE(1, NOW - 60, kind="A"), VALUE(2, NOW - 30, kind="a")]
    toy.answers(lambda _: iter(spelt), backfill=lambda *_: lambda: iter(spelt))
    outcome = toy.run(Mode.PUSH)
    assert (outcome.points_sent, outcome.dropped) == (0, {"tag_collision": 2})
    assert outcome.examples == {"tag_collision": f"toy.value kind:a at {NOW - 60}"}
    past = Backfill(NOW - 900, NOW, ("--since", "15m"))
    outcome = toy.run(Mode.PUSH, backfill=past, step=60)
    assert (outcome.points_sent, outcome.dropped) == (2, {})
    outcome = toy.run(backfill=past, step=60)
    assert (outcome.status, outcome.dropped) == (Status.OK, {})
    assert [board.title for board in DryRunFile(toy.samples).boards()] == ["toy"]
    assert toy.run().dropped == {"tag_collision": 2}
    assert [board.title for board in DryRunFile(toy.samples).boards()] == [""]


def test_the_parent_is_told_at_every_mark_how_far_it_is(toy: Toy) -> None:
    items: list[Sample | Mark] = [
        VALUE(1, NOW - 60, kind="a"),
        VALUE(1, NOW - 60, kind="b"),
        Mark({}),
        VALUE(2, NOW - 30),
        Mark({}),
    ]
    toy.answers(lambda _: iter(items), backfill=lambda *_: lambda: iter(items))
    toy.run()
    assert toy.parent.told == [("collecting samples", 2, None), ("collecting samples", 3, None)]
    toy.parent.told.clear()
    toy.run(Mode.PUSH, backfill=Backfill(NOW - 900, NOW, ("--since", "15m")), step=60)
    assert toy.parent.told == [
        ("computing samples", 2, None),
        ("computing samples", 3, None),
        ("sending", 0, 3),
        ("sending", 0, 3),
        ("sending", 3, 3),
    ]


def test_a_check_tells_how_much_it_has_looked_at(toy: Toy) -> None:
    found = ["fine", SourceError("gone"), "good"]
    toy.answers(lambda _: iter(()), check=lambda _: iter(found))
    outcome = InspectionRun(Job("toy", Mode.CHECK, NOW, 60), toy.environ, toy.parent).run()
    assert toy.parent.told == [("checking", number, None) for number in (1, 2, 3)]
    assert outcome.findings == ["fine", "good"]
    assert outcome.error is not None
    assert outcome.error.message == "gone"
