"""The page as a browser draws it: on a phone, on a desk, in the dark and on paper."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from fleetgauge.gpu_memory import SessionSummary, load_recording
from fleetgauge.gpu_memory.events import read_event
from fleetgauge.gpu_memory.page import PageSession, render_page, render_recording
from fleetgauge.gpu_memory.profiles import SessionProfile
from support.browser import LEAST_CONTRAST, LIGHT, Browser

pytestmark = pytest.mark.slow

NASTY = "<img src=x onerror=document.title='ran'><script>document.title='ran'</script>&amp;\"'" + "w" * 3000
BACKGROUND = {"light screen": (244, 246, 249), "dark screen": (11, 17, 32), "dark print": (255,) * 3}
# Not the head of a table on a phone, which is there for screen readers alone.
OUTSIDE = """[...document.body.querySelectorAll('*')]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .filter(e => getComputedStyle(e.closest('thead') || e).position != 'absolute')
    .map(e => e.outerHTML.slice(0, 80))"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('body *')]
    .filter(e => e.innerText && e.children.length == 0)
    .map(e => parseFloat(getComputedStyle(e).fontSize)))"""
X_LABELS = """[...document.querySelectorAll('.axis-x')].map(axis => [...axis.children]
    .filter(e => e.offsetWidth).map(e => e.getBoundingClientRect()).map(r => [r.left, r.right]))"""


def assert_legible(browser: Browser, path: Path, width: int, look: str) -> None:
    """Show a page: all of it fits into the window, and all text can be read."""
    browser.show(path, width, *look.split())
    assert browser.look("document.documentElement.scrollWidth") == width
    assert browser.look(OUTSIDE) == []
    assert browser.look(SMALLEST_TEXT) >= 12
    for axis in browser.look(X_LABELS):
        assert all(before[1] < after[0] for before, after in pairwise(axis))
    least, where = browser.look(f"(() => {{ {LIGHT} {LEAST_CONTRAST} }})()")
    assert least >= 4.5, where
    background = browser.look("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb({}, {}, {})".format(*BACKGROUND[look])
    assert (browser.requests, browser.complaints) == ([path.as_uri()], [])


@pytest.mark.parametrize("name", ["gpu-sink", "cpu-sink", "torn-running-sink"])
def test_page_to_log_is_legible_in_any_window_and_needs_nothing_else(
    name: str, samples: Path, tmp_path: Path, browser: Browser
) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_recording(load_recording(samples / name)))
    for width in (320, 360, 768, 1400):
        for look in ("light screen", "dark screen"):
            assert_legible(browser, path, width, look)
    assert_legible(browser, path, 1000, "dark print")
    assert browser.look("document.querySelectorAll('script, link, img, [src], [onload]').length") == 0


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_page_to_open_is_legible_wherever_it_is_pointed_at(
    width: int, tmp_path: Path, samples: Path, browser: Browser
) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_recording(load_recording(samples), script=True))
    for look in ("light screen", "dark screen"):
        assert_legible(browser, path, width, look)
        for number in range(browser.look("document.querySelectorAll('.plot').length")):
            browser.look(f"document.querySelectorAll('.plot')[{number}].focus()")
            assert len(browser.texts(".tip:not([hidden]) b")) == 1
            least, where = browser.look(f"(() => {{ {LIGHT} {LEAST_CONTRAST} }})()")
            assert least >= 4.5, where
        assert browser.look("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", [360, 1000])
def test_names_of_any_kind_are_shown_as_they_are_and_stay_inside(
    width: int, tmp_path: Path, browser: Browser
) -> None:
    profile = SessionProfile()
    for at, kind in enumerate(("sample", "critical", "warning", "error", "peak")):
        event = {"timestamp": at, "type": kind, "memory_allocated": 2**60 + at, "context": NASTY}
        profile.add([read_event(event)])
    profile.add([read_event({"event_type": "error"})])
    summary = SessionSummary(NASTY, NASTY, host=NASTY, job_id=NASTY, source=NASTY)
    path = tmp_path / "page.html"
    path.write_text(render_page(NASTY, [PageSession(profile, summary)] * 2, [NASTY]))
    browser.show(path, width)
    assert browser.look("document.documentElement.scrollWidth") == width
    assert browser.look("document.querySelectorAll('img, script').length") == 0
    assert browser.look("[document.title, document.querySelector('h1').textContent]") == [NASTY] * 2
    contexts = browser.look("[...document.querySelectorAll('td.wide')].map(e => e.textContent)")
    assert contexts == ([NASTY[:500]] * 4 + [""]) * 2
