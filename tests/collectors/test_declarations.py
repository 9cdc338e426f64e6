"""What all declarations of metrics have in common: units, how series combine, and how little they import."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from common import registry
from common.collector import load_collector
from common.metric import Combine, Kind
from common.run import health
from support.project import ROOT
from support.servers.series import UNITS

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


def test_counts_add_up_and_percentages_and_ages_do_not() -> None:
    assert {metric.combines for metric in METRICS if metric.kind is Kind.COUNT} == {Combine.SUM}
    adding = {metric.name for metric in METRICS if metric.combines is Combine.SUM}
    assert {name for name in adding if name.endswith(("_pct", "age_seconds", "temperature_c"))} == set()


def test_unit_is_one_of_datadogs_catalogue_or_none_at_all() -> None:
    """Of any other unit it says nothing, and shows the bare number."""
    assert {metric.name: metric.unit for metric in METRICS if metric.unit not in {"", *UNITS}} == {}


def test_gb_is_gib_but_for_what_xenna_reckons_itself() -> None:
    """One suffix is one unit; where another program's own 10^9 must stay, unit and help say so."""
    for metric in METRICS:
        unit, said = ("gigabyte", "10^9 b") if metric.name.startswith("xenna.") else ("gibibyte", "GiB")
        assert "_gb" not in metric.name or (metric.unit == unit and said in metric.help), metric.name


@pytest.mark.parametrize("name", registry.names())
def test_declared_metrics_load_neither_pydantic_nor_the_sink(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import collectors.{name}.metrics"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    loaded = re.findall(r"^import time: .*\| *(\S+)$", ran.stderr, flags=re.MULTILINE)
    assert f"collectors.{name}.metrics" in loaded
    heavy = (
        r"(pydantic|pydantic_core|pydantic_settings|datadog_api_client|boto3|urllib3|common\.datadog)(\.|$)"
    )
    assert [module for module in loaded if re.match(heavy, module)] == []
