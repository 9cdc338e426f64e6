"""The parts of a backfill that need no server: what is resumed, what will be sent, what cannot be known."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from common.collector import Collector, Context
from common.config.settings import CollectorSettings
from common.errors import ConfigurationError, NoBackfillError
from common.execution.backfill_state import (
    MAX_RESUME_AGE,
    SECONDS_TO_AGREE,
    BackfillCheckpoint,
    BackfillState,
    SpanSamples,
    Survey,
)
from common.metric import Mark, Sample, gauge
from common.net.retry import Deadline
from common.span import Span
from common.state.checkpoint import Checkpoint, Saved

NOW = 1_800_000_000
ONE = gauge("toy.one", "item", "One.", "kind")
TWO = gauge("toy.two", "item", "Two.")
LIVE = gauge("toy.live", "item", "Known only now.")


def test_an_interrupted_backfill_is_read_back() -> None:
    state = BackfillState(NOW - 900, NOW, NOW - 60, ["toy.one"], {"tick": 7})
    assert BackfillState.parse(asdict(state), NOW) == state


@pytest.mark.parametrize("age", [0, MAX_RESUME_AGE - 1])
def test_what_was_interrupted_within_a_day_is_resumed(age: int) -> None:
    interrupted = BackfillState(1, 2, NOW - age)
    assert BackfillState.parse(asdict(interrupted), NOW) == interrupted


@pytest.mark.parametrize("age", [MAX_RESUME_AGE, MAX_RESUME_AGE + 1, -1])
def test_what_was_interrupted_earlier_or_by_a_wrong_clock_is_not(age: int) -> None:
    assert BackfillState.parse(asdict(BackfillState(1, 2, NOW - age)), NOW) is None


@pytest.mark.parametrize("age", [0, 400 * MAX_RESUME_AGE])
def test_what_is_done_stays_done(age: int) -> None:
    done = BackfillState(1, 2, NOW - age, done=True)
    assert BackfillState.parse(asdict(done), NOW) == done


@pytest.mark.parametrize("saved", [{}, {"since": 1}, {"since": 1, "until": 2, "began": "soon"}, {"else": 1}])
def test_what_is_not_ours_is_nothing_to_resume(saved: dict[str, Any]) -> None:
    assert BackfillState.parse(saved, NOW) is None


def stream() -> Iterator[Sample | Mark]:
    yield ONE(1, NOW - 100, kind="a")
    yield ONE(1, NOW - 200, kind="a")
    yield ONE(1, NOW - 100, kind="b")
    yield Mark({"tick": 1})
    yield TWO(1, NOW - 50)


def test_a_survey_counts_points_and_series_and_their_age() -> None:
    survey = Survey.of(stream(), lambda: NOW)
    assert dict(survey.points) == {"toy.one": 3, "toy.two": 1}
    assert len(survey.series) == 3
    assert survey.oldest == NOW - 200
    without = survey.without({"toy.one"})
    assert (dict(without.points), len(without.series)) == ({"toy.two": 1}, 1)


@pytest.mark.parametrize(
    ("age", "needed"), [(3600 - SECONDS_TO_AGREE, False), (3601 - SECONDS_TO_AGREE, True)]
)
def test_points_older_than_an_hour_or_nearly_so_need_historical_ingestion(age: int, needed: bool) -> None:
    survey = Survey.of(stream(), lambda: NOW - 200 + age)
    assert survey.needs_historical_ingestion is needed
    assert survey.without({"toy.one"}).needs_historical_ingestion is needed
    assert Survey.of([], lambda: NOW).needs_historical_ingestion is False


def test_more_series_than_the_cap_are_refused_before_anything_is_sent() -> None:
    survey = Survey.of(stream(), lambda: NOW)
    survey.check_cap(3)
    with pytest.raises(
        ConfigurationError, match=r"it would send 3 series, more than FLEETGAUGE_SERIES_CAP \(2\)"
    ):
        survey.check_cap(2)


def samples_of(span: Span, items: list[Sample | Mark] | None) -> SpanSamples:
    def backfill(_: Context[CollectorSettings], __: Span) -> Callable[[], Iterator[Sample | Mark]]:
        return lambda: iter(items or [])

    collector: Collector[CollectorSettings] = Collector(
        name="toy",
        settings=CollectorSettings,
        metrics=(ONE, TWO, LIVE),
        collect=lambda _: iter(()),
        check=lambda _: iter(()),
        backfill=None if items is None else backfill,
        live_only=frozenset({LIVE}),
    )
    context: Context[CollectorSettings] = Context(
        settings=CollectorSettings(),
        at=NOW,
        now=NOW,
        node_name="node",
        state={},
        deadline=Deadline(10),
        log=logging.getLogger("toy"),
    )
    return SpanSamples(collector, context, span)


def test_only_what_is_of_the_span_and_can_be_known_passes() -> None:
    mark = Mark({"tick": 1})
    items: list[Sample | Mark] = [ONE(1, 99), ONE(2, 100), LIVE(3, 150), mark, TWO(4, 150), ONE(5, 200)]
    samples = samples_of(Span(100, 200, 900), items)
    assert list(samples.items()) == [ONE(2, 100), mark, TWO(4, 150)]
    samples.left_out = frozenset({"toy.two"})
    assert list(samples.items()) == [ONE(2, 100), mark]


def test_a_collector_without_a_past_says_so() -> None:
    with pytest.raises(NoBackfillError, match="toy cannot answer for the past"):
        samples_of(Span(100, 200, 900), None)


class Listener(Checkpoint):
    """A checkpoint that notes what is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.saves: list[Saved] = []

    def save(self, saved: Saved) -> None:
        self.saves.append(saved)


def test_every_save_renews_the_time_in_which_a_backfill_can_be_resumed() -> None:
    kept = Listener()
    clock = iter([NOW + 100, NOW + 200])
    memory = BackfillCheckpoint(
        kept, BackfillState(1, 2, NOW, ["toy.one"], {"a": 1}), clock=lambda: next(clock)
    )
    memory({"b": 2})
    memory({"a": None})
    assert [BackfillState.parse(save.state, NOW + 300) for save in kept.saves] == [
        BackfillState(1, 2, NOW + 100, ["toy.one"], {"a": 1, "b": 2}),
        BackfillState(1, 2, NOW + 200, ["toy.one"], {"b": 2}),
    ]
