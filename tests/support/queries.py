"""A small interpreter of Datadog's query language: what widgets and monitors show of given series.

Covers the grammar that our documents use, and no more: anything else is a ValueError. Points of a series are
first combined within a bucket of time, then over series, then by the arithmetic of a formula.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MINUTES = {"30m": 30, "1h": 60, "2h": 120, "4h": 240, "1d": 1440, "1w": 10080}
MISSING = "N/A"
AUTO = 60  # seconds of a bucket where the query leaves it to Datadog
TOKEN = re.compile(
    r"\s*(?:(?P<series>(?P<space>avg|sum|min|max):(?P<metric>[\w.]+)\{(?P<scope>[^{}]*)\}"
    r"(?: by \{(?P<by>[\w,]+)\})?(?P<count>\.as_count\(\))?"
    r"(?:\.rollup\((?P<rollup>avg|sum|min|max)(?:, (?P<seconds>\d+))?\))?)"
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-z_]+\d*)|(?P<symbol>[-+*/()]))"
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


# A term is a number, or a value per key: a group and a bucket, or a group alone. `zero` fills what is absent.
class Term(NamedTuple):
    values: Mapping[Any, float]
    zero: bool = False


Node = tuple[Any, ...]


def parse(text: str) -> Node:
    """Return the tree of an expression: ("series", …), ("number", …), ("name", …), (symbol, left, right)."""
    tokens: list[re.Match[str]] = []
    at = 0
    while at < len(text.rstrip()):
        token = TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"not a query of ours: {text}")
        tokens.append(token)
        at = token.end()
    tree, rest = _sum(tokens)
    if rest:
        raise ValueError(f"not a query of ours: {text}")
    return tree


def _sum(tokens: list[re.Match[str]], symbols: str = "+-") -> tuple[Node, list[re.Match[str]]]:
    inner = _sum if symbols == "+-" else _atom
    left, tokens = inner(tokens, "*/")
    while tokens and tokens[0]["symbol"] and tokens[0]["symbol"] in symbols:
        symbol = tokens[0]["symbol"]
        right, tokens = inner(tokens[1:], "*/")
        left = (symbol, left, right)
    return left, tokens


def _atom(tokens: list[re.Match[str]], _: str) -> tuple[Node, list[re.Match[str]]]:
    if not tokens:
        raise ValueError("not a query of ours: it ends too soon")
    first, *rest = tokens
    if first["series"]:
        by = tuple(first["by"].split(",")) if first["by"] else ()
        scope = tuple(first["scope"].split(","))
        seconds = int(first["seconds"]) if first["seconds"] else None
        query = SeriesQuery(
            first["metric"],
            first["space"],
            scope,
            by,
            bool(first["count"]),
            first["rollup"] or "avg",
            seconds,
        )
        return ("series", query), rest
    if first["number"]:
        return ("number", float(first["number"])), rest
    if first["name"] and not (rest and rest[0]["symbol"] == "("):
        return ("name", first["name"]), rest
    if first["name"] in {"abs", "default_zero"} or first["symbol"] == "(":
        tree, after = _sum(rest[1:] if first["name"] else rest)
        if not after or after[0]["symbol"] != ")":
            raise ValueError("not a query of ours: a bracket is not closed")
        return ((first["name"], tree) if first["name"] else tree), after[1:]
    raise ValueError(f"not a query of ours: {first[0]}")


def queries(tree: Node) -> list[SeriesQuery]:
    """Return the series expressions of a tree."""
    if tree[0] == "series":
        return [tree[1]]
    return [query for part in tree[1:] if isinstance(part, tuple) for query in queries(part)]


def compute(tree: Node, resolve: Callable[[Node], Term]) -> Term | float:
    """Return the value of a tree; `resolve` gives the terms of series and names."""
    kind, *parts = tree
    if kind == "number":
        return float(parts[0])
    if kind in {"series", "name"}:
        return resolve(tree)
    values = [compute(part, resolve) for part in parts]
    if kind == "default_zero":
        assert isinstance(values[0], Term)
        return Term(values[0].values, zero=True)
    if kind == "abs":
        assert isinstance(values[0], Term)
        return Term({key: abs(value) for key, value in values[0].values.items()}, values[0].zero)
    return _arithmetic(kind, values[0], values[1])


def _arithmetic(symbol: str, left: Term | float, right: Term | float) -> Term | float:
    operations: dict[str, Callable[[float, float], float | None]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b if b else None,
    }
    operation = operations[symbol]
    if isinstance(left, float) and isinstance(right, float):
        found = operation(left, right)
        assert found is not None
        return found
    keys = {key for term in (left, right) if isinstance(term, Term) for key in term.values}
    result = {}
    for key in sorted(keys):
        pair = [
            term if isinstance(term, float) else term.values.get(key, 0.0 if term.zero else None)
            for term in (left, right)
        ]
        if pair[0] is not None and pair[1] is not None:
            value = operation(pair[0], pair[1])
            if value is not None:
                result[key] = value
    return Term(result, all(isinstance(term, float) or term.zero for term in (left, right)))


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
    shown = []
    for formula in request["formulas"]:
        value = compute(parse(formula["formula"]), lambda node: terms[node[1]])
        assert isinstance(value, Term)
        shown.append({**({(): 0.0} if value.zero and not value.values else {}), **value.values})
    return shown


@dataclass(frozen=True)
class MonitorQuery:
    """The query of a monitor, parsed."""

    expression: Node
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
        def resolve(node: Node) -> Term:
            found = node[1].evaluate(series, start, end, {})
            return Term(
                {
                    (key, at): value
                    for key, rows in found.items()
                    if MISSING not in key  # a monitor cannot be trusted to alert on such a group
                    for at, value in rows.items()
                }
            )

        term = compute(self.expression, resolve)
        assert isinstance(term, Term)
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
