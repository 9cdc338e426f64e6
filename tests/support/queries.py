"""A small interpreter of Datadog's query language: what widgets and monitors show of given series.

Covers the grammar that our documents use, and no more: anything else is a ValueError. Points of a series are
first combined within a bucket of time, then over series, then by the arithmetic of a formula.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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

    def select(self, series: Iterable[Series], variables: Mapping[str, str]) -> dict[Group, list[Series]]:
        """Return the series in scope by group, in which a tag that a series lacks is `N/A`."""
        found: dict[Group, list[Series]] = {}
        for one in series:
            if one.metric == self.metric and all(_matches(part, one.tags, variables) for part in self.scope):
                found.setdefault(tuple(one.tags.get(key, MISSING) for key in self.by), []).append(one)
        return found

    def evaluate(
        self, series: Iterable[Series], start: int, end: int, variables: Mapping[str, str]
    ) -> dict[Group, dict[int, float]]:
        """Return a value per group and bucket in `[start, end)`."""
        width = self.seconds or AUTO
        result: dict[Group, dict[int, float]] = {}
        for group, members in self.select(series, variables).items():
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


def _matches(part: str, tags: Mapping[str, str], variables: Mapping[str, str]) -> bool:
    if part.startswith("$"):
        value = variables.get(part[1:], "*")
        return value == "*" or tags.get(part[1:]) == value
    key, _, value = part.removeprefix("!").partition(":")
    found = key in tags if value == "*" else tags.get(key) == value
    return found is not part.startswith("!")


class Term(NamedTuple):
    """A value per key (a group and a bucket, or a group alone), and the one of every other key, if any."""

    values: Mapping[Any, float]
    default: float | None = None

    def get(self, key: Any) -> float | None:
        return self.values.get(key, self.default)


class Expression(NamedTuple):
    """A formula as Python's own tree, in which series are the names of `series`."""

    tree: ast.expr
    series: Mapping[str, SeriesQuery]


GRAMMAR = (
    *(ast.BinOp, ast.Call, ast.Constant, ast.Name, ast.Load),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div),
)


def parse(text: str) -> Expression:
    """Return a formula over series or names; ValueError where it is none of ours."""
    series: dict[str, SeriesQuery] = {}

    def name_of(found: re.Match[str]) -> str:
        name = f"series{len(series)}"
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
        tree = ast.parse(SERIES.sub(name_of, text), mode="eval").body
    except SyntaxError:
        raise ValueError(f"not a query of ours: {text}") from None
    if not all(isinstance(node, GRAMMAR) for node in ast.walk(tree)):
        raise ValueError(f"not a query of ours: {text}")
    return Expression(tree, series)


def queries(expression: Expression) -> list[SeriesQuery]:
    """Return the series of an expression."""
    return [*expression.series.values()]


def compute(tree: ast.expr, terms: Mapping[str, Term]) -> Term:
    """Return the value of a tree; `terms` are those of its names."""
    match tree:
        case ast.Constant(value=int() | float() as number):
            return Term({}, number)
        case ast.Name(id=name):
            return terms[name]
        case ast.Call(func=ast.Name(id="default_zero"), args=[inner]):
            return Term(compute(inner, terms).values, 0.0)
        case ast.Call(func=ast.Name(id="abs"), args=[inner]):
            return Term({key: abs(value) for key, value in compute(inner, terms).values.items()})
        case ast.BinOp(left=left, op=symbol, right=right):
            first, second = compute(left, terms), compute(right, terms)
            known = {
                key: _arithmetic(symbol, first.get(key), second.get(key))
                for key in sorted({*first.values, *second.values})
            }
            values = {key: value for key, value in known.items() if value is not None}
            return Term(values, _arithmetic(symbol, first.default, second.default))
    raise ValueError(f"not a query of ours: {ast.unparse(tree)}")


def _arithmetic(symbol: ast.operator, a: float | None, b: float | None) -> float | None:
    """Return the result of two numbers; None where one is not known, or for a division by zero."""
    if a is None or b is None:
        return None
    match symbol:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
    return a / b if b else None


def widget_values(
    request: Mapping[str, Any],
    series: Sequence[Series],
    start: int,
    end: int,
    variables: Mapping[str, str] | None = None,
) -> list[dict[Any, float]]:
    """Return what each formula of a widget's request shows: by group, and by group and bucket over time."""
    terms: dict[str, Term] = {}
    for query in request["queries"]:
        [parsed] = queries(parse(query["query"]))
        found = parsed.evaluate(series, start, end, variables or {})
        if request["response_format"] == "scalar":
            reduce = REDUCE[query["aggregator"]]
            terms[query["name"]] = Term({key: reduce([*rows.values()]) for key, rows in found.items()})
        else:
            terms[query["name"]] = Term(
                {(key, bucket): value for key, rows in found.items() for bucket, value in rows.items()}
            )
    shown: list[dict[Any, float]] = []
    for formula in request["formulas"]:
        value = compute(parse(formula["formula"]).tree, terms)
        default = {} if value.default is None else {(): value.default}
        shown.append({**value.values} or default)
    return shown


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
        terms = {
            name: Term(
                {
                    (key, at): value
                    for key, rows in query.evaluate(series, start, end, {}).items()
                    if MISSING not in key  # a monitor cannot be trusted to alert on such a group
                    for at, value in rows.items()
                }
            )
            for name, query in self.expression.series.items()
        }
        term = compute(self.expression.tree, terms)
        groups: dict[Group, list[float]] = {}
        for (group, _), value in sorted(term.values.items()):
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
        known = queries(query.expression)[0].select(series, {})
        found["no data"] = sorted(set(known) - set(values))
    return found
