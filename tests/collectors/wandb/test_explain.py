"""The runs behind a number: for every metric they agree with the value that is sent."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from collectors.wandb import metrics
from collectors.wandb.explain import Contribution, explain_project
from collectors.wandb.ledger import Ledger
from collectors.wandb.metrics import METRICS
from collectors.wandb.runs import Run, RunReader, State
from collectors.wandb.utilization import Stored, active_runs, observe
from common.errors import DeadlineExceededError
from common.metric import Combine, Metric
from common.net.retry import Deadline
from support.servers.fleet import client_config, system_row, text
from support.wandb_ledger import ANTS, ledger_points
from support.wandb_ledger import settings as make_settings

AT = 1_794_700_800
HOUR = 3600
STEP = 900
NAMES = ("train", "x.sweep.1", "github.sky.main.c0ffee.arena.1", "github.sky.pr7.c0ffee.arena.1")
GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla T4", None)


def node(number: int, pick: random.Random) -> dict[str, Any]:
    start = AT - pick.randrange(30 * HOUR)
    state = pick.choice([*State, State.RUNNING, State.RUNNING])
    running = state in (State.RUNNING, State.PREEMPTING)
    gpus = pick.choice([1, 2, 8])
    busy = pick.choice([[], [0.0] * gpus, [0.0] * gpus, [50.0] * gpus])
    return {
        "id": f"id{number:03d}",
        "name": f"r{number}",
        "displayName": pick.choice(NAMES),
        "state": state.value,
        "createdAt": text(start),
        "heartbeatAt": text(AT - pick.choice([0, 1000]) if running else start + pick.randrange(9 * HOUR)),
        "sweepName": pick.choice([None, "s", "t"]),
        "config": pick.choice([None, json.dumps(client_config(gpus, pick.choice(GPUS)))]),
        "summaryMetrics": json.dumps(
            {"overview/steps_per_second": pick.random(), "overview/sps": pick.choice([None, 2])}
        ),
        "user": {"username": pick.choice(["Ann", "bob", "cy", "di"])},
        "systemMetrics": json.dumps(system_row(*busy)) if running and busy else None,
    }


def fleet(seed: int, **variables: str) -> Ledger:
    """A project whose runs are random, as it is after four earlier observations."""
    pick = random.Random(seed)
    options = make_settings(
        **{"group_by": "user", "gpu_prices": "h100=2.5,a100=1", "idle_runs": "2", **variables}
    )
    reader = RunReader("github.sky.*", None, 1, options.owners)
    found = [reader.read(node(number, pick), []) for number in range(30)]
    runs: list[Run] = [run for run in found if run is not None]
    memory: Stored = {}
    for tick in range(AT - 4 * STEP, AT + 1, STEP):
        observed = observe(ANTS, runs, runs, tick, options, memory)
    return Ledger(ANTS, observed, range(AT - STEP, AT + 1, STEP), options, live=True, unseen=3)


def sent_values(ledger: Ledger) -> Iterator[tuple[Metric, dict[str, str], float]]:
    found = ledger_points(ledger.runs, ledger.ticks, ledger.settings, live=True)
    for (metric, tags, at), value in found.items():
        if at == AT:
            yield metric, dict(tag.split(":", 1) for tag in tags), value


@pytest.mark.parametrize("seed", range(6))
def test_rows_agree_with_the_value_that_is_sent_for_every_metric(seed: int) -> None:
    ledger = fleet(seed, max_groups=("200", "2")[seed % 2])
    explained = set()
    for metric, tags, value in sent_values(ledger):
        rows = explain_project(metric, tags, ledger, Deadline(60))
        explained.add(metric)
        parts = [row.adds for row in rows]
        if metric.combines is Combine.SUM:
            assert math.fsum(parts) == pytest.approx(value, rel=1e-9), metric.name
        elif metric.combines is Combine.MAX:
            assert {*parts} == {value}, metric.name
        elif metric in metrics.DURATIONS:
            rank = -(-metrics.DURATIONS[metric] * len(parts) // 100)
            assert sorted(parts)[rank - 1] == value, metric.name
        elif metric is metrics.UTILIZATION:
            running = active_runs(ledger.runs, AT, ledger.settings)
            assert len(rows) == sum(bool(run.reported and run.reported.gpus) for run in running)
        else:  # a mean, a rate, or the value of one run
            assert math.fsum(parts) / len(parts) == pytest.approx(value), metric.name
        assert parts == sorted(parts, reverse=True)
    assert len(explained) > 40
    for metric in explained:
        if metric.combines is Combine.SUM:
            every = math.fsum(value for sent, _, value in sent_values(ledger) if sent is metric)
            adds = math.fsum(row.adds for row in explain_project(metric, {}, ledger, Deadline(60)))
            assert adds == pytest.approx(every, rel=1e-9), metric.name


def test_every_metric_but_unseen_is_explained_by_some_fleet() -> None:
    explained = {metric for seed in range(8) for metric, _, _ in sent_values(fleet(seed))}
    assert {*METRICS} - explained == {
        *(metrics.UNSEEN, metrics.PUSH_EPOCH_STEPS, metrics.PUSH_CUMULATIVE_SPS, metrics.PUSH_EPOCH_SPS)
    }


def example(run_id: str, user: str, gpus: int, gpu: str | None, state: str, *hours: float) -> dict[str, Any]:
    """Return a run that was created and last seen so many hours after AT."""
    return {
        "id": run_id,
        "displayName": run_id,
        "state": state,
        "createdAt": text(AT + hours[0] * HOUR),
        "heartbeatAt": text(AT + hours[1] * HOUR) if len(hours) > 1 else None,
        "config": json.dumps(client_config(gpus, gpu)) if gpu else None,
        "user": {"username": user},
    }


def test_row_names_the_run_and_its_owner_and_links_to_it() -> None:
    others = fleet(1)
    reader = RunReader("github.sky.*", None, 1, others.settings.owners)
    mine = reader.read(example("my run/2", "Eve", 8, "NVIDIA H100", "crashed", -3, -1), [])
    assert mine is not None
    ledger = replace(others, runs=[*others.runs, mine])
    url = "https://wandb.ai/acme/ants/runs/my%20run%2F2"
    adding = {metrics.USAGE_HOURS: 16, metrics.USAGE_COST_FAILED: 40, metrics.USAGE_FAILED: 1}
    for metric, adds in adding.items():
        for user in ("Eve", "eve"):
            rows = explain_project(metric, {"user": user}, ledger, Deadline(60))
            assert rows == [Contribution("my run/2", "crashed", "eve", "h100", 8, 2.0, adds, url)]
    assert explain_project(metrics.USAGE_HOURS, {"user": "zoe"}, ledger, Deadline(60)) == []
    assert explain_project(metrics.UNSEEN, {}, ledger, Deadline(60)) == []
    with pytest.raises(DeadlineExceededError, match="the runs behind"):
        explain_project(metrics.USAGE_HOURS, {}, ledger, Deadline(-1))


def test_example_of_the_readme_has_these_values() -> None:
    options = make_settings(group_by="user,gpu_type", gpu_prices="h100=2.50")
    reader = RunReader("github.sky.*", None, 1, options.owners)
    rows = [
        example("A", "ann", 8, "NVIDIA H100", "running", -2, 0) | {"sweepName": "s1"},
        example("B", "ann", 4, "NVIDIA H100", "crashed", -4, -3) | {"displayName": "github.sky.main.b"},
        example("C", "bob", 2, "Tesla T4", "finished", -4, -1) | {"displayName": "github.sky.main.c"},
        example("D", "bob", 0, None, "pending", -0.5),
    ]
    runs = [run for row in rows if (run := reader.read(row, []))]
    found = {
        (metric.name.removeprefix("wandb."), " ".join(tags[1::2])): value
        for (metric, tags, _), value in ledger_points(runs, range(AT, AT + 1), options, live=True).items()
    }
    project = {
        "runs.active": 1,
        "runs.pending": 1,
        "runs.oldest_pending_seconds": 1800,
        "runs.completed_24h": 1,
        "runs.failed_24h": 1,
        "runs.crashed_24h": 1,
        "runs.killed_24h": 0,
        "runs.preempted_24h": 0,
        "runs.stale": 0,
        "runs.total_recent": 3,
        "runs.started_24h": 4,
        "training.gpus_in_use": 8,
        "training.total_gpu_hours_24h": 26,
        "training.avg_duration_hours": 2,
        **{f"training.duration_hours.{name}": hours for name, hours in (("p50", 1), ("p95", 3), ("max", 3))},
        "training.gpu_count_assumed_runs": 0,
        "push_to_main.runs_completed_24h": 1,
        "push_to_main.runs_failed_24h": 1,
        "push_to_main.success_rate_pct": 50,
        "push_to_main.avg_duration_hours": 2,
        "sweep.runs_active": 1,
        "sweep.active_sweeps": 1,
        "sweep.runs_total_24h": 1,
        "sweep.runs_completed_24h": 0,
        "sweep.runs_failed_24h": 0,
    }
    assert ("sweep.success_rate_pct", "project:ants") not in found
    assert {name: found[name, "project:ants"] for name in project} == project
    groups = {
        "runs_active": (1, 0),
        "gpus_in_use": (8, 0),
        "gpu_hours_24h": (20, 6),
        "gpu_hours_failed_24h": (4, 0),
        "runs_completed_24h": (0, 1),
        "runs_failed_24h": (1, 0),
        "cost_24h": (50, None),
        "cost_failed_24h": (10, 0),
        "cost_per_hour": (20, 0),
        "gpu_hours_unpriced_24h": (0, 6),
        "gpus_unpriced": (0, 0),
    }
    ann, bob = "gpu_type:h100 user:ann", "gpu_type:t4 user:bob"
    values = {name: (found.get((f"usage.{name}", ann)), found.get((f"usage.{name}", bob))) for name in groups}
    assert values == groups
