"""What the script of a page does in a browser: shows what is pointed at, sorts and filters."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from fleetgauge.pages.axes import byte_axis, clock_axis, number_axis, time_axis
from fleetgauge.pages.charts import Line, Reading, draw_chart
from fleetgauge.pages.page import SCRIPT, render_document, render_table
from support.browser import Browser

pytestmark = pytest.mark.slow

START = 1_794_614_400  # 2026-11-14 00:00 UTC
STEP = 900
VALUES = [3, 20, 7.25, None, 0.0123, 12_345]
OTHERS: list[float | None] = [1, None, 3, 4, 5, 6]

POINT = """
(share => { const plot = document.querySelector('.plot'), box = plot.getBoundingClientRect();
  for (const kind of ['pointermove', 'pointerdown']) plot.dispatchEvent(new PointerEvent(kind, {bubbles: true,
    pointerType: 'KIND', clientX: box.left + share * box.width, clientY: box.top + box.height / 2})) })
"""
TIP = ".tip:not([hidden]) b, .tip:not([hidden]) span"


def chart() -> str:
    x, y = clock_axis(START, START + 5 * STEP), number_axis(0, 12_345)
    lines = [
        Line(label, kind, [(START + STEP * place, value) for place, value in enumerate(values)])
        for label, kind, values in (("project:<ants>", "s1", VALUES), ("project:bees", "s2", OTHERS))
    ]
    reading = Reading("clock", "number", STEP / 2)
    return f"<section>{draw_chart(x, y, lines, (), (), 'A chart', reading=reading)}</section>"


def page(path: Path, body: str, *, script: bool = True) -> Path:
    path.write_text(render_document("A page", "", body, script=script))
    return path


def place(index: int) -> float:
    """Where a point is across the plot."""
    return (0.015 + index / 5) / 1.03


@pytest.mark.parametrize("kind", ["mouse", "touch"])
def test_what_is_pointed_at_or_tapped_is_shown_of_every_line(
    kind: str, tmp_path: Path, browser: Browser
) -> None:
    shown = [
        ("3", "1"),
        ("20", "unknown"),
        ("7.250", "3"),
        ("unknown", "4"),
        ("0.0123", "5"),
        ("12,345", "6"),
    ]
    browser.show(page(tmp_path / "page.html", chart()), 360)
    for index, (ants, bees) in enumerate(shown):
        browser.look(f"{POINT.replace('KIND', kind)}({place(index)})")
        at = f"2026-11-14 {index // 4:02}:{index % 4 * 15:02}:00 UTC"
        assert browser.texts(TIP) == [at, f"project:<ants>: {ants}", f"project:bees: {bees}"]
        assert browser.look("document.documentElement.scrollWidth") == 360
        [[tip, whole]] = browser.every(
            ".tip", "[e, e.closest('.chart')].map(e => e.getBoundingClientRect().toJSON())"
        )
        assert whole["left"] <= tip["left"] <= tip["right"] <= whole["right"] + 1
    assert browser.complaints == []


def test_the_keys_lead_along_a_chart_and_tab_leads_to_it(tmp_path: Path, browser: Browser) -> None:
    browser.show(page(tmp_path / "page.html", chart()))
    press(browser, "Tab")
    assert browser.look("document.activeElement.className.baseVal") == "plot"
    assert browser.texts(TIP)[0] == "2026-11-14 01:15:00 UTC"
    for key, moment in (("ArrowLeft", "01:00"), ("Home", "00:00"), ("ArrowRight", "00:15"), ("End", "01:15")):
        press(browser, key)
        assert browser.texts(TIP)[0] == f"2026-11-14 {moment}:00 UTC"
    press(browser, "Escape")
    assert browser.texts(TIP) == []


def press(browser: Browser, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])


KEYS = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Escape": 27}


def test_bytes_and_elapsed_time_are_told_as_on_the_rest_of_the_page(tmp_path: Path, browser: Browser) -> None:
    line = Line("allocated", "s1", [(0.0, 512), (75.5, 3 * 2**30), (7325, 1.5 * 2**20)])
    drawn = draw_chart(
        time_axis(7325), byte_axis(2**32), [line], (), (), "A", reading=Reading("elapsed", "byte", 1)
    )
    browser.show(page(tmp_path / "page.html", f"<section>{drawn}</section>"))
    told = []
    for at in (0.0, 75.5, 7325.0):
        browser.look(f"{POINT}({(0.015 + at / 7325) / 1.03})")
        told.append(browser.texts(TIP))
    assert told == [
        ["0.00 s", "allocated: 512 B"],
        ["1 min 16 s", "allocated: 3.00 GiB"],
        ["2 h 2 min", "allocated: 1.50 MiB"],
    ]


def test_a_listed_table_is_sorted_by_value_and_filtered(tmp_path: Path, browser: Browser) -> None:
    values = {"ants": "1,200", "bees": "30", "wasps": "0.5", "bears": "unknown"}
    rows = [[("Series", name, "name"), ("Max", value, "number")] for name, value in values.items()]
    browser.show(page(tmp_path / "page.html", render_table(rows, "listed")))
    assert browser.texts(".tools span") == ["4 of 4"]
    set_to = "(([one, text]) => { one.value = text; one.dispatchEvent(new Event('input')) })"
    browser.look(f"{set_to}([document.querySelector('select'), '1 1'])")
    assert browser.texts("td.name") == ["wasps", "bees", "ants", "bears"]
    browser.look(f"{set_to}([document.querySelector('select'), '0 -1'])")
    assert browser.texts("td.name") == ["wasps", "bees", "bears", "ants"]
    browser.look(f"{set_to}([document.querySelector('input'), 'BE'])")
    assert browser.texts("tr:not([hidden]) td.name") == ["bees", "bears"]
    assert browser.texts(".tools span") == ["2 of 4"]
    named = browser.every(".tools input, .tools select", "e.getAttribute('aria-label')")
    assert named == ["Show only rows with", "Sort by"]


@pytest.mark.parametrize(
    "values",
    [
        ["-10 B", "0 B", "900 B", "1.00 KiB", "250.50 MiB", "1.00 GiB", "1,023.00 GiB", "unknown"],
        ["0.50 s", "59.00 s", "1 min", "1 min 5 s", "2 h", "2 h 3 min", "1 d 1 h"],
        ["9.5 %", "45.9 %", "100.0 %", "unknown"],
        ["1.23e-05", "0.5", "12", "1,200", "", "2026-11-14 00:00", "2026-11-15 00:00"],
    ],
)
def test_listed_table_sorts_sizes_and_durations_by_value(
    values: list[str], tmp_path: Path, browser: Browser
) -> None:
    rows = [[("Max", value, "number")] for value in reversed(values)]
    browser.show(page(tmp_path / "page.html", render_table(rows, "listed")))
    browser.look(
        "(e => { e.value = '0 1'; e.dispatchEvent(new Event('input')) })(document.querySelector('select'))"
    )
    assert browser.texts("td.number") == values


def test_the_policy_lets_this_script_run_and_nothing_else(tmp_path: Path, browser: Browser) -> None:
    path = page(tmp_path / "page.html", f"{chart()}<script>document.title = 'broken'</script>")
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in path.read_text()
    browser.show(path)
    assert browser.look("document.title") == "A page"
    assert browser.look("document.querySelector('.plot').tabIndex") == 0
    assert len(browser.complaints) == 1  # about the other script
    assert browser.requests == [path.as_uri()]
