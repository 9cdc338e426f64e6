"""The Mongo-style filters W&B takes, as far as run listings are filtered here.

Times compare as instants. As reported of the service, a time without a trailing Z matches nothing and a
number in its place breaks the request.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

TIMES = frozenset({"createdAt", "heartbeatAt", "updatedAt"})

Values = Mapping[str, Any]  # a run's fields by their name in filters; Any: text, numbers or None
Predicate = Callable[[Values], bool]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$gte": operator.ge,
    "$lt": operator.lt,
}


class BadFilterError(Exception):  # the server answers 500
    """A filter the service fails on."""


def predicate(document: Any) -> Predicate:
    """Compile a filter."""
    if not isinstance(document, dict):
        raise BadFilterError(f"a filter is an object, not {document!r}")
    return _every([_term(key, wanted) for key, wanted in document.items()])


def instant(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 time; one without an offset is UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _every(terms: list[Predicate]) -> Predicate:
    if len(terms) == 1:  # as most parts of a filter are, and a large project is filtered often
        return terms[0]
    return lambda values: all(term(values) for term in terms)


def _term(key: str, wanted: Any) -> Predicate:
    if key == "$and":
        return _every([predicate(part) for part in wanted])
    if key == "$or":
        parts = [predicate(part) for part in wanted]
        return lambda values: any(part(values) for part in parts)
    if key.startswith("$"):
        raise BadFilterError(f"unknown operator {key}")
    operators = wanted if isinstance(wanted, dict) else {"$eq": wanted}
    return _every([_comparison(key, name, operand) for name, operand in operators.items()])


def _comparison(field: str, name: str, operand: Any) -> Predicate:
    if name not in _COMPARISONS:
        raise BadFilterError(f"unknown operator {name}")
    if field in TIMES:
        if isinstance(operand, int | float):
            raise BadFilterError(f"{field} is compared with a number")
        if not operand.endswith("Z"):
            return lambda _: False
        operand = instant(operand)
    compare = _COMPARISONS[name]
    return lambda values: (value := values.get(field)) is not None and compare(value, operand)
