"""Compute the metrics of one project from its runs, at any ticks: fleet metrics, and usage by group.

A change is entered at the first tick it holds for, and running sums give the value at each tick. A run that
is active from 15 to 35 makes two entries, however many ticks lie between:

    ticks          10  20  30  40
    changes         0  +1   0  -1
    active runs     0   1   1   0

So a stretch of ticks costs runs plus ticks, not runs times ticks. GPU time also grows while a run works: it
is `slope x time + offset`, where both are such sums, and a run changes them where it starts, where it ends,
and where the window leaves each. Sums are of integers (runs, GPUs, microseconds, millionths of a dollar), so
that a value does not depend on which other ticks are computed.

Runs are entered by group and price; a project is the sum of its groups.

Pure: `runs` parses the runs, `metrics` declares what is computed, `utilization` adds what only system metrics
show, `explain` runs a ledger per run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress
from typing import Any, NamedTuple

from collectors.wandb import metrics as m
from collectors.wandb.groups import DOLLAR, OTHER, tag_keys
from collectors.wandb.runs import HOUR_US, SECOND, TERMINAL, Run, RunKind, State, Target
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.utilization import active_runs, observed_series
from common.metric import Metric, Series
from common.times import DAY

BY_TARGET = "overview/steps_per_second"

_ANY_KIND = frozenset(RunKind)
_PUSH, _SWEEP = frozenset({RunKind.PUSH_TO_MAIN}), frozenset({RunKind.SWEEP})
_ACTIVE = frozenset({State.RUNNING})
_FINISHED = frozenset({State.FINISHED})
_FAILED = frozenset({State.FAILED, State.CRASHED})
# Which runs a count is of. A run is in state running while it is active, whatever became of it later.
_COUNTS = (
    (m.ACTIVE, _ANY_KIND, _ACTIVE),
    (m.COMPLETED, _ANY_KIND, _FINISHED),
    (m.FAILED, _ANY_KIND, _FAILED),
    (m.CRASHED, _ANY_KIND, frozenset({State.CRASHED})),
    (m.KILLED, _ANY_KIND, frozenset({State.KILLED})),
    (m.PREEMPTED, _ANY_KIND, frozenset({State.PREEMPTED})),
    (m.TOTAL_RECENT, _ANY_KIND, _ACTIVE | TERMINAL),
    (m.PUSH_COMPLETED, _PUSH, _FINISHED),
    (m.PUSH_FAILED, _PUSH, _FAILED),
    (m.SWEEP_ACTIVE, _SWEEP, _ACTIVE),
    (m.SWEEP_TOTAL, _SWEEP, _ACTIVE | TERMINAL),
    (m.SWEEP_COMPLETED, _SWEEP, _FINISHED),
    (m.SWEEP_FAILED, _SWEEP, _FAILED),
)
# The names of sums are those of metrics. A line has two, of its slope and of its offset.
_STARTED, _ASSUMED = (m.STARTED.name,), (m.GPUS_ASSUMED.name,)
_GPUS = ("no slope", m.GPUS_IN_USE.name)
_TIME, _FAILED_TIME = ("slope", "offset"), ("slope of failed", "offset of failed")
# The counts that a run is part of.
_COUNTED_IN = {
    (kind, state): tuple(
        metric.name for metric, kinds, states in _COUNTS if kind in kinds and state in states
    )
    for kind in RunKind
    for state in State
}
_MEASURED, _DURATION = ("measured", "measured pushes"), ("duration", "duration of pushes")
# Quotients: a factor and its sum, a divisor and its sums.
_RATIOS = (
    (m.PUSH_SUCCESS, 100, m.PUSH_COMPLETED.name, 1, (m.PUSH_COMPLETED.name, m.PUSH_FAILED.name)),
    (m.SWEEP_SUCCESS, 100, m.SWEEP_COMPLETED.name, 1, (m.SWEEP_COMPLETED.name, m.SWEEP_FAILED.name)),
    (m.AVG_DURATION, 1, _DURATION[0], HOUR_US, _MEASURED[:1]),
    (m.PUSH_AVG_DURATION, 1, _DURATION[1], HOUR_US, _MEASURED[1:]),
)
# The metrics of a group: counts, and lines of GPUs (how many, their time, that of failed runs), each with the
# metrics of the part that has no price and of what the other part costs, and the divisor of all three.
_USAGE_COUNTS = ((m.USAGE_ACTIVE, m.ACTIVE), (m.USAGE_COMPLETED, m.COMPLETED), (m.USAGE_FAILED, m.FAILED))
_USAGE_LINES = (
    (_GPUS, m.USAGE_GPUS, m.USAGE_UNPRICED, m.USAGE_COST_PER_HOUR, 1),
    (_TIME, m.USAGE_HOURS, m.USAGE_UNPRICED_HOURS, m.USAGE_COST, HOUR_US),
    (_FAILED_TIME, m.USAGE_FAILED_HOURS, None, m.USAGE_COST_FAILED, HOUR_US),
)
# The states in the formula of `m.THROUGHPUT`.
_MEASURED_STATES = frozenset({State.FINISHED, State.CRASHED})

Group = tuple[str, ...]
Line = tuple[str, str]
Mask = Sequence[bool]
Values = Sequence[Any]  # Any: numbers, and anything where the mask is false
Account = defaultdict[str, list[int]]  # by sum, the change at each tick


@dataclass(frozen=True)
class Ledger:
    """The metrics of a project at ascending ticks, in seconds.

    With `live` the last tick is the present, and has the metrics that only the present shows. `unseen` is the
    number of runs that W&B counts but does not list, where it is known.
    """

    project: Project
    runs: Sequence[Run]
    ticks: range
    settings: WandbSettings
    live: bool = False
    unseen: int | None = None

    def stretches(self) -> Iterator[list[Series]]:
        """Yield the series of each stretch, oldest first.

        A stretch is a day, so that the series of a long backfill are never in memory at once.
        """
        size = max(1, DAY // self.ticks.step)
        duration, after = size * self.ticks.step, max(self.settings.window, self.settings.stale_after) + 1
        stretches = [self.ticks[first : first + size] for first in range(0, len(self.ticks), size)]
        # A run counts from its start to its end, and for the window afterwards.
        runs: list[list[Run]] = [[] for _ in stretches]
        for run in self.runs:
            first = (min(run.start, run.seen) // SECOND - self.ticks[0]) // duration
            last = (max(run.start, run.seen) // SECOND + after - self.ticks[0]) // duration
            for number in range(max(0, first), min(len(runs), last + 1)):
                runs[number].append(run)
        for ticks, counted in zip(stretches, runs, strict=True):
            yield [*_Stretch(self, ticks, counted).series()]


class _Usage(NamedTuple):
    """The sums of a group, by name, and at which ticks the group is shown."""

    sums: dict[str, list[int]]
    mask: list[bool]


class _Stretch:
    """The runs of a project that count at some ticks, entered at the ticks that they change."""

    def __init__(self, ledger: Ledger, ticks: range, runs: Iterable[Run]) -> None:
        self._ledger = ledger
        self._settings = ledger.settings
        self._times = [*ticks]
        self._tags = {"entity": ledger.project.entity, "project": ledger.project.name}
        self._group_keys = tag_keys(ledger.settings.grouping)
        self._has_groups = ledger.settings.usage or ledger.live
        # A change after the last tick is entered one further.
        self._accounts: defaultdict[tuple[Group, int | None], Account] = defaultdict(
            lambda: defaultdict(lambda: [0] * (len(ticks) + 1))
        )
        self._ended: list[tuple[int, int, Run]] = []  # with the ticks where it ended, and left the window
        self._sweeps: defaultdict[str, set[int]] = defaultdict(set)  # the ticks at which each is active
        self._enter(runs, ticks)

    def _enter(self, runs: Iterable[Run], ticks: range) -> None:
        """Enter what runs change; what they changed before the first tick is entered there."""
        window, stale_after = self._settings.window * SECOND, self._settings.stale_after * SECOND
        size, step, first, last = len(ticks), ticks.step * SECOND, ticks[0] * SECOND, ticks[-1] * SECOND
        for run in runs:
            start, seen, begin, gpus, state = run.start, run.seen, run.worked_from, run.gpus, run.state
            stop, expires = max(begin, seen), seen
            known = stop  # from when on it is known that it has stopped
            if state not in TERMINAL:
                expires += stale_after
                # A running run works up to each tick while it is active; once it is not, to its heartbeat.
                known = stop if state is State.PENDING else max(stop, expires)
            # Both ends of the window are part of it.
            times = [start, start + window + 1, expires, seen, seen + window + 1]
            times += [begin, begin + window, known, max(stop + window, known)]
            # The first tick at or after each: negating before and after the division rounds up.
            started, forgotten, inactive, ended, departed, working, left, stopped, emptied = [
                0 if at <= first else size if at > last else -((first - at) // step) for at in times
            ]
            account = self._accounts[(run.owner.group, run.owner.price) if self._has_groups else ((), None)]
            assumed = _ASSUMED if run.gpus_assumed else ()
            if started < forgotten:
                _add(account, _STARTED, started, forgotten)
            if started < inactive and state is not State.PENDING:
                _add(account, _COUNTED_IN[run.kind, State.RUNNING] + assumed, started, inactive)
                _add(account, _GPUS[1:], started, inactive, gpus)
                if run.kind is RunKind.SWEEP and run.sweep is not None:
                    self._sweeps[run.sweep].update(range(started, inactive))
            if ended < departed and state in TERMINAL:
                _add(account, _COUNTED_IN[run.kind, state] + assumed, ended, departed)
                self._ended.append((ended, departed, run))
                if run.duration is not None:  # absent where clocks disagree
                    kinds = 1 + (run.kind is RunKind.PUSH_TO_MAIN)
                    _add(account, _MEASURED[:kinds], ended, departed)
                    _add(account, _DURATION[:kinds], ended, departed, run.duration)
            if gpus and working < emptied:
                bends = [(working, begin, gpus), (left, begin + window, -gpus)]
                bends += [(stopped, stop, -gpus), (emptied, stop + window, gpus)]
                _bend(account, _TIME, bends)
                if state in _FAILED:  # which is known only once it has ended
                    bends = [(max(tick, ended), at, change) for tick, at, change in bends]
                    _bend(account, _FAILED_TIME, bends)

    def series(self) -> Iterator[Series]:
        """Yield the series of the project, then those of its groups."""
        accounts, tags = [*self._accounts.values()], self._tags
        for metric in (*(metric for metric, _, _ in _COUNTS), m.STARTED, m.GPUS_IN_USE, m.GPUS_ASSUMED):
            yield metric.series(self._times, self._sums(accounts, metric.name), **tags)
        hours = [time / HOUR_US for time in self._line(accounts, _TIME)]
        yield m.GPU_HOURS.series(self._times, hours, **tags)
        sweeps = Counter(tick for ticks in self._sweeps.values() for tick in ticks)
        yield m.ACTIVE_SWEEPS.series(self._times, [sweeps[tick] for tick in range(len(self._times))], **tags)
        for metric, factor, part, divisor, every in _RATIOS:
            pairs = zip(self._sums(accounts, part), self._sums(accounts, *every), strict=True)
            ratios = [factor * top / (divisor * bottom) if bottom else None for top, bottom in pairs]
            yield from self._known(metric, ratios)
        yield from self._percentiles()
        yield from self._throughput()
        groups = self._groups() if self._has_groups else {}
        for group, usage in groups.items() if self._settings.usage else ():
            yield from self._usage_series(group, usage)
        if self._ledger.live and self._times[-1] == self._ledger.ticks[-1]:
            yield from self._present(self._times[-1], groups)

    def _sums(self, accounts: Iterable[Account], *names: str) -> list[int]:
        """Return a sum over accounts at each tick."""
        changes = [account[name] for account in accounts for name in names if name in account]
        return [*accumulate(_added(changes, len(self._times) + 1))][:-1]

    def _line(self, accounts: Iterable[Account], line: Line) -> list[int]:
        """Return the sum of a line over accounts at each tick."""
        slopes, offsets = (self._sums(accounts, name) for name in line)
        terms = zip(self._times, slopes, offsets, strict=True)
        return [at * SECOND * slope + offset for at, slope, offset in terms]

    def _known(self, metric: Metric, values: Values, mask: Mask = (), **tags: str) -> Iterator[Series]:
        """Yield a series of the ticks at which there is a value, if any: absent is not 0."""
        mask = mask or [value is not None for value in values]
        if all(mask):
            yield metric.series(self._times, values, **self._tags, **tags)
        elif any(mask):
            known = [*compress(values, mask)]
            yield metric.series([*compress(self._times, mask)], known, **self._tags, **tags)

    def _percentiles(self) -> Iterator[Series]:
        """Yield percentiles of durations by nearest rank: the ceil(share x n / 100)-th smallest of n."""
        arriving: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for ended, departed, run in self._ended:
            if run.duration is not None:
                arriving[ended].append((run.duration, departed))
        changed = {0, *arriving, *(departed for _, departed, _ in self._ended)}
        lasting: list[tuple[int, int]] = []
        rows: list[list[float | None]] = []
        for tick in range(len(self._times)):
            # Sorted only at ticks where a run enters or leaves: the others repeat the last values.
            if tick in changed:
                lasting = [each for each in lasting if each[1] > tick] + arriving[tick]
                lasting.sort()
                ranks = (-(-share * len(lasting) // 100) - 1 for share in m.DURATIONS.values())
                row = [lasting[rank][0] / HOUR_US if lasting else None for rank in ranks]
            rows.append(row)
        for metric, values in zip(m.DURATIONS, zip(*rows, strict=True), strict=True):
            yield from self._known(metric, values)

    def _throughput(self) -> Iterator[Series]:
        """Yield the throughput of the latest run in the window, and of the latest of each target."""
        size = len(self._times)
        latest: list[Run | None] = [None] * size
        speeds: dict[Target, list[float | None]] = {}
        ended = [each for each in self._ended if each[2].throughput and each[2].state in _MEASURED_STATES]
        # The later replaces the earlier; ties by id, so that the order of the listing does not matter.
        for first, after, run in sorted(ended, key=lambda each: (each[2].seen, each[2].id)):
            latest[first:after] = [run] * (after - first)
            if run.target is not None and BY_TARGET in run.throughput:
                of_target = speeds.setdefault(run.target, [None] * size)
                of_target[first:after] = [run.throughput[BY_TARGET]] * (after - first)
        for key, metric in m.THROUGHPUT.items():
            yield from self._known(metric, [run and run.throughput.get(key) for run in latest])
        pairs = zip(self._times, latest, strict=True)
        ages = [run and (at * SECOND - run.seen) / SECOND for at, run in pairs]
        yield from self._known(m.PUSH_SPS_AGE, ages)
        for target, values in sorted(speeds.items()):
            yield from self._known(m.PUSH_CONFIG_STEPS, values, **target._asdict())

    def _present(self, at: int, groups: Mapping[Group, _Usage]) -> Iterator[Series]:
        """Yield the metrics that only the present shows: a run in such a state may have ended since."""
        now, pending_for = at * SECOND, self._settings.pending_for * SECOND
        started = [run for run in self._ledger.runs if run.start <= now and run.state not in TERMINAL]
        waits = [now - run.start for run in started if run.state is State.PENDING]
        active = active_runs(started, at, self._settings)
        if self._ledger.unseen is not None:
            yield m.UNSEEN(self._ledger.unseen, at, **self._tags)
        yield m.STALE(len(started) - len(waits) - len(active), at, **self._tags)
        # A run that has waited for longer will hardly start: it is no part of the queue.
        waits = [wait for wait in waits if wait < pending_for]
        yield m.PENDING(len(waits), at, **self._tags)
        if waits:
            yield m.OLDEST_PENDING(max(waits) / SECOND, at, **self._tags)

        def group_tags(run: Run) -> dict[str, str]:
            group = run.owner.group
            return self._tags | self._group_tags(group if groups[group].mask[-1] else (OTHER,) * len(group))

        yield from observed_series(active, at, self._tags, group_tags, self._settings)

    def _group_tags(self, group: Group) -> dict[str, str]:
        return dict(zip(self._group_keys, group, strict=True))

    # Usage by group.

    def _groups(self) -> dict[Group, _Usage]:
        """Return the sums of each group, which is shown while it has active or ended runs, or GPU time."""
        accounts: defaultdict[Group, dict[int | None, Account]] = defaultdict(dict)
        for (group, price), account in self._accounts.items():
            accounts[group][price] = account
        groups = {group: self._usage(by_price) for group, by_price in sorted(accounts.items())}
        if len(groups) > self._settings.max_groups:
            self._limit(groups)
        return groups

    def _limit(self, groups: dict[Group, _Usage]) -> None:
        """Show the groups with most GPU time at each tick, then by name, and all others as one group.

        Datadog bills each combination of tag values; the sum over all groups stays that of the project.
        """
        other = (OTHER,) * len(self._group_keys)
        others = groups.setdefault(other, self._usage({}))
        for tick in range(len(self._times)):
            shown = [group for group, usage in groups.items() if usage.mask[tick]]
            shown.sort(key=lambda group: (-groups[group].sums[m.USAGE_HOURS.name][tick], group))
            for group in shown[self._settings.max_groups :]:
                if group != other:  # a group that is named like the other group is part of it
                    groups[group].mask[tick], others.mask[tick] = False, True
                    for name, values in groups[group].sums.items():
                        others.sums[name][tick] += values[tick]

    def _usage(self, by_price: Mapping[int | None, Account]) -> _Usage:
        """Return the sums of one group, out of its accounts by price."""
        size = len(self._times)
        sums = {usage.name: self._sums(by_price.values(), count.name) for usage, count in _USAGE_COUNTS}
        for line, metric, _, cost_metric, _ in _USAGE_LINES:
            found = {price: self._line([account], line) for price, account in by_price.items()}
            costs = [[price * value for value in found[price]] for price in found if price is not None]
            sums[metric.name] = _added([*found.values()], size)
            sums[cost_metric.name] = _added(costs, size)
            sums[_unpriced(metric)] = _added([found[price] for price in found if price is None], size)
        counts = [sums[usage.name] for usage, _ in _USAGE_COUNTS]
        return _Usage(sums, [*map(any, zip(*counts, sums[m.USAGE_HOURS.name], strict=True))])

    def _usage_series(self, group: Group, usage: _Usage) -> Iterator[Series]:
        """Yield the series of a group, each at the ticks at which it is shown."""
        tags, has_prices, sums = self._group_tags(group), bool(self._settings.gpu_prices), usage.sums

        for metric, _ in _USAGE_COUNTS:
            yield from self._known(metric, sums[metric.name], usage.mask, **tags)
        for _, metric, unpriced_metric, cost_metric, divisor in _USAGE_LINES:
            total, unpriced = sums[metric.name], sums[_unpriced(metric)]
            yield from self._known(metric, _divided(total, divisor), usage.mask, **tags)
            if has_prices:
                if unpriced_metric is not None:
                    yield from self._known(unpriced_metric, _divided(unpriced, divisor), usage.mask, **tags)
                # The cost of GPUs that all lack a price is unknown, and not 0.
                pairs = zip(total, unpriced, usage.mask, strict=True)
                known = [shown and (not part or part != every) for every, part, shown in pairs]
                costs = _divided(sums[cost_metric.name], divisor * DOLLAR)
                yield from self._known(cost_metric, costs, known, **tags)


def _add(account: Account, names: Iterable[str], first: int, after: int, amount: int = 1) -> None:
    """Add an amount to sums from one tick until before another."""
    for name in names:
        changes = account[name]
        changes[first] += amount
        changes[after] -= amount


def _bend(account: Account, line: Line, bends: Iterable[tuple[int, int, int]]) -> None:
    """Change the slope of GPU time from ticks on, as if it had changed at the exact times."""
    slopes, offsets = (account[name] for name in line)
    for tick, at, change in bends:
        slopes[tick] += change
        offsets[tick] -= change * at


def _added(lists: Sequence[list[int]], size: int) -> list[int]:
    """Return the sums of lists of so many numbers, position by position."""
    if len(lists) > 1:
        return [*map(sum, zip(*lists, strict=True))]
    return [*lists[0]] if lists else [0] * size


def _divided(values: list[int], divisor: int) -> Sequence[float]:
    return values if divisor == 1 else [value / divisor for value in values]


def _unpriced(metric: Metric) -> str:
    """Return the name of the part of a sum that has no price."""
    return f"{metric.name} without a price"
