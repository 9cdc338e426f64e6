"""Single points of series, for tests that look at one value at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from common.metric import Metric, Series


class Point(NamedTuple):
    """One value of a series."""

    metric: Metric
    value: float
    timestamp: int
    tags: tuple[str, ...]
    host: str | None


def points(series: Iterable[Series]) -> list[Point]:
    """Return every point, in the order of the series."""
    return [
        Point(metric, value, at, tags, host)
        for metric, tags, host, times, values in series
        for at, value in zip(times, values, strict=True)
    ]
