"""What the tests of the W&B collector share: a server with one project, and a collector run against it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.wandb import collector
from collectors.wandb.settings import WandbSettings
from common.collector import Context
from common.errors import FleetgaugeError, combine_errors
from common.net.retry import Deadline
from common.outcome import Report
from common.shards import ALONE, Shard
from common.window import Window, due
from support.points import Point, points
from support.servers.wandb import Wandb
from support.wandb_reading import AT, HOUR, row, rows, settings

__all__ = ["AT", "HOUR", "Ran", "check", "collect", "context", "row", "rows", "settings"]


@dataclass
class Ran:
    """What one run of the collector left behind, also where it raised."""

    points: list[Point] = field(default_factory=list)
    memory: dict[str, object] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    waits: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: Exception | None = None

    def sleep(self, seconds: float) -> None:
        """Wait for nothing, but let that much time pass for whoever asks `clock`."""
        self.waits.append(seconds)

    def clock(self) -> float:
        return time.monotonic() + sum(self.waits)

    def value(self, name: str, *tags: str) -> float | None:
        """The value of the one series of this name that has these tags."""
        found = [
            point.value
            for point in self.points
            if point.metric.name == f"wandb.{name}" and set(tags) <= set(point.tags)
        ]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.report.dropped)


def context(
    server: Wandb,
    ran: Ran,
    deadline: float = 60,
    *,
    at: int = AT,
    memory: Mapping[str, object] | None = None,
    sent_until: int | None = None,
    step: int = 900,
    window: Window | None = None,
    shard: Shard = ALONE,
    **variables: str,
) -> Context[WandbSettings]:
    """Return the context of a run at a tick, seven seconds after it; or of a window of the past."""
    ran.memory = json.loads(json.dumps(memory or {}))
    return Context(
        settings=settings(server, **variables),
        window=window or due(at + 7, step, sent_until, at + 7 - 3450),
        now=at + 7,
        deadline=Deadline(deadline, ran.clock, ran.sleep),
        memory=ran.memory,
        report=ran.report,
        shard=shard,
    )


# Any: options of `context`, and variables
def collect(server: Wandb, deadline: float = 60, **options: Any) -> Ran:
    """Run the collector without waiting for anything; what it would have waited is noted."""
    ran = Ran()
    try:
        for series in collector.collect(context(server, ran, deadline, **options)):
            ran.points += points([series])
    except Exception as error:
        ran.error = error
    return ran


def check(server: Wandb, **variables: Any) -> Ran:
    ran = Ran()
    wrong: list[FleetgaugeError] = []
    try:
        for found in collector.check(context(server, ran, 60, **variables)):
            if isinstance(found, str):
                ran.findings.append(found)
            else:
                wrong.append(found)
        ran.error = combine_errors(wrong) if wrong else None
    except Exception as error:
        ran.error = error
    return ran
