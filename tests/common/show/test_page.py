"""The page of a dry run as a browser draws it: what it says, and that it says it to anyone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest

from collectors.wandb import metrics as m
from collectors.wandb.dashboard import FLEET, PUSH_TO_MAIN, SWEEPS
from common.dashboard import Dashboard, Draw, Widget, line
from common.metric import Combine, Series, gauge
from common.outcome import ErrorSummary, Outcome, RunCounts, Status
from common.show.page import write_page
from common.show.points import Points, labels
from common.show.table import rounded
from common.window import Window
from fleetgauge.pages.hover import SCRIPT
from support.browser import Browser
from support.sinks import send
from support.wandb_week import END, WEEK, week_points

from .given import GivenPoints, draw_page, one_chart_each

HOURS = Window(END - 6 * 3600, END, 900)
NASTY = "<img src=x onerror=document.title='ran'><script>console.log('ran')</script>&amp;\"'" + "w" * 2000


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Points]:
    """The page of a plausible week, and what it shows."""
    folder = tmp_path_factory.mktemp("week")
    points = week_points()
    draw_page(folder / "page.html", Outcome("wandb", Status.OK), points, WEEK)
    return folder / "page.html", points


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_nothing_scrolls_sideways_and_nothing_sticks_out(
    week: tuple[Path, Points], width: int, browser: Browser
) -> None:
    browser.show(week[0], width)
    assert browser.look("document.documentElement.clientWidth") == width
    assert browser.look("document.documentElement.scrollWidth") == width
    shown = "getComputedStyle(e.closest('thead') || e).position != 'absolute'"
    out = f"{shown} && e.getBoundingClientRect().right > innerWidth + 1 && e.outerHTML.slice(0, 80)"
    assert {*browser.every("body *", out)} == {False}


@pytest.mark.slow
def test_the_page_needs_nothing_but_itself(week: tuple[Path, Points], browser: Browser) -> None:
    browser.show(week[0])
    assert browser.every("script", "e.textContent") == [SCRIPT]
    assert browser.look("performance.getEntriesByType('resource').length") == 0
    assert browser.every("link, img, iframe, object, embed, [src], [onload]", "e.outerHTML") == []
    assert browser.requests == [week[0].as_uri()]
    assert browser.complaints == []


@pytest.mark.slow
def test_page_leads_with_the_numbers_of_the_dashboards(week: tuple[Path, Points], browser: Browser) -> None:
    browser.show(week[0])
    assert browser.texts("h1") == ["Dry run of wandb, 2026-11-07 00:00 to 2026-11-14 00:00 UTC"]
    last = {piece.metric.name: piece.values[-1] for piece in week[1]}
    every = browser.every(".card", "e.innerText.split('\\n').filter(Boolean)")
    cards = {card[0]: card[1:] for card in reversed(every)}  # of the first dashboard that has it
    assert cards["GPUs in use"][0] == rounded(last["wandb.training.gpus_in_use"])
    assert cards["Active runs"][0] == rounded(last["wandb.runs.active"])
    assert "Idle GPUs" not in cards  # which is only measured live
    assert every[0][0] == "GPUs in use"
    [total] = browser.texts(".cards + p")
    assert f"{sum(len(piece.values) for piece in week[1]):,} points" in total
    assert browser.texts("section .status") == ["ok"]


@pytest.mark.slow
def test_sections_and_titles_are_those_of_the_dashboards(week: tuple[Path, Points], browser: Browser) -> None:
    browser.show(week[0])
    boards = [FLEET, PUSH_TO_MAIN, SWEEPS]
    assert browser.texts("nav a") == browser.texts(".board h2") == [board.title for board in boards]
    leads = "document.getElementById(e.getAttribute('href').slice(1)).querySelector('h2').innerText"
    assert browser.every("nav a", leads) == [board.title for board in boards]
    assert browser.texts("h3") == [title for board in boards for title in board.sections]
    drawn = browser.every(".metric", "e.querySelector('h4').textContent")
    absent = [title for text in browser.texts(".absent") for title in text.rpartition(": ")[0].split(" · ")]
    declared = [one.title for board in boards for one in board.widgets() if one.draw is not Draw.NOTE]
    assert Counter(drawn) + Counter(absent) == Counter(declared)
    remaining = iter(declared)
    assert all(title in remaining for title in drawn)  # in the same order
    assert "Active runs" in drawn
    assert "Idle GPUs" in absent
    about = "[e.querySelector('h4').textContent, e.querySelector('.about:not([open])').textContent]"
    texts = dict(browser.every(".metric", about))
    for metric in (m.DURATION_P50, m.DURATION_P95):
        assert f"{metric.name}: {metric.help}" in texts["Run duration p50/p95"]


@pytest.mark.slow
def test_the_figures_beside_a_chart_are_those_of_its_points(
    week: tuple[Path, Points], browser: Browser
) -> None:
    browser.show(week[0])
    points: dict[tuple[str, ...], dict[int, float]] = {}
    for piece in week[1]:
        known = points.setdefault((piece.metric.name, *labels(piece)), {})
        known.update(zip(piece.times, piece.values, strict=True))

    def statistics(*series: str) -> list[str]:
        known = points[series]
        values = list(known.values())
        shown = (known[max(known)], min(values), fmean(values), max(values))
        return [*map(rounded, shown), f"{len(values):,}"]

    chart = "[...document.querySelectorAll('.metric')].find(e => e.querySelector('h4').textContent == {!r})"
    cells = "e => [...e.cells].map(cell => cell.innerText.trim())"
    active = browser.look(f"[...{chart.format('Active runs')}.querySelectorAll('tr')].map({cells})")
    assert active == [
        ["Last", "Min", "Mean", "Max", "Points"],
        statistics("wandb.runs.active", "entity:acme", "project:ants"),
    ]
    pulls = chart.format("Steps per second of pull requests")
    rows = browser.look(f"[...{pulls}.querySelectorAll('tbody tr')].map({cells})")
    configs = [row[0].split() for row in rows]
    assert configs == [[f"config:{name}", "ref:pr"] for name in ("arena", "cvc.fixed", "navigation")]
    metric = "wandb.push_to_main.config.steps_per_second"
    for (config, ref), row in zip(configs, rows, strict=True):
        assert row[1:] == statistics(metric, config, "entity:acme", "project:ants", ref)


@pytest.mark.slow
def test_names_of_any_kind_are_shown_as_they_are_and_stay_inside(tmp_path: Path, browser: Browser) -> None:
    text = NASTY[:400]  # as long as a metric may explain itself
    metrics = [gauge(name, "item", text, "job") for name in ("a.1", "a.2", "b")]
    widgets = tuple(line(f"{metric.name} {NASTY}", metric, by=("job",)) for metric in metrics)
    boards = (Dashboard("key", NASTY, NASTY, {NASTY: widgets}),)
    found = [
        Series(metric, (NASTY,), host, HOURS.ticks, [1.5] * len(HOURS.ticks))
        for metric, host in ((metrics[0], NASTY), (metrics[0], None), (metrics[1], "node"))
    ]
    outcome = Outcome(
        NASTY,
        Status.PARTIAL,
        lost=[NASTY],
        counts=RunCounts(dropped={NASTY: 1}),
        error=ErrorSummary(NASTY, NASTY),
    )
    page, points = tmp_path / "page.html", GivenPoints(metrics, found)
    write_page(page, [outcome], {NASTY: points}, HOURS, {NASTY: boards})
    for width in (360, 1000):
        browser.show(page, width)
        assert browser.look("document.documentElement.scrollWidth") == width
        assert browser.every("img, script", "e.textContent") == [SCRIPT]
        assert (browser.requests, browser.complaints) == ([page.as_uri()], [])
        assert browser.look("document.title").startswith(f"Dry run of {NASTY}, 2026-11-13 18:00")
        assert browser.every("h4", "e.textContent") == [widget.title for widget in widgets[:2]]
        assert browser.every(".about p", "e.textContent") == [f"a.1: {text}", f"a.2: {text}"]
        assert browser.every("td.name", "e.textContent") == ["no other tags", f"host:{NASTY}", "host:node"]
        assert browser.every(".absent", "e.textContent")[0].startswith(widgets[2].title)


@pytest.mark.slow
def test_what_failed_was_lost_or_dropped_is_said(tmp_path: Path, browser: Browser) -> None:
    active = gauge("toy.active", "run", "Runs that are active.")
    points = Points((active,), 10, HOURS.since, HOURS.until)
    send(points, [active(1, END - 900)])
    outcomes = [
        Outcome(
            "toy",
            Status.PARTIAL,
            lost=["acme/bees: gone"],
            counts=RunCounts(dropped={"too_old": 2000, "bad": 1}),
        ),
        Outcome("host", Status.FAILED, error=ErrorSummary("SourceError", "the past cannot be asked")),
    ]
    boards = {"toy": one_chart_each(points)}
    write_page(tmp_path / "page.html", outcomes, {"toy": points}, HOURS, boards)
    browser.show(tmp_path / "page.html")
    assert browser.texts("h1") == ["Dry run of toy, host, 2026-11-13 18:00 to 2026-11-14 00:00 UTC"]
    notes = browser.texts(".note p")
    assert notes == [
        "toy lost acme/bees: gone",
        "toy dropped 1 bad, 2,000 too_old",
        "host: the past cannot be asked",
    ]
    assert browser.texts("section .status") == ["partial", "failed"]
    assert len(browser.every("svg.plot", "1")) == 1


def test_page_in_a_directory_is_named_by_its_title(tmp_path: Path) -> None:
    points = week_points(HOURS)
    written = draw_page(tmp_path, Outcome("wandb", Status.OK), points, HOURS)
    name = "Dry-run-of-wandb-2026-11-13-18-00-to-2026-11-14-00-00-UTC.html"
    assert [*tmp_path.iterdir()] == [written] == [tmp_path / name]


LOAD = gauge("jobs.load", "", "How busy it is.", "job", "ref", combines=Combine.SUM)
IDLE = gauge("jobs.idle", "job", "What nobody uses.", combines=Combine.SUM)
DONE = gauge("jobs.done", "job", "What ended well.", combines=Combine.SUM)


@pytest.mark.parametrize(
    ("widget", "why"),
    [
        (line("Idle", IDLE), "only measured live, not for the past"),
        (line("Done", DONE), "no point of jobs.done in this span"),
        (line("Load", LOAD, where=("ref:main",)), "no series with ref:main"),
        (line("Share", LOAD, share_of=(LOAD,)), "nothing to divide by"),
    ],
)
def test_empty_chart_says_why(tmp_path: Path, widget: Widget, why: str) -> None:
    points = Points((LOAD, IDLE, DONE), 10, HOURS.since, HOURS.until, live_only=["jobs.idle"])
    send(points, [LOAD(0, END - 900, job="a", ref="pr")])
    boards = {"jobs": [Dashboard("jobs", "Jobs", "x", {"All": (widget,)})]}
    page = write_page(tmp_path / "a.html", [Outcome("jobs", Status.OK)], {"jobs": points}, HOURS, boards)
    assert f'<p class="absent">{widget.title}: {why}.</p>' in page.read_text()
