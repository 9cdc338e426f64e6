"""A span of the past as a table for a person: a row of figures and a sparkline for each series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from common.outcome import Outcome
from common.show.dry_run_file import Declared, DryRunFile, SeriesKey
from common.show.report import headline, number, shorten
from common.show.summaries import Grid, Shape, Stretch, Summary, in_order, shared_labels
from common.span import Span
from common.text import visible
from fleetgauge.pages.axes import format_duration

HEADS = ("metric", "first", "last", "min", "mean", "max", "over time", "points", "unit", "tags")
_LEFT = {"metric", "over time", "unit", "tags"}
_LEVELS = "▁▂▃▄▅▆▇█"

Row = tuple[str, ...]


def show(
    outcomes: Iterable[Outcome], points: Mapping[str, DryRunFile], span: Span, width: int
) -> Iterator[str]:
    """Lines for a person: one block per collector, in the order of the catalogue."""
    yield describe(span)
    grid = Grid.over(span, max(8, min(32, width // 8)))
    for outcome in outcomes:
        yield headline(outcome)
        if outcome.collector in points:
            yield from _block(points[outcome.collector], grid, width)


def describe(span: Span) -> str:
    """The span in words."""
    ends = [datetime.fromtimestamp(second, UTC) for second in (span.since, span.until)]
    since, until = (f"{end:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for end in ends)
    return f"{since} to {until} UTC, every {format_duration(span.step)}"


def sparkline(stretches: Iterable[Stretch | None]) -> str:
    """A block per stretch, between the lowest and the highest mean; a blank where nothing is known."""
    means = [None if stretch is None else stretch.mean for stretch in stretches]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return "".join(" " if mean is None else _LEVELS[_level(mean, low, high)] for mean in means)


def _level(mean: float, low: float, high: float) -> int:
    if high <= low:
        return 0
    share = (mean / 2 - low / 2) / (high / 2 - low / 2)  # the whole difference could overflow
    return min(len(_LEVELS) - 1, int(share * len(_LEVELS)))


def _block(file: DryRunFile, grid: Grid, width: int) -> Iterator[str]:
    summaries: dict[SeriesKey, tuple[Summary, Shape]] = {}
    for part in file:
        if part.series not in summaries:
            summaries[part.series] = (Summary(), Shape(grid))
        for summary in summaries[part.series]:
            summary.add(part)
    if not summaries:
        return
    declared = file.declared()
    shared = shared_labels(summaries)
    if shared:
        yield shorten(f"  every series: {visible(' '.join(shared))}", width)
    series = in_order(summaries, declared)
    rows = [*_rows(series, summaries, declared, shared)]
    heads = HEADS if any(row[-1] for row in rows) else (*HEADS[:-1], "")
    yield from _aligned([heads, *rows], width)
    yield ""


def _rows(
    series: Sequence[SeriesKey],
    summaries: Mapping[SeriesKey, tuple[Summary, Shape]],
    declared: Iterable[Declared],
    shared: tuple[str, ...],
) -> Iterator[Row]:
    units = {metric.name: metric.unit for metric in declared}
    for one in series:
        summary, shape = summaries[one]
        figures = (summary.first, summary.last, summary.low, summary.mean, summary.high)
        yield (
            one.metric,
            *map(number, figures),
            sparkline(shape.stretches()),
            f"{summary.points:,}",
            units[one.metric],
            visible(" ".join(label for label in one.labels if label not in shared)),
        )


def _aligned(rows: Sequence[Row], width: int) -> Iterator[str]:
    """Rows in columns; in a narrow terminal, names and tags stand on a line above their figures."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    if sum(2 + column for column in widths) <= width:
        for row in rows:
            yield _line(row, HEADS, widths)
        return
    for name, *figures, tags in rows:
        yield shorten(f"  {name}  {tags}".rstrip(), width)
        yield shorten("  " + _line(figures, HEADS[1:-1], widths[1:-1]), width)


def _line(cells: Sequence[str], heads: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        f"  {cell:<{width}}" if head in _LEFT else f"  {cell:>{width}}"
        for cell, head, width in zip(cells, heads, widths, strict=True)
    )
    return "".join(padded).rstrip()
