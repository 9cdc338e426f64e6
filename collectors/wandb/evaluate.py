"""The metrics as of any instants, from the runs alone: no clock, no network.

One instant and many are the same computation: N runs and T instants take about (N + T) log T steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from collectors.wandb import metrics
from collectors.wandb.ledger import BY_TARGET, Ledger
from collectors.wandb.metrics import DURATIONS, THROUGHPUT
from collectors.wandb.runs import HOUR, SECOND, Run, RunKind, Target
from common.metric import Metric

_RATES = (
    (metrics.PUSH_SUCCESS, metrics.PUSH_COMPLETED, metrics.PUSH_FAILED),
    (metrics.SWEEP_SUCCESS, metrics.SWEEP_COMPLETED, metrics.SWEEP_FAILED),
)
_MEANS = ((metrics.AVG_DURATION, tuple(RunKind)), (metrics.PUSH_AVG_DURATION, (RunKind.PUSH_TO_MAIN,)))


@dataclass(frozen=True)
class Rules:
    """How far back a run may have ended, when a heartbeat is stale, how long a run waits; in seconds."""

    window: int = 86400
    stale_after: int = 900
    pending_for: int = 30 * 86400


@dataclass(frozen=True)
class Figures:
    """The answer for one instant. What has no value then is not in it."""

    at: int
    values: Mapping[Metric, float]
    by_target: Mapping[Target, float]


def evaluate(runs: Iterable[Run], at: int, rules: Rules) -> Figures:
    """The metrics as of one instant, in seconds since the epoch."""
    return next(evaluate_many(runs, [at], rules))


def evaluate_many(runs: Iterable[Run], instants: Iterable[int], rules: Rules) -> Iterator[Figures]:
    """The metrics as of each of the instants, in ascending order, each instant once."""
    window = rules.window * SECOND
    moments = [at * SECOND for at in sorted(set(instants))]
    ledger = Ledger(moments, window, rules.stale_after * SECOND, rules.pending_for * SECOND)
    for run in runs:
        ledger.enter(run)
    counts = {metric: list(accumulate(changes)) for metric, changes in ledger.counts.items()}
    counts[metrics.ACTIVE_SWEEPS] = ledger.active_sweeps()
    slope, offset = (list(accumulate(changes)) for changes in ledger.gpu_time)
    means = list(_means(ledger))
    lasting = percentiles(ledger.lasting, len(moments), [*DURATIONS.values()])
    measured, oldest_pending = _measured(ledger, window), ledger.oldest_pending()
    for place, moment in enumerate(ledger.instants):
        values: dict[Metric, float] = {metric: sums[place] for metric, sums in counts.items()}
        values[metrics.GPU_HOURS] = (slope[place] * moment + offset[place]) / HOUR
        values |= _rates(values)
        for metric, totals, numbers in means:
            if numbers[place]:
                values[metric] = totals[place] / (numbers[place] * HOUR)
        if durations := next(lasting):
            values |= {metric: took / HOUR for metric, took in zip(DURATIONS, durations, strict=True)}
        if (waited := oldest_pending[place]) is not None:
            values[metrics.OLDEST_PENDING] = waited / SECOND
        throughput, by_target = next(measured)
        yield Figures(moment // SECOND, values | throughput, by_target)


def _rates(values: Mapping[Metric, float]) -> Iterator[tuple[Metric, float]]:
    for rate, completed, failed in _RATES:
        if ended := values[completed] + values[failed]:
            yield rate, 100 * values[completed] / ended


def _means(ledger: Ledger) -> Iterator[tuple[Metric, list[int], list[int]]]:
    """For each mean, the sum of durations and their number at every instant."""
    for metric, kinds in _MEANS:
        totals, numbers = zip(*(ledger.durations[kind] for kind in kinds), strict=True)
        yield (
            metric,
            list(accumulate(map(sum, zip(*totals, strict=True)))),
            list(accumulate(map(sum, zip(*numbers, strict=True)))),
        )


def _measured(ledger: Ledger, window: int) -> Iterator[tuple[dict[Metric, float], dict[Target, float]]]:
    """Throughput at every instant: of the one latest run in the window, and of the latest of each target."""
    latest: Run | None = None
    targets: dict[Target, Run] = {}  # the one that ended longest ago comes first
    for place, moment in enumerate(ledger.instants):
        latest = ledger.latest.get(place, latest)
        values: dict[Metric, float] = {}
        if latest is not None and latest.seen >= moment - window:
            values = {THROUGHPUT[key]: value for key, value in latest.throughput.items()}
            values[metrics.PUSH_SPS_AGE] = (moment - latest.seen) / SECOND
        for target, run in sorted(ledger.targets.get(place, {}).items(), key=lambda item: item[1].seen):
            targets.pop(target, None)
            targets[target] = run
        while targets and next(iter(targets.values())).seen < moment - window:
            del targets[next(iter(targets))]
        yield values, {target: run.throughput[BY_TARGET] for target, run in targets.items()}


def percentiles(
    lasting: Iterable[tuple[int, int, int]], instants: int, shares: Sequence[int]
) -> Iterator[list[int]]:
    """At every instant, percentiles of the durations that count from one instant until before another.

    By nearest rank: of n durations, the ceil(share x n / 100)-th smallest, one that a run had.
    """
    coming: dict[int, list[tuple[int, int]]] = {}
    for duration, first, after in lasting:
        coming.setdefault(first, []).append((duration, after))
    there: list[tuple[int, int]] = []  # in order, which sorting makes use of
    for place in range(instants):
        there = [one for one in there if one[1] > place]
        there += coming.get(place, [])
        there.sort()
        yield [there[-(-share * len(there) // 100) - 1][0] for share in shares if there]
