"""Metrics as declarations, and the series they make. Time is passed in.

Metrics are declared in `collectors/<name>/metrics.py` and `common/run/health.py`. Documents, metadata and
dashboards are generated from them; `common/datadog/series.py` checks the points.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

# Datadog's rule for names. For keys of tags ours is stricter, so that Datadog never respells them.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,199}")
_TAG_KEY = re.compile(r"[a-z][a-z0-9_]{0,99}")


class Kind(StrEnum):
    """How values of one second combine: the last one of a gauge is used, those of a count add up.

    There are no distributions: Datadog adds those up, so that sending one again would count it twice.
    """

    GAUGE = "gauge"
    COUNT = "count"


class Combine(StrEnum):
    """How several series of a metric combine into one number; NONE for rates and percentages.

    Dashboards, monitors and pages use it as the aggregation over tags.
    """

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    MEAN = "mean"
    NONE = "none"

    def of(self, values: Sequence[float]) -> float | None:
        """Return the values of several series at one time as one number; None where there is none.

        With NONE only a single value has a result.
        """
        if len(values) < 2 or self is Combine.NONE:
            return values[0] if len(values) == 1 else None
        return _COMBINING[self](values)


_COMBINING: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "mean": lambda values: sum(value / len(values) for value in values),  # a sum could overflow
}


class Series(NamedTuple):
    """Points of one series: `values[i]` is true at `times[i]`, in integer seconds since the epoch.

    `tags` are sorted `key:value` texts, each once. `host` is None except for metrics of a node. A run gives
    each second of a series once.
    """

    metric: Metric
    tags: tuple[str, ...]
    host: str | None
    times: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Metric:
    """The one declaration of a metric. Documentation, checks and delivery all read it.

    A tag it does not declare is a defect of ours and raises, unless its tags are open: then the configuration
    names more. A value that is not finite is data, and passes: delivery drops and counts it.

    Raises ValueError for a name, help text or tag key that Datadog would not accept. Units are those of
    `tests/data/datadog_units.txt`, which a test compares all declarations with.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    tags: tuple[str, ...] = ()
    open_tags: bool = False
    combines: Combine = Combine.NONE
    on_node: bool = False  # its series carry the host that they are of
    _allowed: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a metric name: a letter, then letters, digits, _ and .")
        # The limits of `metadata.csv`, Datadog's format for integrations.
        if not self.help.isascii() or not 0 < len(self.help) <= 400:
            raise ValueError(f"{self.name}: help must be 1 to 400 ASCII characters")
        for key in self.tags:
            if not _TAG_KEY.fullmatch(key):
                raise ValueError(f"{self.name}: {key!r} is not a tag key")
        # A frozen dataclass refuses an ordinary assignment. The set is made once, because every point is
        # checked.
        object.__setattr__(self, "_allowed", frozenset(self.tags))

    def __call__(self, value: float, at: int, /, *, on_host: str | None = None, **tags: str) -> Series:
        """Return a series of one point that is true at `at`; TypeError for a value that is not a number.

        ValueError for a tag that is not declared.
        """
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"{self.name}: {type(value).__name__} is not a number")
        return self.series((int(at),), (value,), on_host=on_host, **tags)

    def series(
        self, times: Sequence[int], values: Sequence[float], /, *, on_host: str | None = None, **tags: str
    ) -> Series:
        """Return a series of points in order of time; ValueError for a tag that is not declared.

        `times` and `values` have the same length, and are not copied.
        """
        # The set is compared first, because this runs for every series and is the cheapest test.
        if not self._allowed.issuperset(tags) and (
            not self.open_tags or not all(map(_TAG_KEY.fullmatch, tags))
        ):
            unknown = ", ".join(sorted(tags.keys() - self._allowed))
            raise ValueError(f"{self.name} does not declare the tag {unknown}")
        return Series(self, tuple(sorted(f"{key}:{tags[key]}" for key in tags)), on_host, times, values)


def gauge(
    name: str,
    unit: str,
    text: str,
    *tags: str,
    open_tags: bool = False,
    combines: Combine = Combine.NONE,
    on_node: bool = False,
) -> Metric:
    """Declare a metric of whose values in one second the last is used.

    `tags` are the keys that its series may have, `text` is the help text.
    """
    return Metric(name, Kind.GAUGE, unit, text, tags, open_tags, combines, on_node)


def count(name: str, unit: str, text: str, *tags: str, on_node: bool = False) -> Metric:
    """Declare a metric whose values in one second add up, as those of its series do.

    The arguments are those of `gauge`.
    """
    return Metric(name, Kind.COUNT, unit, text, tags, combines=Combine.SUM, on_node=on_node)
