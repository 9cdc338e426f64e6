"""A live run: its window, what it sends whatever happens, and what it leaves for the next one.

Missed, repeated and killed runs are in `test_ticks_model.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.collector import Context
from common.errors import SourceError
from common.metric import Series
from common.options import Backfill, Mode, Options
from common.outcome import Outcome, Status
from common.run import health
from common.run.run import report_failure
from common.run.session import Cache
from common.times import iso
from common.window import Window
from support.project import KEY
from support.servers.aws import Aws
from support.servers.faults import Fault
from support.standins import NOW
from support.toy_runs import OTHER, TOTAL, VALUE, Toy

STEP = 900
TICK = NOW // STEP * STEP
SERIES = "/api/v2/series"


def each_tick(context: Context[Any]) -> Iterator[Series]:
    """Answer for every tick of the window, and remember how many runs there were."""
    runs = context.memory.get("runs", 0)
    assert isinstance(runs, int)
    context.memory["runs"] = runs + 1
    ticks = context.window.ticks
    if ticks:
        yield VALUE.series(ticks, [at % 1000 for at in ticks])


def losing(*units: str) -> Any:
    """Return a collector that loses units, and answers for the ticks."""

    def collect(context: Context[Any]) -> Iterator[Series]:
        for unit in units:
            context.report.lose(unit, "gone")
        yield from each_tick(context)

    return collect


def older_library(_: Context[Any]) -> Iterator[Series]:
    raise ImportError("cannot import name")


@pytest.fixture
def ticking(toy: Toy) -> Toy:
    """A toy that answers for ticks, at one, with a store."""
    toy.now = TICK + 7
    toy.keep_state()
    toy.answers(each_tick, has_history=True)
    return toy


def reported(toy: Toy, name: str) -> float | None:
    return toy.intake.value(f"collector.{name}", ["collector:toy"])


def sent(toy: Toy) -> list[int]:
    """Return the seconds of all points that were sent, in order, also of those sent twice."""
    return [write.key.second for write in toy.intake.write_log if write.key.metric == "toy.value"]


class TestWindow:
    def test_without_a_store_a_run_answers_for_this_tick(self, toy: Toy) -> None:
        toy.answers(each_tick)
        for toy.now in (TICK + 7, TICK + 3 * STEP):
            assert toy.push().status is Status.OK
        assert toy.seconds() == [TICK, TICK + 3 * STEP]
        assert reported(toy, "gap_seconds") is None

    def test_a_tick_that_was_sent_is_not_sent_again(self, ticking: Toy) -> None:
        ticking.push()
        ticking.now += 60
        outcome = ticking.push()
        assert (outcome.status, outcome.report.points_sent, sent(ticking)) == (Status.EMPTY, 0, [TICK])
        assert reported(ticking, "up") == 1

    def test_a_longer_step_does_not_move_back_what_was_sent(self, ticking: Toy) -> None:
        ticking.now += 600
        for step in (60, STEP):
            ticking.push(step=step)
            assert ticking.document()["sent_until"] == TICK + 600

    def test_what_is_too_old_is_a_gap_with_the_command_that_sends_it(
        self, ticking: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ticking.push()
        ticking.now += 10 * STEP
        assert ticking.push().status is Status.OK
        assert ticking.seconds() == [TICK, *(TICK + n * STEP for n in range(7, 11))]
        assert reported(ticking, "gap_seconds") == 6 * STEP
        gap = f"--since {iso(TICK)} --until {iso(TICK + 6 * STEP)} --step 15m"
        assert f"run_collector.py toy {gap} --push --yes" in capsys.readouterr().err

    @pytest.mark.parametrize(("steps", "gap"), [(1, 0), (2, STEP), (8, 7 * STEP)])
    def test_what_can_only_be_measured_has_a_gap_of_all_that_was_missed(
        self, toy: Toy, capsys: pytest.CaptureFixture[str], steps: int, gap: int
    ) -> None:
        toy.keep_state()
        toy.answers(lambda context: iter([VALUE(1, context.now)]))
        toy.push()
        toy.now += steps * STEP
        toy.push()
        assert reported(toy, "gap_seconds") == gap
        assert ("it cannot be measured afterwards" in capsys.readouterr().err) is (gap > 0)

    def test_a_collector_may_have_another_window(self, toy: Toy) -> None:
        def due(_: object, now: int, step: int, sent_until: int | None, earliest: int) -> Window:
            return Window(earliest if sent_until is None else sent_until, now - 60, step, earliest)

        toy.keep_state()
        toy.answers(lambda context: iter([VALUE(1, context.window.since)]), due=due, has_history=True)
        for _ in range(2):
            assert toy.push(timeout=59.5).status is Status.OK
            toy.now += 10
        assert toy.seconds() == [NOW + 60 + 30 - 3600, NOW - 60]
        assert toy.document()["sent_until"] == NOW + 10 - 60


class TestContext:
    def test_a_run_gives_its_collector_its_window_time_and_deadline(self, toy: Toy) -> None:
        seen: list[Context[Any]] = []

        def collect(context: Context[Any]) -> Iterator[Series]:
            seen.append(context)
            yield VALUE(1, context.now)

        toy.answers(collect)
        toy.run(timeout=59.5, ahead=30)
        toy.push(timeout=20, every=900)
        dry, push = seen
        assert (dry.now, dry.window.until, dry.window.is_live) == (NOW + 30, TICK, True)
        assert dry.window.earliest == NOW + 30 + 60 + 30 - 3600
        assert (dry.stays, dry.memory, push.stays) == (False, {}, True)
        # Some of it has passed already. What is left to deliver is at most ten seconds, or a fifth.
        assert 40 < dry.deadline.seconds <= 49.5
        assert 11 < push.deadline.seconds <= 16

    def test_a_dry_run_reads_memory_ignores_sent_until_and_saves_nothing(self, ticking: Toy) -> None:
        ticking.push()
        before = ticking.document()
        ticking.now += 2 * STEP
        seen: list[object] = []

        def collect(context: Context[Any]) -> Iterator[Series]:
            seen.append(([*context.window.ticks], dict(context.memory)))
            context.memory["runs"] = 99
            yield VALUE(1, context.window.until)

        ticking.answers(collect)
        outcome = ticking.run()
        assert (outcome.status, outcome.as_of) == (Status.OK, TICK + 2 * STEP)
        assert seen == [([TICK + 2 * STEP], {"runs": 1})], "as if nothing was known of earlier ticks"
        assert ticking.document() == before


class TestFailing:
    """A run that fails sends nothing but its self-metrics, and the next one sends what it would have."""

    @pytest.mark.parametrize("error", [SourceError("gone"), KeyError("ours"), SystemExit(3)])
    def test_collector_that_fails_sends_nothing(self, ticking: Toy, error: BaseException) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            yield from each_tick(context)
            raise error

        ticking.push()
        before = ticking.document()
        ticking.answers(collect, has_history=True)
        ticking.now += STEP
        outcome = ticking.push()
        assert (outcome.status, outcome.report.points_sent, outcome.report.samples) == (Status.FAILED, 0, 1)
        assert outcome.error is not None
        assert outcome.error.type == type(error).__name__
        assert ticking.document() == before, "neither what was sent nor what was observed counts"
        assert (reported(ticking, "up"), reported(ticking, "last_success_age_seconds")) == (0, STEP)
        ticking.answers(each_tick, has_history=True)
        assert ticking.push().status is Status.OK
        assert sent(ticking) == [TICK, TICK + STEP]

    def test_run_past_its_deadline_fails_between_two_series(self, toy: Toy) -> None:
        toy.answers(lambda _: iter([VALUE(1, NOW)]))
        outcome = toy.push(timeout=1e-9)
        assert outcome.error is not None
        assert (outcome.status, outcome.error.type) == (Status.FAILED, "DeadlineExceededError")
        assert (reported(toy, "up"), toy.seconds()) == (0, []), "there is time to report that"

    @pytest.mark.parametrize("broken", ["settings", "import", "release"])
    def test_broken_collector_is_reported_as_down(self, toy: Toy, broken: str) -> None:
        if broken == "settings":
            toy.keep_state()
            toy.answers(lambda _: iter([VALUE(1, NOW)]))
            toy.push()
            toy.intake.points.clear()
            toy.now += 60
            toy.environ["FLEETGAUGE_TOY_COLOUR"] = "blue"
        if broken == "release":  # of a library, which lacks a name
            toy.answers(older_library)
        outcome = toy.push()
        assert outcome.error is not None
        assert (broken == "settings") or "scripts/setup" in outcome.error.message
        assert reported(toy, "last_success_age_seconds") == (60 if broken == "settings" else None)
        assert (outcome.status, outcome.error.configuration) == (Status.FAILED, True)
        assert (reported(toy, "up"), toy.seconds()) == (0, [])

    @pytest.mark.parametrize(("body", "status"), [('{"errors": ["no"]}', 403), ("<html>no</html>", None)])
    def test_only_datadog_itself_refuses_a_key(self, toy: Toy, body: str, status: int | None) -> None:
        toy.answers(lambda _: iter([VALUE(1, NOW)]))
        toy.intake.faults.add(Fault(status=403, body=body), times=None)
        error = toy.push().error
        assert error is not None
        assert error.status == status, "the answer of a proxy says nothing of the key"

    def test_undeclared_metric_is_a_defect(self, toy: Toy) -> None:
        toy.answers(lambda _: iter([VALUE(1, NOW), health.UP(1, NOW), VALUE(2, NOW)]))
        outcome = toy.push()
        assert (outcome.status, outcome.report.samples, outcome.report.points_sent) == (Status.FAILED, 1, 0)
        assert outcome.error is not None
        assert outcome.error.message == "toy yielded collector.up, which it does not declare"
        assert toy.seconds() == []

    def test_self_metrics_that_are_not_accepted_are_a_failure(self, toy: Toy) -> None:
        toy.answers(lambda _: iter([VALUE(1, NOW)]))
        toy.intake.faults.add(Fault(), match=SERIES)
        toy.intake.faults.add(Fault(status=400), match=SERIES)
        outcome = toy.push()
        assert (outcome.status, outcome.report.points_sent) == (Status.FAILED, 1)
        assert outcome.error is not None
        assert "answered 400" in outcome.error.message

    @pytest.mark.parametrize(("exact", "status"), [(True, Status.FAILED), (False, Status.OK)])
    def test_a_wrong_clock_fails_a_collector_that_needs_an_exact_one(
        self, ticking: Toy, exact: bool, status: Status
    ) -> None:
        ticking.answers(each_tick, adds_up=exact)
        outcome = ticking.push(ahead=-100)
        assert (outcome.status, outcome.report.points_sent) == (status, 1)
        assert ("this machine's clock is -100 s off the intake's" in str(outcome.error)) is exact
        assert (reported(ticking, "clock_skew_seconds"), reported(ticking, "up")) == (-100, int(not exact))
        assert ticking.document()["sent_until"] == TICK - STEP - exact * STEP


class TestState:
    def test_what_was_observed_is_saved_before_sending_and_the_rest_after(self, ticking: Toy) -> None:
        stored: list[Any] = []
        ticking.intake.on("received", lambda _: stored.append(ticking.document()))
        ticking.push()
        before, after = stored
        document = {"version": 2, "now": TICK + 7, "sent_until": TICK - STEP, "last_success": None}
        assert before == {**document, "memory": {"runs": 1}}
        assert after == {**before, "sent_until": TICK, "last_success": TICK + 7}

    def test_a_run_that_lost_something_is_not_the_last_success(
        self, ticking: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ticking.answers(losing("unit"), has_history=True)
        assert ticking.push().status is Status.PARTIAL
        assert reported(ticking, "last_success_age_seconds") is None
        assert ticking.document()["sent_until"] == TICK, "what a lost unit lacks is for a backfill"
        span = f"--since {iso(TICK - STEP)} --until {iso(TICK)} --step 15m"
        assert f"to send them later: run_collector.py toy {span} --push --yes" in capsys.readouterr().err
        ticking.answers(each_tick, has_history=True)
        ticking.now += STEP
        assert ticking.push().status is Status.OK
        assert reported(ticking, "last_success_age_seconds") == 0

    @pytest.mark.parametrize("content", ["garbage", '{"version": 2, "now": 9999999999, "memory": {}}'])
    def test_a_bad_document_is_counted_set_aside_and_replaced(self, ticking: Toy, content: str) -> None:
        ticking.push()
        [path] = ticking.store.iterdir()
        path.write_text(content)
        ticking.now += 2 * STEP
        assert ticking.run().report.dropped == {"bad_state": 1}
        assert path.read_text() == content, "a dry run leaves it"
        outcome = ticking.push()
        assert (outcome.status, outcome.report.dropped) == (Status.OK, {"bad_state": 1})
        assert outcome.report.examples["bad_state"].startswith(path.stem)
        assert path.with_name(f"{path.stem}.bad.json").read_text() == content
        assert ticking.document()["sent_until"] == TICK + 2 * STEP
        assert ticking.seconds() == [TICK, TICK + 2 * STEP], "nothing is known of what was missed"
        assert ticking.push().report.dropped == {}

    def test_memory_that_is_nested_deeply_fails_no_run(self, ticking: Toy) -> None:
        ticking.push()
        [path] = ticking.store.iterdir()
        nested = "[" * 600 + "]" * 600
        path.write_text(path.read_text().replace('"runs": 1', f'"runs": 1, "other": {nested}'))
        for mode in (Mode.DRY_RUN, Mode.PUSH):
            ticking.now += STEP
            assert ticking.run(mode).status is Status.OK
        assert ticking.document()["memory"]["runs"] == 2

    def test_a_document_of_a_run_that_began_later_is_left_alone(self, ticking: Toy) -> None:
        """Two runs at once: the one that began first ends last."""

        def slow(context: Context[Any]) -> Iterator[Series]:
            context.memory["slow"] = True
            yield from each_tick(context)
            ticking.now += STEP
            ticking.answers(each_tick, has_history=True)
            assert ticking.push().status is Status.OK

        ticking.answers(slow, has_history=True)
        assert ticking.push().status is Status.OK
        assert ticking.document()["sent_until"] == TICK + STEP
        assert ticking.document()["memory"] == {"runs": 1}
        assert ticking.seconds() == [TICK, TICK + STEP]

    def test_an_end_that_an_earlier_run_saved_is_not_moved_back(self, ticking: Toy) -> None:
        """Two runs at once: the one that began first ends while the other collects, which then fails."""

        def slow(context: Context[Any]) -> Iterator[Series]:
            ticking.now -= 5
            ticking.answers(each_tick, has_history=True)
            assert ticking.push().status is Status.OK
            ticking.now += 5
            ticking.intake.faults.add(Fault(status=400), times=None)
            yield from each_tick(context)

        ticking.answers(slow, has_history=True)
        assert ticking.push().status is Status.FAILED
        assert (ticking.document()["now"], ticking.document()["sent_until"]) == (ticking.now, TICK)

    @pytest.mark.parametrize(("ahead", "bad"), [(STEP, {"bad_state": 1}), (300, {})])
    def test_a_clock_that_was_ahead_makes_no_run_skip_its_tick(
        self, ticking: Toy, ahead: int, bad: dict[str, int]
    ) -> None:
        ticking.push(ahead=ahead)
        ticking.intake.points.clear()
        lost = Outcome("toy", Status.FAILED)
        report_failure(lost, Options(Mode.PUSH), ticking.environ, lambda: ticking.now)
        assert reported(ticking, "last_success_age_seconds") == (None if bad else 0)
        outcome = ticking.push()
        assert (outcome.report.dropped, ticking.seconds()) == (bad, [TICK] if bad else [])
        ticking.now += STEP
        ticking.push()
        assert (ticking.seconds()[-1], ticking.document()["now"]) == (TICK + STEP, ticking.now)

    def test_a_process_that_stays_has_its_document_in_memory(self, ticking: Toy) -> None:
        ticking.cache = Cache()
        del ticking.environ["FLEETGAUGE_STATE"]
        for steps in (0, 0, 2):
            ticking.now += steps * STEP
            ticking.push(every=STEP)
        assert sent(ticking) == [TICK, TICK + STEP, TICK + 2 * STEP], "no tick is sent twice"
        assert (reported(ticking, "gap_seconds"), reported(ticking, "last_success_age_seconds")) == (0, 0)

    def test_a_staying_process_keeps_its_connection_to_the_store(self, ticking: Toy, aws: Aws) -> None:
        ticking.cache = Cache()
        aws.make_bucket("state")
        ticking.environ |= {**aws.environment, "FLEETGAUGE_STATE": "s3://state/fleet"}
        before = aws.connections
        for _ in range(3):
            assert ticking.push(every=STEP).status is Status.OK
            ticking.now += STEP
        assert aws.connections == before + 1

    def test_a_staying_process_forgets_what_a_clock_that_was_ahead_sent(self, ticking: Toy) -> None:
        ticking.cache = Cache()
        del ticking.environ["FLEETGAUGE_STATE"]
        ticking.push(every=STEP, ahead=86_400)
        ticking.cache = Cache(document=ticking.cache.document)  # without the client that has that clock
        for steps in (1, 2):
            ticking.now += steps * STEP
            ticking.push(every=STEP)
        assert ticking.seconds() == [TICK + STEP, TICK + 2 * STEP, TICK + 3 * STEP]

    def test_a_staying_process_is_ahead_of_a_store_it_could_not_write(
        self, ticking: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ticking.cache = Cache()
        for expected in (Status.OK, Status.PARTIAL, Status.OK):
            if expected is Status.PARTIAL:
                ticking.store.rename(tmp_path / "elsewhere")
            assert ticking.push(every=STEP).status is expected
            if expected is Status.PARTIAL:
                (tmp_path / "elsewhere").rename(ticking.store)
            ticking.now += STEP
        assert sent(ticking) == [TICK, TICK + STEP, TICK + 2 * STEP], "no tick is sent twice"
        assert ticking.document()["memory"] == {"runs": 3}
        assert "to send them later" not in capsys.readouterr().err, "a backfill does not help a store"


class TestSelfMetrics:
    def test_every_number_of_the_run_is_reported_at_its_own_time(self, toy: Toy) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            toy.now += 5
            context.report.requests = 3
            context.report.drop("odd", 4)
            context.report.lose("unit", "gone", "late")
            yield VALUE.series((NOW - 1, NOW), (1, math.nan))

        toy.answers(collect, per_node=True)
        toy.keep_state()
        assert toy.push(environ={"FLEETGAUGE_NODE_NAME": "node-1"}).status is Status.PARTIAL
        own = {key: value for key, value in toy.intake.points.items() if key.metric.startswith("collector.")}
        assert {key.host for key in own} == {"node-1"}
        found = {
            (" ".join([key.metric, *(tag for tag in key.tags if "reason:" in tag)]), key.second): value
            for key, value in own.items()
        }
        assert 0 < found.pop(("collector.duration_seconds", NOW + 5)) < 60
        assert found == {
            ("collector.up", TICK): 1,
            ("collector.samples", NOW): 2,
            ("collector.points_sent", NOW): 1,
            ("collector.requests", NOW): 3,
            ("collector.clock_skew_seconds", NOW + 5): 0,
            **{
                (f"collector.points_dropped reason:{reason}", NOW): {"not_finite": 1, "odd": 4}.get(reason, 0)
                for reason in (*health.DROP_REASONS, "odd")
            },
            ("collector.units_lost reason:late", NOW): 1,
            ("collector.units_lost reason:unreadable", NOW): 0,
        }

    @pytest.mark.parametrize(("every", "second"), [(None, TICK), (STEP, TICK + STEP)])
    def test_a_lost_child_is_down_in_the_tick_of_its_run(
        self, ticking: Toy, every: int | None, second: int
    ) -> None:
        ticking.push()
        before = ticking.document()
        ticking.now += 930
        lost = Outcome("toy", Status.FAILED, seconds=930)
        report_failure(lost, Options(Mode.PUSH, every=every), ticking.environ, lambda: ticking.now)
        up = {key.second: value for key, value in ticking.intake.points.items() if "up" in key.metric}
        assert up == {TICK: 1, second: 0}
        assert (reported(ticking, "last_success_age_seconds"), ticking.document()) == (930, before)


class TestOutcome:
    @pytest.mark.parametrize(("units", "last"), [(20, "unit 19: gone"), (21, "and 1 more")])
    def test_lost_units_are_named_once_and_up_to_twenty(self, toy: Toy, units: int, last: str) -> None:
        toy.answers(losing(*2 * [f"unit {number}" for number in range(units)]))
        outcome = toy.run()
        lost = outcome.report.lost
        assert (outcome.status, len(lost), lost[-1]) == (Status.PARTIAL, units, last)

    def test_texts_of_an_outcome_have_no_secret(self, toy: Toy) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            context.report.drop("odd", example=f"line {KEY}")
            context.report.lose(f"page {KEY}", "gone")
            context.report.findings.append(f"found {KEY}")
            yield VALUE(1, context.now)

        toy.answers(collect)
        report = toy.push().report
        assert (report.examples, report.findings) == ({"odd": "line [redacted]"}, ["found [redacted]"])
        assert report.lost == ["page [redacted]: gone"]

    def test_points_are_counted_as_collected_sent_and_dropped(self, toy: Toy) -> None:
        collide = [VALUE(1, NOW - 60, kind="A"), VALUE(2, NOW - 60, kind="a")]
        good = TOTAL.series((NOW - 1, NOW), (1, 2))
        toy.answers(lambda _: iter([*collide, good]))
        for outcome in (toy.push(), toy.run()):
            assert (outcome.report.samples, outcome.report.dropped) == (4, {"tag_collision": 2})
            assert outcome.report.examples == {"tag_collision": f"toy.value kind:a at {NOW - 60}"}
            assert (outcome.status, outcome.report.lost_by_reason) == (Status.PARTIAL, {"tag_collision": 1})
        assert toy.intake.value("toy.total", at=NOW) == 2

    def test_series_beyond_the_cap_are_lost_by_metric(self, ticking: Toy) -> None:
        series = [VALUE(1, TICK, kind=f"k{n}") for n in range(32)] + [OTHER(1, TICK)]
        ticking.answers(lambda _: iter(series), has_history=True)
        past = Backfill(TICK - STEP, TICK + 1)
        cap = {"FLEETGAUGE_SERIES_CAP": "30"}
        for outcome in (
            ticking.run(environ=cap),
            ticking.run(environ=cap, backfill=past),
            ticking.push(environ=cap),
        ):
            [lost] = outcome.report.lost
            assert lost.startswith("3 series: there are more than FLEETGAUGE_SERIES_CAP allows; raise it.")
            assert lost.endswith(" They are of toy.value (3)")
            assert (outcome.status, outcome.report.lost_by_reason) == (Status.PARTIAL, {"series_cap": 1})
        assert reported(ticking, "points_sent") == 30
        assert ticking.document()["last_success"] is None

    def test_progress_is_reported_while_collecting(self, toy: Toy) -> None:
        toy.answers(lambda _: iter(VALUE.series((NOW - 1, NOW), (1, 2), kind=f"{n}") for n in range(600)))
        toy.run()
        assert toy.person.progressed == [("collecting points", done, None) for done in (2, 514, 1026)]
