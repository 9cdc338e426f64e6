"""A small interpreter of Datadog's query language: what widgets and monitors show of given series.

Covers the grammar that our documents use, and no more: anything else is a ValueError. Points of a series are
first combined within a bucket of time, then over series, then by the arithmetic of a formula.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

MINUTES = {"30m": 30, "1h": 60, "2h": 120, "4h": 240, "1d": 1440, "1w": 10080}
MISSING = "N/A"
AUTO = 60  # seconds of a bucket where the query leaves it to Datadog
SERIES = re.compile(
    r"(?P<space>avg|sum|min|max):(?P<metric>[\w.]+)\{(?P<scope>[^{}]*)\}"
    r"(?: by \{(?P<by>[\w,]+)\})?(?P<count>\.as_count\(\))?"
    r"(?:\.rollup\((?P<rollup>avg|sum|min|max)(?:, (?P<seconds>\d+))?\))?"
)
MONITOR = re.compile(
    r"(?:(?P<change>pct_change|change)\()?(?P<reduce>avg|min|max|sum)\(last_(?P<window>\w+)\)"
    r"(?:,last_(?P<shift>\w+)\))?:(?P<expression>.+) (?P<compare>[<>]) (?P<limit>-?[\d.]+)"
)
REDUCE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": statistics.fmean,
    "min": min,
    "max": max,
    "sum": sum,
    "last": lambda values: values[-1],
}
Group = tuple[str, ...]


class Series(NamedTuple):
    """Points of one series by second, with all its tags, `host` among them."""

    metric: str
    tags: Mapping[str, str]
    points: Mapping[int, float]


@dataclass(frozen=True)
class SeriesQuery:
    """One series expression, parsed."""

    metric: str
    space: str
    scope: tuple[str, ...]
    by: Group
    is_count: bool
    rollup: str
    seconds: int | None

    def select(self, series: Iterable[Series]) -> dict[Group, list[Series]]:
        """Return the series in scope by group, in which a tag that a series lacks is `N/A`."""
        found: dict[Group, list[Series]] = {}
        for one in series:
            if one.metric == self.metric and all(_matches(part, one.tags) for part in self.scope):
                found.setdefault(tuple(one.tags.get(key, MISSING) for key in self.by), []).append(one)
        return found

    def evaluate(self, series: Iterable[Series], start: int, end: int) -> dict[Group, dict[int, float]]:
        """Return a value per group and bucket in `[start, end)`."""
        width = self.seconds or AUTO
        result: dict[Group, dict[int, float]] = {}
        for group, members in self.select(series).items():
            buckets: dict[int, list[float]] = {}
            for one in members:
                own: dict[int, list[float]] = {}
                for second, value in sorted(one.points.items()):
                    if start <= second < end:
                        own.setdefault(second // width * width, []).append(value)
                for bucket, values in own.items():
                    reduce = REDUCE["sum" if self.is_count else self.rollup]
                    buckets.setdefault(bucket, []).append(reduce(values))
            if buckets:
                result[group] = {
                    bucket: REDUCE[self.space](values) for bucket, values in sorted(buckets.items())
                }
        return result


def _matches(part: str, tags: Mapping[str, str]) -> bool:
    if part.startswith("$"):  # a template variable, which stands for everything
        return True
    key, _, value = part.removeprefix("!").partition(":")
    found = key in tags if value == "*" else tags.get(key) == value
    return found is not part.startswith("!")


FUNCTIONS = {"default_zero": lambda value: 0.0 if value is None else value}
Values = Mapping[Any, float]  # by group, and by group and bucket over time


class Expression(NamedTuple):
    """A formula as Python's own expression, in which series are the names of `series`."""

    code: CodeType
    series: Mapping[str, SeriesQuery]

    def compute(self, terms: Mapping[str, Values]) -> dict[Any, float]:
        """Return the value of the formula for every key of the values of its names.

        A key has none where a value is not known, or for a division by zero.
        """
        own = {name: terms[name] for name in self.code.co_names if name in terms}
        found: dict[Any, float] = {}
        for key in sorted({key for values in own.values() for key in values}) or [()]:
            known = {name: values.get(key) for name, values in own.items()}
            with suppress(TypeError, ZeroDivisionError):
                value = eval(self.code, {"__builtins__": FUNCTIONS}, known)  # noqa: S307  # of our documents
                found |= {} if value is None else {key: value}
        return found


def parse(text: str) -> Expression:
    """Return a formula over series or names; ValueError where it is none of ours."""
    series: dict[str, SeriesQuery] = {}

    def name_of(found: re.Match[str]) -> str:
        name = f"query{len(series)}"
        series[name] = SeriesQuery(
            found["metric"],
            found["space"],
            tuple(found["scope"].split(",")),
            tuple(found["by"].split(",")) if found["by"] else (),
            bool(found["count"]),
            found["rollup"] or "avg",
            int(found["seconds"]) if found["seconds"] else None,
        )
        return name

    try:
        code = compile(SERIES.sub(name_of, text), text, "eval")
    except SyntaxError:
        raise ValueError(f"not a query of ours: {text}") from None
    if unknown := {name for name in code.co_names if not name.startswith("query")} - FUNCTIONS.keys():
        raise ValueError(f"not a query of ours: {text} ({unknown})")
    return Expression(code, series)


def queries(expression: Expression) -> list[SeriesQuery]:
    """Return the series of an expression."""
    return [*expression.series.values()]


def widget_values(
    request: Mapping[str, Any], series: Sequence[Series], start: int, end: int
) -> list[dict[Any, float]]:
    """Return what each formula of a widget's request shows: by group, and by group and bucket over time."""
    terms: dict[str, Values] = {}
    for query in request["queries"]:
        [parsed] = queries(parse(query["query"]))
        found = parsed.evaluate(series, start, end)
        if request["response_format"] == "scalar":
            reduce = REDUCE[query["aggregator"]]
            terms[query["name"]] = {key: reduce([*rows.values()]) for key, rows in found.items()}
        else:
            terms[query["name"]] = by_bucket(found)
    return [parse(formula["formula"]).compute(terms) for formula in request["formulas"]]


def by_bucket(found: Mapping[Group, Mapping[int, float]]) -> Values:
    """Return values by group and bucket."""
    return {(group, bucket): value for group, rows in found.items() for bucket, value in rows.items()}


@dataclass(frozen=True)
class MonitorQuery:
    """The query of a monitor, parsed."""

    expression: Expression
    parts: Mapping[str, str | None]

    @classmethod
    def read(cls, text: str) -> MonitorQuery:
        """Parse a query; ValueError where it is none of ours."""
        found = MONITOR.fullmatch(text)
        if found is None:
            raise ValueError(f"not a query of ours: {text}")
        return cls(parse(found["expression"]), found.groupdict())

    @property
    def limit(self) -> float:
        return float(self.parts["limit"] or "nan")

    @property
    def by(self) -> Group:
        return queries(self.expression)[0].by

    def value(self, series: Sequence[Series], now: int) -> dict[Group, float]:
        """Return what is compared with the threshold, by group."""
        window = 60 * MINUTES[self.parts["window"] or ""]
        current = self._reduced(series, now - window, now)
        if not self.parts["change"]:
            return current
        shift = 60 * MINUTES[self.parts["shift"] or ""]
        before = self._reduced(series, now - shift - window, now - shift)
        changed = {}
        for group in current.keys() & before.keys():
            difference = current[group] - before[group]
            if self.parts["change"] == "change":
                changed[group] = difference
            elif before[group]:
                changed[group] = 100 * difference / abs(before[group])
        return changed

    def _reduced(self, series: Sequence[Series], start: int, end: int) -> dict[Group, float]:
        # A monitor cannot be trusted to alert on a group that lacks a tag.
        tagged = [one for one in series if {*self.by} <= one.tags.keys()]
        terms = {
            name: by_bucket(query.evaluate(tagged, start, end))
            for name, query in self.expression.series.items()
        }
        groups: dict[Group, list[float]] = {}
        for (group, _), value in self.expression.compute(terms).items():
            groups.setdefault(group, []).append(value)
        reduce = REDUCE[self.parts["reduce"] or ""]
        return {group: reduce(values) for group, values in groups.items()}


def alerts(monitor: Mapping[str, Any], series: Sequence[Series], now: int) -> dict[str, list[Group]]:
    """Return the groups of a monitor that alert, warn or have no data."""
    query = MonitorQuery.read(monitor["query"])
    options = monitor["options"]
    values = query.value(series, now)
    found: dict[str, list[Group]] = {"alert": [], "warning": [], "no data": []}
    for group, value in values.items():
        for level, name in (("critical", "alert"), ("warning", "warning")):
            limit = options["thresholds"].get(level)
            if limit is not None and (value > limit if query.parts["compare"] == ">" else value < limit):
                found[name].append(group)
                break
    if options["notify_no_data"]:
        known = queries(query.expression)[0].select(series)
        found["no data"] = sorted(set(known) - set(values))
    return found
