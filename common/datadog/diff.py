"""Compare a dashboard or monitor in Datadog with the document it should be, field by field.

`provisioning.py` plans by these changes, `scripts/provision.py` shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from os.path import commonprefix
from typing import Any, NamedTuple

MAX_CHANGES = 20  # shown per document
MAX_VALUE = 160  # characters of a value that are shown
CONTEXT = 20  # characters shown before a difference beyond that

_EMPTY: tuple[object, ...] = (None, "", [], {})  # Datadog stores these or leaves them out


class Change(NamedTuple):
    """One field with its value in Datadog and the value it should have; None is not set."""

    field: str
    old: Any  # Any: JSON
    new: Any


def changes(old: Any, new: Any, field: str = "") -> Iterator[Change]:
    """Yield the fields of `new` that differ in `old`, with their path; absent equals empty.

    Fields that only `old` has are Datadog's own ids, dates and defaults. Of lists all items are compared:
    widgets by their titles, so that an added widget is one change, and texts in order, because Datadog sorts
    tags.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in new:
            yield from changes(old.get(key), new[key], f"{field}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list):
        before, after = _named(old), _named(new)
        for name in {**before, **after}:
            yield from changes(before.get(name), after.get(name), f"{field}[{name}]")
        if {*before} == {*after} and [*before] != [*after]:
            yield Change(f"{field} order", [*before], [*after])
    elif old != new and not (old in _EMPTY and new in _EMPTY):
        yield Change(field, old, new)


def _named(items: list[Any]) -> dict[str, Any]:
    """Return the items of a list by name: the title of a widget, otherwise the number.

    A widget whose title another one has already is named by both.
    """
    if all(isinstance(item, str) for item in items):
        items = sorted(items)
    named: dict[str, Any] = {}
    for number, item in enumerate(items):
        definition = item.get("definition", {}) if isinstance(item, dict) else {}
        name = definition.get("title") or definition.get("type") or str(number)
        named[f"{name} {number}" if name in named else name] = item
    return named


def show(found: Sequence[Change]) -> Iterator[str]:
    """Yield lines that show each change to a person, the first `MAX_CHANGES` of them."""
    for field, *values in found[:MAX_CHANGES]:
        yield f"{field.replace('.definition', '')}:"
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        # Messages often differ only near their end.
        same = len(commonprefix(texts))  # noqa: RUF071  # character by character
        if same > MAX_VALUE - CONTEXT:
            texts = [f"...{text[same - CONTEXT :]}" for text in texts]
        for sign, text in zip("-+", texts, strict=True):
            yield f"  {sign} {text if len(text) <= MAX_VALUE else f'{text[:MAX_VALUE]}...'}"
    if len(found) > MAX_CHANGES:
        yield f"and {len(found) - MAX_CHANGES} more fields"
