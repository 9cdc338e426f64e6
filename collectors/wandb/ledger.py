"""Compute the metrics of one project from its runs, at any ticks: fleet metrics, and usage by group.

A change is entered at the first tick it holds for, and running sums give the value at each tick. A run that
is active from 15 to 35 makes two entries, however many ticks lie between:

    ticks          10  20  30  40
    changes         0  +1   0  -1
    active runs     0   1   1   0

So a year of ticks costs runs plus ticks, not runs times ticks. GPU time also grows while a run works: it is
summed as a line with a slope, and a run bends the line where it starts, where it ends, and where the window
leaves each. All sums are of integers (runs, GPUs, microseconds, millionths of a dollar), so that a value does
not depend on which other ticks are computed.

Ticks are computed in stretches of at most a day. The sums at the end of a stretch are where the next begins,
and a run is entered into those stretches in which it changes something.

Pure: `runs` parses the runs, `metrics` declares what is computed, `utilization` adds what only system metrics
show, `explain` runs a ledger per run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate, compress
from operator import add
from typing import NamedTuple

from collectors.wandb import metrics as m
from collectors.wandb.groups import DOLLAR, other_group, tag_keys
from collectors.wandb.runs import HOUR_US, SECOND, TERMINAL, Run, RunKind, State, Target
from collectors.wandb.settings import Project, WandbSettings
from common.metric import Metric, Series
from common.times import DAY

BY_TARGET = "overview/steps_per_second"
TABLE_ROWS = 10

# Quantities that are summed: first counts, each with its metric, then other sums, then lines of GPU time.
_COUNTS = (
    *(m.ACTIVE, m.GPUS_IN_USE, m.COMPLETED, m.FAILED),
    *(m.STARTED, m.TOTAL_RECENT, m.CRASHED, m.KILLED, m.PREEMPTED, m.GPUS_ASSUMED),
    *(m.PUSH_COMPLETED, m.PUSH_FAILED),
    *(m.SWEEP_ACTIVE, m.SWEEP_TOTAL, m.SWEEP_COMPLETED, m.SWEEP_FAILED),
)
# The numbers index `_COUNTS`, so that both must be in the same order; `_USAGE_COUNTS` has the first four.
ACTIVE, GPUS, COMPLETED, FAILED, STARTED, TOTAL, CRASHED, KILLED, PREEMPTED, ASSUMED = range(10)
PUSH_COMPLETED, PUSH_FAILED, SWEEP_ACTIVE, SWEEP_TOTAL, SWEEP_COMPLETED, SWEEP_FAILED = range(10, 16)
DURATIONS, DURATION_SUM, PUSH_DURATIONS, PUSH_DURATION_SUM, RATE, UNPRICED = range(16, 22)
TIME, FAILED_TIME, COST, UNPRICED_TIME, FAILED_COST, FAILED_UNPRICED_TIME = range(22, 28)

_RATES = ((m.PUSH_SUCCESS, PUSH_COMPLETED, PUSH_FAILED), (m.SWEEP_SUCCESS, SWEEP_COMPLETED, SWEEP_FAILED))
_AVERAGES = (
    (m.AVG_DURATION, DURATION_SUM, DURATIONS),
    (m.PUSH_AVG_DURATION, PUSH_DURATION_SUM, PUSH_DURATIONS),
)
_USAGE_COUNTS = (m.USAGE_ACTIVE, m.USAGE_GPUS, m.USAGE_COMPLETED, m.USAGE_FAILED)
# A cost, what divides its sum, and the quantity that has a price, in total and as far as it has none.
_USAGE_COSTS = (
    (m.USAGE_COST, COST, HOUR_US * DOLLAR, TIME, UNPRICED_TIME),
    (m.USAGE_COST_FAILED, FAILED_COST, HOUR_US * DOLLAR, FAILED_TIME, FAILED_UNPRICED_TIME),
    (m.USAGE_COST_PER_HOUR, RATE, DOLLAR, GPUS, UNPRICED),
)
_USAGE = (ACTIVE, GPUS, COMPLETED, FAILED, TIME, FAILED_TIME)
_PRICED_USAGE = (*_USAGE, RATE, UNPRICED, COST, UNPRICED_TIME, FAILED_COST, FAILED_UNPRICED_TIME)

# What an ended run counts in, by state, and what runs of a kind count in besides.
_OF_STATE = {
    State.FINISHED: (TOTAL, COMPLETED),
    State.FAILED: (TOTAL, FAILED),
    State.CRASHED: (TOTAL, FAILED, CRASHED),
    State.KILLED: (TOTAL, KILLED),
    State.PREEMPTED: (TOTAL, PREEMPTED),
}
_OF_KIND: Mapping[RunKind, Mapping[int, int]] = {
    RunKind.OTHER: {},
    RunKind.PUSH_TO_MAIN: dict(zip((COMPLETED, FAILED), (PUSH_COMPLETED, PUSH_FAILED), strict=True)),
    RunKind.SWEEP: dict(zip((ACTIVE, TOTAL, COMPLETED, FAILED), range(SWEEP_ACTIVE, 16), strict=True)),
}


def _counted(kind: RunKind, quantities: tuple[int, ...]) -> tuple[int, ...]:
    """Return the quantities that a run of a kind counts in: those given, and those of its kind."""
    return (*quantities, *(_OF_KIND[kind][each] for each in quantities if each in _OF_KIND[kind]))


# Precomputed for every kind and state: entering a run is the inner loop of a backfill.
_OF_ENDED = {(kind, state): _counted(kind, _OF_STATE[state]) for kind in RunKind for state in _OF_STATE}
_OF_MEASURED = {  # the same, of runs with a duration
    (kind, state): (*found, DURATIONS, *((PUSH_DURATIONS,) if kind is RunKind.PUSH_TO_MAIN else ()))
    for (kind, state), found in _OF_ENDED.items()
}
_OF_ACTIVE = {kind: _counted(kind, (TOTAL, ACTIVE)) for kind in RunKind}
_OF_GROUP = {State.FINISHED: (COMPLETED,), State.FAILED: (FAILED,), State.CRASHED: (FAILED,)}
_FAILED_STATES = frozenset({State.FAILED, State.CRASHED})
# The states in the formula of `m.THROUGHPUT`.
_MEASURED_STATES = frozenset({State.FINISHED, State.CRASHED})

Group = tuple[str, ...]
Values = Sequence[int]
Mask = list[bool]
_Bend = tuple[int, int, int]  # of a line: the tick, how far it is raised there, and how much more it grows


class _Account:
    """The sums of a project or a group: as they were at the last tick, and the changes of this stretch.

    `advance` must be called once per quantity and stretch: it moves changes into sums.
    """

    __slots__ = ("changes", "growth", "size", "slopes", "sums")

    def __init__(self, size: int) -> None:
        self.size = size  # ticks of the stretch; tick `size` is outside
        self.sums = [0] * (FAILED_UNPRICED_TIME + 1)
        self.growth = self.sums.copy()  # of lines, from one tick to the next
        self.changes: defaultdict[int, list[int]] = defaultdict(self._zeros)
        self.slopes: defaultdict[int, list[int]] = defaultdict(self._zeros)

    def _zeros(self) -> list[int]:
        """Return a change per tick of the stretch, and one for what lies outside, which is never summed."""
        return [0] * (self.size + 1)

    def add(self, quantities: Iterable[int], first: int, after: int, amount: int = 1) -> None:
        """Add an amount to quantities from one tick until before another."""
        for quantity in quantities:
            changes = self.changes[quantity]
            changes[first] += amount
            changes[after] -= amount

    def bend(self, line: int, bends: Iterable[_Bend], weight: int = 1) -> None:
        """Bend a line, by a multiple of each bend; `line` is one of the quantities from `TIME` on."""
        changes, slopes = self.changes[line], self.slopes[line]
        for tick, jump, growth in bends:
            changes[tick] += jump * weight
            slopes[tick] += growth * weight

    def advance(self, quantity: int) -> Values:
        """Return the sums of a quantity at each tick of the stretch, and forget its changes.

        A line also grows by its slope from each tick to the next.
        """
        before, growth = self.sums[quantity], self.growth[quantity]
        changes, slopes = self.changes.pop(quantity, None), self.slopes.pop(quantity, None)
        # Cheap cases first: most quantities of a group do not change in a stretch.
        if changes is None and not growth:
            return [before] * self.size
        if changes is None:
            found: Values = range(before + growth, before + growth * (self.size + 1), growth)
        elif slopes is None:
            changes[0] += before
            found = [*accumulate(changes[:-1])]
        else:
            # A bend at a tick sets the value there, and its growth begins with the next: the slopes lag by
            # one tick.
            slopes = [*accumulate(slopes[:-1], initial=growth)]
            found = [*accumulate(map(add, changes[:-1], slopes), initial=before)][1:]
            self.growth[quantity] = slopes[-1]
        self.sums[quantity] = found[-1]
        return found


class Shown(NamedTuple):
    """A group that is shown: its sums by quantity, and at which ticks it is."""

    sums: Mapping[int, Values]
    mask: Mask


class Ledger:
    """The metrics of a project at ascending ticks, in seconds. `stretches` computes them, once.

    With `live` the last tick is the present, and has the metrics that only the present shows. The state is
    that of the last stretch: `table`, `counted_group` and `group_tags` are of its last tick.
    """

    def __init__(
        self,
        project: Project,
        runs: Sequence[Run],
        ticks: range,
        settings: WandbSettings,
        *,
        live: bool = False,
    ) -> None:
        self.project = project
        self._runs = runs
        self._ticks = ticks
        self._settings = settings
        self._live = live
        self._tags = {"entity": project.entity, "project": project.name}
        self._keys = tag_keys(settings.grouping)
        self._has_groups = settings.usage or (live and settings.utilization)
        self._has_prices = bool(settings.gpu_prices)
        self._window = settings.window * SECOND
        self._stale_after = settings.stale_after * SECOND
        self._account = _Account(0)
        self._groups: dict[Group, _Account] = {}
        self._sweeps: Counter[str] = Counter()  # active runs
        self._lasting: list[tuple[int, int]] = []  # durations in the window, and when they leave it
        self._percentiles: list[float | None] = [None] * len(m.DURATIONS)
        self._latest: Run | None = None
        self._latest_of: dict[Target, Run] = {}  # in order of their ends
        self._shown: dict[Group, Shown] = {}  # of the last stretch
        self._is_full = False  # whether some groups are part of the other group at the last tick
        # The ticks of the stretch, and what its runs change other than sums, by tick of the stretch.
        self._times: list[int] = []
        self._arrivals: dict[int, list[Run]] = {}
        self._departures: set[int] = set()
        self._sweep_changes: dict[int, list[tuple[str, int]]] = {}

    def stretches(self) -> Iterator[list[Series]]:
        """Yield the series of each stretch, oldest first.

        A stretch is a day, so that the series of a long backfill are never in memory at once.
        """
        size, step = max(1, DAY // self._ticks.step), self._ticks.step * SECOND
        entries: list[list[Run]] = [[] for _ in range(0, len(self._ticks), size)]
        # Assign each run to the stretches that it changes. A live run has one stretch, and skips this.
        for run in self._runs if len(entries) > 1 else ():
            begin = self._ticks[0] * SECOND
            # The first tick at or after a time: negating before and after the division rounds up.
            changed = {max(0, -((begin - at) // step)) // size for at in self._changing_times(run)}
            for stretch in changed:
                if stretch < len(entries):
                    entries[stretch].append(run)
        for stretch, runs in enumerate(entries):
            self._times = [*self._ticks[stretch * size : (stretch + 1) * size]]
            for account in (self._account, *self._groups.values()):
                account.size = len(self._times)
            self._arrivals, self._departures, self._sweep_changes = {}, set(), {}
            self._enter(runs if len(entries) > 1 else self._runs)
            # The runs of a stretch are not needed again: free them before the next.
            runs.clear()
            yield [*self._series()]

    @property
    def last_tick(self) -> range:
        """The last tick alone."""
        return self._ticks[-1:]

    def counted_group(self, group: Group) -> Group:
        """Return the group that a run is counted in at the last tick: its own, or the other group."""
        is_shown = group in self._shown and self._shown[group].mask[-1]
        return other_group(group) if self._is_full and not is_shown else group

    def group_tags(self, group: Group) -> dict[str, str]:
        """Return the tags of the series of a group."""
        return {**self._tags, **dict(zip(self._keys, group, strict=True))}

    def table(self) -> Iterator[tuple[Group, dict[str, object]]]:
        """Yield the groups with most GPU hours at the last tick, each with a row for a person.

        A cost is None without prices, and where none of the GPU hours has a price.
        """
        last = [
            (-shown.sums[TIME][-1], group, shown.sums)
            for group, shown in self._shown.items()
            if shown.mask[-1]
        ]
        for _, group, sums in nsmallest(TABLE_ROWS, last):
            hours, cost = sums[TIME][-1] / HOUR_US, None
            if self._has_prices and (not hours or sums[TIME][-1] != sums[UNPRICED_TIME][-1]):
                cost = sums[COST][-1] / (HOUR_US * DOLLAR)
            row = {"gpus": sums[GPUS][-1], "gpu_hours_24h": hours, "cost_24h": cost}
            yield group, {**self.group_tags(group), **row}

    # Entering runs.

    def _changing_times(self, run: Run) -> tuple[int, ...]:
        """Return every time from which a run changes a quantity.

        A running run works up to each tick while it is active; once it is not, up to its heartbeat.
        """
        # The order of the returned times is that of the names which `_enter` unpacks.
        window, begin, seen = self._window, run.worked_from, run.seen
        stop, inactive, known = max(begin, seen), seen, 0
        if run.state not in TERMINAL:
            inactive += self._stale_after
            known = 0 if run.state is State.PENDING else inactive
        worked = (begin, begin + window, max(stop, known), max(stop + window, known))
        return (run.start, run.start + window + 1, *worked, inactive, seen, seen + window + 1)

    def _enter(self, runs: Iterable[Run]) -> None:
        """Enter what runs change in this stretch; in the first, also what they changed before it.

        Times before the stretch were entered by an earlier one, so that they count as outside of it.
        """
        size, step = len(self._times), self._ticks.step * SECOND
        begin, end = self._times[0] * SECOND, self._times[-1] * SECOND
        is_first = self._times[0] == self._ticks[0]
        edge, before = (begin, 0) if is_first else (begin - step, size)  # tick `size` is outside
        for run in runs:
            times = self._changing_times(run)
            # Every time of the run as a tick of this stretch; `size` for a time outside of it.
            started, forgotten, working, left, stopped, emptied, inactive, ended, departed = [
                before if at <= edge else size if at > end else -((begin - at) // step) for at in times
            ]
            group: _Account | None = None
            if self._has_groups:
                group = self._groups.get(run.owner.group)
                if group is None:
                    group = self._groups[run.owner.group] = _Account(size)
            if started != forgotten:
                self._account.add((STARTED,), started, forgotten)
            if run.gpus:
                if bends := self._bends(run, working, left, stopped, emptied):
                    self._account.bend(TIME, bends)
                    if group is not None:
                        self._work(group, run, bends, TIME, COST, UNPRICED_TIME)
                if group is not None and run.state in _FAILED_STATES:  # counts once it has ended
                    # The GPU time of a failed run is known as such only when it has ended: a line that began
                    # earlier is entered at the tick of its end, with what has grown until then.
                    working = working if times[2] >= run.seen else ended
                    left = left if times[3] >= run.seen else ended
                    bends = self._bends(run, working, left, stopped, emptied)
                    self._work(group, run, bends, FAILED_TIME, FAILED_COST, FAILED_UNPRICED_TIME)
            if run.state is not State.PENDING and started != inactive and times[0] < times[6]:
                self._activate(run, started, inactive, group)
            if ended != departed and run.state in TERMINAL:
                self._end(run, ended, departed, group)

    def _bends(self, run: Run, working: int, left: int, stopped: int, emptied: int) -> list[_Bend]:
        """Return how a run bends the line of GPU time, once per tick of this stretch.

        It grows from where work begins, until it stops, and shrinks as the window leaves both. The arguments
        are the ticks of these four times; a tick outside of the stretch bends nothing.
        """
        times, size, step, gpus = self._times, len(self._times), self._ticks.step * SECOND, run.gpus
        begin, stop, window = run.worked_from, max(run.seen, run.worked_from), self._window
        bends: list[_Bend] = []
        for tick, at, change in (
            (working, begin, gpus),
            (left, begin + window, -gpus),
            (stopped, stop, -gpus),
            (emptied, stop + window, gpus),
        ):
            if tick < size:
                # The bend lies between two ticks: the jump is what has grown from there to the tick.
                jump, growth = change * (times[tick] * SECOND - at), change * step
                # A short run may begin and stop between two ticks: both bends become one.
                if bends and bends[-1][0] == tick:
                    _, jump_before, growth_before = bends.pop()
                    jump, growth = jump + jump_before, growth + growth_before
                if jump or growth:
                    bends.append((tick, jump, growth))
        return bends

    def _work(
        self, group: _Account, run: Run, bends: list[_Bend], time: int, cost: int, unpriced: int
    ) -> None:
        """Enter the GPU time of a run in its group, and what it costs.

        `time`, `cost` and `unpriced` are the lines to bend: those of all runs, or those of failed runs.
        """
        group.bend(time, bends)
        price = run.owner.price
        if self._has_prices:
            group.bend(unpriced if price is None else cost, bends, 1 if price is None else price)

    def _activate(self, run: Run, first: int, after: int, group: _Account | None) -> None:
        """Count a run as active from its start, and no longer at its end; `first` and `after` are ticks."""
        self._account.add(_OF_ACTIVE[run.kind], first, after)
        self._account.add((GPUS,), first, after, run.gpus)
        if run.gpus_assumed:
            self._account.add((ASSUMED,), first, after)
        if run.kind is RunKind.SWEEP and run.sweep is not None:
            for tick, change in ((first, 1), (after, -1)):
                self._sweep_changes.setdefault(tick, []).append((run.sweep, change))
        if group is not None:
            group.add((ACTIVE,), first, after)
            group.add((GPUS,), first, after, run.gpus)
            price = run.owner.price
            if self._has_prices:
                amount = run.gpus * (1 if price is None else price)
                # GPUs without a price are counted instead of priced: their cost is unknown, and not 0.
                group.add((UNPRICED if price is None else RATE,), first, after, amount)

    def _end(self, run: Run, first: int, after: int, group: _Account | None) -> None:
        """Count a run from its end until the window, whose both ends are part of it, has passed.

        A run without a duration, where clocks disagree, counts in all but the durations.
        """
        counted = _OF_ENDED if run.duration is None else _OF_MEASURED
        self._account.add(counted[run.kind, run.state], first, after)
        if run.gpus_assumed:
            self._account.add((ASSUMED,), first, after)
        if run.duration is not None:
            is_push = run.kind is RunKind.PUSH_TO_MAIN
            self._account.add((DURATION_SUM, PUSH_DURATION_SUM)[: 1 + is_push], first, after, run.duration)
        if group is not None and run.state in _OF_GROUP:
            group.add(_OF_GROUP[run.state], first, after)
        self._arrivals.setdefault(first, []).append(run)
        self._departures.add(after)

    # The series of a stretch.

    def _series(self) -> Iterator[Series]:
        """Yield the series of the stretch: those of the project, then those of its groups."""
        tags = self._tags
        sums = {quantity: self._account.advance(quantity) for quantity in range(TIME + 1)}
        for quantity, metric in enumerate(_COUNTS):
            yield metric.series(self._times, sums[quantity], **tags)
        yield m.GPU_HOURS.series(self._times, [time / HOUR_US for time in sums[TIME]], **tags)
        yield m.ACTIVE_SWEEPS.series(self._times, self._active_sweeps(), **tags)
        for metric, completed, failed in _RATES:
            pairs = zip(sums[completed], sums[failed], strict=True)
            rates = [100 * good / (good + bad) if good + bad else None for good, bad in pairs]
            yield from self._known(metric, rates, tags)
        for metric, total, number in _AVERAGES:
            pairs = zip(sums[total], sums[number], strict=True)
            hours = [duration / (runs * HOUR_US) if runs else None for duration, runs in pairs]
            yield from self._known(metric, hours, tags)
        for metric, percentiles in zip(
            m.DURATIONS, zip(*self._duration_percentiles(), strict=True), strict=True
        ):
            yield from self._known(metric, percentiles, tags)
        yield from self._throughput()
        if self._live and self._times[-1] == self._ticks[-1]:
            yield from self._present(self._times[-1])
        if self._has_groups:
            self._shown = self._shown_groups()
            for group, shown in self._shown.items() if self._settings.usage else ():
                yield from self._group_series(self.group_tags(group), shown)

    def _known(
        self, metric: Metric, values: Sequence[float | None], tags: Mapping[str, str]
    ) -> Iterator[Series]:
        """Yield a series of the ticks at which there is a value, if any: absent is not 0."""
        known = [(at, value) for at, value in zip(self._times, values, strict=True) if value is not None]
        if known:
            yield metric.series([at for at, _ in known], [value for _, value in known], **tags)

    def _active_sweeps(self) -> list[int]:
        """Return how many sweeps have an active run at each tick; runs of a sweep overlap."""
        counts = []
        for tick in range(len(self._times)):
            for sweep, change in self._sweep_changes.get(tick, ()):
                self._sweeps[sweep] += change
            if tick in self._sweep_changes:
                # The unary plus of a Counter drops the entries that are 0, so that its length counts sweeps.
                self._sweeps = +self._sweeps
            counts.append(len(self._sweeps))
        return counts

    def _duration_percentiles(self) -> Iterator[list[float | None]]:
        """Yield percentiles at each tick by nearest rank: the ceil(share x n / 100)-th smallest of n."""
        for tick, at in enumerate(self._times):
            # Sorted only at ticks where a run enters or leaves: the others repeat the last values.
            if tick in self._arrivals or tick in self._departures:
                for run in self._arrivals.get(tick, ()):
                    if run.duration is not None:
                        self._lasting.append((run.duration, run.seen + self._window))
                lasting = self._lasting = sorted(each for each in self._lasting if each[1] >= at * SECOND)
                ranks = (-(-share * len(lasting) // 100) - 1 for share in m.DURATIONS.values())
                self._percentiles = [lasting[rank][0] / HOUR_US if lasting else None for rank in ranks]
            yield self._percentiles

    def _throughput(self) -> Iterator[Series]:
        """Yield the throughput of the latest run in the window, and of the latest of each target."""
        latest: list[Run | None] = []
        speeds: dict[Target, list[float | None]] = {}
        for tick, at in enumerate(self._times):
            ended = self._arrivals.get(tick, ())
            measured = [run for run in ended if run.throughput and run.state in _MEASURED_STATES]
            # Ties by id, so that the result does not depend on the order of the listing.
            for run in sorted(measured, key=lambda run: (run.seen, run.id)):
                self._latest = run
                if run.target is not None and BY_TARGET in run.throughput:
                    # Removed first, so that it is added at the end: the dict stays in the order of ends,
                    # oldest first.
                    self._latest_of.pop(run.target, None)
                    self._latest_of[run.target] = run
            oldest = at * SECOND - self._window
            if self._latest is not None and self._latest.seen < oldest:
                self._latest = None
            latest.append(self._latest)
            while self._latest_of and next(iter(self._latest_of.values())).seen < oldest:
                del self._latest_of[next(iter(self._latest_of))]
            for target, run in self._latest_of.items():
                speeds.setdefault(target, [None] * len(self._times))[tick] = run.throughput[BY_TARGET]
        if any(latest):
            for key, metric in m.THROUGHPUT.items():
                yield from self._known(
                    metric, [run and run.throughput.get(key) for run in latest], self._tags
                )
            pairs = zip(self._times, latest, strict=True)
            ages = [run and (at * SECOND - run.seen) / SECOND for at, run in pairs]
            yield from self._known(m.PUSH_SPS_AGE, ages, self._tags)
        for target, values in sorted(speeds.items()):
            yield from self._known(m.PUSH_CONFIG_STEPS, values, self._tags | target._asdict())

    def _present(self, at: int) -> Iterator[Series]:
        """Yield the metrics that only the present shows: a run in such a state may have ended since."""
        now, pending_for = at * SECOND, self._settings.pending_for * SECOND
        started = [run for run in self._runs if run.start <= now and run.state not in TERMINAL]
        waits = [now - run.start for run in started if run.state is State.PENDING]
        # A run that has waited for longer will hardly start: it is no part of the queue.
        waits = [wait for wait in waits if wait < pending_for]
        stale = (run.state is not State.PENDING and run.seen + self._stale_after <= now for run in started)
        yield m.PENDING(len(waits), at, **self._tags)
        if waits:
            yield m.OLDEST_PENDING(max(waits) / SECOND, at, **self._tags)
        yield m.STALE(sum(stale), at, **self._tags)

    # Usage by group.

    def _shown_groups(self) -> dict[Group, Shown]:
        """Return the groups that are present, by name; a group is while any of its sums is not zero.

        Groups without any sum left are deleted: over a year of backfill they would only accumulate.
        """
        shown: dict[Group, Shown] = {}
        for group, account in sorted(self._groups.items()):
            has_changes, growth = bool(account.changes), account.growth[TIME]
            bends = account.slopes.get(TIME, [0] * (account.size + 1))
            # A group whose run has just begun has no GPU time yet, but a slope.
            slopes = [*accumulate(bends[:-1], initial=growth)][1:]
            quantities = _PRICED_USAGE if self._has_prices else _USAGE
            sums = {quantity: account.advance(quantity) for quantity in quantities}
            is_empty = not any(account.sums) and not any(account.growth)
            mask = [not is_empty] * account.size
            if has_changes:
                parts = (sums[ACTIVE], sums[COMPLETED], sums[FAILED], sums[TIME], slopes)
                mask = [*map(any, zip(*parts, strict=True))]
            if any(mask):
                shown[group] = Shown(sums, mask)
            if is_empty:
                del self._groups[group]
        self._is_full = False
        return self._limited(shown) if len(shown) > self._settings.max_groups else shown

    def _limited(self, groups: Mapping[Group, Shown]) -> dict[Group, Shown]:
        """Keep the groups with most GPU time at each tick, then by name, and sum all others as one group.

        Datadog bills each combination of tag values; the sum over all groups stays that of the project.
        """
        ticks = range(len(self._times))
        largest: dict[Group, Mask] = {group: [False] * len(ticks) for group in groups}
        for tick in ticks:
            order = [(-shown.sums[TIME][tick], group) for group, shown in groups.items() if shown.mask[tick]]
            self._is_full = len(order) > self._settings.max_groups
            for _, group in nsmallest(self._settings.max_groups, order):
                largest[group][tick] = True
        other = other_group(next(iter(groups)))
        others: dict[int, list[int]] = {}
        other_mask = [False] * len(ticks)
        for group, shown in groups.items():
            # A group that is named like the other group is part of it.
            own = [False] * len(ticks) if group == other else largest[group]
            # `False < True`: the ticks at which the group is present and not among the largest.
            hidden = [*compress(ticks, map(int.__lt__, own, shown.mask))]
            for quantity, values in shown.sums.items():
                total = others.setdefault(quantity, [0] * len(ticks))
                for tick in hidden:
                    total[tick] += values[tick]
            for tick in hidden:
                other_mask[tick] = True
        limited = {group: Shown(groups[group].sums, mask) for group, mask in largest.items() if any(mask)}
        return limited | ({other: Shown(others, other_mask)} if any(other_mask) else {})

    def _group_series(self, tags: Mapping[str, str], shown: Shown) -> Iterator[Series]:
        """Yield the series of a group, each at the ticks at which the group is shown."""

        def series(metric: Metric, values: Sequence[float], mask: Mask) -> Series:
            if all(mask):
                return metric.series(self._times, values, **tags)
            return metric.series([*compress(self._times, mask)], [*compress(values, mask)], **tags)

        sums, mask = shown
        for quantity, metric in enumerate(_USAGE_COUNTS):
            yield series(metric, sums[quantity], mask)
        hours = [(m.USAGE_HOURS, TIME), (m.USAGE_FAILED_HOURS, FAILED_TIME)]
        if self._has_prices:
            hours.append((m.USAGE_UNPRICED_HOURS, UNPRICED_TIME))
            yield series(m.USAGE_UNPRICED, sums[UNPRICED], mask)
        for metric, line in hours:
            yield series(metric, [time / HOUR_US for time in sums[line]], mask)
        for metric, cost, divisor, total, unpriced in _USAGE_COSTS if self._has_prices else ():
            known = mask
            if any(sums[unpriced]):  # the cost of GPUs that all lack a price is unknown, and not 0
                pairs = zip(sums[unpriced], sums[total], mask, strict=True)
                known = [present and (not part or part != every) for part, every, present in pairs]
            if any(known):
                yield series(metric, [amount / divisor for amount in sums[cost]], known)
