"""The page as a browser draws it: on a phone, on a desk, in the dark and on paper."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from fleetgauge.gpu_memory import SessionSummary, load_recording
from fleetgauge.gpu_memory.events import read_event
from fleetgauge.gpu_memory.page import PageSession, render_page, render_recording
from fleetgauge.gpu_memory.profiles import SessionProfile
from support.browser import LEAST_CONTRAST, LIGHT, Browser


@pytest.fixture
def page(samples: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The page of a real recording."""
    path = tmp_path / "page.html"
    path.write_text(render_recording(load_recording(samples / request.param)))
    return path


GPU = pytest.mark.parametrize("page", ["gpu-sink"], indirect=True)
ALL = pytest.mark.parametrize("page", ["gpu-sink", "cpu-sink", "torn-running-sink"], indirect=True)
DIED = "running: no end was recorded, nothing recorded since 2026-11-15 23:45:00.961 UTC"
NASTY = "<img src=x onerror=document.title='ran'><script>document.title='ran'</script>&amp;\"'" + "w" * 3000


def nasty_page(path: Path) -> Path:
    """Whatever a name can hold, in every place that shows one."""
    profile = SessionProfile()
    for at, kind in enumerate(("sample", "critical", "warning", "error", "peak")):
        profile.add(
            [read_event({"timestamp": at, "type": kind, "memory_allocated": 2**60 + at, "context": NASTY})]
        )
    profile.add([read_event({"event_type": "error"})])
    summary = SessionSummary(NASTY, NASTY, host=NASTY, job_id=NASTY, source=NASTY)
    path.write_text(render_page(NASTY, [PageSession(profile, summary)] * 2, [NASTY]))
    return path


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("width", [320, 360, 768, 1400])
def test_nothing_scrolls_sideways_and_nothing_sticks_out(page: Path, width: int, browser: Browser) -> None:
    browser.show(page, width)
    assert browser.look("document.documentElement.clientWidth") == width
    assert browser.look("document.documentElement.scrollWidth") == width
    everything = "[...document.body.querySelectorAll('*')]"
    out = f"{everything}.filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    hidden = "e => getComputedStyle(e.closest('thead') || e).position != 'absolute'"
    assert browser.look(f"{out}.filter({hidden}).map(e => e.outerHTML.slice(0, 80))") == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1000])
def test_names_of_any_kind_are_shown_as_they_are_and_stay_inside(
    width: int, tmp_path: Path, browser: Browser
) -> None:
    browser.show(nasty_page(tmp_path / "page.html"), width)
    assert browser.look("document.documentElement.scrollWidth") == width
    assert browser.look("document.querySelectorAll('img, script').length") == 0
    assert browser.look("document.title") == NASTY
    assert browser.look("document.querySelector('h1').textContent") == NASTY
    contexts = browser.look("[...document.querySelectorAll('td.wide')].map(e => e.textContent)")
    assert contexts == ([NASTY[:500]] * 4 + [""]) * 2


@pytest.mark.slow
@ALL
def test_the_page_needs_nothing_but_itself(page: Path, browser: Browser) -> None:
    browser.show(page)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.look("document.scripts.length") == 0
    assert browser.look("performance.getEntriesByType('resource').length") == 0
    assert (
        browser.look("document.querySelectorAll('link, img, iframe, object, embed, [src], [onload]').length")
        == 0
    )


@pytest.mark.slow
@GPU
@pytest.mark.parametrize("width", [360, 1000])
def test_every_mark_and_line_is_inside_the_plot(page: Path, width: int, browser: Browser) -> None:
    browser.show(page, width)
    rectangle = "(e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom] })"
    left, top, right, bottom = browser.look(f"{rectangle}(document.querySelector('.plot'))")
    assert right - left > width / 2
    assert bottom - top > 150
    drawn = browser.look(f"[...document.querySelectorAll('.plot path')].map({rectangle})")
    assert all(left <= a <= c <= right and top <= b <= d <= bottom for a, b, c, d in drawn)
    count = "kind => document.querySelectorAll('.plot .mark.' + kind).length"
    assert browser.look(f"['critical', 'error', 'warning', 'peak'].map({count})") == [0, 0, 38, 40]
    said = browser.look("document.querySelector('.mark.warning title').textContent")
    assert said == "warning after 2.56 s: 6.27 GiB"


@pytest.mark.slow
@GPU
def test_the_lines_are_drawn_to_scale_and_the_capacity_with_them(page: Path, browser: Browser) -> None:
    browser.show(page)
    corners = "const b = document.querySelector('.plot ' + s).getBBox(); return [b.x, b.y, b.x + b.width]"
    box = f"(s => {{ {corners} }})"
    capacity = 1000 - browser.look(f"{box}('.limit')")[1]
    for kind, peak in (("allocated", 6971635275), ("reserved", 7668798802), ("used", 7883547166)):
        begin, top, end = browser.look(f"{box}('.{kind}')")
        assert (1000 - top) / capacity == pytest.approx(peak / 17179869184, abs=0.002)
        assert begin < 30
        assert end > 970
    # The capacity lies above the label of 15 GiB and below the upper edge.
    place = "e => [e.innerText, e.getBoundingClientRect().y]"
    labels = browser.look(f"[...document.querySelectorAll('.axis-y span')].map({place})")
    assert [text for text, _ in labels] == ["0 GiB", "5 GiB", "10 GiB", "15 GiB"]
    assert [y for _, y in labels] == sorted((y for _, y in labels), reverse=True)
    times = browser.look("[...document.querySelectorAll('.axis-x span')].map(e => e.innerText)")
    assert times == ["0 s", "0.5 s", "1 s", "1.5 s", "2 s", "2.5 s", "3 s"]


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("width", [360, 1000])
def test_labels_are_legible_and_do_not_overlap(page: Path, width: int, browser: Browser) -> None:
    browser.show(page, width)
    sizes = "[...document.querySelectorAll('body *')].filter(e => e.innerText && e.children.length == 0)"
    assert browser.look(f"Math.min(...{sizes}.map(e => parseFloat(getComputedStyle(e).fontSize)))") >= 12
    shown = "[...axis.children].filter(e => e.offsetWidth)"
    sides = f"{shown}.map(e => e.getBoundingClientRect()).map(r => [r.left, r.right])"
    for axis in browser.look(f"[...document.querySelectorAll('.axis-x')].map(axis => {sides})"):
        assert all(before[1] < after[0] for before, after in pairwise(axis))


@pytest.mark.slow
@ALL
@pytest.mark.parametrize(("scheme", "media"), [("light", "screen"), ("dark", "screen"), ("dark", "print")])
def test_text_stands_out_from_what_is_behind_it(
    page: Path, scheme: str, media: str, browser: Browser
) -> None:
    browser.show(page, 1000, scheme, media)
    least, where = browser.look(f"(() => {{ {LIGHT} {LEAST_CONTRAST} }})()")
    assert least >= 4.5, where
    back = browser.look("getComputedStyle(document.body).backgroundColor")
    expected = {
        ("light", "screen"): (244, 246, 249),
        ("dark", "screen"): (11, 17, 32),
        ("dark", "print"): (255,) * 3,
    }
    assert back == "rgb({}, {}, {})".format(*expected[scheme, media])


def test_small_peaks_do_not_push_out_a_large_one() -> None:
    profile = SessionProfile()
    for at in range(1000):
        change = {7: 2**20, 8: None}.get(at, 4096)
        peak = {"timestamp": at, "event_type": "peak", "memory_allocated": at, "memory_change": change}
        profile.add([read_event(peak)])
    text = render_page("page", [PageSession(profile, SessionSummary("s", "completed"))])
    assert "998 alerts not listed" in text
    assert text.count('class="kind peak"') == 2


def test_a_page_to_open_has_the_script_and_one_to_log_has_not(samples: Path) -> None:
    loaded = load_recording(samples / "gpu-sink")
    plain, file = render_recording(loaded), render_recording(loaded, script=True)
    assert not re.search("<script|data-v|Content-Security", plain)
    assert file.count("<script>") == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_to_open_fits_any_window_and_complains_of_nothing(
    width: int, scheme: str, tmp_path: Path, samples: Path, browser: Browser
) -> None:
    (tmp_path / "page.html").write_text(render_recording(load_recording(samples), script=True))
    browser.show(tmp_path / "page.html", width, scheme)
    for number in range(browser.look("document.querySelectorAll('.plot').length")):
        browser.look(f"document.querySelectorAll('.plot')[{number}].focus()")
        assert len(browser.texts(".tip:not([hidden]) b")) == 1
        least, where = browser.look(f"(() => {{ {LIGHT} {LEAST_CONTRAST} }})()")
        assert least >= 4.5, where
    assert browser.look("document.documentElement.scrollWidth") == width
    assert browser.complaints == []
