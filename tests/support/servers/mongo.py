"""The Mongo-style filters W&B takes, on the fields a run listing can be filtered by.

Times compare as instants. As reported of the service, a time without a trailing Z matches nothing and a
number in its place breaks the request.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

TIMES = frozenset({"createdAt", "heartbeatAt", "updatedAt"})

Values = Mapping[str, Any]  # a run's fields by their name in filters; Any: text, numbers or None
Predicate = Callable[[Values], bool]

_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class BadFilterError(Exception):  # the server answers 500
    """A filter the service fails on."""


def predicate(document: Any) -> Predicate:
    """Compile a filter."""
    if not isinstance(document, dict):
        raise BadFilterError(f"a filter is an object, not {document!r}")
    terms = [_term(key, wanted) for key, wanted in document.items()]
    if len(terms) == 1:  # as most parts of a filter are, and a large project is filtered often
        return terms[0]
    return lambda values: all(term(values) for term in terms)


def instant(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 time; one without an offset is UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _term(key: str, wanted: Any) -> Predicate:
    if key in {"$or", "$and", "$nor"}:
        parts = [predicate(part) for part in wanted]
        if key == "$and":
            return lambda values: all(part(values) for part in parts)
        return lambda values: any(part(values) for part in parts) is (key == "$or")
    if key == "$not":
        inner = predicate(wanted)
        return lambda values: not inner(values)
    if key.startswith("$"):
        raise BadFilterError(f"unknown operator {key}")
    operators = wanted if isinstance(wanted, dict) else {"$eq": wanted}
    tests = [_comparison(key, name, operand) for name, operand in operators.items()]
    if len(tests) == 1:
        [test] = tests
        return lambda values: test(values.get(key))
    return lambda values: all(test(values.get(key)) for test in tests)


def _comparison(field: str, name: str, operand: Any) -> Callable[[Any], bool]:
    if name == "$in":
        return lambda value: value in operand
    if name == "$nin":
        return lambda value: value not in operand
    if name == "$ne":
        return lambda value: bool(value != operand)
    if name == "$exists":
        return lambda value: (value is not None) is bool(operand)
    if name == "$regex":
        pattern = re.compile(operand)
        return lambda value: isinstance(value, str) and pattern.search(value) is not None
    if field in TIMES:
        if isinstance(operand, int | float):
            raise BadFilterError(f"{field} is compared with a number")
        if not operand.endswith("Z"):
            return lambda _: False
        operand = instant(operand)
    if name == "$eq":
        return lambda value: bool(value == operand)
    if name not in _ORDERINGS:
        raise BadFilterError(f"unknown operator {name}")
    compare = _ORDERINGS[name]
    return lambda value: value is not None and compare(value, operand)
