"""A backfill: its windows, what it asks before it sends, and the command that continues it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from common import signals
from common.collector import Context
from common.errors import SourceError
from common.metric import Series
from common.options import Backfill, Mode, Options
from common.outcome import Outcome, Status
from common.run import backfill
from common.run.run import run
from common.shards import Shard
from common.times import iso
from common.window import Window
from support.servers.faults import Fault
from support.standins import APP_KEY, NOW
from support.toy_runs import OTHER, TOTAL, VALUE, Toy, ToySettings

HOUR = 3600
SERIES = "/api/v2/series"
Collect = Callable[[Context[Any]], Iterator[Series]]


def past(toy: Toy, *series: Series, **options: Any) -> None:
    toy.answers(lambda _: iter(series), has_history=True, **options)


def each_minute(context: Context[Any]) -> Iterator[Series]:
    """Answer for each minute of the window, as a collector over records does for its seconds."""
    window = context.window
    minutes = range(-(-window.since // 60) * 60, window.until, 60)
    if minutes:
        yield VALUE.series(minutes, [at // 60 % 100 for at in minutes])


def hourly(toy: Toy, collect: Collect = each_minute, **options: Any) -> None:
    """A toy whose backfills are cut by the hour, of metrics that Datadog takes the past of."""
    toy.environ["DD_APP_KEY"] = APP_KEY
    toy.intake.historical |= {"toy.value", "toy.other", "toy.total"}
    toy.answers(collect, has_history=True, adds_up=True, **options)


def span(hours: float, **options: Any) -> Backfill:
    return Backfill(NOW - int(hours * HOUR), NOW, **options)


def push(toy: Toy, asked: Backfill, **options: Any) -> Outcome:
    return toy.push(**{"backfill": asked, "step": 60, "timeout": 600, **options})


def refused(outcome: Outcome, text: str) -> bool:
    """Return whether a person must correct the configuration, for a reason with this text."""
    error, is_failed = outcome.error, outcome.status is Status.FAILED
    return is_failed and error is not None and error.configuration and text in error.message


class TestWindows:
    def test_windows_come_oldest_first_with_one_memory(self, toy: Toy) -> None:
        seen: list[tuple[Window, dict[str, object], int]] = []

        def collect(context: Context[Any]) -> Iterator[Series]:
            seen.append((context.window, dict(context.memory), context.now))
            context.memory[str(len(seen))] = True
            yield from each_minute(context)

        hourly(toy, collect)
        toy.keep_state()
        outcome = push(toy, span(2.5))
        edges = [NOW - 9000, NOW - 7200, NOW - 3600, NOW]
        assert [(one.since, one.until, one.is_live) for one, _, _ in seen] == [
            (since, until, False) for since, until in pairwise(edges)
        ]
        assert [memory for _, memory, _ in seen] == [{}, {"1": True}, {"1": True, "2": True}]
        assert {now for _, _, now in seen} == {NOW}
        assert (outcome.status, outcome.report.points_sent) == (Status.OK, 150)
        assert toy.seconds() == [*range(NOW - 9000, NOW, 60)]
        assert [*toy.store.iterdir()] == [], "a backfill has no state"
        assert not [name for name in toy.intake.names() if name.startswith("collector.")]
        progress = [(doing, done) for doing, done, _ in toy.person.progressed if "sending" in doing]
        assert progress == [(f"sending {one}", at) for (one, _, _), at in zip(seen, (0, 30, 90), strict=True)]

    def test_the_first_bucket_may_begin_before_the_span(
        self, toy: Toy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ToySettings, "width", 60)

        def each_bucket(context: Context[Any]) -> Iterator[Series]:
            since, until = (second // 60 * 60 for second in (context.window.since, context.window.until))
            yield VALUE.series(range(since - 60, until, 60), [1] * ((until - since) // 60 + 1))

        hourly(toy, each_bucket)
        asked = Backfill(NOW - HOUR + 97, NOW - 23)
        for outcome in (toy.run(backfill=asked, step=60), push(toy, asked)):
            assert outcome.report.dropped == {"too_old": 1}, "what precedes that bucket"
        assert toy.seconds() == [*range(NOW - HOUR + 60, NOW - 60, 60)]

    def test_slices_add_up_to_the_span(self, toy: Toy) -> None:
        hourly(toy)
        for part in range(3):
            assert push(toy, replace(span(5), part=part, parts=3)).status is Status.OK
        assert toy.seconds() == [*range(NOW - 5 * HOUR, NOW, 60)]
        assert len(toy.intake.write_log) == len(toy.intake.points)

    def test_a_span_without_windows_is_collected_at_once_and_sent_as_stored(self, toy: Toy) -> None:
        early = VALUE.series((NOW - 901, NOW - 900), (1, 2))
        past(toy, early, VALUE(1, NOW - 60, kind="A"), VALUE(2, NOW - 30, kind="A"))
        outcome = push(toy, span(0.25))
        assert (outcome.report.points_sent, outcome.report.dropped) == (3, {"too_old": 1})
        assert len(toy.intake.requests) == 1
        assert len(toy.intake.series("toy.value")) == 2, "parts of one series are sent as one"


class TestRefused:
    def test_a_collector_without_history_is_not_configured_for_it(self, toy: Toy) -> None:
        toy.answers(lambda _: iter(()))
        assert refused(push(toy, span(1)), "toy cannot answer for the past")
        assert push(toy, span(1), named=False).status is Status.SKIPPED

    def test_what_only_the_present_shows_is_a_defect_of_its_collector(self, toy: Toy) -> None:
        past(toy, VALUE(1, NOW - 60), OTHER(1, NOW - 60), live_only=frozenset({OTHER}))
        outcome = push(toy, span(0.5))
        assert (outcome.status, outcome.report.points_sent) == (Status.FAILED, 0)
        assert "toy yielded toy.other, which it does not declare" in str(outcome.error)

    @pytest.mark.parametrize(("seconds", "ticks"), [(59, 0), (60, 1), (900, 15), (960, 16)])
    def test_a_span_of_no_tick_or_too_many(
        self, toy: Toy, monkeypatch: pytest.MonkeyPatch, seconds: int, ticks: int
    ) -> None:
        monkeypatch.setattr(backfill, "MAX_TICKS", 15)
        since = NOW // 60 * 60
        asked = Backfill(since, since + seconds)
        past(toy, VALUE(1, since + 60))
        outcome = toy.run(backfill=asked, step=60)
        assert refused(outcome, f"has {ticks} ticks at a step of 1m, and not 1 to 15") == (ticks in {0, 16})
        assert toy.run(backfill=replace(asked, parts=2), step=60).error is None or ticks == 0
        hourly(toy)
        assert toy.run(backfill=Backfill(since, since + 59), step=60).status is Status.OK

    def test_series_beyond_the_cap_make_it_partial(self, toy: Toy) -> None:
        past(toy, *(VALUE(1, NOW - 60, kind=f"k{n}") for n in range(3)))
        outcome = push(toy, span(0.25), environ={"FLEETGAUGE_SERIES_CAP": "2"})
        assert (outcome.status, outcome.report.lost_by_reason) == (Status.PARTIAL, {"series_cap": 1})
        assert (outcome.report.points_sent, outcome.report.dropped) == (2, {"series_cap": 1})

    @pytest.mark.parametrize(("age", "needs_key"), [(3450, False), (3451, True)])
    def test_what_can_be_sent_within_its_hour_needs_no_application_key(
        self, toy: Toy, age: int, needs_key: bool
    ) -> None:
        seconds: list[float] = []

        def collect(context: Context[Any]) -> Iterator[Series]:
            seconds.append(context.deadline.seconds)
            yield VALUE(1, NOW - 60)

        toy.answers(collect, has_history=True)
        outcome = push(toy, Backfill(NOW - age, NOW))
        assert refused(outcome, "DD_APP_KEY is not set") is needs_key
        latest = 3600 - 3450 - 30 - 10
        assert [latest - 9 < each <= latest for each in seconds] == ([] if needs_key else [True])
        assert [one.path for one in toy.intake.requests] == ([] if needs_key else [SERIES])


class TestAgreeing:
    def test_a_person_is_asked_once_with_an_estimate(self, toy: Toy) -> None:
        hourly(toy)
        outcome = push(toy, span(3, confirm=True))
        [question] = toy.person.asked
        first, *more = question.split("\n  ")
        when = f"{iso(NOW - 3 * HOUR)} to {iso(NOW)}"
        assert first == f"about 180 points, {when}, 180 ticks; visible within an hour"
        assert len(more) == 1, "files that were deleted since would lower sums"
        assert outcome.report.points_sent == 180

    def test_nothing_is_sent_where_nobody_can_agree(self, toy: Toy) -> None:
        hourly(toy)
        options = Options(Mode.PUSH, timeout=600, step=60, backfill=span(3, confirm=True))
        outcome = run("toy", options, toy.environ, clock=lambda: toy.now)
        assert (outcome.report.points_sent, toy.intake.points) == (0, {})

    def test_nobody_is_asked_about_nothing(self, toy: Toy) -> None:
        past(toy)
        for asked in (span(0.25, confirm=True), span(0.25, confirm=True, enable=True)):
            assert push(toy, asked).status is Status.EMPTY
        assert toy.person.asked == []

    def test_estimate_of_a_window_that_is_sent_in_parts_is_of_the_span(
        self, toy: Toy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backfill, "MAX_BATCH_POINTS", 30)
        hourly(
            toy,
            lambda context: (VALUE(1, at) for at in range(context.window.since, context.window.until, 60)),
        )
        push(toy, span(2, confirm=True))
        [question] = toy.person.asked
        assert int(question.split()[1]) == pytest.approx(120, rel=0.1)
        assert toy.seconds() == [*range(NOW - 2 * HOUR, NOW, 60)]


def _later(context: Context[Any]) -> Iterator[Series]:
    """Yield one metric in every window, and another from the second one on."""
    since = context.window.since
    yield OTHER(1, since)
    if since > NOW - 4 * HOUR:
        yield VALUE(2, since)


class TestHistoricalIngestion:
    """Datadog drops old points of a metric silently, unless that was turned on for it."""

    @pytest.fixture(autouse=True)
    def live_first(self, toy: Toy) -> None:
        """Have Datadog know both metrics, and take the past of one."""
        toy.environ["DD_APP_KEY"] = APP_KEY
        toy.answers(lambda _: iter([VALUE(1, NOW), OTHER(1, NOW)]))
        assert toy.push().report.points_sent == 2
        toy.intake.historical.add("toy.other")

    def arrived(self, toy: Toy) -> list[str]:
        """Name the metrics of points older than an hour, as often as there are some."""
        assert toy.intake.dropped == 0
        return sorted(key.metric for key in toy.intake.points if key.second < NOW - HOUR)

    @pytest.mark.parametrize("can_be_turned_on", [True, False])
    @pytest.mark.parametrize("enable", [True, False])
    @pytest.mark.parametrize("only_enabled", [True, False])
    def test_a_metric_that_is_off_is_left_out_or_turned_on_or_an_error(
        self, toy: Toy, can_be_turned_on: bool, enable: bool, only_enabled: bool
    ) -> None:
        if not can_be_turned_on:
            toy.intake.tag_configured.add("toy.value")
        past(toy, VALUE(1, NOW - 2 * HOUR), OTHER(2, NOW - 2 * HOUR))
        outcome = push(toy, span(3, confirm=True, enable=enable, only_enabled=only_enabled))
        questions = [question.split("\n  ")[1:] for question in toy.person.asked]
        if enable:
            line = "Historical Metrics Ingestion will be turned on for 1 metrics"
            assert questions == [[line, "toy.value"]]
        elif only_enabled:
            line = "Historical Metrics Ingestion is off, so that these are left out: 1 metrics"
            assert questions == [[line, "toy.value"]]
        else:
            assert questions == []
        assert ("toy.value" in toy.intake.historical) == (enable and can_be_turned_on)
        if enable and can_be_turned_on:
            assert (outcome.error, self.arrived(toy)) == (None, ["toy.other", "toy.value"])
        elif only_enabled:
            assert (outcome.error, self.arrived(toy)) == (None, ["toy.other"])
        else:
            assert outcome.error is not None
            [detail] = outcome.error.details
            assert detail.startswith("toy.value: it has a tag configuration" if enable else "toy.value")
            times = f"--since {iso(NOW - 3 * HOUR)} --until {iso(NOW)} --step 1m"
            command = f"run_collector.py toy {times} --enable-historical --push --yes"
            assert refused(outcome, "--only-enabled leaves these out" if enable else command)
            assert self.arrived(toy) == []

    def test_where_all_are_left_out_it_is_an_error(self, toy: Toy) -> None:
        past(toy, VALUE(1, NOW - 2 * HOUR))
        outcome = push(toy, span(3, only_enabled=True, confirm=True))
        assert refused(outcome, "Historical Metrics Ingestion is off for all metrics")
        assert (toy.person.asked, self.arrived(toy)) == ([], [])

    @pytest.mark.parametrize(
        ("options", "value", "other"), [({}, 0, 1), ({"only_enabled": True}, 0, 3), ({"enable": True}, 2, 3)]
    )
    def test_a_name_that_appears_in_a_later_window_is_checked_there(
        self,
        toy: Toy,
        capsys: pytest.CaptureFixture[str],
        options: dict[str, bool],
        value: int,
        other: int,
    ) -> None:
        toy.answers(_later, has_history=True, adds_up=True)
        toy.intake.requests.clear()
        outcome = push(toy, span(4, confirm=True, **options))
        assert self.arrived(toy) == ["toy.other"] * other + ["toy.value"] * value
        read = [one.path for one in toy.intake.requests if "historical" in one.path and one.method == "GET"]
        assert [path.rpartition("/")[2] for path in read] == ["toy.other", "toy.value"], "each name once"
        assert len(toy.person.asked) == 1
        assert (outcome.error is None) is bool(options)
        assert (f"--since {iso(NOW - 3 * HOUR)} --until" in capsys.readouterr().err) is not bool(options)


class TestContinuing:
    """A backfill that ends early logs the command that sends the rest; its points end as if it had not."""

    def continued(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        """Return the arguments of the command that was logged."""
        [command] = re.findall(r'to continue: ([^"]*)"', capsys.readouterr().err)
        return shlex.split(command)

    def command(self, since: int, until: int, *options: str) -> list[str]:
        times = ["--since", iso(since), "--until", iso(until), "--step", "1m"]
        return ["run_collector.py", "toy", *times, *options, "--push", "--yes"]

    @pytest.mark.parametrize("applied", [False, True])
    def test_an_intake_that_refuses_on_the_way(
        self, toy: Toy, capsys: pytest.CaptureFixture[str], applied: bool
    ) -> None:
        hourly(toy)
        toy.intake.faults.add(Fault(), times=3, match=SERIES)
        toy.intake.faults.add(Fault(status=403, applied=applied), match=SERIES)
        outcome = push(toy, span(4, only_enabled=True))
        assert (outcome.status, outcome.report.points_sent) == (Status.FAILED, 180)
        assert self.continued(capsys) == self.command(NOW - HOUR, NOW, "--only-enabled")
        assert push(toy, Backfill(NOW - HOUR, NOW)).status is Status.OK
        assert toy.seconds() == [*range(NOW - 4 * HOUR, NOW, 60)]
        assert all(write.replaced in (None, write.value) for write in toy.intake.write_log)

    def test_signal_prints_that_command_once_something_was_sent(self, toy: Toy) -> None:
        printed: list[str] = []

        def collect(context: Context[Any]) -> Iterator[Series]:
            printed.append(signals.advice)
            yield from each_minute(context)

        hourly(toy, collect)
        assert push(toy, span(3)).status is Status.OK
        commands = [self.command(NOW - hours * HOUR, NOW) for hours in (2, 1)]
        advice = [f"not everything was sent; to continue: {shlex.join(command)}" for command in commands]
        assert ([*printed, signals.advice]) == ["", *advice, ""]

    def test_a_slice_continues_without_being_one(
        self, toy: Toy, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        hourly(toy)
        toy.intake.faults.add(Fault(), match=SERIES)
        toy.intake.faults.add(Fault(status=400), match=SERIES)
        past = replace(span(4, enable=True), part=0, parts=2)
        config = tmp_path / "a b.toml"
        config.write_text("")
        push(toy, past, shard=Shard(1, 3), config=str(config))
        times = ["--since", iso(NOW - 3 * HOUR), "--until", iso(NOW - 2 * HOUR), "--step", "1m"]
        options = ["--enable-historical", "--push", "--shard", "1/3", "--yes", "--config", str(config)]
        assert self.continued(capsys) == ["run_collector.py", "toy", *times, *options]

    def test_where_nothing_was_sent_there_is_nothing_to_continue(
        self, toy: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            if context.window.since > NOW - 4 * HOUR:
                raise SourceError("gone")
            yield VALUE.series((), ())

        hourly(toy, collect)
        assert push(toy, span(4)).status is Status.FAILED
        assert "to continue" not in capsys.readouterr().err

    def test_a_window_of_many_points_is_sent_in_parts(
        self, toy: Toy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backfill, "MAX_BATCH_POINTS", 40)
        at_once: list[int] = []

        def collect(context: Context[Any]) -> Iterator[Series]:
            for minutes in range(context.window.since, context.window.until, 600):
                yield VALUE.series(range(minutes, minutes + 600, 60), [minutes // 60 % 100] * 10)
                yield TOTAL(1, minutes)
                at_once.append(len(toy.intake.payloads))
            if context.window.until == NOW:
                raise SourceError("gone")

        hourly(toy, collect)
        outcome = push(toy, span(2, confirm=True))
        assert len(toy.person.asked) == 1
        assert at_once == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], "some are sent while others are collected"
        assert outcome.report.points_sent == 66 + 43, "what waited when it failed was not sent"
        assert self.continued(capsys) == self.command(NOW - HOUR, NOW)
