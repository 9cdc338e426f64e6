"""List the runs behind one number: `run_collector.py wandb --explain METRIC [tag=value …]`.

What a run adds is the value that the metric has for a project with that run alone, from the code that
computes what is sent, so that both agree: `ledger` and `utilization`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from collectors.wandb import metrics as m
from collectors.wandb.ledger import Ledger
from collectors.wandb.runs import HOUR_US, Run
from collectors.wandb.settings import WandbSettings
from collectors.wandb.utilization import Observation, Observed, idle_runs, observed_series, run_url
from common.metric import Combine, Metric, Series
from common.names import normalise_tag

_OF_LATEST_RUN = frozenset({*(metric.name for metric in m.THROUGHPUT.values()), m.PUSH_SPS_AGE.name})

MAX_ROWS = 1000  # runs that are listed; the remaining ones are one row
MAX_NAME = 200  # characters

_Part = tuple[Run, float]


class Row(NamedTuple):
    """A run behind a number. `adds` is its part of a sum, or its own value of a mean, rate or percentile."""

    run: str
    state: str
    user: str
    gpu_type: str
    gpus: int
    hours: float  # its duration; up to its last heartbeat while it runs
    adds: float
    url: str


def explain_project(
    metric: Metric,
    tags: Mapping[str, str],
    ledger: Ledger,
    runs: Sequence[Run],
    observation: Observation | None,
    settings: WandbSettings,
) -> list[Row]:
    """Return the runs behind a metric of a project at the last tick of its ledger; the largest part first.

    Only series with these tags count. The parts of a sum add up to the value that is sent; a maximum lists
    the runs that have it, a throughput the run it is of, and any other value all runs it is computed from. No
    run can be listed for `wandb.runs.unseen`.
    """
    # Compared as Datadog stores them: a person copies a tag from a dashboard.
    selected = {normalise_tag(f"{key}:{value}") for key, value in tags.items()}
    if metric.name in {each.name for each in m.OBSERVED}:
        parts = [*_observed_parts(metric, selected, ledger, observation, settings)] if observation else []
    else:
        parts = [*_ledger_parts(metric, selected, ledger, runs, settings)]
    if metric.name in _OF_LATEST_RUN:
        latest = _latest(run for run, _ in _ledger_parts(m.PUSH_SPS_AGE, set(), ledger, runs, settings))
        parts = [(run, value) for run, value in parts if run is latest]
    elif metric is m.PUSH_CONFIG_STEPS:
        targets = {run.target for run, _ in parts}
        latest_of = [_latest(run for run, _ in parts if run.target == target) for target in targets]
        parts = [(run, value) for run, value in parts if any(run is each for each in latest_of)]
    elif metric.combines is Combine.SUM:
        parts = [(run, value) for run, value in parts if value]
        if metric is m.ACTIVE_SWEEPS:  # a sweep counts once
            first = {run.sweep: run for run, _ in reversed(parts)}
            parts = [(run, value if first[run.sweep] is run else 0) for run, value in parts]
    elif metric.combines is Combine.MAX:
        largest = max((value for _, value in parts), default=0)
        parts = [(run, value) for run, value in parts if value == largest]
    parts.sort(key=lambda part: (-part[1], part[0].title, part[0].id))
    return [
        Row(
            run=run.title[:MAX_NAME],
            state=run.state.value,
            user=run.owner.user,
            gpu_type=run.owner.gpu_type,
            gpus=run.gpus,
            hours=(max(0, run.seen - run.worked_from) if run.duration is None else run.duration) / HOUR_US,
            adds=value,
            url=run_url(ledger.project, run, settings),
        )
        for run, value in parts
    ]


def as_table(metric: Metric, rows: list[Row]) -> list[dict[str, object]]:
    """Return rows for a person; where there are too many, the last one represents all that remain."""
    rows = sorted(rows, key=lambda row: -row.adds)
    table: list[dict[str, object]] = [row._asdict() for row in rows[:MAX_ROWS]]
    if others := rows[MAX_ROWS:]:
        name = f"({len(others):,} more runs)"
        adds = math.fsum(row.adds for row in others) if metric.combines is Combine.SUM else None
        table.append({**dict.fromkeys(Row._fields), "run": name, "adds": adds})
    return table


def _ledger_parts(
    metric: Metric, selected: set[str], ledger: Ledger, runs: Iterable[Run], settings: WandbSettings
) -> Iterator[_Part]:
    """Yield each run for which a project with that run alone has the metric, and its value."""
    for run in runs:
        if metric.open_tags:  # beyond the limit on groups a run is counted in another group than its own
            placed = ledger.group_tags(ledger.counted_group(run.owner.group))
            if not _has_tags((f"{key}:{value}" for key, value in placed.items()), selected):
                continue
        # One tick of one run is cheap, and needs no second implementation of the metrics.
        alone = Ledger(ledger.project, [run], ledger.last_tick, settings, live=True)
        for series in (each for stretch in alone.stretches() for each in stretch):
            if series.metric is metric and (metric.open_tags or _has_tags(series.tags, selected)):
                yield run, series.values[-1]


def _observed_parts(
    metric: Metric, selected: set[str], ledger: Ledger, observation: Observation, settings: WandbSettings
) -> Iterator[_Part]:
    """Yield each active run for which an observation of that run alone has the metric, and its value."""
    observed: list[Observed] = observation.runs
    if metric in (m.IDLE_GPUS, m.IDLE_SECONDS):
        observed = idle_runs(observation, settings)
    for each in observed:
        series: Iterable[Series] = observed_series(observation._replace(runs=[each]), ledger, settings)
        for found in series:
            if found.metric is metric and _has_tags(found.tags, selected):
                yield each.run, found.values[-1]


def _has_tags(tags: Iterable[str], selected: set[str]) -> bool:
    return selected <= {normalise_tag(tag) for tag in tags}


def _latest(runs: Iterable[Run]) -> Run | None:
    return max(runs, key=lambda run: (run.seen, run.id), default=None)
