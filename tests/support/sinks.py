"""Series into a sink in one step, as a run does it."""

from __future__ import annotations

from collections.abc import Iterable

from common.datadog.intake import DatadogSink
from common.metric import Series
from common.show.points import Points


def send(sink: DatadogSink | Points, every: Iterable[Series]) -> None:
    """Add series and flush."""
    for series in every:
        sink.add(series)
    sink.flush()
