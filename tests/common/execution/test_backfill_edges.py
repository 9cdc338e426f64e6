"""A backfill at its edges: its step, its ticks, its keys, its questions, its name and its memory."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.errors import SourceError
from common.execution import backfill
from common.execution.backfill import BackfillRun
from common.job import Backfill, Job, Mode
from common.metric import Mark, Sample
from common.outcome import Status
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.standins import APP_KEY, NOW
from support.toy_runs import OTHER, VALUE, Items, NewerSettings, Toy, ToySettings


@pytest.fixture
def intake(toy: Toy) -> Intake:
    return toy.intake


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
