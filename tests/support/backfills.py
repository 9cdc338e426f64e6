"""What the tests of backfills share: spans, the truth about them, and what an intake holds."""

from __future__ import annotations

import time

from collectors.wandb import metrics
from collectors.wandb.collector import COLLECTOR
from collectors.wandb.ledger import Ledger
from collectors.wandb.metrics import LIVE_ONLY
from collectors.wandb.runs import RunReader
from collectors.wandb.settings import Project as Team
from collectors.wandb.settings import WandbSettings
from common.config.sources import Configuration
from common.times import iso
from common.window import Window
from support.servers.datadog import Intake
from support.servers.fleet import Row
from support.wandb_week import answered

STEP = 900
APP_KEY = "test-app-key"
COSTS = {  # need prices
    *(metrics.USAGE_COST, metrics.USAGE_COST_FAILED, metrics.USAGE_COST_PER_HOUR),
    *(metrics.USAGE_UNPRICED, metrics.USAGE_UNPRICED_HOURS),
}
NAMES = {metric.name for metric in COLLECTOR.metrics if metric not in LIVE_ONLY | COSTS}
TEAM = Team("acme", "ants")
Points = dict[tuple[str, int, tuple[str, ...]], float]


def fixed(hours: float) -> list[str]:
    """The options of a span of so many hours that ended at the last tick."""
    until = int(time.time()) // STEP * STEP
    return ["--since", iso(until - round(hours * 3600)), "--until", iso(until)]


def span_of(options: list[str]) -> Window:
    since, until = (int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))) for text in options[1::2])
    return Window(since - time.timezone, until - time.timezone, STEP)


def truth(rows: list[Row], span: Window) -> Points:
    """Every point of a span, from the rows themselves."""
    environ = {"WANDB_API_KEY": "k", "WANDB_PROJECTS": str(TEAM)}
    settings = Configuration(environ, None).table(WandbSettings, "wandb")
    reading = RunReader("github.sky.*", None, 1, settings.owners)
    runs = [run for row in rows if not row.hidden and (run := reading.read(answered(row), []))]
    every = [series for stretch in Ledger(TEAM, runs, span.ticks, settings).stretches() for series in stretch]
    return {
        (one.metric.name, second, one.tags): value
        for one in every
        for second, value in zip(one.times, one.values, strict=True)
    }


def held(intake: Intake) -> Points:
    """What the intake holds, without the tags that every point has."""
    common = {"env:test", "service:fleetgauge"}
    return {
        (key.metric, key.second, tuple(tag for tag in key.tags if tag not in common)): value
        for key, value in intake.points.items()
    }
