"""The charts of a dry run's page as a browser draws them: to scale, with gaps and spikes, for any eye."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from common.metric import Series, gauge
from common.outcome import Outcome, Status
from common.show.points import Points
from common.window import Window
from support.browser import LEAST_CONTRAST, LIGHT, Browser
from support.sinks import send
from support.wandb_week import DAY, END, WEEK, week_points

from .given import draw_page

pytestmark = pytest.mark.slow

ACTIVE = gauge("wandb.runs.active", "run", "Runs that are active.", "project")
MEMORY = gauge("gpu_memory.allocated_bytes", "byte", "Memory that tensors hold.", "rank")
HOURS = Window(END - 6 * 3600, END, 900)

Show = Callable[..., None]


@pytest.fixture
def show(tmp_path: Path, browser: Browser) -> Show:
    """Draw the page of these samples."""

    def draw(samples: list[Series], span: Window = HOURS, width: int = 1000) -> None:
        metrics = dict.fromkeys(sample.metric for sample in samples)
        points = Points(metrics, 20_000, span.since, span.until)
        send(points, samples)
        draw_page(tmp_path / "page.html", Outcome("toy", Status.OK), points, span)
        browser.show(tmp_path / "page.html", width)

    return draw


def drawing(browser: Browser) -> list[list[str]]:
    """The places that the one line goes through, between its gaps."""
    [path] = browser.every(".plot .line", "e.getAttribute('d')")
    return [piece.split("L") for piece in re.findall(r"M([^M]*)", path)]


def strokes(browser: Browser, selector: str) -> list[str]:
    return browser.every(selector, "getComputedStyle(e).stroke")


@pytest.mark.parametrize("width", [390, 1200])
def test_every_metric_has_a_chart_with_a_line_for_each_series_inside_it(
    width: int, tmp_path: Path, browser: Browser
) -> None:
    draw_page(tmp_path / "page.html", Outcome("wandb", Status.OK), week_points(), WEEK)
    browser.show(tmp_path / "page.html", width)
    lines = "[e.querySelector('h4').textContent, e.querySelectorAll('.plot .line').length]"
    drawn = browser.every(".metric", lines)
    assert len(drawn) == len(browser.every("svg.plot", "1"))
    assert dict(drawn)["Steps per second by config, last 30 days"] == 2
    assert dict(drawn)["Run duration p50/p95"] == 2
    assert {count for _, count in drawn} <= set(range(1, 7))
    box = "(r => [r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect())"
    boxes = f"[e, ...e.querySelectorAll('path')].map(e => {box})"
    for (left, top, right, bottom), *paths in browser.every(".plot", boxes):
        assert right - left > 300 - 60 * (width == 390)
        assert bottom - top > 100
        assert all(left <= a <= c <= right and top <= b <= d <= bottom for a, b, c, d in paths)
    times = browser.every(".axis-x", "[...e.children].map(label => label.innerText)")
    assert times == [[f"{day} Nov" for day in range(7, 15)]] * len(drawn)
    assert browser.texts(".axis-y span")[:3] == ["0", "50", "100"]


def test_a_line_is_drawn_to_scale_in_time_and_value(show: Show, browser: Browser) -> None:
    show([ACTIVE(value, at) for at, value in zip(HOURS.ticks, range(24), strict=True)])
    [places] = drawing(browser)
    assert len(places) == 24
    for at, place in enumerate(places):  # 1.5 % of room at either side, 6 % above the highest value
        x, y = map(float, place.split())
        assert x == pytest.approx(1000 * (0.015 + (at + 1) / 24) / 1.03, abs=0.1)
        assert y == pytest.approx(1000 * (1 - at / (23 * 1.06)), abs=0.1)
    assert browser.texts(".axis-x span") == [*(f"{hour}:00" for hour in range(18, 24)), "14 Nov"]
    assert browser.texts(".axis-y span") == ["0", "5", "10", "15", "20"]


def test_records_closer_than_the_step_are_drawn_as_closely(show: Show, browser: Browser) -> None:
    show([MEMORY(2**30 + at, END - 3590 + 10 * at, rank="0") for at in range(120)])
    [places] = drawing(browser)
    assert len(places) == 30  # of 40 s each, the whole being cut into no more than 672
    assert browser.texts(".axis-y span") == ["0 GiB", "0.5 GiB", "1 GiB"]
    [label] = browser.every(".plot", "e.getAttribute('aria-label')")
    assert label.endswith(": from 1.00 GiB to 1.00 GiB")


def test_of_many_series_those_that_reach_highest_are_drawn(
    show: Show, tmp_path: Path, browser: Browser
) -> None:
    peaks = {f"p{place:04}": place * 37 % 1000 for place in range(1000)}
    show([ACTIVE(peak, at, project=name) for name, peak in peaks.items() for at in (HOURS.since, END - 1)])
    highest = sorted(sorted(peaks, key=lambda name: -peaks[name])[:6])
    assert browser.texts(".legend span") == [f"project:{name}" for name in highest]
    assert "994" in browser.texts(".chart + p")[0]
    assert (tmp_path / "page.html").stat().st_size < 2_000_000
    assert strokes(browser, ".plot .line") == strokes(browser, ".legend path")
    assert len({*strokes(browser, ".plot .line")}) == 6


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
