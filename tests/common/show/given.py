"""Points with any names and values, also such as no sink would let through."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

from common.metric import Kind, Metric
from common.show.points import Board, Points, SeriesKey, SeriesPoints


def series_points(series: SeriesKey, unit: str, points: Iterable[tuple[int, float]]) -> SeriesPoints:
    """Return the points of a gauge, in the order given; of integers where all values are."""
    seconds, values = zip(*points, strict=True)
    code = "q" if all(isinstance(value, int) for value in values) else "d"
    return SeriesPoints(series, Kind.GAUGE, unit, array("q", seconds), array(code, values))


class GivenPoints(Points):
    """The points of a dry run that found these series."""

    def __init__(
        self, metrics: Iterable[Metric], found: Sequence[SeriesPoints], boards: Sequence[Board] | None = None
    ) -> None:
        super().__init__(metrics, cap=0, oldest=0, newest=0, boards=boards)
        self._found = found

    def __iter__(self) -> Iterator[SeriesPoints]:
        return iter(self._found)
