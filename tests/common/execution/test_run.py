"""What a run tells its collector, its parent and whoever reads its outcome; the collector is of this file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.collector import Collector, Context
from common.config.settings import CollectorSettings, named
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


class Listening(Parent):
    """One that writes down how far a run said that it is."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []

    def progress(self, doing: str, done: int, total: int | None) -> None:
        self.told.append((doing, done, total))


class Toy:
    """A collector whose every answer a test gives, and runs of it."""

    def __init__(self, folder: Path, intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.samples = folder / "samples"
        self.environ = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        self.parent = Listening()
        self._patch = monkeypatch

    def answers(self, collect: Callable[[Context[Any]], Items], **options: Any) -> None:
        made = Collector("toy", ToySettings, (VALUE,), collect, lambda _: iter(()), **options)
        self._patch.setitem(sys.modules, "collectors.toy.collector", SimpleNamespace(COLLECTOR=made))

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


def test_a_dry_run_without_a_file_is_a_defect(toy: Toy) -> None:
    toy.answers(lambda _: iter(()))
    outcome = toy.run(samples_path=None)
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.configuration) == ("ValueError", False)
    assert outcome.error.message == "a dry run needs a file for its samples"


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
    assert toy.run(backfill=past, step=60).dropped == {}
    assert toy.run().dropped == {"tag_collision": 2}


def test_the_parent_is_told_at_every_mark_how_far_it_is(toy: Toy) -> None:
    items = [
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
