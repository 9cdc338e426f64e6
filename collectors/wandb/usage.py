"""Who holds the GPUs, at any instants: what runs change, by project and group, in one ledger for all.

As in `collectors.wandb.ledger` a change is entered at the first instant it holds for, and sums are of
integers. But groups are many and come and go, so that only changes are kept, not a list for each group. A
group is there while any of its amounts is not zero. Each run is in exactly one group, and what stands beyond
the largest groups is one group of its project, so that any sum over groups is that of the project.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from collectors.wandb import metrics
from collectors.wandb.ledger import active_until, gpu_time
from collectors.wandb.owners import DOLLAR, tag_keys
from collectors.wandb.runs import HOUR, SECOND, Run, State
from collectors.wandb.settings import Project, WandbSettings
from common.metric import Metric, Series

OTHER = "_other"
TABLE_ROWS = 10

Group = tuple[Project, tuple[str, ...]]

# Places of an amount; of the last four, which grow with time, the slope stands here and the offset behind it.
RUNS, GPUS, COMPLETED, FAILED, DOLLARS, UNPRICED, TIME, FAILED_TIME, COST, UNPRICED_TIME = (
    *range(7),
    8,
    10,
    12,
)
_SIZE = 14
_LINES = (TIME, FAILED_TIME, COST, UNPRICED_TIME)
_UNPRICED_LINES = ((TIME, 1), (UNPRICED_TIME, 1))
_FAILED_LINES = ((FAILED_TIME, 1),)
_FAILED = frozenset({State.FAILED, State.CRASHED})
_COUNTED = {State.FINISHED: COMPLETED, State.FAILED: FAILED, State.CRASHED: FAILED}

Amounts = list[int]
_Lines = tuple[tuple[int, int], ...]  # which line, and what a GPU adds to it


@dataclass(frozen=True)
class Shares:
    """What each group has at one instant, as metrics."""

    at: int
    groups: Mapping[Group, Mapping[Metric, float]]
    full: bool  # whether some groups are part of the others of their project
    keys: tuple[str, ...]  # of the tags that make a group
    told: bool = True

    def tags(self, group: Group) -> dict[str, str]:
        """The tags of what is said of a group."""
        project, values = group
        named = zip(self.keys, values, strict=True)
        return {"entity": project.entity, "project": project.name, **dict(named)}

    def table(self, utilization: Callable[[Group], float | None]) -> list[dict[str, object]]:
        """The groups with most GPU hours, as a person wants them."""
        order = sorted(self.groups, key=lambda group: (-self.groups[group][metrics.USAGE_HOURS], group))
        return [
            {
                **self.tags(group),
                "gpus": self.groups[group][metrics.USAGE_GPUS],
                "gpu_hours_24h": self.groups[group][metrics.USAGE_HOURS],
                "utilization_pct": utilization(group),
                "cost_24h": self.groups[group].get(metrics.USAGE_COST),
            }
            for group in order[:TABLE_ROWS]
        ]

    def place(self, group: Group) -> Group:
        """Where a run of a group is counted."""
        return others(group) if self.full and group not in self.groups else group


def usage_series(every: Sequence[Shares], projects: Container[Project]) -> Iterator[Series]:
    """Yield what the groups of some projects have over several instants, where that is to be sent."""
    points: dict[Group, dict[Metric, tuple[list[int], list[float]]]] = {}
    for shares in every:
        for group, values in shares.groups.items() if shares.told else ():
            if group[0] in projects:
                of_group = points.setdefault(group, {})
                for metric, value in values.items():
                    times, numbers = of_group.setdefault(metric, ([], []))
                    times.append(shares.at)
                    numbers.append(value)
    for group in sorted(points):
        tags = every[0].tags(group)
        for metric, (times, numbers) in points[group].items():
            yield metric.series(times, numbers, **tags)


def others(group: Group) -> Group:
    """All groups of a project that have no place of their own."""
    project, values = group
    return project, (OTHER,) * len(values)


class Usage:
    """The changes that runs make to their groups, over ascending instants in seconds."""

    def __init__(self, instants: Iterable[int], settings: WandbSettings) -> None:
        self._instants = [at * SECOND for at in sorted(set(instants))]
        self._settings = settings
        self._keys = tag_keys(settings.told_by)
        self._window = settings.window * SECOND
        self._stale_after = settings.stale_after * SECOND
        self._priced = bool(settings.gpu_prices)
        self._changes: list[dict[Group, Amounts]] = [{} for _ in self._instants]

    def enter(self, project: Project, runs: Iterable[Run]) -> None:
        """Add all that the runs of a project change."""
        if not self._instants or not (self._settings.usage or self._settings.utilization):
            return
        for run in runs:
            group = (project, run.owner.group)
            bends = gpu_time(run, self._window, self._stale_after)
            self._bend(group, bends, self._lines(run.owner.price), 0)
            if run.state is not State.PENDING:
                self._activate(group, run)
            if run.state in _COUNTED:
                self._add(group, run.seen, _COUNTED[run.state], 1)
                self._add(group, run.seen + self._window + 1, _COUNTED[run.state], -1)
            if run.state in _FAILED:
                self._bend(group, bends, _FAILED_LINES, run.seen)

    def _activate(self, group: Group, run: Run) -> None:
        start, end = run.start, active_until(run, self._stale_after)
        if end <= max(start, self._instants[0]):
            return
        price = run.owner.price
        for moment, sign in ((start, 1), (end, -1)):
            self._add(group, moment, RUNS, sign)
            self._add(group, moment, GPUS, sign * run.gpus)
            if price is None:
                self._add(group, moment, UNPRICED, sign * run.gpus)
            else:
                self._add(group, moment, DOLLARS, sign * run.gpus * price)

    def _lines(self, price: int | None) -> _Lines:
        return _UNPRICED_LINES if price is None else ((TIME, 1), (COST, price))

    def _bend(self, group: Group, bends: Iterable[tuple[int, int, int]], lines: _Lines, since: int) -> None:
        last = self._instants[-1]
        for gpus, begin, known_from in bends:
            moment = max(begin, known_from, since)
            if moment <= last:
                amounts = self._amounts(moment, group)
                for line, weight in lines:
                    amounts[line] += gpus * weight
                    amounts[line + 1] -= gpus * weight * begin

    def _add(self, group: Group, moment: int, place: int, amount: int) -> None:
        if moment <= self._instants[-1]:
            self._amounts(moment, group)[place] += amount

    def _amounts(self, moment: int, group: Group) -> Amounts:
        """What a group changes at the first instant from a moment on, which is not behind the last."""
        changes = self._changes[bisect_left(self._instants, moment)]
        amounts = changes.get(group)
        if amounts is None:
            amounts = changes[group] = [0] * _SIZE
        return amounts

    def shares(self) -> Iterator[Shares]:
        """What the groups have at each of the instants, in order."""
        groups: dict[Group, Amounts] = {}
        for moment, changes in zip(self._instants, self._changes, strict=True):
            for group, change in changes.items():
                groups[group] = added = _added(groups.get(group), change)
                if not any(added):
                    del groups[group]
            shown = self._shown(groups, moment)
            told = {group: dict(self._told(amounts, moment)) for group, amounts in shown.items()}
            full = len(groups) > self._settings.max_groups
            yield Shares(moment // SECOND, told, full, self._keys, self._settings.usage)

    def _shown(self, groups: Mapping[Group, Amounts], moment: int) -> Mapping[Group, Amounts]:
        """The largest groups by GPU time and then by name, and of each project the rest as one."""
        order = ((-_line(amounts, TIME, moment), group) for group, amounts in groups.items())
        largest = {group for _, group in nsmallest(self._settings.max_groups, order)}
        shown: dict[Group, Amounts] = {}
        for group, amounts in groups.items():
            place = group if group in largest else others(group)
            shown[place] = _added(shown.get(place), amounts)
        return shown

    def _told(self, amounts: Amounts, moment: int) -> Iterator[tuple[Metric, float]]:
        yield metrics.USAGE_ACTIVE, amounts[RUNS]
        yield metrics.USAGE_GPUS, amounts[GPUS]
        time, failed, cost, unpriced = (_line(amounts, line, moment) for line in _LINES)
        yield metrics.USAGE_HOURS, time / HOUR
        yield metrics.USAGE_FAILED_HOURS, failed / HOUR
        yield metrics.USAGE_COMPLETED, amounts[COMPLETED]
        yield metrics.USAGE_FAILED, amounts[FAILED]
        if self._priced:
            # Of GPUs without a price nobody knows what they cost, which is not nothing.
            if not time or time != unpriced:
                yield metrics.USAGE_COST, cost / (HOUR * DOLLAR)
            if not amounts[GPUS] or amounts[GPUS] != amounts[UNPRICED]:
                yield metrics.USAGE_COST_PER_HOUR, amounts[DOLLARS] / DOLLAR
            yield metrics.USAGE_UNPRICED, amounts[UNPRICED]


def _line(amounts: Amounts, line: int, moment: int) -> int:
    return amounts[line] * moment + amounts[line + 1]


def _added(one: Amounts | None, other: Amounts) -> Amounts:
    return other if one is None else [a + b for a, b in zip(one, other, strict=True)]
