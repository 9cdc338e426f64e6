"""The points of a dry run, in memory: what a push would send, by series.

It has the interface of `common/datadog/intake.py`; `table.py`, `export.py` and `page.py` show it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator

from common.datadog.series import SeriesTable
from common.errors import ConfigurationError
from common.metric import Metric, Series

# 16 bytes each: 320 MB.
MAX_POINTS = 20_000_000


class Points:
    """A sink that stores what a delivery would send, without the common tags.

    Points before `oldest` or after `newest` are dropped, as the intake would. `cap` is the number of series
    above which new ones are dropped. `points_sent` counts what is stored.
    """

    def __init__(self, cap: int, oldest: int, newest: int) -> None:
        self.points_sent = 0
        self._table = SeriesTable((), cap, oldest, newest)
        self.dropped, self.examples = self._table.dropped, self._table.examples
        self.lost = self._table.lost
        # Arrays, because lists of Python numbers would take several times the memory. Integers that a float
        # does not represent were refused by the table.
        self._series: dict[tuple[Metric, tuple[str, ...], str | None], tuple[array[int], array[float]]] = {}

    def add(self, series: Series) -> None:
        """Add a series, to be stored with the next `flush`; points that cannot be sent are dropped."""
        self._table.add(series)

    def flush(self) -> None:
        """Store what was added; ConfigurationError where it is too much to show."""
        for metric, tags, host, times, values in self._table.drain():
            self.points_sent += len(times)
            if self.points_sent > MAX_POINTS:
                raise ConfigurationError(
                    f"there are more than {MAX_POINTS:,} points to show: shorten the span (--since, --until) "
                    "or widen --step"
                )
            stored = self._series.setdefault((metric, tags, host), (array("q"), array("d")))
            stored[0].extend(times)
            stored[1].extend(values)

    def add_present(self, present: Points, live_only: Collection[Metric]) -> None:
        """Add the series of a live run that a backfill does not have, those of `live_only`.

        `present` is the sink of that run.
        """
        for key, found in present._series.items():
            if key[0] in live_only:
                self._series[key] = found
                self.points_sent += len(found[0])

    def __iter__(self) -> Iterator[Series]:
        """Yield the series, in the order in which they were first added, their points in order of time."""
        for (metric, tags, host), (times, values) in self._series.items():
            yield Series(metric, tags, host, times, values)


def labels(series: Series) -> tuple[str, ...]:
    """Return the tags, with the host as one more."""
    return (*series.tags, f"host:{series.host}") if series.host else series.tags


def by_name(series: Series) -> tuple[str, tuple[str, ...]]:
    """Return what series are sorted by where they are shown."""
    return series.metric.name, labels(series)


def exact(value: float) -> str:
    """Return a finite value as JSON has it, with all of its digits; an integer without a decimal point."""
    return repr(value).removesuffix(".0")
