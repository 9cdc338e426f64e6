"""Series along a span, cut into intervals of equal width: for sparklines and for the lines of charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from common.dashboard import Widget, short_name
from common.metric import Combine, Kind, Metric
from common.show.points import SeriesPoints
from common.window import Window

MAX_INTERVALS = 673  # every quarter of an hour of a week, also of one that begins between two ticks


class Summary(NamedTuple):
    """The statistics of a series, or of a line that is drawn."""

    points: int
    first: float
    last: float
    low: float
    mean: float
    high: float


class Interval(NamedTuple):
    """The points of one series in one interval; the extremes show a spike that the mean hides."""

    low: float
    mean: float
    high: float
    total: float


class Grid(NamedTuple):
    """Intervals of equal width. Each ends with its last second, as a span ends with its last tick."""

    start: int
    grain: int
    width: int
    size: int

    @classmethod
    def over(cls, span: Window, most: int = MAX_INTERVALS, spacing: float = math.inf) -> Grid:
        """Return at most `most` intervals, none so narrow that a series without a gap leaves one empty.

        Points are on the ticks of the span or, read from records, `spacing` seconds apart.
        """
        grain = max(1, math.ceil(min(span.step, 2 * spacing)))
        start = span.since // grain * grain
        grains = max(1, -(-(span.until - start) // grain))
        each = -(-grains // most)
        return cls(start, grain, each * grain, -(-grains // each))

    def middle(self, number: int) -> float:
        """Return the second an interval is drawn at: the middle of its ticks."""
        return self.start + number * self.width + (self.width + self.grain) / 2

    def intervals(self, series: SeriesPoints) -> list[Interval | None]:
        """Return each interval of a series; None where it has no point, which is not zero."""
        each: list[list[float]] = [[] for _ in range(self.size)]
        start, width, size = self.start, self.width, self.size
        for second, value in zip(series.seconds, series.values, strict=True):
            at = (second - start - 1) // width if second > start else second - start
            if 0 <= at < size:
                each[at].append(value)
        return [_interval(values) if values else None for values in each]


def _interval(values: Sequence[float]) -> Interval:
    low, high, total = min(values), max(values), sum(values)
    return Interval(low, min(high, max(low, total / len(values))), high, total)


class ChartLine(NamedTuple):
    """One line of a chart: its labels, its intervals, and the statistics of its points or intervals."""

    labels: tuple[str, ...]
    intervals: Sequence[Interval | None]
    summary: Summary


_Groups = dict[tuple[str, ...], list[SeriesPoints]]


def summarize(series: SeriesPoints) -> Summary:
    """Return the statistics of a series."""
    values = series.values
    low, high = min(values), max(values)
    mean = math.fsum(value / len(values) for value in values)
    return Summary(len(values), values[0], values[-1], low, min(high, max(low, mean)), high)


def spacing(series: SeriesPoints) -> float:
    """Return the mean seconds between two points; infinite for a single one."""
    seconds = series.seconds
    return (seconds[-1] - seconds[0]) / (len(seconds) - 1) if len(seconds) > 1 else math.inf


def chart_lines(
    widget: Widget, by_metric: Mapping[str, Sequence[SeriesPoints]], span: Window, most: int
) -> tuple[Grid, list[ChartLine], int]:
    """Return the lines of a widget that reach highest, at most so many, and how many there are."""
    groups: list[tuple[tuple[str, ...], dict[Metric, list[SeriesPoints]]]] = []
    split = {metric: _split(widget, metric, by_metric) for metric in (*widget.metrics, *widget.share_of)}
    if widget.share_of:
        groups = [
            (labels, {metric: found.get(labels, []) for metric, found in split.items()})
            for labels in split[widget.metrics[0]]
        ]
    else:
        for metric in widget.metrics:
            named = (short_name(metric),) if len(widget.metrics) > 1 else ()
            groups += [((*named, *labels), {metric: found}) for labels, found in split[metric].items()]
    highest = sorted(groups, key=lambda group: _height(group[1]), reverse=True)[:most]
    chosen = [group for group in groups if group in highest]
    every = [entry for _, parts in chosen for found in parts.values() for entry in found]
    grid = Grid.over(span, spacing=min(map(spacing, every), default=math.inf))
    lines = [_line(widget, labels, parts, grid) for labels, parts in chosen]
    return grid, [line for line in lines if line is not None], len(groups)


def _split(widget: Widget, metric: Metric, by_metric: Mapping[str, Sequence[SeriesPoints]]) -> _Groups:
    """Return the series of a metric by the labels of the line they belong to."""
    groups: _Groups = {}
    separate = any(entry.combines is Combine.NONE for entry in widget.metrics)
    for entry in by_metric.get(metric.name, ()):
        labels = entry.series.labels
        if all((pair.lstrip("!") in labels) is not pair.startswith("!") for pair in widget.where):
            kept = labels if separate else (text for text in labels if text.partition(":")[0] in widget.by)
            groups.setdefault(tuple(kept), []).append(entry)
    return groups


def _height(parts: Mapping[Metric, Sequence[SeriesPoints]]) -> float:
    """Return about how high a line reaches: it only decides which lines are drawn."""
    return max(
        metric.combines.of([max(entry.values) for entry in found]) or 0.0 for metric, found in parts.items()
    )


def _line(
    widget: Widget, labels: tuple[str, ...], parts: Mapping[Metric, list[SeriesPoints]], grid: Grid
) -> ChartLine | None:
    """Return one line; None where a share is known nowhere."""
    points = sum(len(entry.values) for found in parts.values() for entry in found)
    if widget.share_of:
        known = {metric: _combined(metric, found, grid) for metric, found in parts.items()}
        above, below = (
            zip(*([_or_zero(metric, value) for value in known[metric]] for metric in metrics), strict=True)
            for metrics in (widget.metrics, widget.share_of)
        )
        values = [*map(_share, above, below)]
    else:
        [(metric, found)] = parts.items()
        if len(found) == 1 and metric.kind is not Kind.COUNT:
            return ChartLine(labels, grid.intervals(found[0]), summarize(found[0]))
        values = _combined(metric, found, grid)
    drawn = [value for value in values if value is not None]
    if not drawn:
        return None
    mean = math.fsum(value / len(drawn) for value in drawn)
    summary = Summary(points, drawn[0], drawn[-1], min(drawn), mean, max(drawn))
    intervals = [None if value is None else Interval(value, value, value, value) for value in values]
    return ChartLine(labels, intervals, summary)


def _combined(metric: Metric, found: Iterable[SeriesPoints], grid: Grid) -> list[float | None]:
    """Return the series of a metric as one number per interval, as the metric declares it; None for no point.

    Of a gauge the means of the series combine, of a count all that was counted.
    """
    counts = metric.kind is Kind.COUNT
    each: list[list[float]] = [[] for _ in range(grid.size)]
    for entry in found:
        for values, interval in zip(each, grid.intervals(entry), strict=True):
            if interval is not None:
                values.append(interval.total if counts else interval.mean)
    return [metric.combines.of(values) for values in each]


def _or_zero(metric: Metric, value: float | None) -> float | None:
    """Return the value; in a share nothing counted is a count of zero."""
    return 0.0 if value is None and metric.kind is Kind.COUNT else value


def _share(parts: Sequence[float | None], whole: Sequence[float | None]) -> float | None:
    """Return 100 times the sum of the parts by that of the whole; None where one of them is not known."""
    above, below = ([value for value in values if value is not None] for values in (parts, whole))
    if len(above) < len(parts) or len(below) < len(whole) or not sum(below):
        return None
    return 100 * sum(above) / sum(below)
