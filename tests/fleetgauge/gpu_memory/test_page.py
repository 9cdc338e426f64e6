"""The page as a browser draws it: on a phone, on a desk, in the dark and on paper."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from fleetgauge.gpu_memory import SessionSummary, load_recording
from fleetgauge.gpu_memory.events import read_event
from fleetgauge.gpu_memory.page import MAX_DRAWN, PageSession, render_page, render_recording
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
def test_the_cards_tell_the_session_at_a_glance(page: Path, browser: Browser) -> None:
    browser.show(page, 360)
    lines = "e => e.innerText.split('\\n').filter(Boolean)"
    cards = browser.look(f"[...document.querySelectorAll('.card')].map({lines})")
    assert cards == [
        ["Samples", "327", "115 regular"],
        ["Duration", "3.07 s", "first to last sample"],
        ["Peak allocated", "6.49 GiB", "of 16.00 GiB"],
        ["Peak reserved", "7.14 GiB", "of 16.00 GiB"],
        ["Highest utilisation", "45.9 %", "7.34 GiB used"],
        ["Alerts", "78", "38 warning, 40 peak"],
    ]
    assert browser.look("document.querySelector('h2').innerText") == "Session 870f6941 · rank 1 of 2"
    assert browser.look("document.querySelector('.status').innerText") == "completed"
    legend = browser.look("[...document.querySelectorAll('.legend span')].map(e => e.innerText.trim())")
    assert legend == ["device used", "reserved", "allocated", "capacity 16.00 GiB", "peak", "warning"]


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


@pytest.mark.slow
@GPU
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_marks_stand_out_from_the_plot(page: Path, scheme: str, browser: Browser) -> None:
    browser.show(page, 1000, scheme)
    strokes = "['.allocated', '.reserved', '.used', '.limit', '.mark.warning', '.mark.peak']"
    colours = browser.look(
        f"{strokes}.map(s => getComputedStyle(document.querySelector('.plot ' + s)).stroke)"
    )
    assert len(set(colours)) == 6
    plot = browser.look("getComputedStyle(document.querySelector('.plot')).backgroundColor")
    assert plot not in colours
    for colour in colours:
        assert browser.look(f"(() => {{ {LIGHT} return contrast('{colour}', '{plot}') }})()") >= 3


@pytest.mark.slow
@pytest.mark.parametrize("page", ["torn-running-sink"], indirect=True)
def test_sessions_are_told_apart_and_what_was_lost_is_said(page: Path, browser: Browser) -> None:
    browser.show(page, 360)
    sections = browser.look("[...document.querySelectorAll('section h2')].map(e => e.innerText)")
    names = ("efa11bbf", "f971aada", "cb2e351c", "cd7c1cce")
    assert sections == ["Sessions", *(f"Session {name} · rank 0 of 1" for name in names)]
    statuses = browser.look("[...document.querySelectorAll('.status')].map(e => e.innerText)")
    assert statuses == ["completed", "interrupted", "completed", DIED]
    note = browser.look("document.querySelector('.note').innerText")
    assert note == "Left out because it could not be read: torn line (1)."
    leads = browser.look(
        "[...document.querySelectorAll('a')].map(a => !!document.querySelector(a.getAttribute('href')))"
    )
    assert leads == [True] * 4
    # On a phone every cell says what it is, as the head of the table is not there to.
    label = "getComputedStyle(document.querySelector('td'), '::before').content"
    assert browser.look(label) == '"Session"'


@pytest.mark.slow
def test_ranks_are_told_apart_and_only_so_many_drawn(tmp_path: Path, browser: Browser) -> None:
    profile = SessionProfile()
    for rank in range(MAX_DRAWN + 3):
        profile.add([read_event({"timestamp": 1.0, "rank": rank, "memory_allocated": rank + 1})])
    summary = SessionSummary("s", "running", world_size=64)
    (tmp_path / "page.html").write_text(render_page("Ranks", [PageSession(profile, summary)]))
    browser.show(tmp_path / "page.html")
    headings = browser.look("[...document.querySelectorAll('h2')].map(e => e.innerText)")
    assert headings == ["Sessions", *(f"Session s · rank {rank} of 64" for rank in range(MAX_DRAWN))]
    assert browser.look("document.querySelectorAll('section:first-of-type tbody tr').length") == MAX_DRAWN + 3
    compared, drawn = browser.texts("section:first-of-type > p")
    assert compared.startswith("Allocated memory of 6 of 35 sessions and ranks, side by side")
    assert (
        browser.texts("section:first-of-type .legend span")[0] == "s, rank 29 of 64"
    )  # those that reach highest
    assert drawn == "The first 32 are drawn below, 3 are not."


@pytest.mark.slow
def test_the_latest_alerts_are_listed_in_order_and_the_others_counted(
    tmp_path: Path, browser: Browser
) -> None:
    profile = SessionProfile()
    for at in range(60):
        warning = {"timestamp": at, "type": "warning", "memory_allocated": 2**30, "memory_change": -at}
        profile.add([read_event(warning)])
    profile.add([read_event({"timestamp": 10, "type": "critical", "context": "worst"})])
    (tmp_path / "page.html").write_text(render_page("Alerts", [PageSession(profile, None)]))
    browser.show(tmp_path / "page.html")
    assert browser.look("document.querySelector('h3 + p').innerText").startswith("10 alerts not listed")
    rows = browser.look(
        "[...document.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    assert len(rows) == 51
    assert rows[0] == ["10.00 s", "critical", "worst", "unknown", "unknown", "unknown", "00:00:10.000"]
    assert rows[1] == ["10.00 s", "warning", "", "1.00 GiB", "unknown", "-10 B", "00:00:10.000"]


@pytest.mark.slow
def test_a_session_without_anything_to_draw_says_so(tmp_path: Path, browser: Browser) -> None:
    profile = SessionProfile()
    profile.add([read_event({"event_type": "error", "context": "lost"})])
    sessions = [
        PageSession(profile, None),
        PageSession(SessionProfile(), SessionSummary("legacy-sink", "incomplete")),
    ]
    (tmp_path / "page.html").write_text(render_page("Empty", sessions))
    browser.show(tmp_path / "page.html")
    text = browser.look("document.body.innerText")
    assert text.count("There is nothing to draw: no event has both a time and a size.") == 2
    assert browser.look("document.querySelectorAll('svg.plot').length") == 0
    assert "Session without a name · rank unknown" in text
    assert "lost" in text


@pytest.mark.slow
def test_out_of_memory_dumps_are_shown(samples: Path, tmp_path: Path, browser: Browser) -> None:
    dump = tmp_path / "sink" / "oom_dump_20261116T011500Z_554_cuda_1"
    shutil.copytree(samples / "gpu-sink", tmp_path / "sink")
    dump.mkdir()
    (dump / "manifest.json").write_text(
        '{"created_at_utc": "2026-11-16T01:15:02Z", "reason": "torch.OutOfMemoryError"}'
    )
    (dump / "metadata.json").write_text('{"exception_message": "CUDA out of memory"}')
    (tmp_path / "page.html").write_text(render_recording(load_recording(tmp_path / "sink")))
    browser.show(tmp_path / "page.html")
    cells = browser.look("[...document.querySelectorAll('section:first-of-type td')].map(e => e.innerText)")
    assert cells == [dump.name, "2026-11-16 01:15:02", "torch.OutOfMemoryError", "CUDA out of memory"]


def test_small_peaks_do_not_push_out_a_large_one() -> None:
    profile = SessionProfile()
    for at in range(1000):
        change = 2**30 if at == 7 else 4096
        peak = {"timestamp": at, "event_type": "peak", "memory_allocated": at, "memory_change": change}
        profile.add([read_event(peak)])
    text = render_page("page", [PageSession(profile, SessionSummary("s", "completed"))])
    assert "999 alerts not listed" in text
    assert text.count('class="kind peak"') == 1


def test_of_a_peak_whose_growth_is_unknown_nothing_is_assumed() -> None:
    profile = SessionProfile()
    profile.add([read_event({"timestamp": 0, "event_type": "peak", "memory_allocated": 1})])
    profile.add(
        [read_event({"timestamp": 0, "event_type": "peak", "memory_allocated": 1, "memory_change": 2**20})]
    )
    text = render_page("page", [PageSession(profile, SessionSummary("s", "completed"))])
    assert text.count('class="kind peak"') == 2
    assert "new peaks" not in text


def test_a_session_that_died_says_since_when_nothing_was_heard() -> None:
    profile = SessionProfile()
    profile.add([read_event({"timestamp": 1_794_787_200, "memory_allocated": 1})])
    text = render_page("page", [PageSession(profile, SessionSummary("s", "running"))])
    assert "running: no end was recorded, nothing recorded since 2026-11-16 00:00:00.000 UTC" in text
    ended = render_page("page", [PageSession(profile, SessionSummary("s", "completed"))])
    assert "nothing recorded" not in ended


def test_a_page_to_open_has_the_script_and_one_to_log_has_not(samples: Path) -> None:
    loaded = load_recording(samples / "gpu-sink")
    plain, file = render_recording(loaded), render_recording(loaded, script=True)
    assert not re.search("<script|data-v|data-zoom|Content-Security", plain)
    assert file.count("<script>") == 1
    assert file.count("data-zoom=") == file.count('class="kind ')


@pytest.mark.slow
def test_an_alert_in_the_table_zooms_the_chart_to_it(tmp_path: Path, samples: Path, browser: Browser) -> None:
    loaded = load_recording(samples / "gpu-sink")
    (tmp_path / "page.html").write_text(render_recording(loaded, script=True))
    browser.show(tmp_path / "page.html")
    [after, kind, _, allocated, *_] = browser.texts("tbody tr:last-child td")
    browser.look("document.querySelector('tbody tr:last-child a').click()")
    moment, *told = browser.texts(".tip:not([hidden]) b, .tip:not([hidden]) span")
    assert (moment, kind) == (after, "peak")
    assert f"allocated: {allocated}" in told
    assert browser.complaints == []


def test_the_title_says_whose_memory_and_from_when_to_when(samples: Path) -> None:
    page = render_recording(load_recording(samples / "gpu-sink"))
    assert "<title>GPU memory of gpu-sink, 2026-11-15 23:44:54 to 23:44:57 UTC</title>" in page


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
