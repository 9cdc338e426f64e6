"""The past of W&B: recomputed as the live ticks saw it, from one listing, and gone on with where it was."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

from collectors.wandb.collector import COLLECTOR, backfill
from collectors.wandb.metrics import LIVE_ONLY
from common.metric import Mark, Sample
from common.parent import Parent
from common.span import Span
from support.servers.fleet import THROUGHPUT_KEYS, Row, client_config
from support.servers.wandb import Wandb
from support.wandb_runs import AT, HOUR, Ran, collect, context, recompute, row

DAY = 24 * HOUR
STEP = 900
NOTED = 7  # seconds after the tick at which a live run reads
KEY = "tick:acme/ants"


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


class Life(NamedTuple):
    """A run from its beginning to its end, as W&B will tell it afterwards."""

    row: Row
    start: float
    end: float

    def at(self, now: float) -> Row | None:
        """What W&B tells of it at an instant: nothing yet, a heartbeat each half minute, or how it ended."""
        if now < self.start:
            return None
        if now >= self.end:
            return self.row
        heartbeat = self.start + (now - self.start) // 30 * 30
        return replace(self.row, state="running", heartbeat_at=heartbeat, compute_seconds=0, summary={})


def lives(begin: float, end: float, number: int) -> list[Life]:
    """Runs of every kind that start and end at any time around a span."""
    chance = random.Random(11)
    made = []
    for place in range(number):
        start = round(chance.uniform(begin - 2 * DAY, end), 3)
        finish = round(start + min(3 * DAY, chance.lognormvariate(1.0, 1.2) * HOUR), 3)
        push = place % 5 == 0
        name = f"github.sky.main.{place:07x}.arena.{place}" if push else f"train.{place}"
        made.append(
            Life(
                Row(
                    f"r{place}",
                    chance.choice(("finished", "finished", "failed", "crashed", "killed", "preempted")),
                    start,
                    finish,
                    display_name=name,
                    sweep=f"s{place % 3}" if place % 4 == 1 else None,
                    compute_seconds=math.ceil(finish - start) if place % 3 else 0,
                    config=client_config(
                        chance.choice((1, 4, 8, None)), chance.choice(("NVIDIA H100", "Tesla T4", None))
                    ),
                    user=chance.choice(("ann", "Ann", "bob", "cy", None)),
                    summary={key: round(chance.uniform(1e4, 5e4), 1) for key in THROUGHPUT_KEYS},
                ),
                start,
                finish,
            )
        )
    return made


Points = dict[tuple[str, tuple[str, ...], int], float]


def points(samples: list[Sample]) -> Points:
    return {(sample.metric.name, sample.tags, sample.timestamp): sample.value for sample in samples}


def project_of(sample: Sample) -> str:
    [found] = [tag for tag in sample.tags if tag.startswith("project:")]
    return found


def reconstructable(samples: list[Sample]) -> Points:
    return points([sample for sample in samples if sample.metric not in LIVE_ONLY])


@pytest.mark.slow
def test_a_backfill_of_a_day_equals_the_live_ticks_of_that_day_point_by_point(server: Wandb) -> None:
    day = Span(AT - DAY, AT, STEP)
    runs = lives(day.since, day.until, 400)
    shown = server.add("acme", "ants")
    live: Points = {}
    variables: dict[str, Any] = {
        "FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49,t4=0.35",
        "FLEETGAUGE_WANDB_MAX_GROUPS": "7",
    }
    for at in day.ticks:
        shown[:] = [row for life in runs if (row := life.at(at + NOTED))]
        live |= reconstructable(collect(server, at=at, step=STEP, **variables).samples)
    shown[:] = [row for life in runs if (row := life.at(AT + 3 * HOUR))]
    again = recompute(server, day, at=AT + 3 * HOUR, **variables)
    assert points(again.samples) == live
    assert any("user:_other" in tags for _, tags, _ in live)
    named = {name for name, _, _ in live}
    assert named == {metric.name for metric in COLLECTOR.metrics if metric not in LIVE_ONLY}
    assert len(live) > 25 * 96


def test_what_only_the_present_shows_is_absent(server: Wandb) -> None:
    server.add("acme", "ants", [row("a", "pending", started=-1, ended=None), row("b", "running", ended=-1)])
    again = recompute(server, Span(AT - 3600, AT, STEP))
    assert not {sample.metric for sample in again.samples} & LIVE_ONLY


def test_a_span_takes_one_listing_that_reaches_back_by_the_window(server: Wandb) -> None:
    span = Span(AT - 7 * DAY, AT, STEP)
    ended_before_the_window = row("c", started=-24 * 9, ended=-24 * 8 - 0.1)
    began_behind_the_span = row("d", started=0, ended=1)
    server.add(
        "acme",
        "ants",
        [row("a", started=-24 * 8, ended=-24 * 8 + 1), ended_before_the_window, began_behind_the_span],
    )
    again = recompute(server, span)
    [request] = server.requests
    assert '"heartbeatAt": {"$gte": "2026-11-07T00:00:00Z"}' in request.variables["filters"]
    assert '{"createdAt": {"$lt": "2026-11-15T00:00:00Z"}}' in request.variables["filters"]
    values = points(again.samples)
    tags = ("entity:acme", "project:ants")
    assert values["wandb.runs.completed_24h", tags, span.since] == 1
    assert values["wandb.runs.completed_24h", tags, span.since + HOUR] == 1
    assert values["wandb.runs.completed_24h", tags, span.since + HOUR + STEP] == 0
    assert {at for _, _, at in values} == set(span.ticks)


def test_a_span_without_a_tick_is_empty(server: Wandb) -> None:
    server.add("acme", "ants", [row("a")])
    again = recompute(server, Span(AT + 1, AT + 899, STEP))
    assert (again.samples, again.state, again.error) == ([], {}, None)


def test_the_stream_can_be_had_twice_from_one_listing(server: Wandb) -> None:
    server.add("acme", "ants", [row("a"), row("b", "running", ended=-0.01)])
    again = backfill(context(server, Ran()), Span(AT - 7200, AT, STEP))
    assert list(again()) == list(again())
    assert len(server.requests) == 1


def test_from_any_mark_on_it_goes_on_with_what_is_left(server: Wandb) -> None:
    server.add("acme", "ants", [row("a"), row("b", "running", ended=-0.01)])
    server.add("acme", "bees", [row("c")])
    both: dict[str, Any] = {"WANDB_PROJECTS": "acme/ants,acme/bees"}
    span = Span(AT - 3600, AT, STEP)
    whole = list(backfill(context(server, Ran(), **both), span)())
    marks = [place for place, item in enumerate(whole) if isinstance(item, Mark)]
    assert len(marks) == 4 + 2 * 4  # who holds the GPUs, then each project
    state: dict[str, object] = {}
    for place in marks:
        item = whole[place]
        assert isinstance(item, Mark)
        state |= item.changes
        rest = backfill(context(server, Ran(), state=dict(state), **both), span)()
        assert [item for item in rest if item != Mark({})] == whole[place + 1 :]


def test_what_was_sent_up_to_a_tick_is_not_sent_again(server: Wandb) -> None:
    server.add("acme", "ants", [row("a", started=-3, ended=-2)])
    span = Span(AT - HOUR, AT, STEP)
    ticks = [*span.ticks]
    state = {"tick:acme/ants": ticks[1], "usage:acme/ants": ticks[2]}
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for sample in recompute(server, span, state=state).samples:
        found[sample.metric.name.startswith("wandb.usage.")].add(sample.timestamp)
    assert found == {True: {*ticks[3:]}, False: {*ticks[2:]}}
    plain = recompute(server, span, FLEETGAUGE_WANDB_USAGE="false").samples
    assert not [sample for sample in plain if sample.metric.name.startswith("wandb.usage.")]
    assert {sample.timestamp for sample in plain} == {*ticks}


def test_a_project_that_cannot_be_read_is_lost_once_and_the_others_are_sent(server: Wandb) -> None:
    server.add("acme", "ants", [row("a")])
    again = recompute(server, Span(AT - 3600, AT, STEP), WANDB_PROJECTS="acme/ants,acme/gone")
    assert {project_of(sample) for sample in again.samples} == {"project:ants"}
    [lost] = again.tally.lost
    assert lost.startswith("acme/gone: ")


@dataclass
class Listener(Parent):
    """A parent that notes what it is told."""

    told: list[tuple[str, int, int | None]]

    def progress(self, doing: str, done: int, total: int | None) -> None:
        self.told.append((doing, done, total))


def test_listing_tells_how_far_it_is(server: Wandb) -> None:
    server.add("acme", "ants", [row(f"r{number}") for number in range(25)])
    listener = Listener([])
    one: dict[str, Any] = {"FLEETGAUGE_WANDB_PAGE_SIZE": "10", "FLEETGAUGE_WANDB_CONNECTIONS": "1"}
    asked = replace(context(server, Ran(), **one), parent=listener)
    backfill(asked, Span(AT - 3600, AT, STEP))
    doing = "listing the runs of acme/ants"
    told = [(doing, 10, 25), (doing, 19, 25), (doing, 25, 25)]
    assert listener.told == told
    all_of_acme = replace(context(server, Ran(), **one, WANDB_PROJECTS="acme/*"), parent=Listener([]))
    backfill(all_of_acme, Span(AT - 3600, AT, STEP))
    assert all_of_acme.parent == Listener([("listing projects", 0, None), *told])


class TestGaps:
    def test_ticks_that_were_missed_are_sent_by_the_next_one_for_their_own_time(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a", started=-2, ended=-0.5), row("b", "running", ended=-0.001)])
        ran = collect(server, state={KEY: AT - 4 * STEP}, step=STEP)
        values = points(ran.samples)
        tags = ("entity:acme", "project:ants")
        ticks = [AT - 3 * STEP, AT - 2 * STEP, AT - STEP, AT]
        assert [values["wandb.runs.completed_24h", tags, at] for at in ticks] == [0, 1, 1, 1]
        assert [values["wandb.runs.active", tags, at] for at in ticks] == [2, 1, 1, 1]
        assert [("wandb.runs.stale", tags, at) in values for at in ticks] == [False, False, False, True]
        assert len(server.requests) == 2  # one of them how busy the GPUs are now
        assert ran.state == {KEY: AT}
        assert ran.tally.gap == Span(AT - 3 * STEP, AT - 3 * STEP, STEP)

    def test_the_listing_reaches_back_by_the_window_of_the_first_missed_tick(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a", started=-30, ended=-24.5)])
        ran = collect(server, state={KEY: AT - 4 * STEP}, step=STEP)
        values = points(ran.samples)
        name, tags = "wandb.runs.completed_24h", ("entity:acme", "project:ants")
        assert values[name, tags, AT - 2 * STEP] == 1
        assert values[name, tags, AT - STEP] == 0

    def test_what_is_too_old_to_be_sent_is_a_gap(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a")])
        ran = collect(server, state={KEY: AT - 10 * STEP}, step=STEP)
        assert {sample.timestamp for sample in ran.samples} == {AT - 3 * STEP, AT - 2 * STEP, AT - STEP, AT}
        assert ran.tally.gap == Span(AT - 9 * STEP, AT - 3 * STEP, STEP)

    def test_the_first_run_of_all_has_no_gap_that_is_known(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a")])
        ran = collect(server, step=STEP)
        assert {sample.timestamp for sample in ran.samples} == {AT}
        assert ran.tally.gap is None

    def test_a_dry_run_fills_nothing(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a")])
        ran = collect(server, state={KEY: AT - 4 * STEP})
        assert {sample.timestamp for sample in ran.samples} == {AT}
        assert ran.tally.gap is None

    def test_a_project_that_fails_is_filled_by_itself_later(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a")])
        both: dict[str, Any] = {"WANDB_PROJECTS": "acme/ants,acme/bees"}
        state: dict[str, object] = {KEY: AT - STEP, "tick:acme/bees": AT - STEP}
        first = collect(server, state=state, step=STEP, **both)
        assert first.state == {KEY: AT}
        server.add("acme", "bees", [row("b")])
        second = collect(server, at=AT + STEP, state={**state, **first.state}, step=STEP, **both)
        sent = {(project_of(sample), sample.timestamp) for sample in second.samples}
        assert sent == {("project:ants", AT + STEP), ("project:bees", AT), ("project:bees", AT + STEP)}
