"""The sink of a dry run: the same checks as a delivery, then a file for the parent to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from common.datadog.series import SeriesTable
from common.metric import Metric, Sample
from common.show.dry_run_file import Board

MAX_POINTS = 5_000  # of one part, so that whoever reads it holds little


class FileSink:
    """Writes what a delivery would send, without the common tags, as `common.show.dry_run_file` reads it.

    `boards` are how the collector is looked at. Points before `oldest` or after `newest` are dropped, as the
    intake would.
    """

    taken = settled = 0  # what counts them keeps marks, and a dry run moves none

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
        self._table = SeriesTable((), cap, many_ticks=many_ticks)
        self._oldest, self._newest = oldest, newest
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

    @property
    def dropped(self) -> Counter[str]:
        """Points that would not be sent, by reason."""
        return self._table.dropped

    @property
    def examples(self) -> dict[str, str]:
        """By reason, the first of them."""
        return self._table.examples

    def take(self, samples: Iterable[Sample]) -> None:
        """Append the samples to the file."""
        with self._path.open("ab") as lines:
            for metric, host, tags, points in self._table.take(samples, self._oldest, self._newest):
                part = {
                    "metric": metric.name,
                    "type": metric.kind,
                    "unit": metric.unit,
                    "host": host,
                    "tags": tags,
                }
                for start in range(0, len(points), MAX_POINTS):
                    cut = {**part, "points": points[start : start + MAX_POINTS]}
                    lines.write(orjson.dumps(cut, option=orjson.OPT_APPEND_NEWLINE))
                self.points_sent += len(points)

    def deliver(self, *, everything: bool, within: float | None = None) -> None:
        """All that was taken is in the file already."""
