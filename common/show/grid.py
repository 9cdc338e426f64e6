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


class Summary(NamedTuple):
    """The statistics of a series, or of a line that is drawn. All values are finite."""

    points: int
    first: float
    last: float
    low: float
    mean: float
    high: float


class Grid(NamedTuple):
    """Intervals of equal width, in seconds from `start`.

    Each ends with its last second, as a span ends with its last tick.
    """

    start: int
    width: int
    size: int

    @classmethod
    def over(cls, span: Window, series: Iterable[Series]) -> Grid:
        """Return intervals over a span, none so narrow that a series without a gap leaves one empty.

        There are at most MAX_INTERVALS. Points are on the ticks of the span or, read from records, closer
        together.
        """
        spacing = min(map(_spacing, series), default=math.inf)
        # Twice the mean spacing, because points of records are not exactly equidistant.
        grain = max(1, math.ceil(min(span.step, 2 * spacing)))
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
    """One line of a chart: its labels, and lowest, mean and highest value of each interval.

    A line of several series has one value per interval. The statistics are those of the points of a single
    series, otherwise of the intervals.
    """

    labels: tuple[str, ...]
    intervals: Sequence[tuple[float, float, float] | None]
    summary: Summary


_Parts = Mapping[Metric, Sequence[Series]]


def summarize(values: Sequence[float]) -> Summary:
    """Return the statistics of values, of which there is at least one."""
    return Summary(len(values), values[0], values[-1], min(values), mean(values), max(values))


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value, finite and in the range of the values."""
    # Divided first, because a sum of large values could overflow; rounding may then exceed the range.
    found = math.fsum(value / len(values) for value in values)
    return min(max(values), max(min(values), found))


def _spacing(series: Series) -> float:
    """Return the mean seconds between two points; infinite for a single one."""
    seconds = series.times
    return (seconds[-1] - seconds[0]) / (len(seconds) - 1) if len(seconds) > 1 else math.inf


def chart_lines(
    widget: Widget, by_metric: Mapping[str, Sequence[Series]], span: Window, most: int
) -> tuple[Grid, list[ChartLine], int]:
    """Return the grid of a widget, its lines that reach highest, at most `most`, and how many there are.

    `by_metric` are all series by the name of their metric. Lines are in the order of `by_metric`.
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
    grid = Grid.over(span, (entry for _, parts in drawn for found in parts.values() for entry in found))
    lines = [_line(widget, line, parts, grid) for line, parts in drawn]
    return grid, [line for line in lines if line is not None], len(groups)


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
        if all((pair.lstrip("!") in own) is not pair.startswith("!") for pair in widget.where):
            line = own if separate else tuple(tag for tag in own if tag.partition(":")[0] in widget.by)
            groups.setdefault(line, []).append(series)
    return groups


def _height(parts: _Parts) -> float:
    """Return about how high a line reaches: it only decides which lines are drawn."""
    return max(
        metric.combines.of([max(series.values) for series in found]) or 0.0 for metric, found in parts.items()
    )


def _line(widget: Widget, line: tuple[str, ...], parts: _Parts, grid: Grid) -> ChartLine | None:
    """Return one line; None where a share is known nowhere.

    `parts` are its series by metric: one metric, or for a share all of its terms.
    """
    if widget.share_of:
        combined = [*_shares(widget, parts, grid)]
    else:
        [(metric, found)] = parts.items()
        # Only a single gauge has a range in an interval; the points of a count add up to one number.
        if len(found) == 1 and metric.kind is Kind.GAUGE:
            intervals = [
                (min(some), mean(some), max(some)) if some else None for some in grid.values(found[0])
            ]
            return ChartLine(line, intervals, summarize(found[0].values))
        combined = _combined(metric, found, grid)
    known = [value for value in combined if value is not None]
    if not known:
        return None
    points = sum(len(series.values) for found in parts.values() for series in found)
    values = [None if value is None else (value, value, value) for value in combined]
    return ChartLine(line, values, summarize(known)._replace(points=points))


def _combined(metric: Metric, found: Iterable[Series], grid: Grid) -> list[float | None]:
    """Return the series of a metric as one number per interval, as the metric declares it; None for no point.

    Of a gauge the means of the series combine, of a count all that was counted.
    """
    reduce = sum if metric.kind is Kind.COUNT else mean
    every = [grid.values(series) for series in found]
    return [
        metric.combines.of([reduce(values[number]) for values in every if values[number]])
        for number in range(grid.size)
    ]


def _shares(widget: Widget, parts: _Parts, grid: Grid) -> Iterator[float | None]:
    """Yield 100 times the sum of the metrics by that of `share_of`, per interval; None where it is not known.

    A count that is absent is zero, as in the formula of a dashboard. An absent gauge makes the share unknown.
    """
    known: dict[Metric, list[float]] = {}
    for metric, found in parts.items():
        absent = 0.0 if metric.kind is Kind.COUNT else math.nan
        known[metric] = [absent if value is None else value for value in _combined(metric, found, grid)]
    for number in range(grid.size):
        part = sum(known[metric][number] for metric in widget.metrics)
        total = sum(known[metric][number] for metric in widget.share_of)
        yield 100 * part / total if total and not math.isnan(part + total) else None
