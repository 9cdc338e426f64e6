"""What the tests of the W&B collector share: a server with one project, and a collector run against it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.wandb import collector
from collectors.wandb.settings import WandbSettings
from common.collector import Context, Tally
from common.config.settings import ConfigurationFile, load
from common.errors import FleetgaugeError, together
from common.metric import Mark, Sample
from common.net.retry import Deadline
from common.shards import ALONE, Shard, slot, slotted, split
from common.span import Span
from support.servers.fleet import Row
from support.servers.wandb import KEY, Wandb

AT = 1_794_700_800
HOUR = 3600


@dataclass
class Ran:
    """What one run of the collector left behind, also where it raised."""

    samples: list[Sample] = field(default_factory=list)
    state: dict[str, object] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
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
            sample.value
            for sample in self.samples
            if sample.metric.name == f"wandb.{name}" and set(tags) <= set(sample.tags)
        ]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.tally.dropped)


def settings(server: Wandb, **variables: str) -> WandbSettings:
    environ = {
        "WANDB_API_KEY": KEY,
        "WANDB_PROJECTS": "acme/ants",
        "WANDB_BASE_URL": server.url,
        **variables,
    }
    return load(WandbSettings, "wandb", environ=environ, file=ConfigurationFile())


def context(
    server: Wandb,
    ran: Ran,
    deadline: float = 60,
    *,
    at: int = AT,
    now: int | None = None,
    remembers: bool = True,
    state: Mapping[str, object] | None = None,
    step: int | None = None,
    shard: Shard = ALONE,
    **variables: str,
) -> Context[WandbSettings]:
    """The context of a run at a tick, seven seconds after it."""
    return Context(
        settings=settings(server, **variables),
        at=at,
        now=at + 7 if now is None else now,
        remembers=remembers,
        node_name="node",
        state={_with_slot(key): value for key, value in (state or {}).items()},
        deadline=Deadline(deadline, ran.clock),
        log=logging.getLogger("collectors.wandb"),
        tally=ran.tally,
        step=step,
        shard=shard,
        sendable_since=at + 7 - 3450,
    )


def _with_slot(key: str) -> str:
    """The key of something that is remembered of a project, which tests write without its slot."""
    number, rest = split(key)
    return slotted(number or slot(rest.partition(":")[2]), rest)


# Any: options of `context`, and variables
def collect(server: Wandb, deadline: float = 60, **options: Any) -> Ran:
    """Run the collector without waiting for anything; what it would have waited is noted."""
    ran = Ran()
    _gather(ran, lambda: collector.collect(context(server, ran, deadline, **options), ran.sleep))
    return ran


def recompute(server: Wandb, span: Span, **options: Any) -> Ran:
    """Have the collector answer for a span of the past."""
    ran = Ran()
    _gather(ran, lambda: collector.backfill(context(server, ran, **options), span, ran.sleep)())
    return ran


def _gather(ran: Ran, begin: Callable[[], Iterator[Sample | Mark]]) -> None:
    try:
        for item in begin():
            if isinstance(item, Mark):
                ran.state |= {split(key)[1]: value for key, value in item.changes.items()}
            else:
                ran.samples.append(item)
    except Exception as error:
        ran.error = error


def check(server: Wandb, **variables: Any) -> Ran:
    ran = Ran()
    wrong: list[FleetgaugeError] = []
    try:
        for found in collector.check(context(server, ran, 60, **variables), ran.sleep):
            if isinstance(found, str):
                ran.findings.append(found)
            else:
                wrong.append(found)
        ran.error = together(wrong) if wrong else None
    except Exception as error:
        ran.error = error
    return ran


def row(run: str, state: str = "finished", started: float = -2, ended: float | None = -1, **more: Any) -> Row:
    """A run whose times are in hours from AT."""
    heartbeat = None if ended is None else AT + ended * HOUR
    return Row(run, state, AT + started * HOUR, heartbeat, display_name=more.pop("name", run), **more)


def rows(number: int) -> list[Row]:
    """Runs that all finished within the window."""
    return [row(f"r{place:04d}", started=-3 + place / 10_000) for place in range(number)]
