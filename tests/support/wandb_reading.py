"""A reader of runs against the W&B server, without waiting for anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.wandb.query import Extra, Filter, touched_since
from collectors.wandb.reader import Listing, Reader
from collectors.wandb.settings import WandbSettings
from common.collector import Context
from common.config.sources import Configuration
from common.net.retry import Deadline
from common.outcome import Report
from common.shards import ALONE, Shard
from common.window import Window
from support.servers.fleet import Row
from support.servers.wandb import KEY, Wandb

AT = 1_794_700_800
HOUR = 3600
DAY = 86_400
COHORT: Filter = touched_since(AT - DAY)


@dataclass
class Read:
    """What one pass of a reader left, also where it raised."""

    memory: dict[str, object] = field(default_factory=dict)
    listings: list[Listing] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    waits: list[float] = field(default_factory=list)
    error: Exception | None = None
    missing: frozenset[Extra] = frozenset()

    def clock(self) -> float:
        """Return a clock on which waits pass at once."""
        return time.monotonic() + sum(self.waits)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of runs of each project that was read."""
        return {str(listing.project): len(listing.runs) for listing in self.listings}


def settings(server: Wandb, **variables: str) -> WandbSettings:
    """Return the settings that a set of variables makes."""
    environ = {
        "WANDB_API_KEY": KEY,
        "WANDB_PROJECTS": "acme/ants",
        "WANDB_BASE_URL": server.url,
        **variables,
    }
    return Configuration(environ, None).table(WandbSettings, "wandb")


def context(
    server: Wandb, left: Read, deadline: float = 60, shard: Shard = ALONE, **variables: str
) -> Context[WandbSettings]:
    """Return the context of a live run at a tick."""
    return Context(
        settings=settings(server, **variables),
        window=Window(AT - 900, AT, 900, AT - 3500),
        now=AT + 7,
        deadline=Deadline(deadline, left.clock, left.waits.append),
        memory=left.memory,
        report=left.report,
        shard=shard,
    )


# Any: options of `context`, and variables
def read(
    server: Wandb, memory: Mapping[str, object] | None = None, left: Read | None = None, **options: Any
) -> Read:
    """Read the projects of the settings as a collector does."""
    left = left or Read(dict(memory or {}))
    try:
        reader = Reader(context(server, left, **options))
        projects = reader.select(COHORT)
        left.listings.extend(reader.listings(projects))
        left.missing = reader.missing | projects.missing
    except Exception as error:
        left.error = error
    return left


def row(run: str, state: str = "finished", started: float = -2, ended: float | None = -1, **more: Any) -> Row:
    """Return a run whose times are in hours from AT."""
    heartbeat = None if ended is None else AT + ended * HOUR
    return Row(run, state, AT + started * HOUR, heartbeat, display_name=more.pop("name", run), **more)


def rows(number: int, seconds: float = 0.36) -> list[Row]:
    """Return runs that were all created within the window, so many seconds apart."""
    first = -min(23.5, 3 + number * seconds / HOUR)
    return [row(f"r{index:06d}", started=first + index * seconds / HOUR) for index in range(number)]
