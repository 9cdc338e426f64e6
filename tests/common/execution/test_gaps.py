"""Ticks that were missed: filled by the next one where the intake still takes them, told where it does not.

Time is simulated: the intake, the run and its checkpoint all live by one clock that the test moves.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.execution.backfill import BackfillRun
from common.execution.live import LiveRun
from common.job import Backfill, Job, Mode
from common.outcome import Outcome, Status
from common.parent import Parent
from common.show.dry_run_file import DryRunFile
from support.growing_file import KEY
from support.servers.datadog import Intake
from support.servers.faults import Fault
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
            "FLEETGAUGE_CHECKPOINTS": str(self.store),
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
        job = Job(collector, Mode.PUSH, now=int(self.now), timeout=timeout, step=step)
        return LiveRun(job, {**self.environment, **environment}, clock=lambda: self.now).run()

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


@pytest.mark.slow
def test_datadog_down_for_forty_minutes_leaves_no_gap(world: World) -> None:
    for minutes in (0, 15):
        assert world.tick(minutes).status is Status.OK
    world.intake.faults.add(Fault(status=503), times=None)
    for minutes in (30, 45):
        assert world.tick(minutes, timeout=1).status is Status.FAILED
    world.intake.faults.clear()
    assert world.tick(60).status is Status.OK
    assert world.minutes("wandb.runs.completed_24h") == [0, 15, 30, 45, 60]
    values = world.intake.series("wandb.runs.completed_24h").popitem()[1].values()
    assert list(values) == [0, 1, 3, 4, 6]
    assert world.gap() == 0


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


def test_what_is_too_old_is_told_with_the_command_that_sends_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.tick(0)
    assert world.tick(180).status is Status.OK
    assert world.minutes("wandb.runs.completed_24h") == [0, 135, 150, 165, 180]
    assert world.gap() == 8 * STEP
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    [told] = [line for line in said if "--since" in line["message"]]
    assert told["status"] == "warning"
    command = "run_collector.py wandb --since 2026-11-15T00:15:00Z --until 2026-11-15T02:15:00Z --push --yes"
    gap = "2026-11-15T00:15:00Z to 2026-11-15T02:15:00Z"
    words = f"the points from {gap} were not sent and are too old now; to send them: {command}"
    assert told["message"] == words
    world.tick(195)
    assert world.gap() == 0


def test_without_a_store_nothing_is_filled_and_no_gap_is_claimed(world: World) -> None:
    world.tick(0, FLEETGAUGE_CHECKPOINTS="")
    world.tick(60, FLEETGAUGE_CHECKPOINTS="")
    assert world.minutes("wandb.runs.completed_24h") == [0, 60]
    assert world.gap() is None


def test_the_first_tick_of_all_claims_no_gap(world: World) -> None:
    world.tick(0)
    assert world.gap() is None


@pytest.mark.parametrize(("away", "gap"), [(15, 0), (16, 0), (30, STEP), (120, 7 * STEP)])
def test_a_machine_that_was_away_has_missed_every_tick_of_it(
    world: World, away: int, gap: int, capsys: pytest.CaptureFixture[str]
) -> None:
    world.tick(0, "host")
    world.tick(away, "host")
    assert world.gap("host") == gap
    said = re.search(
        "nothing was measured from .*, and it cannot be measured afterwards", capsys.readouterr().err
    )
    assert (said is not None) is (gap > 0)


@pytest.mark.parametrize(("away", "gap"), [(15, 0), (60, 0), (75, STEP), (180, 8 * STEP)])
def test_what_reads_on_from_where_it_was_misses_only_what_the_intake_does_not_take(
    world: World, tmp_path: Path, away: int, gap: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for minutes in (0, away):
        world.tick(minutes, "xenna", FLEETGAUGE_XENNA_PATHS=str(tmp_path / "*.jsonl"))
    assert world.gap("xenna") == gap
    assert ("run_collector.py xenna --since 2026-11-14T23:45:07Z" in capsys.readouterr().err) is (gap > 0)


def test_a_run_that_lost_something_is_not_the_last_success(world: World) -> None:
    world.tick(0)
    assert world.tick(15, WANDB_PROJECTS="acme/ants,acme/gone").status is Status.PARTIAL
    assert world.intake.value("collector.last_success_age_seconds") == STEP
    world.tick(30)
    assert world.intake.value("collector.last_success_age_seconds") == 0


def test_a_tick_that_may_become_too_old_before_the_run_is_over_is_part_of_the_gap(world: World) -> None:
    world.tick(0)
    world.tick(60, timeout=900)
    assert world.minutes("wandb.runs.completed_24h") == [0, 30, 45, 60]
    assert world.gap() == STEP


def test_the_command_for_a_gap_keeps_the_step(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.tick(0, step=60)
    world.tick(120, step=60)
    assert "--until 2026-11-15T01:02:00Z --step 60s --push" in capsys.readouterr().err


def looked_at(world: World, collector: str, minutes: float, folder: Path) -> tuple[Outcome, dict[int, float]]:
    """A dry run so many minutes after midnight: what came of it, and one metric by minute."""
    now = MIDNIGHT + int(minutes * 60)
    path = folder / f"{collector}-{minutes}"
    job = Job(collector, Mode.DRY_RUN, now=now, timeout=60, samples_path=str(path))
    outcome = LiveRun(job, world.environment, clock=lambda: float(now)).run()
    parts = [part for part in DryRunFile(path) if part.series.metric == "wandb.runs.completed_24h"]
    return outcome, {
        (second - MIDNIGHT) // 60: value
        for part in parts
        for second, value in zip(part.seconds, part.values, strict=True)
    }


def test_a_dry_run_answers_for_the_tick_as_a_push_does_and_counts_what_a_push_would_fill(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.tick(0)
    kept = {path: path.read_bytes() for path in world.store.glob("*.json")}
    outcome, shown = looked_at(world, "wandb", 52, tmp_path)
    assert (outcome.as_of, outcome.missed_ticks) == (MIDNIGHT + 45 * 60, 2)
    assert {path: path.read_bytes() for path in world.store.glob("*.json")} == kept
    world.tick(52)
    assert world.minutes("wandb.runs.completed_24h") == [0, 15, 30, 45]
    [pushed] = world.intake.series("wandb.runs.completed_24h").values()
    assert shown == {45: pushed[MIDNIGHT + 45 * 60]}
    outcome, _ = looked_at(world, "wandb", 53, tmp_path)
    assert (outcome.as_of, outcome.missed_ticks) == (MIDNIGHT + 45 * 60, 0)
    outcome, _ = looked_at(world, "wandb", 300, tmp_path)  # the gap is for the push to tell
    assert outcome.missed_ticks == 3
    assert "too old now" not in capsys.readouterr().err


def test_a_dry_run_of_what_is_measured_is_as_of_when_it_was_measured(world: World, tmp_path: Path) -> None:
    outcome, _ = looked_at(world, "host", 52, tmp_path)
    assert (outcome.as_of, outcome.missed_ticks) == (MIDNIGHT + 52 * 60, 0)


@pytest.mark.parametrize("last", [True, -1, -(10**400), 10**400, 5, 1e308, "1", [1]])
def test_a_last_tick_that_cannot_be_is_no_last_tick(world: World, last: object) -> None:
    world.tick(0)
    [path] = world.store.glob("wandb-*-slot-*.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "state": {"tick:acme/ants": last}}))
    assert world.tick(15).status is Status.OK
    assert world.minutes("wandb.runs.completed_24h") == [0, 15]
    assert json.loads(path.read_text())["state"] == {"tick:acme/ants": MIDNIGHT + 15 * 60}


class Slow(Parent):
    """A person who agrees after twenty minutes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def agrees(self, text: str) -> bool:
        self._world.now += 1200
        return True


def test_what_becomes_too_old_while_a_person_thinks_is_not_sent_into_the_void(world: World) -> None:
    world.now = MIDNIGHT + 3 * 3600
    since, until = int(world.now) - 55 * 60, int(world.now)
    backfill = Backfill(since, until, ("--since", "55m"), ask=True)
    job = Job("wandb", Mode.PUSH, now=until, timeout=600, backfill=backfill)

    def run() -> Outcome:
        return BackfillRun(job, world.environment, Slow(world), clock=lambda: world.now).run()

    outcome = run()
    assert outcome.status is Status.FAILED
    assert outcome.error is not None
    assert outcome.error.message == "points became older than an hour before they were sent: run it again"
    assert not world.intake.points
    again = run()
    assert again.error is not None
    assert "DD_APP_KEY" in again.error.message  # now it is asked whether Datadog takes them
