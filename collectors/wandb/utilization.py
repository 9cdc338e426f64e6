"""GPU utilisation of active runs at one tick, and which runs have been idle for long.

Low utilisation at one observation is a checkpoint being written or a restart: a run is idle if it was low at
every observation for a while. Observations are stored in the collector's memory, whatever becomes of the
points. Shares are added up exactly: `sum` of floats depends on their order. `runs` parses the system metrics
of a run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from collectors.wandb import metrics as m
from collectors.wandb.groups import DOLLAR
from collectors.wandb.runs import SECOND, Reported, Run, State
from collectors.wandb.settings import Project, WandbSettings
from common.metric import Metric, Series

MEMORY_KEY = "idle"


class Memory(NamedTuple):
    """What is stored of a run whose GPUs were all low at the last observation that counted, in seconds.

    `since` is the first of these observations and `counted` the last. `runtime` is how long the run had
    worked, `timestamp` that of its row of system metrics.
    """

    since: int
    counted: int
    runtime: float
    timestamp: float | None


Stored = dict[str, tuple[int, dict[str, Memory]]]  # by project: when, and by run
Observed = tuple[Run, Reported]


def load_observations(memory: dict[str, object], at: int, max_gap: int) -> Stored:
    """Return what a collector's memory holds of earlier observations; nothing where it is damaged.

    An observation more than `max_gap` seconds before `at` is forgotten: nothing follows from it.
    """
    try:
        stored = TypeAdapter(Stored).validate_python(memory.get(MEMORY_KEY, {}))
    except ValidationError:
        return {}
    return {name: entry for name, entry in stored.items() if 0 <= at - entry[0] <= max_gap}


def active_runs(runs: Iterable[Run], at: int, settings: WandbSettings) -> list[Run]:
    """Return the runs that are running at a tick by their heartbeat.

    W&B leaves some runs in state running for weeks after they died, so that the state alone is not enough.
    """
    now, stale_after = at * SECOND, settings.stale_after * SECOND
    running = (run for run in runs if run.state in (State.RUNNING, State.PREEMPTING))
    return [run for run in running if run.start <= now < run.seen + stale_after]


def observe(
    project: Project,
    runs: Sequence[Run],
    active: Iterable[Run],
    at: int,
    settings: WandbSettings,
    stored: Stored,
) -> list[Run]:
    """Return the runs of a project, with what is known of the GPUs of those that are active.

    `active` are runs with system metrics; they also have the GPUs of a run that seems to have none. `stored`
    is changed: the project's entry is replaced by that of this tick.
    """
    queried = {run.id: run for run in active}
    is_first = str(project) not in stored
    before = {} if is_first else stored[str(project)][1]
    after: dict[str, Memory] = {}
    observed: dict[str, Run] = {}
    for run in active_runs(runs, at, settings):
        row = queried.get(run.id, run)
        reported = row.reported or Reported()
        if reported.timestamp is not None and reported.timestamp <= at - settings.stale_after:
            reported = Reported()  # as old as a stale heartbeat: no evidence for the present
        runtime = (run.seen - run.worked_from) / SECOND
        memory = remember(before.get(run.name), reported, runtime, at, settings.idle_below)
        if memory is not None:
            after[run.name] = memory
        if not is_first:
            low_seconds = memory.counted - memory.since if memory and reported.gpus else 0
            reported = reported._replace(low_seconds=low_seconds)
        observed[run.id] = run._replace(gpus=run.gpus or row.gpus, reported=reported)
    stored[str(project)] = (at, after)
    return [observed.get(run.id, run) for run in runs]


def remember(
    before: Memory | None, reported: Reported, runtime: float, at: int, below: float
) -> Memory | None:
    """Return what to store of a run after an observation; None where it is not low.

    `before` is what the last observation of its project stored of it. `runtime` is how long the run has
    worked, `below` the utilisation in percent under which it is low.
    """
    if before is not None and runtime < before.runtime:
        before = None  # it restarted
    if reported.gpus and reported.busiest >= below:
        return None
    row, row_before = reported.timestamp, before and before.timestamp
    is_repeated = row is not None and row_before is not None and row <= row_before
    # Without figures, or a new row of them, nothing was learnt: the run is neither busy nor idle.
    if not reported.gpus or is_repeated:
        return before and before._replace(runtime=runtime)
    return Memory(before.since if before else at, at, runtime, row)


def observed_series(
    runs: Iterable[Run],
    at: int,
    tags: dict[str, str],
    group_tags: Callable[[Run], dict[str, str]],
    settings: WandbSettings,
) -> Iterator[Series]:
    """Yield the utilisation of a project and its groups, out of its active runs.

    `tags` are those of the project, `group_tags` returns those of the group that a run is counted in.
    """
    observed = [(run, run.reported) for run in runs if run.reported is not None]
    groups: defaultdict[tuple[tuple[str, str], ...], list[Observed]] = defaultdict(list)
    for run, reported in observed:
        groups[tuple(group_tags(run).items())].append((run, reported))
    for group, members in sorted(groups.items()):
        for metric, value in _group_values(members, settings):
            yield metric(value, at, **dict(group))
    if gpus := sum(reported.gpus for _, reported in observed):
        busy = math.fsum(reported.busy for _, reported in observed)
        yield m.UTILIZATION(100 * busy / gpus, at, **tags)
    idle = _idle(observed, settings)
    idle.sort(key=lambda each: (-each[1].gpus * (each[1].low_seconds or 0), each[0].name))
    for run, reported in idle[: settings.idle_runs]:
        run_tags = {**tags, "user": run.owner.user, "run": run.title, "run_id": run.name}
        yield m.IDLE_GPUS(reported.gpus, at, **run_tags)
        yield m.IDLE_SECONDS(reported.low_seconds or 0, at, **run_tags)


def _group_values(observed: Sequence[Observed], settings: WandbSettings) -> Iterator[tuple[Metric, float]]:
    """Yield the metrics of a group, as sums: a dashboard divides them over any grouping."""
    every = [reported for _, reported in observed]
    gpus, memory_gpus = sum(each.gpus for each in every), sum(each.memory_gpus for each in every)
    yield m.USAGE_REPORTING, gpus
    if gpus:
        yield m.USAGE_BUSY, math.fsum(each.busy for each in every)
    if memory_gpus:
        yield m.USAGE_REPORTING_MEMORY, memory_gpus
        yield m.USAGE_MEMORY_FILLED, math.fsum(each.memory_filled for each in every)
    # Without an earlier observation no run can have been low for long: 0 would be a claim without evidence.
    if gpus and every[0].low_seconds is not None:
        idle = _idle(observed, settings)
        yield m.USAGE_IDLE, sum(reported.gpus for _, reported in idle)
        costs = [reported.gpus * run.owner.price for run, reported in idle if run.owner.price is not None]
        # Where all idle GPUs lack a price, their cost is unknown, and not 0.
        if settings.gpu_prices and (costs or not idle):
            yield m.IDLE_COST, sum(costs) / DOLLAR


def _idle(observed: Iterable[Observed], settings: WandbSettings) -> list[Observed]:
    return [each for each in observed if (each[1].low_seconds or 0) >= settings.idle_after]
