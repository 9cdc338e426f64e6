"""Where people look at what a collector sends: the screens of the site whose API takes it."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from common.collector import load_collector
from common.show.boards import boards


@pytest.mark.parametrize(
    ("address", "screen"),
    [
        ("https://api.datadoghq.com", "https://app.datadoghq.com"),
        ("https://api.us5.datadoghq.com", "https://us5.datadoghq.com"),
        ("http://127.0.0.1:8126", "http://127.0.0.1:8126"),
    ],
)
def test_a_dashboard_is_looked_for_where_its_points_are(address: str, screen: str) -> None:
    [board] = boards("host", load_collector("host").metrics, address)
    assert board.url == f"{screen}/dashboard/lists?q={quote(board.title)}"


def test_a_metric_that_does_not_combine_has_a_line_for_each_series() -> None:
    [fleet, *_] = boards("wandb", load_collector("wandb").metrics, "https://api.datadoghq.com")
    lines = {chart.title: chart.by for _, charts in fleet.sections for chart in charts}
    assert lines["GPUs in use"] == ()
    assert lines["GPUs in use by user"] == ("user",)
    assert lines["GPU utilization by project"] is None
