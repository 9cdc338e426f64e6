"""Ticks that were missed: filled by the next one where the intake still takes them, told where it does not.

Time is simulated: the intake, the run and its checkpoint all live by one clock that the test moves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.options import Mode, Options
from common.outcome import Outcome
from common.run.run import run
from support.project import KEY
from support.servers.datadog import Intake
from support.servers.fleet import Row
from support.servers.wandb import KEY as WANDB_KEY
from support.servers.wandb import Wandb

MIDNIGHT = 1_794_700_800
STEP = 900


@pytest.fixture(autouse=True)
def _the_loggers_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class World:
    """An intake, a W&B and a service that runs when told, all at one simulated time."""

    def __init__(self, intake: Intake, wandb: Wandb, folder: Path) -> None:
        self.now = float(MIDNIGHT)
        self.intake, self.wandb = intake, wandb
        intake.clock = lambda: self.now
        self.store = folder / "store"
        self.store.mkdir()
        self.environment = {
            "DD_ENV": "test",
            "DD_API_KEY": KEY,
            "FLEETGAUGE_DD_URL": intake.url,
            "FLEETGAUGE_STATE": str(self.store),
            "FLEETGAUGE_NODE_NAME": "node",
            "WANDB_API_KEY": WANDB_KEY,
            "WANDB_PROJECTS": "acme/ants",
            "WANDB_BASE_URL": wandb.url,
        }

    def tick(
        self,
        minutes: float,
        collector: str = "wandb",
        *,
        timeout: float = 60,
        step: int | None = None,
        **environment: str,
    ) -> Outcome:
        """Run the collector so many minutes after midnight, a few seconds late as schedules are."""
        self.now = MIDNIGHT + minutes * 60 + 7
        options = Options(Mode.PUSH, timeout=timeout, step=step)
        return run(collector, options, {**self.environment, **environment}, clock=lambda: self.now)

    def minutes(self, metric: str) -> list[int]:
        """The minutes after midnight for which a metric has a point."""
        return sorted((key.second - MIDNIGHT) // 60 for key in self.intake.points if key.metric == metric)

    def gap(self, collector: str = "wandb") -> float | None:
        return self.intake.value("collector.gap_seconds", [f"collector:{collector}"])


@pytest.fixture
def world(intake: Intake, tmp_path: Path) -> Iterator[World]:
    with Wandb() as wandb:
        ended = [Row(f"r{n}", "finished", MIDNIGHT + n * 300, MIDNIGHT + n * 600) for n in range(1, 20)]
        wandb.add("acme", "ants", ended)
        yield World(intake, wandb, tmp_path)


def test_what_was_missed_is_what_would_have_been_sent(world: World) -> None:
    """The same hours, once with an outage and once without, end with the same points."""
    for minutes in range(0, 75, 15):
        world.tick(minutes)
    whole = {key: value for key, value in world.intake.points.items() if key.metric.startswith("wandb.")}
    world.intake.points.clear()
    for path in world.store.iterdir():
        path.unlink()
    for minutes in (0, 60):
        world.tick(minutes)
    filled = {key: value for key, value in world.intake.points.items() if key.metric.startswith("wandb.")}
    absent = {key for key in whole if key.metric.rpartition(".")[2] in {"stale", "pending", "unseen"}}
    assert filled == {key: value for key, value in whole.items() if key in filled}
    assert whole.keys() - filled.keys() <= absent
