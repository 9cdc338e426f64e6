"""What the tests of the W&B collector share: a server with one project, and a collector run against it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from collectors.wandb import collector
from collectors.wandb.settings import WandbSettings
from common.collector import Context, Tally
from common.metric import Sample
from common.retry import Deadline
from common.settings import ConfigurationFile, load
from servers.fleet import Row
from servers.wandb import KEY, Wandb

AT = 1_794_700_800
HOUR = 3600


@dataclass
class Ran:
    """What one run of the collector left behind, also where it raised."""

    samples: list[Sample] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    waits: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: Exception | None = None

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


def context(server: Wandb, ran: Ran, deadline: float = 60, **variables: str) -> Context[WandbSettings]:
    return Context(
        settings=settings(server, **variables),
        at=AT,
        now=AT + 7,
        node_name="node",
        state={},
        deadline=Deadline(deadline),
        log=logging.getLogger("collectors.wandb"),
        tally=ran.tally,
    )


def collect(server: Wandb, deadline: float = 60, **variables: str) -> Ran:
    """Run the collector without waiting for anything; what it would have waited is noted."""
    ran = Ran()
    try:
        for sample in collector.collect(context(server, ran, deadline, **variables), ran.waits.append):
            ran.samples.append(sample)
    except Exception as error:
        ran.error = error
    return ran


def check(server: Wandb, **variables: str) -> Ran:
    ran = Ran()
    try:
        for finding in collector.check(context(server, ran, 60, **variables), ran.waits.append):
            ran.findings.append(finding)
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
