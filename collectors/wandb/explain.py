"""List the runs behind one number: `run_collector.py wandb --explain METRIC [tag=value …]`.

What a run adds is the value that the metric has for a project with that run alone, from the code that
computes what is sent, so that both agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import quote

from collectors.wandb import metrics as m
from collectors.wandb.groups import OTHER
from collectors.wandb.ledger import Ledger
from collectors.wandb.runs import HOUR_US, Run
from common.metric import Combine, Metric, Series
from common.names import normalise_tag
from common.net.retry import Deadline

_OF_LATEST_RUN = frozenset({*m.THROUGHPUT.values(), m.PUSH_SPS_AGE, m.PUSH_CONFIG_STEPS})


class Contribution(NamedTuple):
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
    metric: Metric, tags: Mapping[str, str], ledger: Ledger, deadline: Deadline
) -> list[Contribution]:
    """Return the runs behind a metric of a project at the last tick of its ledger; the largest part first.

    Only series with these tags count. The parts of a sum add up to the value that is sent; a maximum lists
    the runs that have it, a throughput the run it is of, and any other value all runs it is computed from. No
    run can be listed for `wandb.runs.unseen`. Raises DeadlineExceededError once the deadline has passed.
    """
    # Compared as Datadog stores them: a person copies a tag from a dashboard.
    project_tags = {f"entity:{ledger.project.entity}", f"project:{ledger.project.name}"}
    selected = {normalise_tag(f"{key}:{value}") for key, value in tags.items()}
    sent = {series.tags: series.values[-1] for series in _series(metric, ledger)}
    parts: list[tuple[Run, tuple[str, ...], float]] = []
    for run in ledger.runs:
        deadline.timeout(0, f"the runs behind {metric.name}")
        # One tick of one run is cheap, and needs no second implementation of the metrics.
        for series in _series(metric, replace(ledger, runs=[run], unseen=None)):
            found, value = series.tags, series.values[-1]
            if metric.open_tags and found not in sent:  # its group is beyond the limit
                found = tuple(
                    tag if tag in project_tags else f"{tag.partition(':')[0]}:{OTHER}" for tag in found
                )
            is_part = bool(value) or metric.combines is not Combine.SUM
            if is_part and found in sent and selected <= {normalise_tag(tag) for tag in found}:
                parts.append((run, found, value))
    if metric in _OF_LATEST_RUN:
        latest = {found: run for run, found, _ in sorted(parts, key=lambda part: (part[0].seen, part[0].id))}
        parts = [part for part in parts if latest[part[1]] is part[0]]
    elif metric.combines is Combine.MAX:
        parts = [part for part in parts if part[2] == sent[part[1]]]
    elif metric is m.ACTIVE_SWEEPS:  # a sweep counts once
        first = {run.sweep: run for run, _, _ in reversed(parts)}
        parts = [(run, found, value if first[run.sweep] is run else 0) for run, found, value in parts]
    # W&B's own service has another host for people than for the API.
    site = ledger.settings.base_url.replace("://api.wandb.ai", "://wandb.ai")
    parts.sort(key=lambda part: (-part[2], part[0].title, part[0].id))
    return [
        Contribution(
            run=run.title,
            state=run.state.value,
            user=run.owner.user,
            gpu_type=run.owner.gpu_type,
            gpus=run.gpus,
            hours=(max(0, run.seen - run.worked_from) if run.duration is None else run.duration) / HOUR_US,
            adds=value,
            url="/".join([site, *(quote(part, safe="") for part in (*ledger.project, "runs", run.name))]),
        )
        for run, _, value in parts
    ]


def _series(metric: Metric, ledger: Ledger) -> Iterator[Series]:
    """Yield the series of a metric at the last tick."""
    for stretch in replace(ledger, ticks=ledger.ticks[-1:]).stretches():
        yield from (series for series in stretch if series.metric is metric)
