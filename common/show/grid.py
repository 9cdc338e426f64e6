"""Series along a span, cut into intervals of equal width: the lines of charts.

Pure functions. `page.py` draws the lines; `common/dashboard.py` declares the widgets, and
`common/datadog/documents.py` makes the same combinations as queries of Datadog.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from common.dashboard import Widget, short_name
from common.metric import Combine, Kind, Metric, Series
from common.show.points import labels
from common.window import Window

# Every quarter of an hour of a week, and one more for a week that begins between two ticks.
MAX_INTERVALS = 673


class Grid(NamedTuple):
    """Intervals of equal width, in seconds from `start`.

    Each ends with its last second, as a span ends with its last tick.
    """

    start: int
    width: int
    size: int

    @classmethod
    def over(cls, span: Window, series: Iterable[Series]) -> Grid:
        """Return at most MAX_INTERVALS intervals over a span, narrower than its step where points are closer.

        None is so narrow that a series without a gap leaves one empty, up to the step: sums would lack it.
        """
        # Twice the mean spacing of points, because those of records are not exactly equidistant.
        spacings = [
            2 * (every.times[-1] - every.times[0]) / (len(every.times) - 1)
            for every in series
            if len(every.times) > 1
        ]
        grain = max(1, math.ceil(min(span.step, max(spacings, default=span.step))))
        start = span.since // grain * grain
        grains = max(1, -(-(span.until - start) // grain))
        each = -(-grains // MAX_INTERVALS)
        return cls(start, each * grain, -(-grains // each))

    def end(self, number: int) -> int:
        """Return the last second of an interval, at which it is drawn."""
        return self.start + (number + 1) * self.width

    def values(self, series: Series) -> list[list[float]]:
        """Return the values of a series by interval; empty where it has no point, which is not zero."""
        found: list[list[float]] = [[] for _ in range(self.size)]
        # An interval excludes its first second and includes its last: a point on a tick belongs to the
        # interval that ends there. A point at the start of the span is in the first one.
        start, width, last = self.start + 1, self.width, self.size - 1
        for second, value in zip(series.times, series.values, strict=True):
            found[min(max(0, second - start) // width, last)].append(value)
        return found


class ChartLine(NamedTuple):
    """One line of a chart: its labels, and a value for each interval; None where it is not known.

    `number` is its value over the span: of counts that of their sums, of gauges the last one that is known.
    """

    labels: tuple[str, ...]
    values: Sequence[float | None]
    number: float | None


_Parts = Mapping[Metric, Sequence[Series]]


def chart_lines(
    widget: Widget, by_metric: Mapping[str, Sequence[Series]], span: Window, most: int
) -> tuple[Grid, list[ChartLine], int]:
    """Return the grid of a widget, its largest lines, at most `most`, and how many there are.

    Of shares those are the largest whose metrics reach highest. `by_metric` are all series by the name of
    their metric. Lines are in the order of `by_metric`.
    """
    split = {metric: _split(widget, by_metric, metric) for metric in (*widget.metrics, *widget.share_of)}
    groups: list[tuple[tuple[str, ...], _Parts]] = []
    if widget.share_of:
        groups = [
            (line, {metric: found.get(line, []) for metric, found in split.items()})
            for line in split[widget.metrics[0]]
        ]
    else:
        for metric in widget.metrics:
            named = (short_name(metric),) if len(widget.metrics) > 1 else ()
            groups += [((*named, *line), {metric: found}) for line, found in split[metric].items()]
    # Chosen before intervals are computed: a widget may have thousands of series.
    highest = sorted(groups, key=lambda group: _height(group[1]), reverse=True)[:most]
    drawn = [group for group in groups if group in highest]
    grid = Grid.over(span, [series for _, parts in drawn for found in parts.values() for series in found])
    whole = Grid(span.since, span.until - span.since, 1)
    lines = []
    for line, parts in drawn:
        values = _values(widget, parts, grid)
        known = [value for value in values if value is not None]
        # A share may be known nowhere.
        if known:
            is_count = widget.metrics[0].kind is Kind.COUNT
            lines.append(ChartLine(line, values, _values(widget, parts, whole)[0] if is_count else known[-1]))
    return grid, lines, len(groups)


def _split(
    widget: Widget, by_metric: Mapping[str, Sequence[Series]], metric: Metric
) -> dict[tuple[str, ...], list[Series]]:
    """Return the series of a metric by the labels of the line they belong to.

    Series that do not match `widget.where` are left out.
    """
    groups: dict[tuple[str, ...], list[Series]] = {}
    # Rates and percentages cannot be added: each of their series is a line of its own.
    separate = any(entry.combines is Combine.NONE for entry in widget.metrics)
    for series in by_metric.get(metric.name, ()):
        own = labels(series)
        if {*widget.where} <= {*own}:
            line = own if separate else tuple(tag for tag in own if tag.partition(":")[0] in widget.by)
            groups.setdefault(line, []).append(series)
    return groups


def _height(parts: _Parts) -> float:
    """Return about how high a line reaches: it only decides which lines are drawn."""
    return max(
        metric.combines.of([max(series.values) for series in found]) or 0.0 for metric, found in parts.items()
    )


def _values(widget: Widget, parts: _Parts, grid: Grid) -> list[float | None]:
    """Return the values of a line: of its one metric, or the share of one metric in others."""
    combined = {metric: _combined(metric, found, grid) for metric, found in parts.items()}
    return [*_shares(widget, combined)] if widget.share_of else next(iter(combined.values()))


def _combined(metric: Metric, found: Iterable[Series], grid: Grid) -> list[float | None]:
    """Return the series of a metric as one number per interval, as the metric declares it; None for no point.

    Of a gauge the means of the series combine, of a count all that was counted.
    """
    reduce = Combine.SUM if metric.kind is Kind.COUNT else Combine.MEAN
    every = [grid.values(series) for series in found]
    return [
        metric.combines.of([reduce.of(values[number]) or 0.0 for values in every if values[number]])
        for number in range(grid.size)
    ]


def _shares(widget: Widget, known: Mapping[Metric, Sequence[float | None]]) -> Iterator[float | None]:
    """Yield 100 times the sum of the metrics by that of `share_of`, per interval; None where it is not known.

    A count that is absent is zero, as in the formula of a dashboard. An absent gauge makes the share unknown,
    and so do sums that overflow.
    """
    for values in zip(*known.values(), strict=True):
        absent = {metric: 0.0 if metric.kind is Kind.COUNT else math.nan for metric in known}
        here = {m: absent[m] if value is None else value for m, value in zip(known, values, strict=True)}
        part, total = (sum(here[m] for m in metrics) for metrics in (widget.metrics, widget.share_of))
        yield 100 * part / total if total and math.isfinite(part + total) else None
