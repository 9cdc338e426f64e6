"""Every metric says which number stands for several of its series, or that none does."""

from __future__ import annotations

from common import registry
from common.collector import load_collector
from common.metric import Combine, Kind
from common.run import health

METRICS = [
    *(metric for name in registry.names() for metric in load_collector(name).metrics),
    *health.METRICS,
]
# A rate, a mean or a percentile of several series cannot be had from theirs; a clock may be off either way.
NONE = {
    "collector.clock_skew_seconds",
    "data_plane.wall_ms.avg",
    "wandb.push_to_main.avg_duration_hours",
    "wandb.push_to_main.config.steps_per_second",
    "wandb.push_to_main.overview.epoch_steps_per_second",
    "wandb.push_to_main.overview.sps",
    "wandb.push_to_main.overview.steps_per_second",
    "wandb.push_to_main.success_rate_pct",
    "wandb.push_to_main.timing_cumulative.sps",
    "wandb.push_to_main.timing_per_epoch.sps",
    "wandb.sweep.success_rate_pct",
    "wandb.training.avg_duration_hours",
    "wandb.training.duration_hours.p50",
    "wandb.training.duration_hours.p95",
    "wandb.training.gpu_utilization_pct",
}


def test_no_number_stands_for_several_series_of_these_and_of_no_others() -> None:
    assert {metric.name for metric in METRICS if metric.combines is Combine.NONE} == NONE


def test_counts_add_up() -> None:
    assert {metric.combines for metric in METRICS if metric.kind is Kind.COUNT} == {Combine.SUM}


def test_percentages_and_ages_never_add_up() -> None:
    adding = {metric.name for metric in METRICS if metric.combines is Combine.SUM}
    assert {name for name in adding if name.endswith(("_pct", "age_seconds", "temperature_c"))} == set()
