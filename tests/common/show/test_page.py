"""The page of a dry run as a browser draws it: what it says, and that it says it to anyone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from collectors.wandb import metrics as m
from collectors.wandb.dashboard import FLEET, PUSH_TO_MAIN, SWEEPS
from common.dashboard import Dashboard, Widget, line, value
from common.metric import Combine, Series, count, gauge
from common.outcome import ErrorSummary, Outcome, Report, Status
from common.show.page import write_page
from common.show.points import Points
from common.show.table import rounded
from common.window import Window
from fleetgauge.pages.page import SCRIPT
from support.browser import LEAST_CONTRAST, LIGHT, Browser
from support.sinks import GivenPoints, send
from support.wandb_week import DAY, END, WEEK, week_points

HOURS = Window(END - 6 * 3600, END, 900)
NASTY = "<img src=x onerror=document.title='ran'><script>console.log('ran')</script>&amp;\"'" + "w" * 2000


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Points]:
    """The page of a plausible week, and what it shows."""
    folder = tmp_path_factory.mktemp("week")
    points = week_points()
    boards = {"wandb": [FLEET, PUSH_TO_MAIN, SWEEPS]}
    outcomes = [Outcome("wandb", Status.OK)]
    write_page(folder / "page.html", outcomes, {"wandb": points}, WEEK, boards, m.LIVE_ONLY)
    return folder / "page.html", points


@pytest.mark.slow
def test_page_leads_with_the_numbers_of_the_dashboards(week: tuple[Path, Points], browser: Browser) -> None:
    browser.show(week[0])
    assert browser.texts("h1") == ["Dry run of wandb, 2026-11-07T00:00:00Z to 2026-11-14T00:00:00Z"]
    last = {piece.metric.name: piece.values[-1] for piece in week[1]}
    every = browser.every(".card", "e.innerText.split('\\n').filter(Boolean)")
    cards = {card[0]: card[1:] for card in reversed(every)}  # of the first dashboard that has it
    assert cards["GPUs in use"][0] == rounded(last["wandb.training.gpus_in_use"])
    assert cards["Active runs"][0] == rounded(last["wandb.runs.active"])
    assert "Idle GPUs" not in cards  # which is only measured live
    assert every[0][0] == "GPUs in use"
    [total] = browser.texts(".cards + p")
    assert f"{len([*week[1]]):,} series" in total
    assert browser.texts("section .status") == ["ok"]


@pytest.mark.slow
def test_sections_and_titles_are_those_of_the_dashboards(week: tuple[Path, Points], browser: Browser) -> None:
    browser.show(week[0])
    boards = [FLEET, PUSH_TO_MAIN, SWEEPS]
    assert browser.texts("h2") == ["wandb", *(board.title for board in boards)]
    assert browser.texts("h3") == [title for board in boards for title in board.sections]
    drawn = browser.every(".metric", "e.querySelector('h4').textContent")
    absent = [text.rpartition(": ")[0] for text in browser.texts(".absent")]
    declared = [one.title for board in boards for one in board.widgets()]
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
        report=Report(lost=[NASTY, "\ud800"], dropped=Counter({NASTY: 1000})),
        error=ErrorSummary(NASTY, NASTY),
    )
    page, points = tmp_path / "page.html", GivenPoints(found)
    write_page(page, [outcome], {NASTY: points}, HOURS, {NASTY: boards})
    for width in (360, 1000):
        browser.show(page, width)
        assert browser.look("document.documentElement.scrollWidth") == width
        assert browser.every("img, script", "e.textContent") == [SCRIPT]
        assert (browser.requests, browser.complaints) == ([page.as_uri()], [])
        assert browser.look("document.title").startswith(f"Dry run of {NASTY}, 2026-11-13T18:00")
        assert browser.every("h4", "e.textContent") == [widget.title for widget in widgets[:2]]
        assert browser.every(".about p", "e.textContent") == [f"a.1: {text}", f"a.2: {text}"]
        assert browser.every(".legend span", "e.textContent") == ["", f"host:{NASTY}", "host:node"]
        assert browser.every(".absent", "e.textContent")[0].startswith(widgets[2].title)
        assert browser.every(".status", "e.textContent") == ["partial"]
        assert browser.every(".note p", "e.textContent") == [
            f"{NASTY}: {NASTY}",
            f"{NASTY} lost {NASTY}",
            f"{NASTY} lost \\ud800",
            f"{NASTY} dropped 1,000 {NASTY}",
        ]


LOAD = gauge("jobs.load", "", "How busy it is.", "job", "ref", combines=Combine.SUM)
IDLE = gauge("jobs.idle", "job", "What nobody uses.", combines=Combine.SUM)
DONE = gauge("jobs.done", "job", "What ended well.", combines=Combine.SUM)


def test_a_card_has_the_sum_of_a_count_and_the_last_value_of_a_gauge(tmp_path: Path) -> None:
    failed = count("jobs.failed", "job", "What failed.")
    cost = gauge("jobs.cost", "dollar", "What it costs.")
    age = gauge("jobs.age", "second", "How old it is.")
    done = count("jobs.succeeded", "job", "What succeeded.")
    points = Points(10, HOURS.since, HOURS.until)
    send(points, [metric(number, END - 900 * number) for metric in (DONE, failed) for number in (3, 2)])
    price = gauge("jobs.price", "dollar", "What one costs.")
    send(points, [cost(1234.567, END - 900), age(3902.3, END), price(1.5, END)])
    send(points, [done(15, END)])
    rate = value("Rate", failed, share_of=(failed, done))
    named = {"Done": DONE, "Failed": failed, "Cost": cost, "Age": age, "Price": price}
    widgets = (*(value(title, metric) for title, metric in named.items()), rate)
    boards = {"jobs": [Dashboard("jobs", "Jobs", "x", {"All": widgets})]}
    page = write_page(tmp_path / "a.html", [Outcome("jobs", Status.OK)], {"jobs": points}, HOURS, boards)
    cards = page.read_text().partition("<p>Nothing was sent")[0]
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)<", cards)
    assert found == [
        ("Done", "2"),
        ("Failed", "5"),
        ("Cost", "1,234.57"),
        ("Age", "1 h 5 min"),
        ("Price", "1.50"),
        ("Rate", "25.0"),
    ]


@pytest.mark.parametrize(
    ("widget", "why"),
    [
        (line("Idle", IDLE), "only measured live, not for the past"),
        (line("Done", DONE), "no value of jobs.done in this span"),
        (line("Load", LOAD, where=("ref:main",)), "no value of jobs.load, ref:main in this span"),
        (line("Share", LOAD, share_of=(LOAD,)), "no value of jobs.load in this span"),
    ],
)
def test_empty_chart_says_why(tmp_path: Path, widget: Widget, why: str) -> None:
    points = Points(10, HOURS.since, HOURS.until)
    send(points, [LOAD(0, END - 900, job="a", ref="pr")])
    boards = {"jobs": [Dashboard("jobs", "Jobs", "x", {"All": (widget,)})]}
    page = write_page(tmp_path, [Outcome("jobs", Status.OK)], {"jobs": points}, HOURS, boards, {IDLE})
    assert page.name.startswith("Dry-run-of-jobs-2026-11-13T18-00-00Z")
    assert f'<p class="absent">{widget.title}: {why}.</p>' in page.read_text()


ACTIVE = gauge("wandb.runs.active", "run", "Runs that are active.", "project")

Show = Callable[..., None]


@pytest.fixture
def show(tmp_path: Path, browser: Browser) -> Show:
    """Draw the page of these samples."""

    def draw(samples: list[Series], span: Window = HOURS, width: int = 1000) -> None:
        metrics = dict.fromkeys(sample.metric for sample in samples)
        points = Points(20_000, span.since, span.until)
        send(points, samples)
        charts = tuple(line(metric.name, metric, by=metric.tags) for metric in metrics)
        boards = {"toy": [Dashboard("all", "All", "Every metric.", {"Metrics": charts})]}
        write_page(tmp_path / "page.html", [Outcome("toy", Status.OK)], {"toy": points}, span, boards)
        browser.show(tmp_path / "page.html", width)

    return draw


def strokes(browser: Browser, selector: str) -> list[str]:
    return browser.every(selector, "getComputedStyle(e).stroke")


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_every_metric_has_a_chart_with_a_line_for_each_series_inside_it(
    week: tuple[Path, Points], width: int, browser: Browser
) -> None:
    browser.show(week[0], width)
    assert browser.look("document.documentElement.clientWidth") == width
    assert browser.look("document.documentElement.scrollWidth") == width
    out = "e.getBoundingClientRect().right > innerWidth + 1 && e.outerHTML.slice(0, 80)"
    assert {*browser.every("body *", out)} == {False}
    lines = "[e.querySelector('h4').textContent, e.querySelectorAll('.plot .line').length]"
    drawn = browser.every(".metric", lines)
    assert len(drawn) == len(browser.every("svg.plot", "1"))
    assert dict(drawn)["Steps per second by config, last 30 days"] == 2
    assert dict(drawn)["Run duration p50/p95"] == 2
    assert {count for _, count in drawn} <= set(range(1, 7))
    box = "(r => [r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect())"
    boxes = f"[e, ...e.querySelectorAll('path')].map(e => {box})"
    for (left, top, right, bottom), *paths in browser.every(".plot", boxes):
        assert right - left > (200 if width < 400 else 300)
        assert bottom - top > 100
        assert all(left <= a <= c <= right and top <= b <= d <= bottom for a, b, c, d in paths)
    times = browser.every(".axis-x", "[...e.children].map(label => label.innerText)")
    assert times == [[f"{day} Nov" for day in range(7, 15)]] * len(drawn)
    assert browser.texts(".axis-y span")[:3] == ["0", "50", "100"]


@pytest.mark.slow
def test_a_line_is_drawn_to_scale_in_time_and_value(show: Show, browser: Browser) -> None:
    show([ACTIVE(value, at) for at, value in zip(HOURS.ticks, range(24), strict=True)])
    [label] = browser.every(".plot", "e.getAttribute('aria-label')")
    assert label.endswith(": from 0 run to 23 run")
    [path] = browser.every(".plot .line", "e.getAttribute('d')")
    places = path.removeprefix("M").split("L")
    assert len(places) == 24
    for at, place in enumerate(places):  # 1.5 % of room at either side, 6 % above the highest value
        x, y = map(float, place.split())
        assert x == pytest.approx(1000 * (0.015 + (at + 1) / 24) / 1.03, abs=0.1)
        assert y == pytest.approx(1000 * (1 - at / (23 * 1.06)), abs=0.1)
    assert browser.texts(".axis-x span") == [*(f"{hour}:00" for hour in range(18, 24)), "14 Nov"]
    assert browser.texts(".axis-y span") == ["0", "5", "10", "15", "20"]


@pytest.mark.slow
def test_of_many_series_those_that_reach_highest_are_drawn(
    show: Show, tmp_path: Path, browser: Browser
) -> None:
    peaks = {f"p{place:04}": place * 37 % 1000 for place in range(1000)}
    show([ACTIVE(peak, at, project=name) for name, peak in peaks.items() for at in (HOURS.since, END - 1)])
    highest = sorted(sorted(peaks, key=lambda name: -peaks[name])[:6])
    assert browser.texts(".legend span") == [f"project:{name}" for name in highest]
    assert "1,000" in browser.texts(".chart + p")[0]
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    assert strokes(browser, ".plot .line") == strokes(browser, ".legend path")
    assert len({*strokes(browser, ".plot .line")}) == 6


@pytest.mark.slow
@pytest.mark.parametrize("days", [0.003, 1, 30, 365, 3000])
def test_labels_are_legible_and_do_not_overlap_in_any_window(
    days: float, show: Show, tmp_path: Path, browser: Browser
) -> None:
    span = Window(END - int(days * DAY), END, 60)
    show([ACTIVE(10_000_000, tick) for tick in span.ticks[:2]], span)
    for width, least in ((320, 2), (390, 2), (560, 3), (800, 4), (1000, 3), (1600, 3)):
        browser.show(tmp_path / "page.html", width)
        sizes = browser.every("body *", "e.innerText && !e.children.length && getComputedStyle(e).fontSize")
        assert min(float(size.removesuffix("px")) for size in sizes if size) >= 12
        sides = "e.offsetWidth && (r => [r.left, r.right])(e.getBoundingClientRect())"
        places = [place for place in browser.every(".axis-x span", sides) if place]
        assert len(places) >= least
        assert all(before[1] < after[0] for before, after in pairwise(places)), width


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "media"), [("light", "screen"), ("dark", "screen"), ("dark", "print")])
def test_text_and_lines_stand_out_from_what_is_behind_them(
    scheme: str, media: str, show: Show, tmp_path: Path, browser: Browser
) -> None:
    show([ACTIVE(place, END - 900, project=f"p{place}") for place in range(8)])
    browser.show(tmp_path / "page.html", 1000, scheme, media)
    least, where = browser.look(f"(() => {{ {LIGHT} {LEAST_CONTRAST} }})()")
    assert least >= 4.5, where
    [plot] = browser.every(".plot", "getComputedStyle(e).backgroundColor")
    assert plot == ("rgb(15, 23, 42)" if (scheme, media) == ("dark", "screen") else "rgb(255, 255, 255)")
    colours = strokes(browser, ".plot .line")
    assert len({*colours}) == 6
    for colour in colours:
        assert browser.look(f"(() => {{ {LIGHT} return contrast('{colour}', '{plot}') }})()") >= 3
