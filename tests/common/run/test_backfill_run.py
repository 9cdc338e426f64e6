"""A backfill: its windows, what it asks before it sends, and the command that continues it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from common.collector import Context
from common.errors import SourceError
from common.metric import Series
from common.options import Backfill
from common.outcome import Outcome, Status
from common.run import backfill
from common.times import iso
from common.window import Window
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.standins import APP_KEY, NOW
from support.toy_runs import OTHER, TOTAL, VALUE, Person, Toy

HOUR = 3600
SERIES = "/api/v2/series"
Collect = Callable[[Context[Any]], Iterator[Series]]


@pytest.fixture
def intake(toy: Toy) -> Intake:
    return toy.intake


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
    return Backfill(NOW - int(hours * HOUR), NOW, ("--since", f"{hours}h"), **options)


def push(toy: Toy, asked: Backfill, **options: Any) -> Outcome:
    return toy.push(**{"backfill": asked, "step": 60, "timeout": 600, **options})


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
        assert (outcome.status, outcome.counts.points_sent) == (Status.OK, 150)
        assert toy.seconds() == [*range(NOW - 9000, NOW, 60)]
        assert [*toy.store.iterdir()] == [], "a backfill has no state"
        assert not [name for name in toy.intake.names() if name.startswith("collector.")]

    def test_without_a_width_the_span_is_one_window(self, toy: Toy) -> None:
        past(toy, VALUE.series((NOW - 120, NOW - 60), (1, 2)))
        assert push(toy, span(0.5)).counts.points_sent == 2
        assert len(toy.intake.requests) == 1

    def test_slices_add_up_to_the_span(self, toy: Toy) -> None:
        hourly(toy)
        for part in range(3):
            assert push(toy, replace(span(5), part=part, parts=3)).status is Status.OK
        assert toy.seconds() == [*range(NOW - 5 * HOUR, NOW, 60)]
        assert len(toy.intake.write_log) == len(toy.intake.points)

    def test_what_only_the_present_shows_is_left_out(self, toy: Toy) -> None:
        past(toy, VALUE(1, NOW - 60), OTHER(1, NOW - 60), live_only=frozenset({OTHER}))
        assert (push(toy, span(0.5)).counts.points_sent, toy.intake.names()) == (1, ["toy.value"])

    def test_a_dry_run_asks_nobody_and_shows_every_window(self, toy: Toy) -> None:
        hourly(toy)
        outcome = toy.run(backfill=span(3), step=60)
        assert (outcome.status, outcome.counts.samples, toy.intake.requests) == (Status.OK, 180, [])
        parts = [*toy.points["toy"]]
        assert [second for part in parts for second in part.times] == [*range(NOW - 3 * HOUR, NOW, 60)]

    def test_a_name_that_was_respelt_is_one_series(self, toy: Toy) -> None:
        past(toy, VALUE(1, NOW - 60, kind="A"), VALUE(2, NOW - 30, kind="a"))
        outcome = push(toy, span(0.5))
        assert (outcome.counts.points_sent, outcome.counts.dropped) == (2, {})

    def test_points_before_the_span_are_dropped(self, toy: Toy) -> None:
        past(toy, VALUE.series((NOW - 901, NOW - 900), (1, 2)))
        outcome = push(toy, span(0.25))
        assert (outcome.counts.points_sent, outcome.counts.dropped) == (1, {"too_old": 1})

    def test_progress_is_the_window_that_is_being_sent(self, toy: Toy) -> None:
        hourly(toy)
        push(toy, span(2))
        sent = [(doing, done) for doing, done, _ in toy.person.progressed if doing.startswith("sending")]
        assert sent == [
            (f"sending {Window(NOW - 2 * HOUR, NOW - HOUR, 60)}", 0),
            (f"sending {Window(NOW - HOUR, NOW, 60)}", 60),
        ]


class TestRefused:
    def test_a_collector_without_history_is_not_configured_for_it(self, toy: Toy) -> None:
        toy.answers(lambda _: iter(()))
        outcome = push(toy, span(1))
        assert outcome.error is not None
        assert outcome.error.type == "NoBackfillError"
        assert push(toy, span(1), named=False).status is Status.SKIPPED

    def test_a_span_without_a_tick(self, toy: Toy) -> None:
        past(toy)
        since = NOW // 900 * 900 + 1
        outcome = toy.run(backfill=Backfill(since, since + 60, ()), step=900)
        assert outcome.error is not None
        assert outcome.error.configuration
        assert "shorter than the step of 15m: lower --step, or widen --since" in outcome.error.message
        hourly(toy)
        assert toy.run(backfill=Backfill(since, since + 60, ()), step=900).status is Status.OK

    def test_more_ticks_than_can_be_computed(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backfill, "MAX_TICKS", 15)
        past(toy, VALUE(1, NOW - 60))
        assert toy.run(backfill=span(0.25), step=60).status is Status.OK
        outcome = toy.run(backfill=Backfill(NOW - 960, NOW, ()), step=60)
        assert outcome.error is not None
        assert "has 16 steps of 60 s, more than 15: widen --step" in outcome.error.message

    def test_more_series_than_the_cap(self, toy: Toy) -> None:
        past(toy, *(VALUE(1, NOW - 60, kind=f"k{n}") for n in range(3)))
        outcome = push(toy, span(0.25), environ={"FLEETGAUGE_SERIES_CAP": "2"})
        assert outcome.error is not None
        assert "more than 2 series (FLEETGAUGE_SERIES_CAP)" in outcome.error.message
        assert (outcome.error.configuration, toy.intake.requests) == (True, [])

    def test_only_what_precedes_the_last_hour_needs_an_application_key(self, toy: Toy) -> None:
        past(toy, VALUE(1, NOW - 60))
        assert push(toy, span(1)).status is Status.OK
        outcome = push(toy, Backfill(NOW - 3601, NOW, ()))
        assert outcome.error is not None
        assert "DD_APP_KEY is not set" in outcome.error.message

    def test_a_wrong_clock_where_an_exact_one_is_needed(self, toy: Toy) -> None:
        hourly(toy)
        outcome = push(toy, span(3), ahead=100)
        assert (outcome.status, outcome.counts.points_sent) == (Status.FAILED, 60)
        assert "clock is +100 s off" in str(outcome.error)


class TestAgreeing:
    def test_a_person_is_asked_once_with_an_estimate(self, toy: Toy) -> None:
        hourly(toy)
        outcome = push(toy, span(3, confirm=True))
        [question] = toy.person.asked
        when = f"{iso(NOW - 3 * HOUR)} to {iso(NOW)}"
        first, *more = question.split("\n  ")
        assert first == f"about 180 points, {when}, 3 windows; visible within an hour"
        assert len(more) == 1, "files that were deleted since would lower sums"
        assert outcome.counts.points_sent == 180

    def test_a_person_may_decline(self, toy: Toy) -> None:
        past(toy, VALUE.series((NOW - 120, NOW - 60), (1, 1)))
        toy.person.answer = False
        outcome = push(toy, span(0.25, confirm=True))
        when = f"{iso(NOW - 900)} to {iso(NOW)}"
        assert toy.person.asked == [f"about 2 points, {when}, 15 ticks; visible at once"]
        assert (outcome.status, outcome.counts.points_sent, toy.intake.requests) == (Status.SKIPPED, 0, [])

    def test_nobody_is_asked_about_nothing(self, toy: Toy) -> None:
        past(toy)
        for asked in (span(0.25, confirm=True), span(0.25, confirm=True, enable=True)):
            assert push(toy, asked).status is Status.EMPTY
        assert toy.person.asked == []

    def test_without_a_person_it_is_logged(self, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
        past(toy, VALUE(1, NOW - 60))
        assert push(toy, span(0.25)).counts.points_sent == 1
        assert "about 1 points, " in capsys.readouterr().err

    @pytest.mark.parametrize("seconds", [90, 3000])
    def test_points_that_become_too_old_while_a_person_thinks_are_not_sent(
        self, toy: Toy, intake: Intake, seconds: int
    ) -> None:
        class Slow(Person):
            def agree(self, text: str) -> bool:
                toy.now += seconds
                return super().agree(text)

        toy.person = Slow()
        past(toy, VALUE(1, NOW - HOUR + 121))
        outcome = push(toy, span(1, confirm=True))
        assert (outcome.status is Status.FAILED) == (seconds > 90)
        assert (len(intake.points), intake.dropped) == (int(seconds == 90), 0)
        if outcome.error:
            assert "points became older than an hour before they were sent" in outcome.error.message


class TestHistoricalIngestion:
    """Datadog drops old points of a metric silently, unless that was turned on for it."""

    def live_first(self, toy: Toy) -> None:
        """Have Datadog know all metrics."""
        toy.environ["DD_APP_KEY"] = APP_KEY
        toy.answers(lambda _: iter([VALUE(1, NOW), OTHER(1, NOW)]))
        assert toy.push().counts.points_sent == 2

    def arrived(self, toy: Toy) -> list[str]:
        """Name the metrics that have a point of two hours ago."""
        return sorted(key.metric for key in toy.intake.points if key.second == NOW - 2 * HOUR)

    @pytest.mark.parametrize(
        ("options", "line", "sent"),
        [
            (
                {"only_enabled": True},
                "Historical Metrics Ingestion is off, so that these are left out: 1 metrics",
                ["toy.other"],
            ),
            (
                {"enable": True},
                "Historical Metrics Ingestion will be turned on for 1 metrics",
                ["toy.other", "toy.value"],
            ),
        ],
    )
    def test_a_metric_that_is_off_is_left_out_or_turned_on(
        self, toy: Toy, intake: Intake, options: dict[str, Any], line: str, sent: list[str]
    ) -> None:
        self.live_first(toy)
        intake.historical.add("toy.other")
        past(toy, VALUE(1, NOW - 2 * HOUR), OTHER(2, NOW - 2 * HOUR))
        outcome = push(toy, span(3, confirm=True, **options))
        [question] = toy.person.asked
        assert question.split("\n  ")[1:] == [line, "toy.value"]
        assert (self.arrived(toy), outcome.counts.points_sent, outcome.error) == (sent, len(sent), None)
        assert intake.dropped == 0

    def test_otherwise_nothing_is_sent_and_the_command_is_named(self, toy: Toy, intake: Intake) -> None:
        self.live_first(toy)
        intake.historical.add("toy.other")
        past(toy, VALUE(1, NOW - 2 * HOUR), OTHER(2, NOW - 2 * HOUR))
        outcome = push(toy, span(3, confirm=True))
        assert (toy.person.asked, self.arrived(toy)) == ([], [])
        assert outcome.error is not None
        assert (outcome.error.details, outcome.error.configuration) == (["toy.value"], True)
        command = "run_collector.py toy --since 3h --push --enable-historical --yes"
        assert outcome.error.message.endswith(command)

    def test_where_all_are_left_out_it_is_an_error(self, toy: Toy) -> None:
        self.live_first(toy)
        past(toy, VALUE(1, NOW - 2 * HOUR))
        outcome = push(toy, span(3, only_enabled=True, confirm=True))
        assert outcome.error is not None
        assert outcome.error.message.startswith("Historical Metrics Ingestion is off for all metrics")
        assert (toy.person.asked, self.arrived(toy)) == ([], [])

    def test_a_metric_that_cannot_be_turned_on_is_named_with_its_reason(
        self, toy: Toy, intake: Intake
    ) -> None:
        self.live_first(toy)
        intake.tag_configured.add("toy.value")
        past(toy, VALUE(1, NOW - 2 * HOUR), OTHER(2, NOW - 2 * HOUR))
        outcome = push(toy, span(3, enable=True))
        assert outcome.error is not None
        [detail] = outcome.error.details
        assert detail.startswith("toy.value: it has a tag configuration")
        assert self.arrived(toy) == []
        outcome = push(toy, span(3, enable=True, only_enabled=True))
        assert (outcome.error, self.arrived(toy)) == (None, ["toy.other"])

    def test_points_of_the_last_hour_need_no_ingestion(self, toy: Toy, intake: Intake) -> None:
        """Of a span that begins earlier, the newest windows are taken by the intake as they are."""
        hourly(toy, lambda context: iter([VALUE(1, NOW - 60)] if context.window.until == NOW else []))
        intake.historical.clear()
        assert push(toy, span(3)).counts.points_sent == 1

    def later(self, toy: Toy) -> Collect:
        """Yield one metric in every window, and another from the second one on."""

        def collect(context: Context[Any]) -> Iterator[Series]:
            since = context.window.since
            yield OTHER(1, since)
            if since > NOW - 4 * HOUR:
                yield VALUE(2, since)

        return collect

    def test_a_name_that_appears_in_a_later_window_is_checked_there(self, toy: Toy, intake: Intake) -> None:
        hourly(toy, self.later(toy))
        assert push(toy, span(4, confirm=True)).counts.points_sent == 7
        assert len(toy.person.asked) == 1
        checked = [one.path.rpartition("/")[2] for one in intake.requests if "historical" in one.path]
        assert checked == ["toy.other", "toy.value"], "each name once"

    def test_where_it_is_off_there_the_rest_is_not_sent(
        self, toy: Toy, intake: Intake, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hourly(toy, self.later(toy))
        intake.historical.remove("toy.value")
        outcome = push(toy, span(4))
        assert (outcome.status, outcome.counts.points_sent, intake.dropped) == (Status.FAILED, 1, 0)
        assert outcome.error is not None
        assert outcome.error.details == ["toy.value"]
        assert f"--since {iso(NOW - 3 * HOUR)} --until {iso(NOW)}" in capsys.readouterr().err

    def test_where_it_is_off_there_it_can_be_left_out(self, toy: Toy, intake: Intake) -> None:
        hourly(toy, self.later(toy))
        intake.historical.remove("toy.value")
        outcome = push(toy, span(4, only_enabled=True))
        assert (outcome.error, outcome.counts.points_sent, intake.names()) == (None, 4, ["toy.other"])

    def test_where_it_is_off_there_it_can_be_turned_on(self, toy: Toy, intake: Intake) -> None:
        self.live_first(toy)
        hourly(toy, self.later(toy))
        intake.historical.remove("toy.value")
        outcome = push(toy, span(4, enable=True))
        assert (outcome.error, outcome.counts.points_sent, intake.dropped) == (None, 7, 0)


class TestContinuing:
    """A backfill that ends early logs the command that sends the rest; its points end as if it had not."""

    def complete(self, toy: Toy) -> bool:
        return toy.seconds() == [*range(NOW - 4 * HOUR, NOW, 60)]

    def continued(self, toy: Toy, capsys: pytest.CaptureFixture[str]) -> int:
        """Return where the command begins that was logged."""
        [line] = [line for line in capsys.readouterr().err.splitlines() if "to continue: " in line]
        words = line.split()
        assert words[words.index("--until") + 1] == iso(NOW)
        assert words[words.index("--step") + 1] == "1m"
        [since] = [at for at in range(NOW - 4 * HOUR, NOW, HOUR) if iso(at) in words]
        return since

    @pytest.mark.parametrize("error", [SourceError("gone"), KeyError("x")])
    def test_a_collector_that_fails_on_the_way(
        self, toy: Toy, capsys: pytest.CaptureFixture[str], error: BaseException
    ) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            if context.window.since == NOW - 2 * HOUR:
                raise error
            yield from each_minute(context)

        hourly(toy, collect)
        outcome = push(toy, span(4))
        assert (outcome.status, outcome.counts.points_sent) == (Status.FAILED, 120)
        since = self.continued(toy, capsys)
        assert since == NOW - 2 * HOUR
        hourly(toy)
        assert push(toy, Backfill(since, NOW, ())).status is Status.OK
        assert self.complete(toy)
        assert len(toy.intake.write_log) == len(toy.intake.points)

    @pytest.mark.parametrize("applied", [False, True])
    def test_an_intake_that_refuses_on_the_way(
        self, toy: Toy, capsys: pytest.CaptureFixture[str], applied: bool
    ) -> None:
        hourly(toy)
        toy.intake.faults.add(Fault(), times=3, match=SERIES)
        toy.intake.faults.add(Fault(status=403, applied=applied), match=SERIES)
        outcome = push(toy, span(4, only_enabled=True))
        assert (outcome.status, outcome.counts.points_sent) == (Status.FAILED, 180)
        err = capsys.readouterr().err
        assert "--only-enabled --push --yes" in err
        assert f"--since {iso(NOW - HOUR)} " in err
        assert push(toy, Backfill(NOW - HOUR, NOW, ())).status is Status.OK
        assert self.complete(toy)
        assert all(write.replaced in (None, write.value) for write in toy.intake.write_log)

    def test_a_slice_continues_without_being_one(self, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
        hourly(toy)
        toy.intake.faults.add(Fault(), match=SERIES)
        toy.intake.faults.add(Fault(status=400), match=SERIES)
        push(toy, replace(span(4, enable=True), part=0, parts=2))
        err = capsys.readouterr().err
        options = f"--since {iso(NOW - 3 * HOUR)} --until {iso(NOW - 2 * HOUR)} --step 1m"
        assert f"to continue: run_collector.py toy {options} --enable-historical --push --yes" in err

    def test_where_nothing_was_sent_there_is_nothing_to_continue(
        self, toy: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            if context.window.seconds:
                raise SourceError("gone")
            yield VALUE(1, context.now)

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
        assert outcome.counts.points_sent == 66 + 43, "what waited when it failed was not sent"
        assert f"--since {iso(NOW - HOUR)} " in capsys.readouterr().err


def test_the_estimate_of_a_window_that_is_sent_in_parts_is_of_the_span(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_BATCH_POINTS", 30)
    hourly(
        toy, lambda context: (VALUE(1, at) for at in range(context.window.since, context.window.until, 60))
    )
    push(toy, span(2, confirm=True))
    [question] = toy.person.asked
    points = int(question.split()[1])
    assert points == pytest.approx(120, rel=0.1)
    assert toy.seconds() == [*range(NOW - 2 * HOUR, NOW, 60)]
