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

_TOTAL: Mapping[RunKind, _Metrics] = {
    RunKind.OTHER: (metrics.TOTAL_RECENT,),
    RunKind.PUSH_TO_MAIN: (metrics.TOTAL_RECENT,),
    RunKind.SWEEP: (metrics.TOTAL_RECENT, metrics.SWEEP_TOTAL),
}
_ACTIVE: Mapping[RunKind, _Metrics] = {
    RunKind.OTHER: (metrics.ACTIVE,),
    RunKind.PUSH_TO_MAIN: (metrics.ACTIVE,),
    RunKind.SWEEP: (metrics.ACTIVE, metrics.SWEEP_ACTIVE),
}
_COMPLETED: Mapping[RunKind, _Metrics] = {
    RunKind.OTHER: (metrics.COMPLETED,),
    RunKind.PUSH_TO_MAIN: (metrics.COMPLETED, metrics.PUSH_COMPLETED),
    RunKind.SWEEP: (metrics.COMPLETED, metrics.SWEEP_COMPLETED),
}
_FAILED: Mapping[RunKind, _Metrics] = {
    RunKind.OTHER: (metrics.FAILED,),
    RunKind.PUSH_TO_MAIN: (metrics.FAILED, metrics.PUSH_FAILED),
    RunKind.SWEEP: (metrics.FAILED, metrics.SWEEP_FAILED),
}
_OTHERS = (metrics.PENDING, metrics.STALE, metrics.GPUS_IN_USE, metrics.GPUS_ASSUMED)

_MEASURED = frozenset({State.FINISHED, State.CRASHED})


def _ended(kind: RunKind, state: State) -> _Metrics:
    """What a run counts in once it has ended."""
    of_state: Mapping[State, _Metrics] = {
        State.FINISHED: _COMPLETED[kind],
        State.FAILED: _FAILED[kind],
        State.CRASHED: (*_FAILED[kind], metrics.CRASHED),
        State.KILLED: (metrics.KILLED,),
        State.PREEMPTED: (metrics.PREEMPTED,),
    }
    return (*_TOTAL[kind], *of_state[state])


class Ledger:
    """The changes that runs make to every quantity, over ascending instants in microseconds."""

    def __init__(self, instants: list[int], window: int, stale_after: int, pending_for: int) -> None:
        self.instants = instants
        self._window = window
        self._stale_after = stale_after
        self._pending_for = pending_for
        # What happens after the last instant is entered past the end, where nobody looks.
        self._size = size = len(instants) + 1
        ended = {(kind, state): _ended(kind, state) for kind in RunKind for state in TERMINAL}
        active = {kind: (*_TOTAL[kind], *_ACTIVE[kind]) for kind in RunKind}
        counted = {metric for group in (*ended.values(), *active.values(), _OTHERS) for metric in group}
        self.counts = {metric: [0] * size for metric in counted}
        self._of_ended = {key: [self.counts[metric] for metric in group] for key, group in ended.items()}
        self._of_active = {kind: [self.counts[metric] for metric in group] for kind, group in active.items()}
        self.durations = {kind: ([0] * size, [0] * size) for kind in RunKind}  # their sum, and how many
        self.gpu_time = ([0] * size, [0] * size)  # slope and offset of the GPU time in the window
        self._pending: list[int] = []  # when the runs that wait were created
        self.latest: dict[int, Run] = {}
        self.targets: dict[int, dict[Target, Run]] = {}
        self._sweeps: dict[str, list[tuple[int, int]]] = {}

    def enter(self, run: Run) -> None:
        """Add all that one run changes."""
        if run.state in TERMINAL:
            self._end(run)
            self._activate(run, run.seen)
            self._work(run)
        elif run.state is State.PENDING:
            forgotten = self._first(run.start + self._pending_for)
            _add(self.counts[metrics.PENDING], self._first(run.start), forgotten, 1)
            self._pending.append(run.start)
            self._work(run)
        else:
            lapse = run.seen + self._stale_after
            self.counts[metrics.STALE][self._first(max(run.start, lapse))] += 1
            self._activate(run, lapse)
            self._work_until(lapse, run)

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
        if run.throughput and run.state in _MEASURED:
            self._measure(run, first)

    def _measure(self, run: Run, first: int) -> None:
        self.latest[first] = _later(run, self.latest.get(first))
        if run.target is not None and BY_TARGET in run.throughput:
            of_target = self.targets.setdefault(first, {})
            of_target[run.target] = _later(run, of_target.get(run.target))

    def _activate(self, run: Run, end: int) -> None:
        """The run is active from its start, and no longer at its end."""
        first, after = self._first(run.start), self._first(end)
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
        """GPU time grows while the run works, and shrinks as the window's far end passes over that."""
        if run.worked_from < run.seen:
            self._ramp(run.gpus, run.worked_from)
            self._ramp(-run.gpus, run.seen)
            self._ramp(-run.gpus, run.worked_from + self._window)
            self._ramp(run.gpus, run.seen + self._window)

    def _work_until(self, lapse: int, run: Run) -> None:
        """GPU time of a running run: up to the instant while it is active, then only up to its heartbeat."""
        seen = max(run.worked_from, run.seen)
        self._ramp(run.gpus, run.worked_from)
        self._ramp(-run.gpus, run.worked_from + self._window)
        self._ramp(-run.gpus, seen, known_from=lapse)
        self._ramp(run.gpus, seen + self._window, known_from=lapse)

    def _ramp(self, gpus: int, begin: int, known_from: int = 0) -> None:
        """Add gpus x (t - begin) at every instant t from `begin` on, or from when it is known."""
        first = self._first(max(begin, known_from))
        slope, offset = self.gpu_time
        slope[first] += gpus
        offset[first] -= gpus * begin


def _add(changes: list[int], first: int, after: int, amount: int) -> None:
    changes[first] += amount
    changes[after] -= amount


def _later(run: Run, other: Run | None) -> Run:
    """The run that ended later; of two at once, always the same one."""
    return run if other is None or (run.seen, run.id) > (other.seen, other.id) else other
