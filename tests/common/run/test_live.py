"""A live run: its window, what it sends whatever happens, and what it leaves for the next one."""

from __future__ import annotations

import json
import re
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
from common.run.state import DirectoryStore
from common.times import iso
from common.window import Window
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


@pytest.fixture
def ticking(toy: Toy) -> Toy:
    """A toy that answers for ticks, at one, with a store."""
    toy.now = TICK + 7
    toy.keep_state()
    toy.answers(each_tick, has_history=True)
    return toy


def reported(toy: Toy, name: str) -> float | None:
    return toy.intake.value(f"collector.{name}", ["collector:toy"])


class TestWindow:
    def test_without_a_store_a_run_answers_for_this_tick(self, toy: Toy) -> None:
        toy.answers(each_tick)
        for toy.now in (TICK + 7, TICK + 3 * STEP):
            assert toy.push().status is Status.OK
        assert toy.seconds() == [TICK, TICK + 3 * STEP]
        assert reported(toy, "gap_seconds") is None

    def test_with_one_it_answers_for_what_was_missed(self, ticking: Toy) -> None:
        assert ticking.push().status is Status.OK
        assert (reported(ticking, "gap_seconds"), ticking.document()["sent_until"]) == (None, TICK)
        ticking.now += 3 * STEP
        assert ticking.push().status is Status.OK
        assert ticking.seconds() == [TICK + n * STEP for n in range(4)]
        assert reported(ticking, "gap_seconds") == 0

    def test_a_tick_that_was_sent_is_not_sent_again(self, ticking: Toy) -> None:
        ticking.push()
        ticking.now += 60
        outcome = ticking.push()
        assert (outcome.status, outcome.counts.points_sent) == (Status.EMPTY, 0)
        assert [write.key.metric for write in ticking.intake.write_log].count("toy.value") == 1
        assert reported(ticking, "up") == 1

    def test_what_is_too_old_is_a_gap_with_the_command_that_sends_it(
        self, ticking: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ticking.push()
        ticking.now += 10 * STEP
        assert ticking.push().status is Status.OK
        assert ticking.seconds() == [TICK, *(TICK + n * STEP for n in range(7, 11))]
        assert reported(ticking, "gap_seconds") == 6 * STEP
        gap = f"--since {iso(TICK)} --until {iso(TICK + 6 * STEP)}"
        assert f"run_collector.py toy {gap} --push --yes" in capsys.readouterr().err
        ticking.now += STEP
        ticking.push()
        assert reported(ticking, "gap_seconds") == 0

    def test_the_command_for_a_gap_has_the_step_of_the_run(
        self, ticking: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for _ in range(2):
            ticking.push(step=60)
            ticking.now += 7200
        assert "--step 60s --push" in capsys.readouterr().err

    def test_a_tick_that_may_become_too_old_during_the_run_is_in_the_gap(self, ticking: Toy) -> None:
        ticking.push()
        ticking.now += 4 * STEP
        ticking.push(timeout=900)
        assert ticking.seconds() == [TICK, *(TICK + n * STEP for n in (2, 3, 4))]
        assert reported(ticking, "gap_seconds") == STEP

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
        message = r"nothing was measured from .*, and it cannot be measured afterwards"
        assert bool(re.search(message, capsys.readouterr().err)) is (gap > 0)

    def test_a_collector_may_have_another_window(self, toy: Toy) -> None:
        def due(_: object, now: int, step: int, sent_until: int | None, earliest: int) -> Window:
            return Window(earliest if sent_until is None else sent_until, now - 60, step, earliest)

        toy.keep_state()
        toy.answers(lambda context: iter([VALUE(1, context.window.since)]), due=due)
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
        toy.push(timeout=40, every=900)
        dry, push = seen
        assert (dry.now, dry.window.until, dry.window.is_live) == (NOW + 30, TICK, True)
        assert dry.window.earliest == NOW + 30 + 60 + 30 - 3600
        assert (round(dry.deadline.seconds, 1), dry.stays, dry.memory) == (49.5, False, {})
        assert (round(push.deadline.seconds), push.stays) == (40 - 8, True)

    def test_a_dry_run_reads_memory_ignores_sent_until_and_saves_nothing(self, ticking: Toy) -> None:
        for _ in range(2):
            ticking.push()
            ticking.now += STEP
        before = ticking.document()
        ticking.now += STEP
        seen: list[Context[Any]] = []

        def collect(context: Context[Any]) -> Iterator[Series]:
            seen.append(context)
            context.memory["runs"] = 99
            yield VALUE(1, context.window.until)

        ticking.answers(collect)
        assert ticking.run().status is Status.OK
        assert list(seen[0].window.ticks) == [TICK + 3 * STEP], "as if nothing was known of earlier ones"
        assert ticking.document() == before
        assert before["memory"] == {"runs": 2}

    def test_a_dry_run_is_as_of_its_newest_point_that_can_be_sent(self, toy: Toy) -> None:
        toy.answers(lambda _: iter([VALUE(1, NOW - 30), VALUE(1, NOW - 90), VALUE(1, NOW + 601)]))
        assert toy.run().as_of == NOW - 30


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
        assert (outcome.status, outcome.counts.points_sent, outcome.counts.samples) == (Status.FAILED, 0, 1)
        assert outcome.error is not None
        assert outcome.error.type == type(error).__name__
        assert ticking.seconds() == [TICK]
        assert ticking.document() == before, "neither what was sent nor what was observed counts"
        assert (reported(ticking, "up"), reported(ticking, "last_success_age_seconds")) == (0, STEP)
        ticking.answers(each_tick, has_history=True)
        assert ticking.push().status is Status.OK
        assert ticking.seconds() == [TICK, TICK + STEP]

    def test_run_past_its_deadline_fails_between_two_series(
        self, toy: Toy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("common.run.session.PROGRESS_EVERY", 1)
        toy.answers(lambda _: iter([VALUE(1, NOW)]))
        outcome = toy.run(timeout=1e-9)
        assert outcome.error is not None
        assert (outcome.status, outcome.error.type) == (Status.FAILED, "DeadlineExceededError")

    @pytest.mark.parametrize("broken", ["settings", "import"])
    def test_broken_collector_is_reported_as_down(self, toy: Toy, broken: str) -> None:
        if broken == "settings":
            toy.answers(lambda _: iter([VALUE(1, NOW)]))
            toy.environ["FLEETGAUGE_TOY_COLOUR"] = "blue"
        outcome = toy.push()
        assert outcome.error is not None
        assert (outcome.status, outcome.error.configuration) == (Status.FAILED, True)
        assert (reported(toy, "up"), toy.seconds()) == (0, [])

    def test_a_delivery_that_fails_keeps_what_was_observed(self, ticking: Toy) -> None:
        ticking.push()
        ticking.now += STEP
        ticking.intake.faults.add(Fault(status=403), times=None, match=SERIES)
        outcome = ticking.push()
        assert outcome.status is Status.FAILED
        assert outcome.error is not None
        assert outcome.error.configuration
        assert ticking.document() == {
            "version": 2,
            "now": TICK + 7 + STEP,
            "sent_until": TICK,
            "last_success": TICK + 7,
            "memory": {"runs": 2},
        }
        ticking.intake.faults.clear()
        ticking.now += STEP
        assert ticking.push().status is Status.OK
        assert ticking.seconds() == [TICK, TICK + STEP, TICK + 2 * STEP]

    def test_undeclared_metric_is_a_defect(self, toy: Toy) -> None:
        other = health.UP
        toy.answers(lambda _: iter([VALUE(1, NOW), other(1, NOW), VALUE(2, NOW)]))
        outcome = toy.push()
        assert (outcome.status, outcome.counts.samples, outcome.counts.points_sent) == (Status.FAILED, 1, 0)
        assert outcome.error is not None
        assert outcome.error.message == "toy yielded collector.up, which it does not declare"
        assert toy.seconds() == []

    def test_self_metrics_that_are_not_accepted_are_a_failure(self, toy: Toy) -> None:
        toy.answers(lambda _: iter([VALUE(1, NOW)]))
        toy.intake.faults.add(Fault(), match=SERIES)
        toy.intake.faults.add(Fault(status=400), match=SERIES)
        outcome = toy.push()
        assert (outcome.status, outcome.counts.points_sent) == (Status.FAILED, 1)
        assert outcome.error is not None
        assert "answered 400" in outcome.error.message

    @pytest.mark.parametrize(("exact", "status"), [(True, Status.FAILED), (False, Status.OK)])
    def test_a_wrong_clock_fails_a_collector_that_needs_an_exact_one(
        self, ticking: Toy, capsys: pytest.CaptureFixture[str], exact: bool, status: Status
    ) -> None:
        ticking.answers(each_tick, adds_up=exact)
        outcome = ticking.push(ahead=-100)
        assert (outcome.status, outcome.counts.points_sent) == (status, 1)
        text = "this machine's clock is -100 s off the intake's"
        assert (text in str(outcome.error)) is exact
        assert f"{text}; correct the clock" in capsys.readouterr().err, "at the latest by the self-metrics"
        assert reported(ticking, "clock_skew_seconds") == -100
        assert reported(ticking, "up") == int(not exact)
        assert (ticking.document()["sent_until"] is None) is exact


class TestState:
    def test_a_document_has_what_the_next_run_needs(self, ticking: Toy) -> None:
        ticking.push()
        assert ticking.document() == {
            "version": 2,
            "now": TICK + 7,
            "sent_until": TICK,
            "last_success": TICK + 7,
            "memory": {"runs": 1},
        }

    @pytest.mark.parametrize(("changes", "writes"), [(True, 2), (False, 1)])
    def test_memory_is_saved_before_sending_only_where_it_changed(
        self, toy: Toy, monkeypatch: pytest.MonkeyPatch, changes: bool, writes: int
    ) -> None:
        events: list[str] = []
        write = DirectoryStore.write

        def recorded(self: DirectoryStore, name: str, content: bytes) -> None:
            events.append("save")
            write(self, name, content)

        def collect(context: Context[Any]) -> Iterator[Series]:
            context.memory["n"] = context.now if changes else 1
            yield VALUE(1, context.now)

        monkeypatch.setattr(DirectoryStore, "write", recorded)
        toy.intake.on("received", lambda _: events.append("send"))
        toy.keep_state()
        toy.answers(collect)
        toy.push()
        events.clear()
        toy.now += STEP
        toy.push()
        assert events == [*["save"] * (writes - 1), "send", "save", "send"]

    def test_a_run_that_lost_something_is_not_the_last_success(
        self, ticking: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            context.report.lose("unit", "gone")
            yield from each_tick(context)

        ticking.answers(collect, has_history=True)
        assert ticking.push().status is Status.PARTIAL
        assert reported(ticking, "last_success_age_seconds") is None
        assert ticking.document()["sent_until"] == TICK, "what a lost unit lacks is for a backfill"
        span = f"--since {iso(TICK - STEP)} --until {iso(TICK)}"
        assert f"to send them later: run_collector.py toy {span} --push --yes" in capsys.readouterr().err
        ticking.answers(each_tick, has_history=True)
        ticking.now += STEP
        assert ticking.push().status is Status.OK
        assert reported(ticking, "last_success_age_seconds") == 0

    @pytest.mark.parametrize(
        "content",
        ["garbage", '{"version": 1, "state": {}}', '{"version": 2, "now": 9999999999, "memory": {}}'],
    )
    def test_a_bad_document_is_counted_set_aside_and_replaced(self, ticking: Toy, content: str) -> None:
        ticking.push()
        [path] = ticking.store.iterdir()
        path.write_text(content)
        ticking.now += 2 * STEP
        assert ticking.run().counts.dropped == {"bad_state": 1}
        assert path.read_text() == content, "a dry run leaves it"
        outcome = ticking.push()
        assert (outcome.status, outcome.counts.dropped) == (Status.OK, {"bad_state": 1})
        assert outcome.examples["bad_state"].startswith(path.stem)
        assert path.with_name(f"{path.stem}.bad.json").read_text() == content
        assert ticking.document()["sent_until"] == TICK + 2 * STEP
        assert ticking.seconds() == [TICK, TICK + 2 * STEP], "nothing is known of what was missed"
        assert ticking.push().counts.dropped == {}

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

    def test_a_time_in_the_future_is_not_known(self, ticking: Toy) -> None:
        ticking.now += 2 * STEP
        ticking.push()
        ticking.now -= 2 * STEP
        assert (ticking.push().status, ticking.seconds()) == (Status.OK, [TICK, TICK + 2 * STEP])
        assert ticking.document()["now"] == ticking.now

    def test_an_unreadable_document_makes_the_run_partial_and_is_kept(
        self, ticking: Toy, tmp_path: Path
    ) -> None:
        ticking.push()
        before = ticking.document()
        ticking.now += 2 * STEP
        [document] = ticking.store.glob("*.json")
        elsewhere = document.rename(tmp_path / "elsewhere")
        document.mkdir()
        outcome = ticking.push()
        document.rmdir()
        elsewhere.replace(document)
        assert (outcome.status, outcome.error) == (Status.PARTIAL, None)
        assert [unit.partition(": ")[0] for unit in outcome.lost] == ["the state of earlier runs"]
        assert ticking.seconds() == [TICK, TICK + 2 * STEP]
        assert (reported(ticking, "up"), reported(ticking, "gap_seconds")) == (1, None)
        assert ticking.document() == before
        ticking.now += STEP
        assert ticking.push().status is Status.OK
        assert ticking.seconds() == [TICK + n * STEP for n in range(4)]

    def test_a_store_that_cannot_be_written_makes_the_run_partial(
        self, ticking: Toy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ticking.push()
        before = ticking.document()
        ticking.now += STEP
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", _denied)
            outcome = ticking.push()
        assert (outcome.status, outcome.error, len(outcome.lost)) == (Status.PARTIAL, None, 1)
        assert "it must have room and be writable" in outcome.lost[0]
        assert outcome.counts.points_sent == 1
        assert ticking.document() == before

    def test_a_process_that_stays_has_its_document_in_memory(self, ticking: Toy) -> None:
        ticking.cache = Cache()
        del ticking.environ["FLEETGAUGE_STATE"]
        for steps in (0, 0, 2):
            ticking.now += steps * STEP
            ticking.push(every=STEP)
        assert ticking.seconds() == [TICK, TICK + STEP, TICK + 2 * STEP]
        sent = [write.key.second for write in ticking.intake.write_log if write.key.metric == "toy.value"]
        assert sent == ticking.seconds(), "no tick is sent twice"
        assert (reported(ticking, "gap_seconds"), reported(ticking, "last_success_age_seconds")) == (0, 0)

    def test_a_staying_process_is_ahead_of_a_store_it_could_not_write(
        self, ticking: Toy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ticking.cache = Cache()
        ticking.push(every=STEP)
        ticking.now += STEP
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", _denied)
            assert ticking.push(every=STEP).status is Status.PARTIAL
        ticking.now += STEP
        assert ticking.push(every=STEP).status is Status.OK
        seconds = [write.key.second for write in ticking.intake.write_log if write.key.metric == "toy.value"]
        assert seconds == [TICK, TICK + STEP, TICK + 2 * STEP], "no tick is sent twice"
        assert ticking.document()["memory"] == {"runs": 3}

    def test_a_lost_child_is_reported_with_the_last_success(self, ticking: Toy) -> None:
        ticking.push()
        ticking.now += 300
        [kept] = ticking.store.iterdir()
        before = kept.read_bytes()
        lost = Outcome("toy", Status.FAILED, seconds=300)
        report_failure(lost, Options(Mode.PUSH), ticking.environ, lambda: ticking.now)
        assert (reported(ticking, "up"), reported(ticking, "last_success_age_seconds")) == (0, 300)
        assert kept.read_bytes() == before

    @pytest.mark.parametrize(("every", "second"), [(None, TICK), (STEP, TICK + STEP)])
    def test_a_lost_child_is_down_in_the_tick_of_its_run(
        self, ticking: Toy, every: int | None, second: int
    ) -> None:
        ticking.now = TICK + STEP + 20
        lost = Outcome("toy", Status.FAILED, seconds=130)
        report_failure(lost, Options(Mode.PUSH, every=every), ticking.environ, lambda: ticking.now)
        assert [key.second for key in ticking.intake.points if key.metric == "collector.up"] == [second]


class TestOutcome:
    @pytest.mark.parametrize(("units", "last"), [(20, "unit 19: gone"), (21, "and 1 more")])
    def test_lost_units_are_named_up_to_twenty(self, toy: Toy, units: int, last: str) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            for number in range(units):
                context.report.lose(f"unit {number}", "gone")
            yield VALUE(1, NOW)

        toy.answers(collect)
        outcome = toy.run()
        assert (outcome.status, len(outcome.lost), outcome.lost[-1]) == (Status.PARTIAL, units, last)

    def test_a_run_without_points_is_empty(self, toy: Toy) -> None:
        toy.answers(lambda _: iter([VALUE.series((), ())]))
        assert toy.push().status is Status.EMPTY
        assert reported(toy, "up") == 1

    def test_points_are_counted_as_collected_sent_and_dropped(self, toy: Toy) -> None:
        collide = [VALUE(1, NOW - 60, kind="A"), VALUE(2, NOW - 60, kind="a")]
        good = TOTAL.series((NOW - 1, NOW), (1, 2))
        toy.answers(lambda _: iter([*collide, good]))
        for outcome in (toy.push(), toy.run()):
            assert (outcome.counts.samples, outcome.counts.dropped) == (4, {"tag_collision": 2})
            assert outcome.examples == {"tag_collision": f"toy.value kind:a at {NOW - 60}"}
        assert toy.intake.value("toy.total", at=NOW) == 2

    def test_series_beyond_the_cap_are_lost_by_metric(self, ticking: Toy) -> None:
        series = [VALUE(1, TICK, kind=f"k{n}") for n in range(32)] + [OTHER(1, TICK)]
        ticking.answers(lambda _: iter(series), has_history=True)
        past = Backfill(TICK - STEP, TICK + 1, ())
        cap = {"FLEETGAUGE_SERIES_CAP": "30"}
        for outcome in (
            ticking.run(environ=cap),
            ticking.run(environ=cap, backfill=past),
            ticking.push(environ=cap),
        ):
            [lost] = outcome.lost
            assert lost.startswith("3 series: there are more than FLEETGAUGE_SERIES_CAP allows; raise it.")
            assert lost.endswith(" They are of toy.value (3)")
            assert (outcome.status, outcome.counts.units_lost) == (Status.PARTIAL, {"series_cap": 1})
        assert reported(ticking, "points_sent") == 30
        tags = ["collector:toy", "reason:series_cap"]
        assert ticking.intake.value("collector.units_lost", tags) == 1
        assert ticking.document()["last_success"] is None

    def test_progress_is_reported_while_collecting(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("common.run.session.PROGRESS_EVERY", 2)
        toy.answers(lambda _: iter(VALUE.series((NOW - 1, NOW), (1, 2), kind=f"{n}") for n in range(5)))
        toy.run()
        assert toy.person.progressed == [("collecting points", done, None) for done in (2, 6, 10)]

    def test_logs_carry_the_service_the_environment_and_the_version(
        self, toy: Toy, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def collect(context: Context[Any]) -> Iterator[Series]:
            context.report.lose("unit", "gone")
            yield VALUE(1, NOW)

        toy.answers(collect)
        toy.run(environ={"DD_VERSION": "1.2.3", "DD_SERVICE": "gauges"})
        [line] = map(json.loads, capsys.readouterr().err.splitlines())
        labels = {key: value for key, value in line.items() if key.startswith("dd.")}
        assert (line["message"], line["collector"]) == ("lost unit: gone", "toy")
        assert labels == {"dd.service": "gauges", "dd.env": "test", "dd.version": "1.2.3"}


def _denied(*_: Any, **__: Any) -> Any:
    raise PermissionError(13, "Permission denied")
