"""A small evaluator of monitors: what a query says of series that are fed to it.

Knows the part of the grammar that our monitors are written in, and no more: a query it cannot read is an
error. Points are values by minutes before now.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

QUERY = re.compile(
    r"(?:(?P<change>pct_change|change)\()?(?P<reduce>avg|min|max|sum)\(last_(?P<window>\w+)\)"
    r"(?:,last_(?P<shift>\w+)\))?:(?P<abs>abs\()?(?P<space>avg|min|max|sum):(?P<metric>[\w.]+)"
    r"\{(?P<scope>[^{}]*)\}(?: by \{(?P<by>[\w,]+)\})?(?P<count>\.as_count\(\))?(?(abs)\))"
    r" (?P<compare>[<>]) (?P<limit>-?[\d.]+)"
)
MINUTES = {"30m": 30, "1h": 60, "4h": 240, "1d": 1440, "1w": 10080}
REDUCE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": statistics.fmean,
    "min": min,
    "max": max,
    "sum": sum,
}


@dataclass(frozen=True)
class Series:
    """Points of one series, with all its tags."""

    tags: Mapping[str, str]
    points: Mapping[int, float]


@dataclass(frozen=True)
class Query:
    """One query, taken apart."""

    metric: str
    scope: tuple[str, ...]
    by: tuple[str, ...]
    parts: Mapping[str, str | None]

    @classmethod
    def read(cls, text: str) -> Query:
        found = QUERY.fullmatch(text)
        if found is None:
            raise ValueError(f"not a query of ours: {text}")
        by = tuple((found["by"] or "").split(",")) if found["by"] else ()
        return cls(found["metric"], tuple(found["scope"].split(",")), by, found.groupdict())

    @property
    def limit(self) -> float:
        return float(self.parts["limit"] or "nan")


# Any: JSON
def told(monitor: Mapping[str, Any], series: Sequence[Series]) -> dict[str, list[tuple[str, ...]]]:
    """The groups that are told, as `alert`, `warning` or `no data`."""
    query = Query.read(monitor["query"])
    options = monitor["options"]
    found: dict[str, list[tuple[str, ...]]] = {"alert": [], "warning": [], "no data": []}
    wanted = dict(pair.split(":", 1) for pair in query.scope)
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in series:
        if wanted.items() <= one.tags.items():
            groups.setdefault(tuple(one.tags[key] for key in query.by), []).append(one)
    for group, members in groups.items():
        value = _value(query, members)
        if value is None:
            if options["notify_no_data"]:
                assert options["no_data_timeframe"] <= MINUTES[query.parts["window"] or ""] * 2
                found["no data"].append(group)
            continue
        for level, name in (("critical", "alert"), ("warning", "warning")):
            limit = options["thresholds"].get(level)
            if limit is not None and (value > limit if query.parts["compare"] == ">" else value < limit):
                found[name].append(group)
                break
    return found


def _value(query: Query, members: Sequence[Series]) -> float | None:
    """What is compared with the threshold; None where nothing is known."""
    window = MINUTES[query.parts["window"] or ""]
    now = _over(query, members, 0, window)
    if now is None or not query.parts["change"]:
        return now
    shift = MINUTES[query.parts["shift"] or ""]
    then = _over(query, members, shift, shift + window)
    if then is None:
        return None
    if query.parts["change"] == "change":
        return now - then
    return None if then == 0 else 100 * (now - then) / abs(then)


def _over(query: Query, members: Sequence[Series], newest: int, oldest: int) -> float | None:
    space, reduce = REDUCE[query.parts["space"] or ""], REDUCE[query.parts["reduce"] or ""]
    at: dict[int, list[float]] = {}
    for one in members:
        for minutes, value in one.points.items():
            if newest <= minutes < oldest:
                at.setdefault(minutes, []).append(value)
    combined = [space(values) for values in at.values()]
    if query.parts["abs"]:
        combined = [abs(value) for value in combined]
    return reduce(combined) if combined else None
