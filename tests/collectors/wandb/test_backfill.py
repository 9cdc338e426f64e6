"""The past of W&B: recomputed as the live ticks saw it, from one listing."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from collectors.wandb.collector import COLLECTOR
from collectors.wandb.metrics import LIVE_ONLY
from common.window import Window
from support.points import Point
from support.servers.fleet import THROUGHPUT_KEYS, Row, client_config
from support.servers.wandb import Wandb
from support.wandb_runs import AT, HOUR, Ran, collect, context, row

DAY = 24 * HOUR
STEP = 900
NOTED = 7  # seconds after the tick at which a live run reads


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


def values_of(found: list[Point]) -> Points:
    return {(point.metric.name, point.tags, point.timestamp): point.value for point in found}


def reconstructable(found: list[Point]) -> Points:
    return values_of([point for point in found if point.metric not in LIVE_ONLY])


@pytest.mark.slow
def test_backfill_of_a_day_equals_the_live_ticks_of_that_day(server: Wandb) -> None:
    day = Window(AT - DAY, AT, STEP)
    runs = lives(day.since, day.until, 400)
    shown = server.add("acme", "ants")
    live: Points = {}
    variables: dict[str, Any] = {
        "FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49,t4=0.35",
        "FLEETGAUGE_WANDB_MAX_GROUPS": "7",
    }
    for at in day.ticks:
        shown[:] = [row for life in runs if (row := life.at(at + NOTED))]
        live |= reconstructable(collect(server, at=at, step=STEP, **variables).points)
    shown[:] = [row for life in runs if (row := life.at(AT + 3 * HOUR))]
    again = collect(server, window=day, at=AT + 3 * HOUR, **variables)
    assert values_of(again.points) == live
    assert any("user:_other" in tags for _, tags, _ in live)
    named = {name for name, _, _ in live}
    assert named == {metric.name for metric in COLLECTOR.metrics if metric not in LIVE_ONLY}
    assert len(live) > 25 * 96


def test_a_span_takes_one_listing_that_reaches_back_by_the_window(server: Wandb) -> None:
    span = Window(AT - 7 * DAY, AT, STEP)
    ended_before_the_window = row("c", started=-24 * 9, ended=-24 * 8 - 0.1)
    began_behind_the_span = row("d", started=0, ended=1)
    server.add(
        "acme",
        "ants",
        [row("a", started=-24 * 8, ended=-24 * 8 + 1), ended_before_the_window, began_behind_the_span],
    )
    again = collect(server, window=span)
    [request] = server.requests
    assert '"heartbeatAt": {"$gte": "2026-11-07T00:15:00Z"}' in request.variables["filters"]
    assert '{"createdAt": {"$lt": "2026-11-15T00:00:01Z"}}' in request.variables["filters"]
    values = values_of(again.points)
    tags = ("entity:acme", "project:ants")
    assert values["wandb.runs.completed_24h", tags, span.since + HOUR] == 1
    assert values["wandb.runs.completed_24h", tags, span.since + HOUR + STEP] == 0
    assert {at for _, _, at in values} == set(span.ticks)


def test_a_span_without_a_tick_is_empty(server: Wandb) -> None:
    server.add("acme", "ants", [row("a")])
    again = collect(server, window=Window(AT + 1, AT + 899, STEP))
    assert (again.points, again.memory, again.error) == ([], {}, None)


def test_listing_reports_its_progress(server: Wandb) -> None:
    server.add("acme", "ants", [row(f"r{number}", started=-2 + number / 100) for number in range(25)])
    one: dict[str, Any] = {"FLEETGAUGE_WANDB_PAGE_SIZE": "10", "FLEETGAUGE_WANDB_CONNECTIONS": "1"}
    window, doing = Window(AT - 3600, AT, STEP), "listing the runs of acme/ants"
    listed = [(doing, 10, 25), (doing, 19, 25), (doing, 25, 25)]
    for projects, expected in (("acme/ants", listed), ("acme/*", [("listing projects", 0, None), *listed])):
        told: list[tuple[str, int, int | None]] = []
        ran = Ran()
        given = replace(
            context(server, ran, window=window, WANDB_PROJECTS=projects, **one),
            progress=lambda *progress, told=told: told.append(progress),
        )
        assert len([*COLLECTOR.collect(given)]) > 0
        assert told == expected


class TestGaps:
    def test_missed_ticks_are_sent_by_the_next_run_for_their_own_time(self, server: Wandb) -> None:
        server.add("acme", "ants", [row("a", started=-2, ended=-0.5), row("b", "running", ended=-0.001)])
        ran = collect(server, sent_until=AT - 4 * STEP)
        values = values_of(ran.points)
        tags = ("entity:acme", "project:ants")
        ticks = [AT - 3 * STEP, AT - 2 * STEP, AT - STEP, AT]
        assert [values["wandb.runs.completed_24h", tags, at] for at in ticks] == [0, 1, 1, 1]
        assert [values["wandb.runs.active", tags, at] for at in ticks] == [2, 1, 1, 1]
        assert [("wandb.runs.stale", tags, at) in values for at in ticks] == [False, False, False, True]
        assert len(server.requests) == 2  # one of them how busy the GPUs are now
