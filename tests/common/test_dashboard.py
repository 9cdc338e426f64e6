"""How metrics are looked at: names, default dashboards, and sections of others."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from common.dashboard import short_name, views_of
from common.metric import Combine, gauge

BUSY = gauge("jobs.busy", "device", "GPUs that work.", "user", combines=Combine.SUM, on_node=True)
SHARE = gauge("jobs.share_pct", "percent", "Share that works.", "user", "job")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("jobs.oldest_pending", "oldest pending"),
        ("jobs.duration.p95", "duration p95"),
        ("jobs.duration.max", "duration max"),
        ("jobs.duration.mean", "mean"),
        ("jobs.up", "up"),
        ("up", "up"),
    ],
)
def test_a_short_name_is_the_last_part_and_of_a_statistic_what_it_is_of(name: str, words: str) -> None:
    assert short_name(gauge(name, "", "x")) == words


def test_collector_without_a_dashboard_has_a_chart_for_every_metric(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = ModuleType("collectors.no_views")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "collectors.no_views", package)
    [board] = views_of("no_views", (BUSY, SHARE)).dashboards
    assert (board.key, board.title) == ("no-views", "no_views")
    assert [(one.title, one.metrics, one.by) for one in board.widgets()] == [
        ("busy", (BUSY,), ("user",)),
        ("share pct", (SHARE,), ("user", "job")),
    ]


def test_a_dashboard_that_cannot_be_imported_is_no_missing_one() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_collector"):
        views_of("no_such_collector", (BUSY,))
