"""The lines of a page's charts: which series each is made of, and what they come to along a span.

Several series become one line as their metric declares. Of a gauge a stretch holds each series' mean,
combined; of a count it holds all that was counted in it. Parts of a series come in the order of time, as a
run writes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.metric import Combine, Kind, Metric
from common.show.points import Chart, SeriesKey, SeriesPoints
from common.show.summaries import Grid, Shape, Stretch, Summary
from common.window import Window
from fleetgauge.pages.style import MAX_SERIES

MAX_STRETCHES = 673  # every quarter of an hour of a week, also of one that begins between two ticks


class Figures(NamedTuple):
    """What a person reads beside a line of several series; beside that of a single one, its summary."""

    first: float
    last: float
    low: float
    mean: float
    high: float
    points: int


class Together:
    """Several series of one metric as one along a grid. Where no point fell, nothing is known."""

    def __init__(self, grid: Grid, metric: Metric) -> None:
        self.grid = grid
        self._how = metric.combines
        self.counts = metric.kind == Kind.COUNT
        self._known = array("L", [0]) * grid.count
        self._values = array("d", [0.0]) * grid.count
        self._open: dict[SeriesKey, tuple[int, int, float]] = {}  # stretch, points and mean, not yet closed

    def add(self, part: SeriesPoints) -> None:
        """Take some more points of one series in."""
        at, number, mean = self._open.get(part.series, (-1, 0, 0.0))
        start, width, size = self.grid.start, self.grid.width, self.grid.count
        for second, value in zip(part.seconds, part.values, strict=True):
            place = (second - start - 1) // width if second > start else second - start
            if not 0 <= place < size:
                continue
            if place != at:
                self._close(at, number, mean)
                at, number, mean = place, 0, 0.0
            number += 1
            mean += value if self.counts else value / number - mean / number
        self._open[part.series] = (at, number, mean)

    def _close(self, at: int, number: int, value: float) -> None:
        """A series has left a stretch: what it came to there joins the others."""
        if not number:
            return
        self._known[at] = known = self._known[at] + 1
        before = self._values[at]
        if known == 1:
            self._values[at] = value
        elif self._how == Combine.MEAN:
            self._values[at] += value / known - before / known
        else:
            pair = Combine(self._how).of((before, value))
            self._values[at] = before if pair is None else pair

    def stretches(self) -> list[Stretch | None]:
        """Every stretch of the grid; None where nothing is known."""
        for left in self._open.values():
            self._close(*left)
        self._open.clear()
        found = zip(self._known, self._values, strict=True)
        return [Stretch(value, value, value) if known else None for known, value in found]


@dataclass(frozen=True)
class Drawn:
    """One line: what tells it from the others of its chart, and what it is made of, by metric."""

    labels: tuple[str, ...]
    parts: Sequence[Shape | Together]
    whole: Sequence[Shape | Together]
    alone: Summary | None  # of the one series that the line is
    points: int

    def stretches(self) -> list[Stretch | None]:
        """What is drawn; of a share, 100 times the parts by the whole where both are known."""
        if not self.whole:
            return self.parts[0].stretches()
        known = {id(one): _values(one) for one in (*self.parts, *self.whole)}
        above = zip(*(known[id(one)] for one in self.parts), strict=True)
        below = zip(*(known[id(one)] for one in self.whole), strict=True)
        return [_share(_total(part), _total(whole)) for part, whole in zip(above, below, strict=True)]

    def figures(self, stretches: Iterable[Stretch | None]) -> Figures | Summary:
        """Of a single series those of its points, of several those of what is drawn."""
        if self.alone:
            return self.alone
        values = [stretch.mean for stretch in stretches if stretch] or [0.0]
        mean = sum(value / len(values) for value in values)
        return Figures(values[0], values[-1], min(values), mean, max(values), self.points)


def _values(one: Shape | Together) -> list[float | None]:
    """What is known of each stretch; where nothing was counted, none was."""
    nothing = 0.0 if isinstance(one, Together) and one.counts else None
    return [stretch.mean if stretch else nothing for stretch in one.stretches()]


def _total(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _share(part: float | None, whole: float | None) -> Stretch | None:
    if part is None or not whole:
        return None
    share = 100 * part / whole
    return Stretch(share, share, share)


class Plan:
    """Which series go where; filled from the points, and then drawn."""

    def __init__(
        self, declared: Iterable[Metric], summaries: Mapping[SeriesKey, Summary], span: Window
    ) -> None:
        self._declared = {metric.name: metric for metric in declared}
        self._summaries = summaries
        self._span = span
        self._by_metric: dict[str, list[SeriesKey]] = {}
        for one in sorted(summaries, key=lambda one: (one.metric, one.labels)):
            self._by_metric.setdefault(one.metric, []).append(one)
        self._routes: dict[SeriesKey, list[Shape | Together]] = {}

    def lines(self, chart: Chart) -> tuple[list[Drawn], int]:
        """The lines of a chart, and how many there would be: those that reach highest are drawn."""
        groups = [*self._shares(chart)] if chart.share_of else [*self._groups(chart)]
        tall = sorted(groups, key=self._height, reverse=True)[:MAX_SERIES]
        chosen = [group for group in groups if group in tall]
        every = [one for _, sets in chosen for series in sets.values() for one in series]
        if not every:
            return [], 0
        grid = Grid.over(self._span, MAX_STRETCHES, min(self._summaries[one].spacing for one in every))
        return [self._line(chart, labels, sets, grid) for labels, sets in chosen], len(groups)

    def series(self, chart: Chart) -> list[SeriesKey]:
        """Every series that a chart is made of, drawn or not."""
        names = dict.fromkeys((*chart.metrics, *chart.share_of))
        return [one for name in names for series in self._split(name, chart).values() for one in series]

    def fill(self, parts: Iterable[SeriesPoints]) -> None:
        """Take every point in, into all lines that it belongs to."""
        for part in parts:
            for route in self._routes.get(part.series, ()):
                route.add(part)

    def _height(self, group: tuple[tuple[str, ...], dict[str, list[SeriesKey]]]) -> float:
        """How high a line reaches, about: only which are drawn depends on it."""
        highs = [
            Combine(self._declared[name].combines).of([self._summaries[one].high for one in series]) or 0.0
            for name, series in group[1].items()
        ]
        return max(highs)

    def _groups(self, chart: Chart) -> Iterator[tuple[tuple[str, ...], dict[str, list[SeriesKey]]]]:
        for name in chart.metrics:
            told = (_words(name, chart.metrics),) if len(chart.metrics) > 1 else ()
            for labels, series in self._split(name, chart).items():
                yield (*told, *labels), {name: series}

    def _shares(self, chart: Chart) -> Iterator[tuple[tuple[str, ...], dict[str, list[SeriesKey]]]]:
        split = {name: self._split(name, chart) for name in dict.fromkeys((*chart.metrics, *chart.share_of))}
        for labels in split[chart.metrics[0]]:
            yield labels, {name: groups.get(labels, []) for name, groups in split.items()}

    def _split(self, name: str, chart: Chart) -> dict[tuple[str, ...], list[SeriesKey]]:
        """The series of a metric, by the labels that the chart tells lines apart by."""
        groups: dict[tuple[str, ...], list[SeriesKey]] = {}
        for one in self._by_metric.get(name, ()):
            if {*chart.where} <= {*one.labels}:
                by = chart.by
                kept = one.labels if by is None else (x for x in one.labels if x.partition(":")[0] in by)
                groups.setdefault(tuple(kept), []).append(one)
        return groups

    def _line(
        self, chart: Chart, labels: tuple[str, ...], sets: Mapping[str, list[SeriesKey]], grid: Grid
    ) -> Drawn:
        routes: dict[str, Shape | Together] = {}
        for name, series in sets.items():
            metric = self._declared[name]
            alone = len(series) == 1 and not chart.share_of and metric.kind != Kind.COUNT
            routes[name] = Shape(grid) if alone else Together(grid, metric)
            for one in series:
                self._routes.setdefault(one, []).append(routes[name])
        every = [one for series in sets.values() for one in series]
        return Drawn(
            labels,
            [routes[name] for name in chart.metrics if name in routes],
            [routes[name] for name in chart.share_of],
            self._summaries[every[0]] if isinstance(routes[next(iter(sets))], Shape) else None,
            sum(self._summaries[one].points for one in every),
        )


def _words(name: str, names: Sequence[str]) -> str:
    """A metric of several, by the part of its name that the others do not share."""
    shared = 0
    parts = [one.split(".") for one in names]
    while len({tuple(one[: shared + 1]) for one in parts}) == 1:
        shared += 1
    return " ".join(name.split(".")[shared:]).replace("_", " ")
