"""The sink of a dry run: the same checks as a delivery, then a file for the parent to show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from common.datadog.series import SeriesTable
from common.metric import Metric, Series
from common.show.dry_run_file import Board

MAX_POINTS = 5_000  # of one part, so that whoever reads it holds little


class FileSink:
    """Writes what a delivery would send, without the common tags, as `common.show.dry_run_file` reads it.

    `boards` are the dashboards of the collector. Points before `oldest` or after `newest` are dropped, as the
    intake would.
    """

    def __init__(
        self,
        path: Path,
        metrics: Iterable[Metric],
        cap: int,
        oldest: int,
        newest: int,
        *,
        many_ticks: bool = False,
        boards: Sequence[Board] | None = None,
    ) -> None:
        self._path = path
        self._table = SeriesTable((), cap, oldest, newest, many_ticks=many_ticks)
        self.dropped, self.examples = self._table.dropped, self._table.examples
        self.beyond_cap = self._table.beyond_cap
        self.points_sent = 0
        declared = [
            {
                "name": metric.name,
                "type": metric.kind,
                "unit": metric.unit,
                "help": metric.help,
                "combines": metric.combines,
            }
            for metric in metrics
        ]
        first = {"metrics": declared} | ({} if boards is None else {"boards": boards})
        path.write_bytes(orjson.dumps(first, default=tuple, option=orjson.OPT_APPEND_NEWLINE))

    def add(self, series: Series) -> None:
        """Take a series, to be written with the next `flush`."""
        self._table.add(series)

    def flush(self, within: float | None = None) -> None:  # noqa: ARG002  # a file takes no time
        """Append what was added to the file."""
        with self._path.open("ab") as lines:
            for metric, tags, host, times, values in self._table.drain():
                part = {
                    "metric": metric.name,
                    "type": metric.kind,
                    "unit": metric.unit,
                    "host": host,
                    "tags": tags,
                }
                points = [*zip(times, values, strict=True)]
                for start in range(0, len(points), MAX_POINTS):
                    cut = {**part, "points": points[start : start + MAX_POINTS]}
                    lines.write(orjson.dumps(cut, option=orjson.OPT_APPEND_NEWLINE))
                self.points_sent += len(points)
