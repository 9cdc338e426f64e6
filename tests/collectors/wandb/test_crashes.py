"""Idleness is remembered from look to look, whatever is killed between a look and its save."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from support.project import Project
from support.servers.datadog import Intake
from support.servers.fleet import Row, client_config, system_row
from support.servers.wandb import Wandb

pytestmark = pytest.mark.slow

STEP, LOOKS = 300, 5


@pytest.mark.parametrize("point", AT_THE_INTAKE + AT_THE_STORE)
def test_killed_at_every_look_it_knows_how_long_a_run_has_idled(
    fleet: Project, wandb: Wandb, intake: Intake, point: str
) -> None:
    now = int(time.time()) // STEP * STEP
    idle = Row("idle", "running", now - 7200, now, config=client_config(4), system=system_row(0, 1, 0, 2))
    busy = Row("busy", "running", now - 7200, now, config=client_config(4), system=system_row(0, 90, 0, 0))
    wandb.projects["acme", "ants"] = [idle, busy]
    fleet.environment["FLEETGAUGE_WANDB_IDLE_AFTER"] = f"{(LOOKS - 1) * STEP}s"
    with CrashHarness(fleet, intake, "wandb") as harness:
        for number in range(LOOKS):
            tick: dict[str, Any] = {"now": now - (LOOKS - 1 - number) * STEP, "step": STEP}
            assert harness.run(Kill(point), **tick) is None
            outcome = harness.run(**tick)
            assert outcome is not None
            assert outcome["status"] == "ok", outcome
    [(series, seconds)] = intake.series("wandb.idle.run_seconds").items()
    assert "run_id:idle" in series[0]
    assert seconds == {now: (LOOKS - 1) * STEP}
    gpus = [points[now] for points in intake.series("wandb.usage.gpus_idle").values()]
    assert sum(gpus) == 4
