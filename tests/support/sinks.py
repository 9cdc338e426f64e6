"""Series into a sink in one step, as a run does it, or as the points of a dry run whatever they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from common.datadog.intake import DatadogSink
from common.metric import Series
from common.show.points import Points


def send(sink: DatadogSink | Points, every: Iterable[Series]) -> None:
    """Add series and flush."""
    for series in every:
        sink.add(series)
    sink.flush()


class GivenPoints(Points):
    """The points of a dry run that found these series, also such as no sink would let through."""

    def __init__(self, found: Sequence[Series]) -> None:
        super().__init__(cap=0, oldest=0, newest=0)
        self._found = found

    def __iter__(self) -> Iterator[Series]:
        return iter(self._found)
