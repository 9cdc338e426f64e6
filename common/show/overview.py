"""What a dry run found, as a table for a person: a row for each series.

A series with one point is its value. One with several is a row of figures, with a sparkline of its course.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from common.outcome import Outcome
from common.show.figures import digits, figure
from common.show.layout import Look, Row, lay_out, wrap
from common.show.points import Points, SeriesKey
from common.show.report import headline
from common.show.summaries import Grid, Shape, Summary, in_order, shared_labels
from common.text import visible
from common.window import Window
from fleetgauge.pages.axes import format_duration, plural
from fleetgauge.pages.page import name_span

HEADS = ("metric", "first", "last", "min", "mean", "max", "over time", "points", "unit")
_LEVELS = "▁▂▃▄▅▆▇█"
_MAX_BLOCKS = 32  # of a sparkline


def show(
    outcomes: Iterable[Outcome], points: Mapping[str, Points], look: Look, span: Window | None = None
) -> Iterator[str]:
    """Lines for a person: one block per collector, in the order of the catalogue."""
    if span:
        yield describe(span)
    for outcome in outcomes:
        yield from headline(outcome, look)
        yield from (f"  {visible(finding)}" for finding in outcome.findings)
        if outcome.collector in points:
            yield from _block(points[outcome.collector], look, span)
        for name, entries in outcome.tables.items():
            yield from _table(name, entries, look)


def describe(span: Window) -> str:
    """The span in words."""
    return f"{from_to(span.since, span.until)}, every {format_duration(span.step)}"


def from_to(*ends: int) -> str:
    """Two moments in words."""
    return name_span(
        *(f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S}".removesuffix(":00") for end in ends)
    )


def sparkline(means: Sequence[float | None]) -> str:
    """A block per stretch, between the lowest and the highest; a blank where nothing is known."""
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return "".join(" " if mean is None else _LEVELS[_level(mean, low, high)] for mean in means)


def _level(mean: float, low: float, high: float) -> int:
    if high <= low:
        return 0
    share = (mean / 2 - low / 2) / (high / 2 - low / 2)  # the whole difference could overflow
    return min(len(_LEVELS) - 1, int(share * len(_LEVELS)))


def _block(points: Points, look: Look, span: Window | None) -> Iterator[str]:
    summaries: dict[SeriesKey, Summary] = {}
    for part in points:
        summaries.setdefault(part.series, Summary()).add(part)
    if not summaries:
        return
    # In a file or a pipe every line says all there is to say of its series.
    shared = () if look.width is None else shared_labels(summaries)
    if shared:
        yield from wrap(["every series:", *map(visible, shared)], look.width, indent=2)
    if any(summary.points > 1 for summary in summaries.values()):
        yield from _digest(points, summaries, shared, look, span)
    else:
        units = {metric.name: metric.unit for metric in points.metrics}
        rows = []
        for series in in_order(summaries, points.metrics):
            value = figure(summaries[series].last, units[series.metric], series.metric)
            rows.append(Row((series.metric, *value), _words(series, shared)))
        yield from lay_out([""] * 3, rows, (1,), look.width)
    yield ""


def _digest(
    points: Points,
    summaries: Mapping[SeriesKey, Summary],
    shared: Sequence[str],
    look: Look,
    span: Window | None,
) -> Iterator[str]:
    """A row of figures for each series, over the span or over all that there is."""
    blocks = max(8, min(_MAX_BLOCKS, (look.width or 120) // 8))
    if span:
        grid = Grid.over(span, blocks)
    else:
        since = min(one.first_at for one in summaries.values())
        until = max(one.last_at for one in summaries.values())
        total = sum(one.points for one in summaries.values())
        yield f"  {plural(total, 'point')} in {plural(len(summaries), 'series')}, {from_to(since, until)}"
        closest = min(one.spacing for one in summaries.values())
        grid = Grid.over(Window(since, until + 1, until + 1 - since), blocks, closest)
    shapes = {series: Shape(grid) for series in summaries}
    for part in points:
        shapes[part.series].add(part)
    units = {metric.name: metric.unit for metric in points.metrics}
    rows = []
    for series in in_order(summaries, points.metrics):
        one, unit = summaries[series], units[series.metric]
        means = [None if stretch is None else stretch.mean for stretch in shapes[series].stretches()]
        values: list[float | None] = [one.first, one.last, one.low, one.mean, one.high]
        if one.points == 1:
            values, means = [None, one.last, None, None, None], []
        texts = [("", "") if value is None else figure(value, unit, series.metric) for value in values]
        same = len({symbol for text, symbol in texts if text}) == 1
        cells = [text if same or not text else f"{text} {symbol}" for text, symbol in texts]
        counted = texts[1][1] if same else ""
        rows.append(
            Row((series.metric, *cells, sparkline(means), f"{one.points:,}", counted), _words(series, shared))
        )
    yield from lay_out(HEADS, rows, (1, 2, 3, 4, 5, 7), look.width)


def _words(series: SeriesKey, shared: Sequence[str]) -> list[str]:
    return [visible(label) for label in series.labels if label not in shared]


def _table(name: str, entries: list[dict[str, object]], look: Look) -> Iterator[str]:
    """A small table of the collector's own."""
    yield f"  {name}:" if entries else f"  {name}: nothing"
    if entries:
        head, *heads = entries[0]
        rows = [Row([f"  {first}", *rest]) for first, *rest in (map(_cell, one.values()) for one in entries)]
        cells = zip(*(entry.values() for entry in entries), strict=True)
        right = [place for place, column in enumerate(cells) if all(map(_is_number, column))]
        yield from lay_out([f"  {head}", *heads], rows, right, look.width)
    yield ""


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return digits(value)
    return "" if value is None else visible(str(value))
