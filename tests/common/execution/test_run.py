"""What a run tells its collector, its parent and whoever reads its outcome; the collector is of this file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from common.collector import Collector, Context
from common.config.settings import CollectorSettings, named
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
from standins import NOW

VALUE = gauge("toy.value", "item", "A value.", "kind")
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
        self.parent = Listening()
        self._patch = monkeypatch

    def answers(
        self,
        collect: Callable[[Context[Any]], Items],
        settings: type[ToySettings] = ToySettings,
        **options: Any,
    ) -> None:
        made = Collector("toy", settings, (VALUE,), collect, lambda _: iter(()), **options)
        package, module = ModuleType("collectors.toy"), ModuleType("collectors.toy.collector")
        package.__path__, module.__dict__["COLLECTOR"] = [], made
        for one in (package, module):
            self._patch.setitem(sys.modules, one.__name__, one)

    def run(self, mode: Mode = Mode.DRY_RUN, environ: Mapping[str, str] | None = None, **job: Any) -> Outcome:
        path = str(self.samples) if mode is Mode.DRY_RUN else None
        asked = Job("toy", mode, **{"now": NOW, "timeout": 60, "samples_path": path, **job})
        kind = LiveRun if asked.backfill is None else BackfillRun
        given = {**self.environ, **(environ or {})}
        return kind(asked, given, self.parent, clock=lambda: NOW).run()

    def found(self) -> dict[str, float]:
        """The values of a dry run by their kind."""
        return {
            part.series.tags[0].removeprefix("kind:"): part.values[0] for part in DryRunFile(self.samples)
        }


@pytest.fixture
def intake() -> Iterator[Intake]:
    with Intake(key=KEY, clock=lambda: NOW) as server:
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
    assert toy.run(timeout=59.5).status is Status.OK
    assert toy.found() == {"sendable": 3600 - 60 - 30, "fills": 0, "remembers": 0, "time": 49.5}
    toy.run(timeout=40, environ={"FLEETGAUGE_CHECKPOINTS": str(tmp_path)})
    assert (toy.found()["remembers"], toy.found()["time"]) == (1, 32)
    toy.run(Mode.PUSH)
    assert intake.value("toy.value", tags=("kind:fills",)) == 1


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
    other = gauge("toy.other", "", "x")
    toy.answers(lambda _: iter([VALUE(1, NOW), other(1, NOW), VALUE(2, NOW)]))
    outcome = toy.run(Mode.PUSH)
    assert (outcome.status, outcome.samples, outcome.points_sent) == (Status.PARTIAL, 1, 1)
    assert outcome.error is not None
    assert outcome.error.message == "toy yielded toy.other, which it does not declare"
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
