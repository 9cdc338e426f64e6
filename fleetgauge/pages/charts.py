"""Line charts as SVG inside HTML: pure functions from numbers to text, without a script.

The plot stretches with the page while its labels are HTML beside it, so that on a phone text keeps its size
and lines their width. The page gives colours as custom properties and styles each kind of line and mark.
`axes` computes the labels, `page` has the script that reads the values.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetgauge.pages.axes import Axis

# The plot has its own coordinates, 0 to this in both directions; the browser stretches them.
_EXTENT = 1000


@dataclass(frozen=True)
class Line:
    """A series in x order. None is a gap, a value alone between gaps is a dot.

    `kind` is the class that gives it its look.
    """

    label: str
    kind: str
    points: Sequence[tuple[float, float | None]]
    filled: bool = False


@dataclass(frozen=True)
class Marker:
    """A dot with a text that shows when it is pointed at."""

    x: float
    y: float
    kind: str
    text: str


@dataclass(frozen=True)
class Limit:
    """A level across the plot."""

    y: float
    label: str


@dataclass(frozen=True)
class Reading:
    """What a script needs to show the values under the pointer.

    `x` is `clock` or `elapsed`, `y` is `number` or `byte`. A line has a value at a time where one of its
    points is `within` so many seconds of it.
    """

    x: str
    y: str
    within: float


def draw_chart(
    x: Axis,
    y: Axis,
    lines: Iterable[Line],
    marks: Sequence[Marker],
    limits: Sequence[Limit],
    text: str,
    reading: Reading | None = None,
) -> str:
    """Return a figure: the plot, its axes and, where anything in it has a label, a legend.

    `text` describes it for a screen reader. With `reading`, the values are in the page for its script. Lines
    without a value are left out.
    """
    lines = [line for line in lines if any(value is not None for _, value in line.points)]
    # SVG paints in order: grid, areas, lines, dots, limits, marks.
    drawn = [_path("grid", f"M0 {_up(y, value)}H{_EXTENT}") for value, _ in y.labels]
    drawn += [_path("grid", f"M{_across(x, value)} 0V{_EXTENT}") for value, _ in x.labels]
    drawn += [_path(f"area fill-{line.kind}", _area(x, y, line.points)) for line in lines if line.filled]
    drawn += [
        _path(f"line {line.kind}", _strokes(x, y, line.points), _values(x, line) if reading else "")
        for line in lines
    ]
    dots = [(line.kind, _dots(x, y, line.points)) for line in lines]
    drawn += [_path(f"dots {kind}", drawing) for kind, drawing in dots if drawing]
    drawn += [_path("limit", f"M0 {_up(y, limit.y)}H{_EXTENT}") for limit in limits]
    drawn += [
        f'<path class="mark {mark.kind}" d="M{_across(x, mark.x)} {_up(y, mark.y)}h0">'
        f"<title>{html.escape(mark.text)}</title></path>"
        for mark in marks
    ]
    kinds = dict.fromkeys(mark.kind for mark in marks)
    keys = [("line", line.kind, line.label) for line in lines]
    keys += [("limit", "", limit.label) for limit in limits] + [("mark", kind, kind) for kind in kinds]
    named = "".join(f"<span>{_key(*key)}{html.escape(label)}</span>" for *key, label in keys)
    caption = f'<figcaption class="legend">{named}</figcaption>' if any(key[-1] for key in keys) else ""
    encoded = (
        f' data-x="{reading.x} {x.low!r} {x.high!r} {reading.within!r}" data-y="{reading.y}"'
        if reading
        else ""
    )
    return (
        f'<figure class="chart"><div class="frame">{_y_axis(y)}'
        f'<svg class="plot" viewBox="0 0 {_EXTENT} {_EXTENT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(text)}"{encoded}>{"".join(drawn)}</svg>{_x_axis(x)}</div>{caption}</figure>'
    )


def _key(shape: str, kind: str) -> str:
    """Return the symbol of a line, a limit or a mark, for a legend."""
    drawing = "M13 6.5h0" if shape == "mark" else "M1 6.5H25"
    return f'<svg viewBox="0 0 26 13" aria-hidden="true">{_path(f"{shape} {kind}", drawing)}</svg>'


def _across(axis: Axis, value: float) -> str:
    return f"{axis.share(value) * _EXTENT:.1f}"


def _up(axis: Axis, value: float) -> str:
    return f"{(1 - axis.share(value)) * _EXTENT:.1f}"


def _at(x: Axis, y: Axis, across: float, up: float) -> str:
    return f"{_across(x, across)} {_up(y, up)}"


def _path(kind: str, drawing: str, more: str = "") -> str:
    return f'<path class="{kind}" d="{drawing}"{more}/>'


def _values(x: Axis, line: Line) -> str:
    """Return the points themselves, for a script: seconds since the one before, and the value.

    Differences are shorter than times. Gaps are left out.
    """
    before, encoded = 0, []
    for across, up in line.points:
        if up is not None:
            # Rounded before the difference is taken: errors do not add up along the line.
            at = round((across - x.low) * 1000)
            value = f"{up:.3f}".rstrip("0").rstrip(".") if 0.1 <= abs(up) < 1e15 else format(up, ".6g")
            encoded.append(f"{(at - before) / 1000:.12g} {value}")
            before = at
    return f' data-name="{html.escape(line.label)}" data-v="{",".join(encoded)}"'


def _unbroken(points: Iterable[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Return the stretches between gaps, none of them empty."""
    stretches: list[list[tuple[float, float]]] = [[]]
    for across, up in points:
        if up is None:
            stretches.append([])
        else:
            stretches[-1].append((across, up))
    return [stretch for stretch in stretches if stretch]


def _strokes(x: Axis, y: Axis, points: Sequence[tuple[float, float | None]]) -> str:
    """Return the path of a line."""
    return "".join("M" + "L".join(_at(x, y, *point) for point in stretch) for stretch in _unbroken(points))


def _dots(x: Axis, y: Axis, points: Sequence[tuple[float, float | None]]) -> str:
    """Return strokes of length zero, which round caps make visible, at values that are alone."""
    alone = (stretch[0] for stretch in _unbroken(points) if len(stretch) == 1)
    return "".join(f"M{_at(x, y, *point)}h0" for point in alone)


def _area(x: Axis, y: Axis, points: Sequence[tuple[float, float | None]]) -> str:
    """Return the path of the area below a line."""
    areas = []
    for stretch in _unbroken(points):
        top = "L".join(_at(x, y, *point) for point in stretch)
        areas.append(f"M{_across(x, stretch[0][0])} {_EXTENT}L{top}L{_across(x, stretch[-1][0])} {_EXTENT}Z")
    return "".join(areas)


def _y_axis(axis: Axis) -> str:
    # The style reserves the width of the longest label by drawing it invisibly.
    widest = max((label for _, label in axis.labels), key=len, default="")
    labels = [(1 - axis.share(value), label) for value, label in axis.labels]
    return f'<div class="axis axis-y" data-widest="{html.escape(widest)}">{_spans("top", labels)}</div>'


def _x_axis(axis: Axis) -> str:
    labels = [(axis.share(value), label) for value, label in axis.labels]
    return f'<div class="axis axis-x">{_spans("left", labels)}</div>'


def _spans(side: str, labels: Iterable[tuple[float, str]]) -> str:
    return "".join(
        f'<span style="{side}:{share * 100:.1f}%">{html.escape(label)}</span>' for share, label in labels
    )
