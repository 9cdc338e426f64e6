"""A week of what the W&B collector says of a plausible fleet, as a dry run keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from collectors.wandb.ledger import Ledger
from collectors.wandb.runs import Run, RunReader
from collectors.wandb.settings import Project
from common.show.points import Points
from common.window import Window
from support.servers.fleet import Row, plausible_day
from support.sinks import send
from support.wandb_ledger import DEFAULTS

DAY = 86_400
END = 1_794_614_400  # a Saturday's midnight, UTC
WEEK = Window(END - 7 * DAY, END, 900)
PROJECT = Project("acme", "ants")


def runs(span: Window = WEEK) -> list[Run]:
    """The runs of every day of the span, fewer at the weekend, and of the day before it."""
    reading = RunReader("github.sky.*", None, 1)
    days = range((span.until - span.since) // DAY + 2)
    rows = [row for day in days for row in _day(span.until - day * DAY, day)]
    return [run for row in rows if (run := reading.read(answered(row), [])) is not None]


def answered(row: Row) -> dict[str, Any]:
    """The run as an answer of the server holds it."""
    return {key: value(None) if callable(value) else value for key, value in row.node().items()}


def _day(end: int, number: int) -> Iterator[Row]:
    busy = end // DAY % 7 not in {3, 4}  # what ends at Sunday's or Monday's midnight
    for row in plausible_day(end, runs=240 if busy else 60, seed=number):
        if number == 0 or row.state != "running":
            yield replace(row, id=f"{number}-{row.id}")


def week_points(span: Window = WEEK) -> Points:
    """Return the points of the span as a dry run of a backfill would keep them."""
    points = Points(20_000, span.since, span.until)
    for stretch in Ledger(PROJECT, runs(span), span.ticks, DEFAULTS).stretches():
        send(points, stretch)
    return points
