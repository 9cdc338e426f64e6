"""How metrics are looked at: what cannot be drawn is refused where it is declared."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from common.dashboard import (
    Condition,
    Dashboard,
    Monitor,
    Section,
    Views,
    line,
    note,
    short_name,
    views_of,
    with_itself,
)
from common.metric import Combine, gauge

BUSY = gauge("jobs.busy", "device", "GPUs that work.", "user", combines=Combine.SUM, on_node=True)
SHARE = gauge("jobs.share_pct", "percent", "Share that works.", "user", "job")
LONGEST = gauge("jobs.longest", "second", "The longest.", "user", combines=Combine.MAX)


def monitor(compare: str = ">", **fields: Any) -> Monitor:
    condition = Condition((LONGEST,), "min", "1h", compare, 90.0, **fields)
    return Monitor("high", "High", condition, *"abcde")


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: line("A"), "A: a note has a text, and every other widget has metrics"),
        (lambda: line("A", BUSY, text="b"), "A: a note has a text, and every other widget has metrics"),
        (lambda: note("A"), "A: a note has a text, and every other widget has metrics"),
        (lambda: note("A", BUSY, text="b"), "A: a note has a text, and every other widget has metrics"),
        (lambda: line("A", BUSY, by=("job",)), "A: jobs.busy does not declare the tag job"),
        (lambda: line("A", BUSY, where=("job:1", "x:2")), "A: jobs.busy does not declare the tag job, x"),
        (lambda: line("A", SHARE), "A: jobs.share_pct does not combine over job, user"),
        (lambda: line("A", SHARE, by=("job",)), "A: jobs.share_pct does not combine over user"),
        (
            lambda: line("A", BUSY, share_of=(LONGEST,)),
            "A: jobs.longest does not add up, so it has no share",
        ),
        (lambda: monitor(warning=90.0), "high: the warning must come before the threshold"),
        (lambda: monitor(warning=91.0), "high: the warning must come before the threshold"),
        (lambda: monitor("<", warning=89.0), "high: the warning must come before the threshold"),
        (lambda: monitor(by=("job",)), "high: jobs.longest does not declare the tag job"),
        (lambda: monitor(where=("!job:a",)), "high: jobs.longest does not declare the tag job"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Any, wrong: str) -> None:
    with pytest.raises(ValueError) as raised:
        make()
    assert str(raised.value) == wrong


def test_what_can_be_drawn_is_declared() -> None:
    widget = line("A", BUSY, by=("host", "env"), where=("user:ann",), share_of=(BUSY,))
    assert (widget.metrics, widget.by, widget.share_of) == ((BUSY,), ("host", "env"), (BUSY,))
    assert line("A", SHARE, by=("user",), where=("job:1",)).where == ("job:1",)
    assert note("A", text="b").text == "b"
    assert line("A", LONGEST, hours=True, span="1mo").style.hours
    assert monitor(warning=89.0).condition.warning == 89
    assert monitor("<", warning=91.0).condition.warning == 91


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


def test_without_a_dashboard_of_its_own_a_collector_has_a_chart_for_every_metric(
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


def test_collectors_add_their_sections_to_the_one_dashboard_of_the_runner() -> None:
    busy, longest = Section("Busy", (line("A", BUSY),)), Section("Longest", (line("B", LONGEST),))
    own = Views((Dashboard("itself", "Itself", "x", (busy,)),))
    both = with_itself(own, [Views(itself=(longest,)), Views()])
    assert both == replace(own, dashboards=(replace(own.dashboards[0], sections=(busy, longest)),))
