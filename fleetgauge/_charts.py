"""Line charts as SVG inside HTML: pure functions from numbers to text, without a script.

The plot stretches with the page while its labels are HTML beside it, so that on a phone text keeps its size
and lines their width. The page gives colours as custom properties and styles each kind of line and mark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_EXTENT = 1000
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_TIME_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))

CHART_STYLE = """
.chart{margin:1rem 0 0}
.frame{display:grid;grid-template-columns:auto minmax(0,1fr);column-gap:.5rem}
.plot{width:100%;height:17rem;display:block}
.plot{background:var(--plot);border:1px solid var(--edge);border-radius:6px}
.plot path{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}
.plot .grid{stroke:var(--edge);stroke-width:1px}
.plot .limit{stroke:var(--limit);stroke-width:1.5px;stroke-dasharray:7 4;stroke-linecap:butt}
.plot .area{stroke:none;opacity:.14}
.axis{position:relative;color:var(--muted);font-size:.75rem;line-height:1;font-variant-numeric:tabular-nums}
.axis span{position:absolute;white-space:nowrap}
.axis-y span{right:0;transform:translateY(-50%)}
.axis-y::before{content:attr(data-widest);visibility:hidden;white-space:nowrap}
.axis-x{grid-column:2;height:1.4rem;margin-top:.4rem}
.legend{display:flex;flex-wrap:wrap;gap:.35rem 1.1rem;font-size:.8125rem;color:var(--muted);margin-top:.25rem}
.legend span{display:inline-flex;align-items:center;gap:.4rem}
.legend svg{width:1.6rem;height:.8rem;flex:none;overflow:visible}
.legend path{fill:none;stroke-linecap:round}
"""


@dataclass(frozen=True)
class Axis:
    """A range of values and the labels along it."""

    low: float
    high: float
    labels: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1; values outside lie at an end."""
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.0


@dataclass(frozen=True)
class Line:
    """A series in x order. None is a gap; `kind` is the class that gives it its look."""

    label: str
    kind: str
    points: Sequence[tuple[float, float | None]]
    filled: bool = False


@dataclass(frozen=True)
class Mark:
    """A dot with a text that shows when it is pointed at."""

    x: float
    y: float
    kind: str
    text: str


@dataclass(frozen=True)
class Limit:
    """A level across the whole plot."""

    y: float
    label: str


def draw_chart(
    x: Axis, y: Axis, lines: Iterable[Line], marks: Sequence[Mark], limits: Sequence[Limit], text: str
) -> str:
    """A figure: the plot, its axes and a legend of whatever is in it. `text` tells it to who cannot see."""
    lines = [line for line in lines if any(value is not None for _, value in line.points)]
    drawn = [_path("grid", f"M0 {_up(y, value)}H{_EXTENT}") for value, _ in y.labels]
    drawn += [_path("grid", f"M{_across(x, value)} 0V{_EXTENT}") for value, _ in x.labels]
    drawn += [_path(f"area fill-{line.kind}", _area(x, y, line.points)) for line in lines if line.filled]
    drawn += [_path(f"line {line.kind}", _strokes(x, y, line.points)) for line in lines]
    drawn += [_path("limit", f"M0 {_up(y, limit.y)}H{_EXTENT}") for limit in limits]
    drawn += [
        f'<path class="mark {mark.kind}" d="M{_across(x, mark.x)} {_up(y, mark.y)}h0">'
        f"<title>{html.escape(mark.text)}</title></path>"
        for mark in marks
    ]
    kinds = dict.fromkeys(mark.kind for mark in marks)
    keys = [("line", line.kind, line.label) for line in lines]
    keys += [("limit", "", limit.label) for limit in limits] + [("mark", kind, kind) for kind in kinds]
    return (
        f'<figure class="chart"><div class="frame">{_y_axis(y)}'
        f'<svg class="plot" viewBox="0 0 {_EXTENT} {_EXTENT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(text)}">{"".join(drawn)}</svg>{_x_axis(x)}</div>'
        f'<figcaption class="legend">{"".join(_key(*key) for key in keys)}</figcaption></figure>'
    )


def byte_axis(high: float) -> Axis:
    """From zero to a little above a number of bytes, with round labels in one unit."""
    high = max(high, 1.0) * 1.06
    unit = _byte_unit(high)
    size = 1024.0**unit
    steps = _round_steps(high / size, 5)
    return Axis(0.0, high, tuple((step * size, f"{step:g} {_BYTE_UNITS[unit]}") for step in steps))


def time_axis(seconds: float) -> Axis:
    """From zero to a number of seconds, with round labels in one unit and room for a mark at either end."""
    high = seconds if seconds > 0 else 1.0
    size, unit = next(((size, unit) for size, unit in _TIME_UNITS if high >= 2 * size), _TIME_UNITS[-1])
    steps = _round_steps(high / size, 4)
    room = high * 0.015
    return Axis(-room, high + room, tuple((step * size, f"{step:g} {unit}") for step in steps))


def format_bytes(value: float | None) -> str:
    """Bytes for a person, in binary units."""
    if value is None:
        return "unknown"
    unit = _byte_unit(abs(value))
    return f"{value:,.0f} B" if unit == 0 else f"{value / 1024.0**unit:,.2f} {_BYTE_UNITS[unit]}"


def format_duration(seconds: float | None) -> str:
    """A duration for a person: two units at most."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size:,} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def _round_steps(high: float, count: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, about `count` of them, from zero to `high`."""
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(step * number, 12) for number in range(int(high / step + 1e-9) + 1)]


def _byte_unit(value: float) -> int:
    unit = 0
    while value >= 1024 and unit < len(_BYTE_UNITS) - 1:
        value /= 1024
        unit += 1
    return unit


def _across(axis: Axis, value: float) -> str:
    return f"{axis.share(value) * _EXTENT:.1f}"


def _up(axis: Axis, value: float) -> str:
    return f"{(1 - axis.share(value)) * _EXTENT:.1f}"


def _path(kind: str, drawing: str) -> str:
    return f'<path class="{kind}" d="{drawing}"/>'


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The stretches between gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for across, up in points:
        if up is None:
            pieces.append([])
        else:
            pieces[-1].append((across, up))
    return [piece for piece in pieces if piece]


def _strokes(x: Axis, y: Axis, points: Sequence[tuple[float, float | None]]) -> str:
    strokes = []
    for piece in _pieces(points):
        places = [f"{_across(x, across)} {_up(y, up)}" for across, up in piece]
        strokes.append("M" + "L".join(places) + ("h0" if len(places) == 1 else ""))
    return "".join(strokes)


def _area(x: Axis, y: Axis, points: Sequence[tuple[float, float | None]]) -> str:
    areas = []
    for piece in _pieces(points):
        top = "L".join(f"{_across(x, across)} {_up(y, up)}" for across, up in piece)
        areas.append(f"M{_across(x, piece[0][0])} {_EXTENT}L{top}L{_across(x, piece[-1][0])} {_EXTENT}Z")
    return "".join(areas)


def _y_axis(axis: Axis) -> str:
    widest = max((label for _, label in axis.labels), key=len, default="")
    spans = [
        f'<span style="top:{(1 - axis.share(value)) * 100:.1f}%">{html.escape(label)}</span>'
        for value, label in axis.labels
    ]
    return f'<div class="axis axis-y" data-widest="{html.escape(widest)}">{"".join(spans)}</div>'


def _x_axis(axis: Axis) -> str:
    spans = []
    for value, label in axis.labels:
        share = axis.share(value)
        shift = 0 if share < 0.05 else 100 if share > 0.95 else 50
        place = f"left:{share * 100:.1f}%;transform:translateX(-{shift}%)"
        spans.append(f'<span style="{place}">{html.escape(label)}</span>')
    return f'<div class="axis axis-x">{"".join(spans)}</div>'


def _key(shape: str, kind: str, label: str) -> str:
    drawing = "M13 6.5h0" if shape == "mark" else "M1 6.5H25"
    path = _path(f"{shape} {kind}", drawing)
    return f'<span><svg viewBox="0 0 26 13" aria-hidden="true">{path}</svg>{html.escape(label)}</span>'
