"""Charts: round labels, lines with gaps, nothing outside the plot."""

from __future__ import annotations

import re

from fleetgauge.pages.axes import Axis, format_bytes, format_duration
from fleetgauge.pages.charts import Limit, Line, Marker, Reading, draw_chart

UNIT = Axis(0.0, 10.0, ())


def drawing(
    kind: str, *lines: Line, marks: tuple[Marker, ...] = (), limits: tuple[Limit, ...] = ()
) -> list[str]:
    plot = draw_chart(UNIT, UNIT, lines, marks, limits, "text").split("</svg>")[0]
    return re.findall(rf'<path class="{kind}" d="([^"]*)"', plot)


def test_a_line_is_drawn_from_left_to_right_and_broken_at_gaps() -> None:
    points = [(0, 0), (5, 10), (6, None), (7, 5), (8, None), (9, 2.5), (10, 0)]
    assert drawing("line a", Line("A", "a", points)) == [
        "M0.0 1000.0L500.0 0.0M700.0 500.0M900.0 750.0L1000.0 1000.0"
    ]
    assert drawing("area fill-a", Line("A", "a", points[:4], filled=True)) == [
        "M0.0 1000L0.0 1000.0L500.0 0.0L500.0 1000ZM700.0 1000L700.0 500.0L700.0 1000Z"
    ]
    assert drawing("area fill-a", Line("A", "a", points)) == []


def test_value_alone_is_a_dot_and_a_line_without_values_is_not_named() -> None:
    points = [(0, 0), (1, 0), (5, None), (6, 5), (7, None), (8, 10), (9, 10)]
    assert drawing("dots a", Line("A", "a", points)) == ["M600.0 500.0h0"]
    lines = [Line("Nothing", "a", [(1, None)]), Line("Empty", "b", [])]
    assert not re.search("Nothing|Empty", draw_chart(UNIT, UNIT, lines, (), (), "text"))


def test_chart_has_a_legend_where_a_line_has_a_label() -> None:
    def chart(label: str) -> str:
        return draw_chart(UNIT, UNIT, [Line(label, "a", [(0, 0), (1, 1)])], (), (), "text")

    assert chart("A").count('<path class="line a"') == 2
    assert ">A</span>" in chart("A")
    assert "figcaption" not in chart("")


def test_points_are_encoded_as_differences_and_short_numbers() -> None:
    x, values = Axis(-1.0, 9.0, ()), (0.123456, 0.0999, None, -2.5, 1e15, 1234567.8912, 0)
    line = Line("<A>", "a", [(at / 2, value) for at, value in enumerate(values)])
    chart = draw_chart(x, UNIT, [line], (), (), "text", reading=Reading("elapsed", "byte", 0.25))
    assert ' data-x="elapsed -1.0 9.0 0.25" data-y="byte"' in chart
    [told] = re.findall('data-name="&lt;A&gt;" data-v="([^"]*)"', chart)
    assert told == "1 0.123,0.5 0.0999,1 -2.5,0.5 1e+15,0.5 1234567.891,0.5 0"
    assert "data-" not in draw_chart(x, UNIT, [line], (), (), "text").replace("data-widest", "")


def test_marks_and_limits_are_placed_named_and_kept_inside() -> None:
    marks = (Marker(5, 5, "warning", "a < b"), Marker(-5, 50, "peak", "far"))
    assert drawing("mark warning", marks=marks) == ["M500.0 500.0h0"]
    assert drawing("mark peak", marks=marks) == ["M0.0 0.0h0"]
    assert drawing("limit", limits=(Limit(7.5, "capacity"),)) == ["M0 250.0H1000"]
    chart = draw_chart(UNIT, UNIT, (), marks, (Limit(7.5, "<capacity>"),), '"quoted"')
    assert "<title>a &lt; b</title>" in chart
    assert "&lt;capacity&gt;</span>" in chart
    assert 'aria-label="&quot;quoted&quot;"' in chart


def test_bytes_and_durations_are_for_a_person() -> None:
    sizes = {None: "unknown", 0: "0 B", 1023: "1,023 B", 1024: "1.00 KiB", -172 * 2**20: "-172.00 MiB"}
    for size, text in (sizes | {6971635275: "6.49 GiB", 2**80: "1,048,576.00 EiB"}).items():
        assert format_bytes(size) == text
    durations = {None: "unknown", 0.0: "0.00 s", 59.994: "59.99 s", 60: "1 min", 61.4: "1 min 1 s"}
    durations |= {3600: "1 h", 7260: "2 h 1 min", 90000: "1 d 1 h", 1e9: "11,574 d 1 h"}
    for seconds, text in durations.items():
        assert format_duration(seconds) == text
