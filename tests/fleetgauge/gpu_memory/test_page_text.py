"""Which sessions, ranks and alerts a page lists, draws and leaves out."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetgauge.gpu_memory import SessionSummary, load_recording
from fleetgauge.gpu_memory.events import read_event
from fleetgauge.gpu_memory.oom import OomDump
from fleetgauge.gpu_memory.page import (
    MAX_DRAWN,
    PageSession,
    recording_title,
    render_page,
    render_recording,
)
from fleetgauge.gpu_memory.profiles import MAX_ALERTS, SessionProfile


def profile(*events: Mapping[str, object]) -> SessionProfile:
    made = SessionProfile()
    for event in events:
        made.add([read_event(event)])
    return made


def page_of(*sessions: PageSession) -> str:
    return render_page("page", sessions)


def alike(count: int) -> str:
    """The page of so many sessions."""
    one = profile({"timestamp": 1.0, "memory_allocated": 5})
    summaries = [SessionSummary(f"s{number}", "completed", job_id=f"j{number}") for number in range(count)]
    return page_of(*(PageSession(one, summary) for summary in reversed(summaries)))


def texts(page: str, pattern: str) -> list[str]:
    """What stands inside each match, without markup."""
    return [html.unescape(re.sub("<[^>]*>", "", found)) for found in re.findall(pattern, page)]


def rows(page: str) -> list[list[str]]:
    return [texts(row, "<td[^>]*>(.*?)</td>") for row in re.findall("<tr>(<td.*?)</tr>", page)]


def cards(page: str) -> list[list[str]]:
    return [
        [name, value, detail]
        for name, value, detail in re.findall("<dt>(.*?)</dt><dd>(.*?)<small>(.*?)</small>", page)
    ]


def test_a_session_that_tells_everything_is_shown_with_all_of_it() -> None:
    made = profile(
        {
            "timestamp": 100.0,
            "rank": 3,
            "memory_allocated": 2**30,
            "memory_reserved": 2**31,
            "device_total": 2**33,
        },
        {
            "timestamp": 160.0,
            "rank": 3,
            "type": "warning",
            "memory_allocated": 3 * 2**30,
            "memory_change": 2**31,
        },
        {"timestamp": 220.0, "rank": 3, "type": "critical", "memory_reserved": 2**32, "context": "a < b"},
    )
    summary = SessionSummary(
        "abcdefghij", "interrupted", host="n1", pid=0, job_id="j", world_size=4, source="t"
    )
    page = page_of(PageSession(made, summary))
    assert texts(page, "</h1><p>(.*?)</p>") == ["1 session · 3 events · job j"]
    assert texts(page, "<h2>(.*?)</h2>") == ["Session abcdefgh · rank 3 of 4"]
    assert re.findall('<span class="status ([^"]*)">(.*?)</span>', page) == [("interrupted", "interrupted")]
    assert texts(page, "</div><p>(.*?)</p>") == [
        "session abcdefghij · job j · host n1 · process 0 · source t · began 1970-01-01 00:01:40.000 UTC"
    ]
    assert cards(page) == [
        ["Samples", "3", "1 regular"],
        ["Duration", "2 min", "first to last sample"],
        ["Peak allocated", "3.00 GiB", "of 8.00 GiB"],
        ["Peak reserved", "4.00 GiB", "of 8.00 GiB"],
        ["Highest utilisation", "25.0 %", "4.00 GiB used"],
        ["Alerts", "2", "1 critical, 1 warning"],
    ]
    assert rows(page) == [
        ["1 min", "warning", "", "3.00 GiB", "unknown", "2.00 GiB", "00:02:40.000"],
        ["2 min", "critical", "a < b", "unknown", "4.00 GiB", "unknown", "00:03:40.000"],
    ]
    assert texts(page, 'aria-label="([^"]*)"') == [
        "Memory over 2 min: at most 3.00 GiB allocated, 4.00 GiB reserved, 4.00 GiB device used; 2 alerts"
    ]
    assert texts(page, "<title>([^<]*after[^<]*)</title>") == [
        "warning after 1 min: 3.00 GiB",
        "critical after 2 min: 4.00 GiB",
    ]
    assert re.findall('class="area ([^"]*)"', page) == ["fill-used"]
    assert re.findall('class="(line|dots|mark|limit)([^"]*)" d="([^"]*)"', page.split("</svg>")[0]) == [
        ("line", " used", "M14.6 764.2L500.0 646.2L985.4 528.3"),
        ("line", " reserved", "M14.6 764.2M985.4 528.3"),
        ("line", " allocated", "M14.6 882.1L500.0 646.2"),
        ("dots", " reserved", "M14.6 764.2h0M985.4 528.3h0"),
        ("limit", "", "M0 56.6H1000"),
        ("mark", " warning", "M500.0 646.2h0"),
        ("mark", " critical", "M985.4 528.3h0"),
    ]
    assert texts(page, '<div class="axis axis-x">(.*?)</div>') == ["0 min0.5 min1 min1.5 min2 min"]
    assert not re.search("<script>|Content-Security-Policy|There were none", page)


def test_a_session_that_tells_little_says_what_is_unknown() -> None:
    page = page_of(PageSession(profile({"timestamp": 5.0, "memory_reserved": 7}), None))
    assert texts(page, "</h1><p>(.*?)</p>") == ["1 session · 1 event"]
    assert texts(page, "<h2>(.*?)</h2>") == ["Session without a name · rank unknown"]
    assert 'class="status' not in page
    assert [value for _, value, _ in cards(page)] == ["1", "0.00 s", "unknown", "7 B", "unknown", "0"]
    assert [detail for *_, detail in cards(page)][2:] == ["capacity unknown"] * 2 + ["7 B used", "none"]
    assert "<h3>Alerts</h3><p>There were none.</p>" in page
    assert 'class="limit' not in page
    untimed = page_of(PageSession(profile({"event_type": "error"}), None))
    assert "There is nothing to draw: no event has both a time and a size." in untimed


@pytest.mark.parametrize(
    ("summary", "heading", "badge"),
    [
        (SessionSummary("abcdefghij", "completed"), "abcdefgh · rank 0 of 1", "completed"),
        (
            SessionSummary("s", "running", rank=2, world_size=0),
            "s · rank 2",
            "running: no end was recorded, nothing recorded since 1970-01-01 00:00:05.000 UTC",
        ),
        (
            SessionSummary("legacy-" + "x" * 50, "incomplete", world_size=4),
            "legacy-" + "x" * 33 + " · rank 0 of 4",
            "incomplete: no end was recorded",
        ),
    ],
)
def test_session_is_named_ranked_and_says_whether_its_end_was_recorded(
    summary: SessionSummary, heading: str, badge: str
) -> None:
    page = page_of(PageSession(profile({"timestamp": 5.0}), summary))
    assert texts(page, "<h2>Session (.*?)</h2>") == [heading]
    assert texts(page, '<span class="status [^"]*">(.*?)</span>') == [badge]


def test_ranks_come_in_order_with_an_unknown_one_last_and_each_has_a_row() -> None:
    made = profile(
        {"timestamp": 1.0, "memory_allocated": 1},
        {"timestamp": 1.0, "memory_allocated": 1, "rank": 5},
        {"timestamp": 1.0, "memory_allocated": 1, "rank": 1},
        {"timestamp": 3.5, "memory_allocated": 2**20, "rank": 0, "device_total": 2**22, "type": "peak"},
        {"timestamp": 1.0, "memory_allocated": 1, "rank": 0},
    )
    page = page_of(PageSession(made, None))
    start = "1970-01-01 00:00:01.000"
    blank = ["unknown", start, "0.00 s", "1 B", "unknown", "0"]
    assert rows(page)[:4] == [
        ["without a name", "0", "unknown", start, "2.50 s", "1.00 MiB", "25.0 %", "1"],
        ["without a name", "1", *blank],
        ["without a name", "5", *blank],
        ["without a name", "unknown", *blank],
    ]
    assert texts(page, "<h2>(.*?)</h2>")[1:] == [
        f"Session without a name · rank {rank}" for rank in ("0", "1", "5", "unknown")
    ]
    assert re.findall('<a href="#(s[0-9]+)">', page) == ["s1", "s2", "s3", "s4"]
    assert re.findall('<section id="(s[0-9]+)">', page) == ["s1", "s2", "s3", "s4"]


def test_table_of_sessions_is_sortable_and_drawing_is_bounded() -> None:
    assert (alike(1).count('<table class="listed">'), alike(2).count('<table class="listed">')) == (0, 1)
    assert "are drawn below" not in alike(MAX_DRAWN)
    page = alike(MAX_DRAWN + 1)
    assert f"<p>The first {MAX_DRAWN} are drawn below, 1 are not.</p>" in page
    assert len(re.findall("<section id=", page)) == MAX_DRAWN
    assert re.findall('<a href="#s([0-9]+)">', page) == [str(number) for number in range(1, MAX_DRAWN + 1)]
    assert rows(page)[MAX_DRAWN][0] == "s0"
    assert ", ".join(f"j{number}" for number in range(8)) + "</p>" in alike(9)
    assert len(rows(alike(8 * MAX_DRAWN + 1))) == 8 * MAX_DRAWN


def test_alerts_that_are_not_listed_are_counted() -> None:
    warnings = [{"timestamp": at, "type": "warning"} for at in range(MAX_ALERTS + 3)]
    changes = (2**20, None, *[2**20 - 1] * 7)
    peaks = [{"timestamp": at, "type": "peak", "memory_change": size} for at, size in enumerate(changes)]
    page = page_of(PageSession(profile(*warnings, *peaks), None))
    assert texts(page, "<h3>Alerts</h3>(.*?)<table")[0].startswith("10 alerts not listed")
    assert (page.count('class="kind peak"'), page.count('class="kind warning"')) == (2, MAX_ALERTS)


def test_latest_oom_dumps_are_listed_with_what_is_known() -> None:
    at = datetime(2026, 11, 16, 1, 15, 2, tzinfo=UTC)
    known = OomDump(Path("known"), at, "why", "m" * 501, None, complete=True)
    unknown = OomDump(Path("unknown"), None, None, None, None, complete=False)
    page = render_page("page", [], ["a < b"], [known, *[unknown] * (MAX_DRAWN - 1), known])
    assert rows(page) == [
        *[["unknown", "unknown", "unknown", ""]] * (MAX_DRAWN - 1),
        ["known", "2026-11-16 01:15:02", "why", "m" * 500],
    ]
    assert '<div class="note"><p>a &lt; b.</p></div>' in page
    assert 'class="note"' not in render_page("page", [])
    assert "Out of memory" not in render_page("page", [])


def test_recording_names_its_losses_and_its_span(tmp_path: Path) -> None:
    track = tmp_path / "track.json"
    track.write_text('[{"timestamp": 86400}, {"type": "peak"}, {"timestamp": 0}, 7, 8, {}]')
    page = render_recording(load_recording(track))
    assert texts(page, '<div class="note"><p>(.*?)</p></div>') == [
        "Left out because it could not be read: not an event (1), not an object (2)."
    ]
    title = "GPU memory of track.json, 1970-01-01 00:00:00 to 1970-01-02 00:00:00 UTC"
    assert texts(page, "<h1>(.*?)</h1>") == [title]
    track.write_text('[{"timestamp": 0}, {"timestamp": 1e15}]')
    assert recording_title(load_recording(track)) == "GPU memory of track.json"
