"""What runs change, entered at the first instant each change holds for.

Position i of every list is what is added from instant i on; running sums give the value at each instant. A
run that is active from 15 to 35 is two entries, however many instants lie between:
    instants       10  20  30  40
    changes         0  +1   0  -1
    active runs     0   1   1   0
So a year of ticks costs runs plus ticks, not runs times ticks. GPU time also grows while a run works: it is
kept as a line, slope x t + offset, in two such lists; a run bends the line where it starts and where it ends.
All sums are of integers (runs, GPUs, microseconds), so an answer does not depend on what else is asked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate

from collectors.wandb import metrics
from collectors.wandb.runs import TERMINAL, Run, RunKind, State, Target
from common.metric import Metric

BY_TARGET = "overview/steps_per_second"

_Metrics = tuple[Metric, ...]

# What runs of a kind count in, beside the metric that all runs do.
_OF_KIND: Mapping[RunKind, Mapping[Metric, Metric]] = {
    RunKind.OTHER: {},
    RunKind.PUSH_TO_MAIN: {
        metrics.COMPLETED: metrics.PUSH_COMPLETED,
        metrics.FAILED: metrics.PUSH_FAILED,
    },
    RunKind.SWEEP: {
        metrics.TOTAL_RECENT: metrics.SWEEP_TOTAL,
        metrics.ACTIVE: metrics.SWEEP_ACTIVE,
        metrics.COMPLETED: metrics.SWEEP_COMPLETED,
        metrics.FAILED: metrics.SWEEP_FAILED,
    },
}
_OF_STATE: Mapping[State, _Metrics] = {
    State.FINISHED: (metrics.COMPLETED,),
    State.FAILED: (metrics.FAILED,),
    State.CRASHED: (metrics.FAILED, metrics.CRASHED),
    State.KILLED: (metrics.KILLED,),
    State.PREEMPTED: (metrics.PREEMPTED,),
}
_OTHERS = (metrics.STARTED, metrics.PENDING, metrics.STALE, metrics.GPUS_IN_USE, metrics.GPUS_ASSUMED)

_MEASURED = frozenset({State.FINISHED, State.CRASHED})


def _counted(kind: RunKind, *of_all: Metric) -> _Metrics:
    """What a run of a kind counts in, where all runs count in some."""
    return (*of_all, *(_OF_KIND[kind][metric] for metric in of_all if metric in _OF_KIND[kind]))


class Ledger:
    """The changes that runs make to every quantity, over ascending instants in microseconds."""

    def __init__(self, instants: list[int], window: int, stale_after: int, pending_for: int) -> None:
        self.instants = instants
        self._window = window
        self._stale_after = stale_after
        self._pending_for = pending_for
        # What happens after the last instant is entered past the end, where nobody looks.
        self._size = size = len(instants) + 1
        ended = {
            (kind, state): _counted(kind, metrics.TOTAL_RECENT, *of_state)
            for kind in RunKind
            for state, of_state in _OF_STATE.items()
        }
        active = {kind: _counted(kind, metrics.TOTAL_RECENT, metrics.ACTIVE) for kind in RunKind}
        counted = {metric for group in (*ended.values(), *active.values(), _OTHERS) for metric in group}
        self.counts = {metric: [0] * size for metric in counted}
        self._of_ended = {key: [self.counts[metric] for metric in group] for key, group in ended.items()}
        self._of_active = {kind: [self.counts[metric] for metric in group] for kind, group in active.items()}
        self.durations = {kind: ([0] * size, [0] * size) for kind in RunKind}  # their sum, and how many
        self.lasting: list[tuple[int, int, int]] = []  # durations, and the instants between which they count
        self.gpu_time = ([0] * size, [0] * size)  # slope and offset of the GPU time in the window
        self._pending: list[int] = []  # when the runs that wait were created
        self.latest: dict[int, Run] = {}
        self.targets: dict[int, dict[Target, Run]] = {}
        self._sweeps: dict[str, list[tuple[int, int]]] = {}

    def enter(self, run: Run) -> None:
        """Add all that one run changes."""
        created = self._first(run.start)
        _add(self.counts[metrics.STARTED], created, self._first(run.start + self._window + 1), 1)
        self._work(run)
        if run.state is State.PENDING:
            _add(self.counts[metrics.PENDING], created, self._first(run.start + self._pending_for), 1)
            self._pending.append(run.start)
            return
        end = active_until(run, self._stale_after)
        self._activate(run, created, self._first(end))
        if run.state in TERMINAL:
            self._end(run)
        else:
            self.counts[metrics.STALE][self._first(max(run.start, end))] += 1

    def active_sweeps(self) -> list[int]:
        """How many sweeps have an active run, at each instant; spans of runs of one sweep overlap."""
        changes = [0] * self._size
        for spans in self._sweeps.values():
            covered = 0
            for first, after in sorted(spans):
                begin = max(first, covered)
                if begin < after:
                    changes[begin] += 1
                    changes[after] -= 1
                    covered = after
        return list(accumulate(changes))

    def oldest_pending(self) -> list[int | None]:
        """How long the run has waited that waits longest, at each instant; those forgotten do not wait."""
        self._pending.sort()
        found: list[int | None] = []
        for moment in self.instants:
            place = bisect_right(self._pending, moment - self._pending_for)
            waits = place < len(self._pending) and self._pending[place] <= moment
            found.append(moment - self._pending[place] if waits else None)
        return found

    def _first(self, moment: int) -> int:
        """The first instant that is not before a moment."""
        return bisect_left(self.instants, moment)

    def _end(self, run: Run) -> None:
        """The run counts from its end until the window, whose both ends are part of it, has passed it."""
        first, after = self._first(run.seen), self._first(run.seen + self._window + 1)
        if first == after:
            return
        for counts in self._of_ended[run.kind, run.state]:
            _add(counts, first, after, 1)
        if run.gpus_assumed:
            _add(self.counts[metrics.GPUS_ASSUMED], first, after, 1)
        if run.duration is not None:
            total, number = self.durations[run.kind]
            _add(total, first, after, run.duration)
            _add(number, first, after, 1)
            self.lasting.append((run.duration, first, after))
        if run.throughput and run.state in _MEASURED:
            self._measure(run, first)

    def _measure(self, run: Run, first: int) -> None:
        self.latest[first] = _later(run, self.latest.get(first))
        if run.target is not None and BY_TARGET in run.throughput:
            of_target = self.targets.setdefault(first, {})
            of_target[run.target] = _later(run, of_target.get(run.target))

    def _activate(self, run: Run, first: int, after: int) -> None:
        """The run is active from its start, and no longer at its end."""
        if first >= after:
            return
        for counts in self._of_active[run.kind]:
            _add(counts, first, after, 1)
        _add(self.counts[metrics.GPUS_IN_USE], first, after, run.gpus)
        if run.gpus_assumed:
            _add(self.counts[metrics.GPUS_ASSUMED], first, after, 1)
        if run.kind is RunKind.SWEEP and run.sweep is not None:
            self._sweeps.setdefault(run.sweep, []).append((first, after))

    def _work(self, run: Run) -> None:
        slope, offset = self.gpu_time
        for gpus, begin, known_from in gpu_time(run, self._window, self._stale_after):
            first = self._first(max(begin, known_from))
            slope[first] += gpus
            offset[first] -= gpus * begin


def is_in_reach(run: Run, first: int, last: int, window: int) -> bool:
    """Whether a run may change an answer for any instant from the first to the last."""
    times = (run.start, run.seen, run.worked_from)
    return min(times) <= last and (run.state not in TERMINAL or max(times) + window + 1 >= first)


def active_until(run: Run, stale_after: int) -> int:
    """When a run that started is no longer active: at its end, or once its heartbeat is stale."""
    return run.seen if run.state in TERMINAL else run.seen + stale_after


def gpu_time(run: Run, window: int, stale_after: int) -> tuple[tuple[int, int, int], ...]:
    """How a run bends the line of GPU time: gpus x (t - begin) is added from `begin` on, or once it is known.

    It grows while the run works, and shrinks as the window's far end passes over that. A running run is taken
    to work up to the instant while it is active; once it is not, only up to its heartbeat.
    """
    begin, seen, gpus = run.worked_from, run.seen, run.gpus
    known_from = 0 if run.state in TERMINAL or run.state is State.PENDING else seen + stale_after
    seen = max(begin, seen)
    return (
        (gpus, begin, 0),
        (-gpus, begin + window, 0),
        (-gpus, seen, known_from),
        (gpus, seen + window, known_from),
    )


def _add(changes: list[int], first: int, after: int, amount: int) -> None:
    changes[first] += amount
    changes[after] -= amount


def _later(run: Run, other: Run | None) -> Run:
    """The run that ended later; of two at once, always the same one."""
    return run if other is None or (run.seen, run.id) > (other.seen, other.id) else other
