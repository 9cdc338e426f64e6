"""What the GPUs of active runs do at one tick, by group and project, and which runs have idled for long.

Pure: who was looked at before is passed in, and what is to be remembered handed back. Fractions are added up
exactly: `sum` depends on their order, and on the version of Python.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

from collectors.wandb import metrics
from collectors.wandb.idle import Memory, look_again
from collectors.wandb.ledger import active_until
from collectors.wandb.owners import DOLLAR
from collectors.wandb.runs import SECOND, TERMINAL, Run
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.usage import Group, Shares
from collectors.wandb.utilization import Look, Reported
from common.metric import Metric, Series

_NOTHING = Reported(0, 0.0, 0, 0.0, 0.0, None, None)


class IdleRun(NamedTuple):
    """A run that has idled for long."""

    project: Project
    look: Look
    gpus: int
    seconds: int
    price: int | None


class Activity:
    """Adds up what is said about GPUs."""

    def __init__(self, at: int, settings: WandbSettings, shares: Shares) -> None:
        self._at = at
        self._settings = settings
        self._shares = shares
        self._said: defaultdict[Group, list[Reported]] = defaultdict(list)
        self._idle: defaultdict[Group, list[IdleRun]] = defaultdict(list)

    def enter(
        self, project: Project, runs: Iterable[Run], memories: Mapping[str, Memory], max_gap: int
    ) -> dict[str, Memory]:
        """Take in the runs of a project that are active, and say what is to be remembered of them."""
        settings = self._settings
        active = {
            run.look.run_id: (run, self._current(run.look))
            for run in runs
            if run.look is not None and self._is_active(run)
        }
        looks = {name: (look, (run.seen - run.worked_from) / SECOND) for name, (run, look) in active.items()}
        after = look_again(memories, looks, self._at, settings.idle_below, max_gap)
        for name, (run, look) in active.items():
            group = self._shares.place((project, run.owner.group))
            said = look.reported or _NOTHING
            self._said[group].append(said)
            memory = after.get(name)
            if memory and said.gpus and memory.seconds >= settings.idle_after:
                idle = IdleRun(project, look, said.gpus, memory.seconds, run.owner.price)
                self._idle[group].append(idle)
        return after

    def _is_active(self, run: Run) -> bool:
        at, end = self._at * SECOND, active_until(run, self._settings.stale_after * SECOND)
        return run.state not in TERMINAL and run.start <= at < end

    def _current(self, look: Look) -> Look:
        """The look; where its row is older than a heartbeat may be, without what that says."""
        said = look.reported
        old = said and said.timestamp is not None and said.timestamp <= self._at - self._settings.stale_after
        return look._replace(reported=None) if old else look

    def series(self, *, remembers: bool) -> Iterator[Series]:
        """All that is known; who is idle only where looks are remembered."""
        projects: defaultdict[Project, list[Reported]] = defaultdict(list)
        for group in sorted(self._said):
            said = self._said[group]
            projects[group[0]] += said
            tags = self._shares.tags(group)
            for metric, value in self._told(group, said, remembers=remembers):
                yield metric(value, self._at, **tags)
        for project, said in projects.items():
            if (busy := _percent(said)) is not None:
                yield metrics.UTILIZATION(busy, self._at, entity=project.entity, project=project.name)
        for run in self.worst() if remembers else ():
            tags = {"entity": run.project.entity, "project": run.project.name, "user": run.look.user}
            tags |= {"run": run.look.name, "run_id": run.look.run_id}
            yield metrics.IDLE_GPUS(run.gpus, self._at, **tags)
            yield metrics.IDLE_SECONDS(run.seconds, self._at, **tags)

    def _told(self, group: Group, said: list[Reported], *, remembers: bool) -> Iterator[tuple[Metric, float]]:
        gpus, memory_gpus = sum(one.gpus for one in said), sum(one.memory_gpus for one in said)
        yield metrics.USAGE_REPORTING, gpus
        if gpus:
            yield metrics.USAGE_BUSY, math.fsum(one.busy for one in said)
        if memory_gpus:
            yield metrics.USAGE_REPORTING_MEMORY, memory_gpus
            yield metrics.USAGE_MEMORY_FILLED, math.fsum(one.memory_filled for one in said)
        if gpus and remembers:
            idle = self._idle.get(group, [])
            yield metrics.USAGE_IDLE, sum(run.gpus for run in idle)
            priced = [run.gpus * run.price for run in idle if run.price is not None]
            if self._settings.gpu_prices and (priced or not idle):
                yield metrics.IDLE_COST, sum(priced) / DOLLAR

    def utilization(self, group: Group) -> float | None:
        """How busy the GPUs of a group are, in percent; None where none says so."""
        return _percent(self._said.get(group, []))

    def worst(self) -> list[IdleRun]:
        """The idle runs that waste most."""
        every = [run for idle in self._idle.values() for run in idle]
        every.sort(key=lambda run: (-run.gpus * run.seconds, run.project, run.look.run_id))
        return every[: self._settings.idle_runs]

    def idle_table(self) -> list[dict[str, object]]:
        """The idle runs as a person wants them, with their addresses."""
        site = self._settings.base_url.replace("://api.wandb.ai", "://wandb.ai")
        return [
            {
                "run": run.look.name,
                "user": run.look.user,
                "gpus": run.gpus,
                "idle_hours": run.seconds / 3600,
                "url": "/".join([site, *map(quote, run.project), "runs", quote(run.look.run_id)]),
            }
            for run in self.worst()
        ]


def _percent(said: list[Reported]) -> float | None:
    gpus = sum(one.gpus for one in said)
    return 100 * math.fsum(one.busy for one in said) / gpus if gpus else None
