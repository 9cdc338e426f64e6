"""Every unit that is sent is one Datadog knows: of any other it says nothing, and shows the bare number."""

from __future__ import annotations

import pytest

from common import registry
from common.collector import load_collector
from common.metric import Metric
from common.run import health
from support.servers.series import UNITS


def declared() -> list[Metric]:
    return [
        *health.METRICS,
        *(metric for name in registry.names() for metric in load_collector(name).metrics),
    ]


@pytest.mark.parametrize("metric", declared(), ids=lambda metric: metric.name)
def test_a_unit_is_one_of_datadogs_catalogue_or_none_at_all(metric: Metric) -> None:
    assert metric.unit == "" or metric.unit in UNITS


@pytest.mark.parametrize("metric", [one for one in declared() if "_gb" in one.name], ids=lambda one: one.name)
def test_gb_is_gib_but_for_what_xenna_reckons_itself(metric: Metric) -> None:
    """One suffix is one unit; where another program's own 10^9 must stay, unit and help say so."""
    unit, said = ("gigabyte", "10^9 bytes") if metric.name.startswith("xenna.") else ("gibibyte", "GiB")
    assert metric.unit == unit
    assert said in metric.help
