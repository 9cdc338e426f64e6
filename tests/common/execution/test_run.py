"""What a run tells its collector, its parent and whoever reads its outcome; the collector is of this file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from common.collector import Collector, Context
from common.config.settings import CollectorSettings, named
from common.errors import SourceError
from common.execution import backfill
from common.execution.backfill import BackfillRun
from common.execution.inspection import InspectionRun
from common.execution.live import LiveRun
from common.job import DATADOG, Backfill, Job, Mode
from common.metric import Mark, Sample, gauge
from common.outcome import Outcome, Status
from common.parent import Parent
from common.show.dry_run_file import DryRunFile
from growing_file import KEY
from servers.datadog import Intake
from servers.faults import Fault
from standins import APP_KEY, NOW

VALUE = gauge("toy.value", "item", "A value.", "kind")
OTHER = gauge("toy.other", "item", "Another value.")
Items = Iterator[Sample | Mark]


class ToySettings(CollectorSettings):
    model_config = named("FLEETGAUGE_TOY_")


class NewerSettings(ToySettings):
    """Those of a version that has one more."""

    size: int = 3


class Listening(Parent):
    """One that writes down how far a run said that it is and what it was asked, and agrees or not."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []
        self.asked: list[str] = []
        self.answer = True

    def progress(self, doing: str, done: int, total: int | None) -> None:
        self.told.append((doing, done, total))

    def agrees(self, text: str) -> bool:
        self.asked.append(text)
        return self.answer


class Toy:
    """A collector whose every answer a test gives, and runs of it."""

    def __init__(self, folder: Path, intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.samples = folder / "samples"
        self.environ = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        self.intake = intake
        self.parent = Listening()
        self._patch = monkeypatch

    def answers(
        self,
        collect: Callable[[Context[Any]], Items],
        settings: type[ToySettings] = ToySettings,
        **options: Any,
    ) -> None:
        options.setdefault("check", lambda _: iter(()))
        made = Collector("toy", settings, (VALUE, OTHER), collect, **options)
        package, module = ModuleType("collectors.toy"), ModuleType("collectors.toy.collector")
        package.__path__, module.__dict__["COLLECTOR"] = [], made
        for one in (package, module):
            self._patch.setitem(sys.modules, one.__name__, one)

    def run(
        self, mode: Mode = Mode.DRY_RUN, environ: Mapping[str, str] | None = None, ahead: int = 0, **job: Any
    ) -> Outcome:
        path = str(self.samples) if mode is Mode.DRY_RUN else None
        asked = Job("toy", mode, **{"now": NOW, "timeout": 60, "samples_path": path, **job})
        kind = LiveRun if asked.backfill is None else BackfillRun
        given = {**self.environ, **(environ or {})}
        return kind(asked, given, self.parent, clock=lambda: NOW + ahead).run()

    def found(self) -> dict[str, float]:
        """The values of a dry run by their kind."""
        return {
            part.series.tags[0].removeprefix("kind:"): part.values[0] for part in DryRunFile(self.samples)
        }


@pytest.fixture
def intake() -> Iterator[Intake]:
    with Intake(key=KEY, clock=lambda: NOW, app_key=APP_KEY) as server:
        yield server


@pytest.fixture
def toy(tmp_path: Path, intake: Intake, monkeypatch: pytest.MonkeyPatch) -> Toy:
    return Toy(tmp_path, intake, monkeypatch)


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
    assert toy.run().dropped == {"tag_collision": 2}


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


def past(toy: Toy, *samples: Sample, **options: Any) -> None:
    toy.answers(lambda _: iter(()), backfill=lambda *_: lambda: iter(samples), **options)


@pytest.mark.parametrize(
    ("step", "resumes", "said"), [(900, False, False), (901, False, True), (901, True, False)]
)
def test_a_step_that_is_longer_than_the_span_is_told_but_of_records(
    toy: Toy, capsys: pytest.CaptureFixture[str], step: int, resumes: bool, said: bool
) -> None:
    past(toy, VALUE(1, NOW - 60), resumes=resumes)
    since = NOW // step * step - 800  # a tick falls into it
    outcome = toy.run(backfill=Backfill(since, since + 900, ()), step=step, now=NOW + 900)
    assert outcome.error is None
    assert ("is longer than the span, 15m: it has a single tick" in capsys.readouterr().err) is said


def test_as_many_ticks_as_can_be_computed_are_and_one_more_is_refused(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_TICKS", 15)
    past(toy, VALUE(1, NOW - 60))
    assert toy.run(backfill=Backfill(NOW - 900, NOW, ()), step=60).status is Status.OK
    assert toy.intake.requests == [], "a dry run asks nobody"
    outcome = toy.run(backfill=Backfill(NOW - 960, NOW, ()), step=60)
    assert outcome.error is not None
    assert "has 16 steps of 60 s, more than 15: widen --step" in outcome.error.message


def test_only_what_lies_before_the_last_hour_needs_an_application_key(toy: Toy) -> None:
    past(toy, VALUE(1, NOW - 60))
    assert toy.run(Mode.PUSH, backfill=Backfill(NOW - 3600, NOW, ()), step=60).status is Status.OK
    outcome = toy.run(Mode.PUSH, backfill=Backfill(NOW - 3601, NOW, ()), step=60)
    assert outcome.error is not None
    assert "DD_APP_KEY is not set" in outcome.error.message


def test_a_person_is_asked_about_what_there_is_and_about_nothing_else(toy: Toy) -> None:
    asked = Backfill(NOW - 900, NOW, (), ask=True)
    past(toy)
    assert toy.run(Mode.PUSH, backfill=asked, step=60).status is Status.EMPTY
    assert toy.run(Mode.PUSH, backfill=replace(asked, enable=True), step=60).status is Status.EMPTY
    assert toy.parent.asked == []
    past(toy, VALUE(1, NOW - 120), VALUE(1, NOW - 60), VALUE(1, NOW - 60, kind="a"))
    toy.parent.answer = False
    outcome = toy.run(Mode.PUSH, backfill=asked, step=60)
    assert toy.parent.asked == [
        "3 points in 2 series, 2027-01-15T07:45:00Z to 2027-01-15T08:00:00Z; visible at once"
    ]
    assert (outcome.status, outcome.points_sent) == (Status.SKIPPED, 0)


def test_what_is_too_old_by_the_time_it_would_be_sent_is_not(toy: Toy) -> None:
    past(toy, VALUE(1, NOW - 3480))
    times = [NOW, NOW, NOW, NOW + 90]
    asked = Job("toy", Mode.PUSH, NOW, 60, step=60, backfill=Backfill(NOW - 3600, NOW, ()))
    outcome = BackfillRun(asked, toy.environ, clock=lambda: times.pop(0) if times else NOW + 90).run()
    assert outcome.error is not None
    assert outcome.error.message == "points became older than an hour before they were sent: run it again"


def test_what_was_done_is_remembered_only_under_a_name(toy: Toy, tmp_path: Path) -> None:
    environ = {"FLEETGAUGE_CHECKPOINTS": str(tmp_path)}

    def sent(name: str | None, settings: type[ToySettings] = ToySettings, **variables: str) -> int:
        past(toy, VALUE(1, NOW - 60), settings=settings)
        asked = Backfill(NOW - 900, NOW, (), once=name)
        outcome = toy.run(Mode.PUSH, backfill=asked, step=60, environ={**environ, **variables})
        assert outcome.error is None
        return outcome.points_sent

    assert [sent(None), sent(None)] == [1, 1]
    assert [sent("week"), sent("week"), sent("month")] == [1, 0, 1]
    assert sent("week", NewerSettings) == 0, "what is left alone is no part of what was asked for"
    assert sent("week", NewerSettings, FLEETGAUGE_TOY_SIZE="4") == 1
    names = {path.stem for path in tmp_path.glob("backfill-*")}
    assert all(re.fullmatch("backfill-toy-[0-9a-f]{12}", name) for name in names), names
    assert len(names) == 4


def test_what_is_done_once_needs_a_store(toy: Toy) -> None:
    past(toy, VALUE(1, NOW - 60))
    outcome = toy.run(Mode.PUSH, backfill=Backfill(NOW - 900, NOW, (), once="week"), step=60)
    assert outcome.error is not None
    assert outcome.error.message == "--once needs to remember what was done: set FLEETGAUGE_CHECKPOINTS"


def test_a_span_without_a_tick_is_refused(toy: Toy) -> None:
    past(toy)
    since = NOW // 900 * 900 + 1
    outcome = toy.run(backfill=Backfill(since, since + 60, ()), step=900)
    assert outcome.error is not None
    assert outcome.error.message == (
        "the step of 15m is longer than the span, 1m, in which no tick falls: lower --step, or widen --since"
    )


def pushed_before(toy: Toy) -> None:
    """Datadog knows both metrics."""
    toy.environ["DD_APP_KEY"] = APP_KEY
    toy.answers(lambda _: iter([VALUE(1, NOW), OTHER(1, NOW)]))
    assert toy.run(Mode.PUSH).points_sent == 2


def arrived(intake: Intake) -> list[str]:
    """The metrics that have a point of two hours ago."""
    return sorted(key.metric for key in intake.points if key.second == NOW - 7200)


WHEN = "2027-01-15T05:00:00Z to 2027-01-15T08:00:00Z; visible within an hour"


@pytest.mark.parametrize(
    ("options", "asked", "sent"),
    [
        (
            {"only_enabled": True},
            [
                f"1 points in 1 series, {WHEN}",
                "Historical Metrics Ingestion is off, so that these are left out: 1 metrics",
                "toy.value",
            ],
            ["toy.other"],
        ),
        (
            {"enable": True},
            [
                f"2 points in 2 series, {WHEN}",
                "Historical Metrics Ingestion will be turned on for 1 metrics",
                "toy.value",
            ],
            ["toy.other", "toy.value"],
        ),
        ({}, [], []),
    ],
)
def test_what_datadog_would_drop_is_left_out_or_turned_on_and_otherwise_nothing_is_sent(
    toy: Toy, intake: Intake, options: dict[str, Any], asked: list[str], sent: list[str]
) -> None:
    pushed_before(toy)
    intake.historical.add("toy.other")
    past(toy, VALUE(1, NOW - 7200), OTHER(2, NOW - 7200))
    backfill = Backfill(NOW - 10_800, NOW, ("--since", "3h"), ask=True, **options)
    outcome = toy.run(Mode.PUSH, backfill=backfill, step=60)
    assert toy.parent.asked == (["\n  ".join(asked)] if asked else [])
    assert (arrived(intake), outcome.points_sent) == (sent, len(sent))
    if outcome.error:
        assert (outcome.error.details, outcome.error.configuration) == (["toy.value"], True)
        assert "is off for 1 of the metrics" in outcome.error.message
        assert "run_collector.py toy --since 3h --push --enable-historical --yes" in outcome.error.message


def test_where_all_would_be_left_out_or_one_cannot_be_turned_on_nothing_is_sent(
    toy: Toy, intake: Intake
) -> None:
    pushed_before(toy)
    past(toy, VALUE(1, NOW - 7200))
    asked = Backfill(NOW - 10_800, NOW, (), only_enabled=True)
    outcome = toy.run(Mode.PUSH, backfill=asked, step=60)
    assert outcome.error is not None
    assert outcome.error.message == "Historical Metrics Ingestion is off for all metrics: nothing was sent"
    intake.tag_configured.add("toy.value")
    past(toy, VALUE(1, NOW - 7200), OTHER(2, NOW - 7200))
    outcome = toy.run(Mode.PUSH, backfill=replace(asked, only_enabled=False, enable=True), step=60)
    assert outcome.error is not None
    assert [one.partition(": it has")[0] for one in outcome.error.details] == ["toy.value"]
    assert "could not be turned on for 1 metrics. Nothing was sent" in outcome.error.message
    assert arrived(intake) == []
    outcome = toy.run(Mode.PUSH, backfill=replace(asked, enable=True), step=60)
    assert (outcome.error, arrived(intake)) == (None, ["toy.other"])


def test_what_was_left_out_is_sent_once_it_can_be(toy: Toy, intake: Intake, tmp_path: Path) -> None:
    toy.environ |= {"DD_APP_KEY": APP_KEY, "FLEETGAUGE_CHECKPOINTS": str(tmp_path)}
    intake.historical.add("toy.other")
    items: list[Sample | Mark] = [OTHER(2, NOW - 7200), VALUE(1, NOW - 7200)]
    items += [Mark({"line": 1}), VALUE(3, NOW - 7100)]

    def interrupted() -> Items:
        yield from items[:3]
        if intake.points:
            raise SourceError("gone")

    asked = Backfill(NOW - 10_800, NOW, (), only_enabled=True)
    toy.answers(lambda _: iter(()), backfill=lambda *_: interrupted)
    toy.run(Mode.PUSH, backfill=asked, step=60)
    assert arrived(intake) == ["toy.other"]
    intake.historical.add("toy.value")
    toy.answers(lambda _: iter(()), backfill=lambda *_: lambda: iter(items))
    outcome = toy.run(Mode.PUSH, backfill=asked, step=60)
    assert (outcome.points_sent, arrived(intake)) == (3, ["toy.other", "toy.value"])


@pytest.mark.parametrize(
    ("kept", "said"),
    [(False, "starts again, doubling nothing (with"), (True, "resumes from here, within a day")],
)
def test_what_was_not_sent_is_told_with_what_the_same_command_does(
    toy: Toy, intake: Intake, tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: bool, said: str
) -> None:
    intake.faults.add(Fault(status=400))
    past(toy, VALUE(1, NOW - 60))
    environ = {"FLEETGAUGE_CHECKPOINTS": str(tmp_path)} if kept else {}
    outcome = toy.run(Mode.PUSH, backfill=Backfill(NOW - 900, NOW, ()), step=60, environ=environ)
    assert outcome.status is Status.FAILED
    assert f"not everything was sent; the same command {said}" in capsys.readouterr().err


def test_a_backfill_keeps_its_name_from_version_to_version(toy: Toy, tmp_path: Path) -> None:
    environ = {"FLEETGAUGE_CHECKPOINTS": str(tmp_path), "FLEETGAUGE_DD_URL": "http://127.0.0.1:9"}
    past(toy, resumes=True, settings=NewerSettings)
    asked = Backfill(NOW - 900, NOW, ("--since", "15m"))
    names: list[str] = []
    for more in ({}, {"FLEETGAUGE_NODE_LOCAL": "1", "FLEETGAUGE_NODE_NAME": "node-7"}):
        assert toy.run(Mode.PUSH, backfill=asked, step=60, environ={**environ, **more}).error is None
        names += sorted({path.name.partition(".")[0] for path in tmp_path.iterdir()} - {*names})
    assert names == ["backfill-toy-627215f3de5d", "backfill-toy-9e7500fd6b2e"]


def test_a_check_tells_how_much_it_has_looked_at(toy: Toy) -> None:
    found = ["fine", SourceError("gone"), "good"]
    toy.answers(lambda _: iter(()), check=lambda _: iter(found))
    outcome = InspectionRun(Job("toy", Mode.CHECK, NOW, 60), toy.environ, toy.parent).run()
    assert toy.parent.told == [("checking", number, None) for number in (1, 2, 3)]
    assert outcome.findings == ["fine", "good"]
    assert outcome.error is not None
    assert outcome.error.message == "gone"
