"""GPU utilisation of the active runs of a project at one tick, and which runs have been idle for long.

Low utilisation at one observation is a checkpoint being written or a restart: a run is idle if it was low at
every observation for a while. Observations are stored in the collector's memory, whatever becomes of the
points. Shares are added up exactly: `sum` of floats depends on their order. `runs` parses the system metrics
of a run; `ledger` decides which group a run is counted in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from collectors.wandb import metrics as m
from collectors.wandb.groups import DOLLAR
from collectors.wandb.ledger import Group, Ledger
from collectors.wandb.runs import SECOND, TERMINAL, Reported, Run
from collectors.wandb.settings import Project, WandbSettings
from common.metric import Metric, Series

MEMORY_KEY = "idle"

_NOTHING = Reported(0, 0.0, 0, 0.0, 0.0, None)


class Memory(NamedTuple):
    """What is stored of a run whose GPUs were all low at the last observation that counted, in seconds.

    `since` is the first of these observations and `counted` the last; `observed` is the last of any kind.
    `runtime` is how long the run had worked, `timestamp` that of its row of system metrics.
    """

    since: int
    counted: int
    observed: int
    runtime: float
    timestamp: float | None


Stored = dict[str, tuple[int, dict[str, Memory]]]  # by project: when, and by run


class Observed(NamedTuple):
    """An active run with the figures of its GPUs, and how long it has been low (None where it is not)."""

    run: Run
    reported: Reported
    low_seconds: int | None


class Observation(NamedTuple):
    """The active runs of a project at a tick; `has_before` is whether an earlier observation is stored."""

    project: Project
    at: int
    runs: list[Observed]
    has_before: bool


def active_runs(runs: Iterable[Run], at: int, settings: WandbSettings) -> list[Run]:
    """Return the runs that are running at a tick by their heartbeat.

    W&B leaves some runs in state running for weeks after they died, so that the state alone is not enough.
    """
    now, stale_after = at * SECOND, settings.stale_after * SECOND
    return [
        run
        for run in runs
        if run.state not in TERMINAL and run.state != "pending" and run.start <= now < run.seen + stale_after
    ]


def with_observed_gpus(runs: Iterable[Run], observed: Iterable[Run]) -> list[Run]:
    """Return the runs of a listing; those without GPUs whose system metrics have some, with these."""
    counts = {run.id: run.gpus for run in observed if run.gpus}
    return [run._replace(gpus=counts[run.id]) if not run.gpus and run.id in counts else run for run in runs]


def observe(
    project: Project, runs: Iterable[Run], at: int, max_gap: int, settings: WandbSettings, stored: Stored
) -> Observation:
    """Return the active runs of a project with their figures, and add to what is stored.

    An observation more than `max_gap` seconds after the last does not continue it. `stored` is changed: the
    project's entry is replaced by that of this tick.
    """
    before_at, before = stored.get(str(project), (None, {}))
    after: dict[str, Memory] = {}
    found: list[Observed] = []
    for run in active_runs(runs, at, settings):
        reported = run.reported
        if reported and reported.timestamp is not None and reported.timestamp <= at - settings.stale_after:
            # Utilisation that old is no evidence for the present.
            reported = None  # as old as a stale heartbeat
        runtime = (run.seen - run.worked_from) / SECOND
        idle = remember(before.get(run.name), reported, runtime, at, settings.idle_below, max_gap)
        if idle is not None:
            after[run.name] = idle
        is_low = idle is not None and reported is not None and bool(reported.gpus)
        found.append(
            Observed(run, reported or _NOTHING, idle.counted - idle.since if idle and is_low else None)
        )
    stored[str(project)] = (at, after)
    has_before = before_at is not None and 0 <= at - before_at <= max_gap
    return Observation(project, at, found, has_before)


def load_observations(memory: dict[str, object]) -> Stored:
    """Return what a collector's memory holds of earlier observations; nothing where it is damaged."""
    try:
        return TypeAdapter(Stored).validate_python(memory.get(MEMORY_KEY, {}))
    except ValidationError:
        return {}


def save_observations(memory: dict[str, object], stored: Stored, at: int, max_gap: int) -> None:
    """Store observations, without projects of which the last is so old that nothing can follow from it."""
    memory[MEMORY_KEY] = {name: entry for name, entry in stored.items() if at - entry[0] <= max_gap}


def remember(
    before: Memory | None, reported: Reported | None, runtime: float, at: int, below: float, max_gap: int
) -> Memory | None:
    """Return what to store of a run after an observation; None where it is not low.

    `runtime` is how long the run has worked, `below` the utilisation in percent under which it is low.
    Without figures, what was stored stays: unknown is neither busy nor idle.
    """
    if before is not None and (not 0 <= at - before.observed <= max_gap or runtime < before.runtime):
        before = None  # it was not observed for too long, or restarted
    if reported is None or not reported.gpus:
        return before and before._replace(observed=at, runtime=runtime)
    is_busy = reported.busiest >= below
    if before and before.timestamp is not None and reported.timestamp is not None:
        if is_busy and reported.timestamp < before.timestamp:
            return None  # a clock was set back
        # Without a new row nothing was learnt: the time between is not counted as idle.
        if reported.timestamp <= before.timestamp:  # the row of an earlier observation
            return before._replace(observed=at, runtime=runtime)
    if is_busy:
        return None
    since = at if before is None else before.since
    return Memory(since, at, at, runtime, reported.timestamp)


def observed_series(observation: Observation, ledger: Ledger, settings: WandbSettings) -> Iterator[Series]:
    """Yield the utilisation of a project and its groups; idle ones only after an earlier observation.

    Without an earlier one no run can have been low for long, and 0 idle GPUs would be a claim without
    evidence.
    """
    at = observation.at
    groups: defaultdict[Group, list[Observed]] = defaultdict(list)
    for each in observation.runs:
        groups[ledger.counted_group(each.run.owner.group)].append(each)
    for group, runs in sorted(groups.items()):
        tags = ledger.group_tags(group)
        for metric, value in _group_values(runs, settings, has_idle=observation.has_before):
            yield metric(value, at, **tags)
    tags = {"entity": observation.project.entity, "project": observation.project.name}
    if (busy := utilization(observation.runs)) is not None:
        yield m.UTILIZATION(busy, at, **tags)
    for run, reported, seconds in idle_runs(observation, settings):
        run_tags = {**tags, "user": run.owner.user, "run": run.title, "run_id": run.name}
        yield m.IDLE_GPUS(reported.gpus, at, **run_tags)
        yield m.IDLE_SECONDS(seconds or 0, at, **run_tags)


def _group_values(
    runs: Sequence[Observed], settings: WandbSettings, *, has_idle: bool
) -> Iterator[tuple[Metric, float]]:
    """Yield the metrics of a group, as sums: a dashboard divides them over any grouping."""
    gpus = sum(each.reported.gpus for each in runs)
    memory_gpus = sum(each.reported.memory_gpus for each in runs)
    yield m.USAGE_REPORTING, gpus
    if gpus:
        yield m.USAGE_BUSY, math.fsum(each.reported.busy for each in runs)
    if memory_gpus:
        yield m.USAGE_REPORTING_MEMORY, memory_gpus
        yield m.USAGE_MEMORY_FILLED, math.fsum(each.reported.memory_filled for each in runs)
    if gpus and has_idle:
        idle = [each for each in runs if _is_idle(each, settings)]
        yield m.USAGE_IDLE, sum(each.reported.gpus for each in idle)
        prices = [(each.reported.gpus, each.run.owner.price) for each in idle]
        costs = [count * price for count, price in prices if price is not None]
        # Where all idle GPUs lack a price, their cost is unknown, and not 0.
        if settings.gpu_prices and (costs or not idle):
            yield m.IDLE_COST, sum(costs) / DOLLAR


def _is_idle(each: Observed, settings: WandbSettings) -> bool:
    return each.low_seconds is not None and each.low_seconds >= settings.idle_after


def utilization(runs: Iterable[Observed]) -> float | None:
    """Return the utilisation of the GPUs that report, in percent; None where none does."""
    reported = [each.reported for each in runs]
    gpus = sum(each.gpus for each in reported)
    return 100 * math.fsum(each.busy for each in reported) / gpus if gpus else None


def idle_runs(observation: Observation, settings: WandbSettings) -> list[Observed]:
    """Return the idle runs of a project that are sent by name: first those with most idle GPU time."""
    idle = [each for each in observation.runs if observation.has_before and _is_idle(each, settings)]
    idle.sort(key=lambda each: (-each.reported.gpus * (each.low_seconds or 0), each.run.name))
    return idle[: settings.idle_runs]


def idle_table(observation: Observation, settings: WandbSettings) -> list[dict[str, object]]:
    """Return the idle runs as rows for a person, with the address of each run."""
    return [
        {
            "run": run.title,
            "user": run.owner.user,
            "gpus": reported.gpus,
            "idle_hours": (seconds or 0) / 3600,
            "url": run_url(observation.project, run, settings),
        }
        for run, reported, seconds in idle_runs(observation, settings)
    ]


def usage_table(ledger: Ledger, observation: Observation | None) -> list[dict[str, object]]:
    """Return the groups of a project with most GPU hours as rows for a person."""
    groups: defaultdict[Group, list[Observed]] = defaultdict(list)
    for each in observation.runs if observation else ():
        groups[ledger.counted_group(each.run.owner.group)].append(each)
    return [{**row, "utilization_pct": utilization(groups[group])} for group, row in ledger.table()]


def run_url(project: Project, run: Run, settings: WandbSettings) -> str:
    """Return the address of a run on the web. W&B's own service has another host for it than for the API."""
    site = settings.base_url.replace("://api.wandb.ai", "://wandb.ai")
    return "/".join([site, *map(quote, project), "runs", quote(run.name)])
