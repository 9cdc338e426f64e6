"""Complete runs of the collector, at any time: what is sent, stored and lost, and what a value is made of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.wandb import collector, metrics
from common.datadog.intake import DatadogSink
from common.options import Mode, Options
from common.outcome import Outcome, Status
from common.run.run import run
from common.shards import ALONE, Shard
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.servers.fleet import client_config, plausible_day, system_row
from support.servers.wandb import KEY, Wandb
from support.wandb_runs import AT, HOUR, Ran, collect, context, row, rows

ROOT = Path(__file__).resolve().parents[3]
STEP = 900
LOW, BUSY = 1.0, 90.0


class KilledError(BaseException):
    """The process ended at once."""


class World:
    """A W&B server, an intake and a store; `now` is the time of all."""

    def __init__(self, wandb: Wandb, intake: Intake, folder: Path) -> None:
        self.wandb, self.intake = wandb, intake
        self.now = AT + 7
        intake.clock = lambda: self.now
        self.environ = {
            "DD_API_KEY": intake.key,
            "DD_ENV": "test",
            "FLEETGAUGE_DD_URL": intake.url,
            "FLEETGAUGE_STATE": str(folder),
            "WANDB_API_KEY": KEY,
            "WANDB_BASE_URL": wandb.url,
            "WANDB_PROJECTS": "acme/*",
        }

    def run(self, mode: Mode = Mode.PUSH, shard: Shard = ALONE, **environ: str) -> Outcome:
        options = Options(mode, timeout=20, shard=shard)
        return run("wandb", options, {**self.environ, **environ}, clock=lambda: self.now)

    def values(self, metric: str) -> dict[str, dict[int, float]]:
        """Return the values of a metric by project and second."""
        found: dict[str, dict[int, float]] = {}
        for key, value in self.intake.points.items():
            if key.metric == f"wandb.{metric}":
                [project] = [tag for tag in key.tags if tag.startswith("project:")]
                found.setdefault(project.removeprefix("project:"), {})[key.second] = value
        return found


@pytest.fixture
def world(server: Wandb, tmp_path: Path) -> Iterator[World]:
    with Intake() as intake:
        yield World(server, intake, tmp_path)


def running(utilization: float, at: int) -> Any:
    system = system_row(utilization, utilization, _timestamp=at)
    each = row("r1", "running", started=-5, config=client_config(2), system=system)
    each.heartbeat_at = at
    return each


class TestIdleMemory:
    @pytest.mark.parametrize("fate", ["low", "sent", "intake down", "killed"])
    def test_busy_counts_whatever_becomes_of_the_points(
        self, world: World, fate: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown = world.wandb.add("acme", "ants", [])
        for tick, utilization in enumerate((LOW, LOW, LOW if fate == "low" else BUSY, LOW, LOW)):
            world.now = AT + tick * STEP + 7
            shown[:] = [running(utilization, world.now - 7)]
            if utilization == BUSY and fate == "killed":
                with monkeypatch.context() as patch:
                    patch.setattr(DatadogSink, "flush", _kill)
                    with pytest.raises(KilledError):
                        world.run()
            else:
                if utilization == BUSY and fate == "intake down":
                    world.intake.faults.add(Fault(status=500), times=None)
                world.run()
                world.intake.faults.clear()
        expected = {"ants": {AT + 4 * STEP: HOUR}} if fate == "low" else {}
        assert world.values("idle.run_seconds") == expected
        assert world.values("usage.gpus_idle")["ants"][AT + 4 * STEP] == (2 if fate == "low" else 0)


def _kill(*_: object) -> None:
    raise KilledError


class TestCollidingNames:
    def add(self, world: World) -> None:
        world.wandb.add("acme", "Demo", rows(2))
        world.wandb.add("acme", "demo", rows(3))
        world.wandb.add("acme", "other", rows(4))
        world.wandb.created = {
            ("acme", "demo"): "2026-01-01T00:00:00Z",
            ("acme", "Demo"): "2026-01-02T00:00:00Z",
            ("acme", "other"): "2026-01-03T00:00:00Z",
        }

    def test_the_project_created_first_is_sent_and_the_other_is_lost(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.add(world)
        outcome = world.run()
        assert outcome.status is Status.PARTIAL
        [lost] = outcome.report.lost
        assert lost.startswith("acme/Demo: ")
        assert "lost acme/Demo: Datadog stores its tags as those of acme/demo" in capsys.readouterr().err
        assert world.values("runs.completed_24h") == {"demo": {AT: 3}, "other": {AT: 4}}
        checked = world.run(Mode.CHECK)
        assert (checked.status, checked.report.lost) == (Status.PARTIAL, [lost])

    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_shards_send_together_what_one_run_sends(self, world: World, count: int) -> None:
        self.add(world)
        for number in range(8):
            world.wandb.add("acme", f"p{number}", plausible_day(AT, 20, seed=number))
        world.run()
        alone = {key: value for key, value in world.intake.points.items() if key.metric.startswith("wandb.")}
        world.intake.points.clear()
        lost = Counter(
            unit.partition(":")[0]
            for index in range(count)
            for unit in world.run(shard=Shard(index, count)).report.lost
        )
        sent = {key: value for key, value in world.intake.points.items() if key.metric.startswith("wandb.")}
        assert (sent, lost) == (alone, {"acme/Demo": 1})


class TestPrices:
    @pytest.mark.parametrize(("prices", "unmatched"), [("h200=4", "h200"), ("h100=2,default=1", None)])
    def test_a_price_that_matches_no_type_is_a_warning_and_a_finding(
        self, world: World, capsys: pytest.CaptureFixture[str], prices: str, unmatched: str | None
    ) -> None:
        world.wandb.add("acme", "ants", [row("a", config=client_config(2))])
        assert world.run(FLEETGAUGE_WANDB_GPU_PRICES=prices).status is Status.OK
        found = "no run has a GPU of type" in capsys.readouterr().err
        findings = " ".join(world.run(Mode.CHECK, FLEETGAUGE_WANDB_GPU_PRICES=prices).report.findings)
        assert found is ("no run has a GPU of type" in findings) is (unmatched is not None)
        assert (unmatched or "") in findings


def test_explanation_agrees_with_what_is_sent_for_every_project(server: Wandb) -> None:
    for number, project in enumerate(("ants", "bees")):
        server.add("acme", project, plausible_day(AT, 40, seed=number))
    options: dict[str, Any] = {"WANDB_PROJECTS": "acme/*", "FLEETGAUGE_WANDB_GPU_PRICES": "h100=2.49"}
    memory: dict[str, object] = {}
    for at in range(AT - HOUR, AT, STEP):
        memory = collect(server, at=at, memory=memory, **options).memory
    sent = collect(server, memory=memory, **options)
    # One metric for each way of computing: `test_explain` has them all.
    for metric in (metrics.TOTAL_RECENT, metrics.USAGE_COST, metrics.USAGE_BUSY, metrics.IDLE_GPUS):
        every = collector.explain(context(server, Ran(), memory=memory, **options), metric, {})
        assert [row["adds"] for row in every] == sorted(
            (float(str(row["adds"])) for row in every), reverse=True
        )
        for project in ("ants", "bees"):
            values = [
                point.value
                for point in sent.points
                if point.metric is metric and f"project:{project}" in point.tags
            ]
            adds = [float(str(row["adds"])) for row in every if f"/{project}/" in str(row["url"])]
            assert values
            assert math.isclose(math.fsum(adds), math.fsum(values), rel_tol=1e-9), metric.name
