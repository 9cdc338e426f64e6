"""The sink of a dry run: the same checks as a delivery, then a file for the parent to show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from common.datadog import FURTHEST, OLDEST
from common.metric import Metric, Sample
from common.payloads import SeriesTable


class FileSink:
    """Writes what a delivery would send, one JSON object per point, without the common tags."""

    def __init__(self, path: Path, metrics: Iterable[Metric], cap: int, now: int) -> None:
        self._path = path
        self._metrics = {metric.name: metric for metric in metrics}
        self._table = SeriesTable((), cap)
        self._now = now
        self.points_sent = 0

    @property
    def dropped(self) -> Counter[str]:
        """Points that would not be sent, by reason."""
        return self._table.dropped

    def send(self, samples: Iterable[Sample]) -> None:
        """Append the samples to the file."""
        with self._path.open("a", encoding="utf-8") as lines:
            for series in self._table.take(samples, self._now - OLDEST, self._now + FURTHEST):
                metric = self._metrics[series["metric"]]
                resources = series.get("resources")
                for point in series["points"]:
                    line = {
                        "metric": metric.name,
                        "type": metric.kind,
                        "unit": metric.unit,
                        "value": point["value"],
                        "timestamp": point["timestamp"],
                        "host": resources[0]["name"] if resources else None,
                        "tags": series["tags"],
                    }
                    lines.write(json.dumps(line, allow_nan=False) + "\n")
                    self.points_sent += 1
