"""What the tests of backfills share: spans, names, and what an intake holds."""

from __future__ import annotations

import time

from collectors.wandb import metrics
from collectors.wandb.collector import COLLECTOR
from common.times import iso
from support.servers.datadog import Intake

APP_KEY = "test-app-key"
COSTS = {  # need prices
    *(metrics.USAGE_COST, metrics.USAGE_COST_FAILED, metrics.USAGE_COST_PER_HOUR),
    *(metrics.USAGE_UNPRICED, metrics.USAGE_UNPRICED_HOURS),
}
NAMES = {metric.name for metric in COLLECTOR.metrics if metric not in metrics.LIVE_ONLY | COSTS}


def fixed(hours: int) -> list[str]:
    """The options of a span of so many hours that ended at the last tick."""
    until = int(time.time()) // 900 * 900
    return ["--since", iso(until - hours * 3600), "--until", iso(until)]


def held(intake: Intake) -> dict[tuple[str, int, tuple[str, ...]], float]:
    """What the intake holds, without the tags that every point has."""
    common = {"env:test", "service:fleetgauge"}
    return {
        (key.metric, key.second, tuple(tag for tag in key.tags if tag not in common)): value
        for key, value in intake.points.items()
    }
