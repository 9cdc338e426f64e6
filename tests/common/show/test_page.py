"""The page of a dry run as a browser draws it: what it says, and that it says it to anyone."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

import pytest

from collectors.wandb.dashboard import FLEET, PUSH_TO_MAIN, SWEEPS
from collectors.wandb.metrics import METRICS
from common.dashboard import Draw
from common.errors import ConfigurationError
from common.metric import Combine, gauge
from common.outcome import Failure, Outcome, Status
from common.show.output import check_output
from common.show.page import MAX_LISTED, write
from common.show.points import Board, Chart, Points, SeriesKey
from common.show.report import number
from common.window import Window
from fleetgauge.pages.hover import SCRIPT
from support.browser import Browser
from support.sinks import send
from support.wandb_week import END, WEEK, week_points

from .given import GivenPoints, series_points
from .recorded_page import GOLDEN, page

HOURS = Window(END - 6 * 3600, END, 900)
NASTY = "<img src=x onerror=document.title='ran'><script>console.log('ran')</script>&amp;\"'" + "w" * 2000


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Points]:
    """The page of a plausible week, and what it shows."""
    folder = tmp_path_factory.mktemp("week")
    points = week_points()
    write(folder / "page.html", [Outcome("wandb", Status.OK)], {"wandb": points}, WEEK)
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
def test_a_week_is_told_at_a_glance(week: tuple[Path, Points], browser: Browser) -> None:
    browser.show(week[0])
    assert browser.texts("h1") == ["Dry run of wandb of acme/ants, 2026-11-07 00:00 to 2026-11-14 00:00 UTC"]
    assert browser.texts("h1 + p") == ["This was a dry run: nothing was sent."]
    points = sum(len(piece.values) for piece in week[1])
    assert points > 18_000
    assert browser.every(".card", "e.innerText.split('\\n').filter(Boolean)") == [
        ["Span", "7 d", "its last tick included"],
        ["Step", "15 min", "672 ticks"],
        ["Metrics", "32", f"of {len(METRICS)} declared"],
        ["Series", str(len({piece.series for piece in week[1]})), "metrics by tags"],
        ["Points", f"{points:,}", "none of them sent"],
        ["Dropped", "0", "0 lost"],
    ]
    assert browser.texts("section .status") == ["ok"]
    assert browser.texts("section > p") == ["Every series: entity:acme project:ants"]


@pytest.mark.slow
def test_sections_and_titles_are_those_of_the_dashboards(week: tuple[Path, Points], browser: Browser) -> None:
    browser.show(week[0])
    looks = [FLEET, PUSH_TO_MAIN, SWEEPS]
    assert browser.texts("nav a") == browser.texts(".board h2 a") == [board.title for board in looks]
    leads = "document.getElementById(e.getAttribute('href').slice(1)).querySelector('h2').innerText"
    assert browser.every("nav a", leads) == [f"Dashboard {board.title}" for board in looks]
    assert browser.every(".board h2 a", "e.getAttribute('href')") == [
        f"https://app.datadoghq.com/dashboard/lists?q={quote(board.title)}" for board in looks
    ]
    assert browser.texts("h3") == [section.title for board in looks for section in board.sections]
    drawn = browser.every(".metric", "e.querySelector('h4').textContent")
    absent = [
        title
        for text in browser.texts(".absent")
        for title in text.removeprefix("Without a value in this span: ").removesuffix(".").split(" · ")
    ]
    declared = [one.title for board in looks for one in board.widgets() if one.draw is not Draw.NOTE]
    assert Counter(drawn) + Counter(absent) == Counter(declared)
    rest = iter(declared)
    assert all(title in rest for title in drawn)  # in the same order
    assert "Active runs" in drawn
    assert "Idle GPUs" in absent
    assert (
        browser.every(".board p", "e.textContent").count(
            "A crash is in the run's log in W&B; open the project and sort by end."
        )
        == 1
    )


@pytest.mark.slow
def test_a_chart_names_its_metrics_and_says_what_one_of_them_means(
    week: tuple[Path, Points], browser: Browser
) -> None:
    browser.show(week[0])
    said = dict(
        browser.every(".metric", "[e.querySelector('h4').textContent, e.querySelector('.said').textContent]")
    )
    assert said["GPU hours by project"].startswith("wandb.training.total_gpu_hours_24h · GPU hours worked in")
    assert (
        said["Runs that ended"] == "wandb.push_to_main.runs_completed_24h, wandb.push_to_main.runs_failed_24h"
    )


@pytest.mark.slow
def test_the_figures_beside_a_chart_are_those_of_its_points(
    week: tuple[Path, Points], browser: Browser
) -> None:
    browser.show(week[0])
    points: dict[tuple[str, ...], dict[int, float]] = {}
    for piece in week[1]:
        known = points.setdefault((piece.series.metric, *piece.series.tags), {})
        known.update(zip(piece.seconds, piece.values, strict=True))

    def figures(*series: str) -> list[str]:
        known = points[series]
        values = list(known.values())
        shown = (known[min(known)], known[max(known)], min(values), fmean(values), max(values))
        return [*map(number, shown), f"{len(values):,}"]

    assert browser.texts(".metric dt")[:6] == ["First", "Last", "Min", "Mean", "Max", "Points"]
    chart = "[...document.querySelectorAll('.metric')].find(e => e.querySelector('h4').textContent == {!r})"
    active = browser.look(f"[...{chart.format('Active runs')}.querySelectorAll('dd')].map(e => e.innerText)")
    assert active == figures("wandb.runs.active", "entity:acme", "project:ants")
    cells = "e => [...e.cells].map(cell => cell.innerText.trim())"
    pulls = chart.format("Steps per second of pull requests")
    rows = browser.look(f"[...{pulls}.querySelectorAll('tbody tr')].map({cells})")
    configs = [row[0].split() for row in rows]
    assert configs == [[f"config:{name}", "ref:pr"] for name in ("arena", "cvc.fixed", "navigation")]
    metric = "wandb.push_to_main.config.steps_per_second"
    for (config, ref), row in zip(configs, rows, strict=True):
        assert row[1:] == figures(metric, config, "entity:acme", "project:ants", ref)


@pytest.mark.slow
def test_names_of_any_kind_are_shown_as_they_are_and_stay_inside(tmp_path: Path, browser: Browser) -> None:
    text = NASTY[:400]  # as long as a metric may explain itself
    metrics = [gauge(name, NASTY, text) for name in ("a.1", "a.2", "b")]
    names = [f"{metric.name} {NASTY}" for metric in metrics]
    charts = tuple(Chart(name, (metric.name,)) for name, metric in zip(names, metrics, strict=True))
    found = [
        series_points(SeriesKey(name, (NASTY,), host), NASTY, [(at, 1.5) for at in HOURS.ticks])
        for name, host in (("a.1", NASTY), ("a.1", None), ("a.2", "node"))
    ]
    points = GivenPoints(metrics, found, [Board("", "", (("", charts),))])
    outcome = Outcome(NASTY, Status.PARTIAL, lost=[NASTY], dropped={NASTY: 1}, error=Failure(NASTY, NASTY))
    write(tmp_path / "page.html", [outcome], {NASTY: points}, HOURS)
    for width in (360, 1000):
        browser.show(tmp_path / "page.html", width)
        assert browser.look("document.documentElement.scrollWidth") == width
        assert browser.every("img, script", "e.textContent") == [SCRIPT]
        assert (browser.requests, browser.complaints) == ([(tmp_path / "page.html").as_uri()], [])
        moments = "2026-11-13 18:00 to 2026-11-14 00:00 UTC"
        assert browser.look("document.title") == f"Dry run of {NASTY}, {moments}"
        assert browser.every("h4", "e.textContent") == names[:2]
        assert browser.every(".metric .said", "e.textContent") == [f"a.1 · {text}", f"a.2 · {text}"]
        assert browser.every(".unit", "e.textContent") == [f"{NASTY} · gauge"] * 2
        assert browser.every("p.name", "e.textContent") == ["no other tags", f"host:{NASTY}", "host:node"]
        assert browser.every("h2", "e.textContent") == [NASTY]
        assert browser.every("section > p", "e.textContent") == [f"Every series: {NASTY}"]
        assert browser.every(".absent", "e.textContent") == [f"Without a value in this span: {names[2]}."]
        assert browser.every(".plot", "e.getAttribute('aria-label')") == [
            f"{name} over 6 h: from 1.500 to 1.500 {NASTY}" for name in names[:2]
        ]


@pytest.mark.slow
def test_what_was_dropped_or_lost_and_who_failed_is_said(tmp_path: Path, browser: Browser) -> None:
    active = gauge("wandb.runs.active", "run", "Runs that are active.")
    points = Points((active,), 10, HOURS.since, HOURS.until)
    send(points, [active(1, END - 900)])
    outcomes = [
        Outcome("wandb", Status.PARTIAL, lost=["acme/bees: gone"], dropped={"too_old": 2000, "bad": 1}),
        Outcome("host", Status.FAILED, error=Failure("SourceError", "the past cannot be asked")),
    ]
    write(tmp_path / "page.html", outcomes, {"wandb": points}, HOURS)
    browser.show(tmp_path / "page.html")
    assert browser.texts("h1") == ["Dry run of wandb, host, 2026-11-13 18:00 to 2026-11-14 00:00 UTC"]
    assert browser.texts(".note p") == [
        "wandb lost acme/bees: gone",
        "wandb dropped 1 bad, 2,000 too_old",
        "host: SourceError: the past cannot be asked",
    ]
    assert browser.texts(".card")[-1].split("\n") == ["Dropped", "2,001", "1 lost"]
    assert browser.texts("section .status") == ["partial", "failed"]
    assert browser.texts("section > p") == ["There is nothing to draw: no sample is of this span."]
    assert len(browser.every("svg.plot", "1")) == 1


def test_a_page_in_a_directory_is_named_by_what_it_shows(tmp_path: Path) -> None:
    written = write(tmp_path, [Outcome("wandb", Status.OK)], {"wandb": week_points()}, WEEK)
    name = "Dry-run-of-wandb-of-acme-ants-2026-11-07-00-00-to-2026-11-14-00-00-UTC.html"
    assert written == tmp_path / name
    assert written.is_file()


def test_a_page_with_one_of_everything_is_written_as_it_was_recorded(tmp_path: Path) -> None:
    assert page(tmp_path) == GOLDEN.read_text(encoding="utf-8")


def test_of_very_many_series_the_first_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    metrics = [gauge(f"jobs.{name}", "job", "x", "job", combines=Combine.SUM) for name in ("a", "b", "c")]
    points = Points(metrics, 5000, HOURS.since, HOURS.until, many_ticks=True)
    for metric, jobs in zip(metrics, (MAX_LISTED - 9, 20, 30), strict=True):
        send(points, [metric(1, HOURS.since, job=f"{job:04}") for job in range(jobs)])
    path = write(tmp_path / "page.html", [Outcome("jobs", Status.OK)], {"jobs": points}, HOURS)
    text = path.read_text()
    said = r"<summary>[^<]*</summary>|<p>The [^<]*</p>|<p>[\d,]* series more[^<]*</p>"
    assert re.findall(said, text) == [
        "<p>The 6 series that reach highest are drawn, 1,985 are not.</p>",
        "<summary>All 1,991 series, 6 lines drawn</summary>",
        "<p>The 6 series that reach highest are drawn, 14 are not.</p>",
        "<summary>All 20 series, 6 lines drawn</summary>",
        "<p>11 series more are not listed.</p>",
        "<p>The 6 series that reach highest are drawn, 24 are not.</p>",
        "<p>30 series more are not listed.</p>",
    ]
    assert text.count("<span>job:0008</span>") == 2
    assert text.count("<span>job:0009</span>") == 1
    assert "<nav>" not in text  # to a single board


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_a_chart_that_is_reached_by_key_tells_its_last_value_in_any_window(
    week: tuple[Path, Points], width: int, scheme: str, browser: Browser
) -> None:
    browser.show(week[0], width, scheme)
    last = "[...e.querySelectorAll('.stats')].map(one => one.querySelectorAll('dd')[1].innerText)"
    charts = browser.every(".metric:not(.several)", last)
    assert len(charts) > 20
    for place, values in enumerate(charts):
        browser.look(
            f"document.querySelectorAll('.metric:not(.several)')[{place}].querySelector('.plot').focus()"
        )
        _, *told = browser.texts(".tip:not([hidden]) b, .tip:not([hidden]) span")
        pairs = [*zip((one.rpartition(": ")[2] for one in told), values, strict=True)]
        assert any(one == value for one, value in pairs)
        assert all(one in (value, "unknown") for one, value in pairs)
    assert browser.look("document.documentElement.scrollWidth") == width
    assert browser.complaints == []


def test_only_a_page_may_be_asked_for_by_its_directory(tmp_path: Path) -> None:
    check_output(tmp_path, "--html")
    with pytest.raises(ConfigurationError, match=r"--html: /proc cannot be written"):
        check_output(Path("/proc"), "--html")
    with pytest.raises(ConfigurationError, match=r"--csv: .* cannot be written"):
        check_output(tmp_path, "--csv")
    assert [*tmp_path.iterdir()] == []
