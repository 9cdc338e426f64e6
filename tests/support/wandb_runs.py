"""What the tests of the W&B collector share: a server with one project, and a collector run against it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.wandb import collector
from collectors.wandb.api import Extra
from collectors.wandb.query import Filter, touched_since
from collectors.wandb.reader import Listing, Reader
from collectors.wandb.settings import WandbSettings
from common.collector import Context
from common.config.sources import Configuration
from common.net.retry import Deadline
from common.outcome import Report
from common.shards import ALONE, Shard
from common.window import Window, due
from support.points import Point, points
from support.servers.fleet import Row
from support.servers.wandb import KEY, Wandb

AT = 1_794_700_800
HOUR = 3600
DAY = 86_400
COHORT: Filter = touched_since(AT - DAY)


@dataclass
class Ran:
    """What one run of the collector, or of its reader, left behind, also where it raised."""

    points: list[Point] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    missing: frozenset[Extra] = frozenset()
    memory: dict[str, object] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    waits: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: Exception | None = None

    def clock(self) -> float:
        """Return the time on a clock on which waits pass at once."""
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
    def counts(self) -> dict[str, int]:
        """Return the number of runs of each project that was read."""
        return {str(listing.project): len(listing.runs) for listing in self.listings}

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.report.dropped)


def settings(server: Wandb, **variables: str) -> WandbSettings:
    """Return the settings that a set of variables makes."""
    environ = {"WANDB_API_KEY": KEY, "WANDB_PROJECTS": "acme/ants", "WANDB_BASE_URL": server.url}
    return Configuration({**environ, **variables}, None).table(WandbSettings, "wandb")


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
        deadline=Deadline(deadline, ran.clock, ran.waits.append),
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


def read(
    server: Wandb,
    memory: Mapping[str, object] | None = None,
    ran: Ran | None = None,
    deadline: float = 60,
    **options: Any,
) -> Ran:
    """Read the projects of the settings, and compute nothing."""
    ran = ran or Ran()
    try:
        reader = Reader(context(server, ran, deadline, memory=memory, **options))
        ran.listings = collector.read_listings(reader)
        ran.missing = reader.api.missing
    except Exception as error:
        ran.error = error
    return ran


def check(server: Wandb, deadline: float = 60, **variables: Any) -> Ran:
    ran = Ran()
    try:
        for found in collector.check(context(server, ran, deadline, **variables)):
            ran.findings.append(str(found))
    except Exception as error:
        ran.error = error
    return ran


def row(run: str, state: str = "finished", started: float = -2, ended: float | None = -1, **more: Any) -> Row:
    """Return a run whose times are in hours from AT."""
    heartbeat = None if ended is None else AT + ended * HOUR
    return Row(run, state, AT + started * HOUR, heartbeat, display_name=more.pop("name", run), **more)


def rows(number: int, seconds: float = 0.36) -> list[Row]:
    """Return runs that were all created within the window, so many seconds apart."""
    first = -min(23.5, 3 + number * seconds / HOUR)
    return [row(f"r{index:06d}", started=first + index * seconds / HOUR) for index in range(number)]
