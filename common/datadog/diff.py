"""Compare a dashboard or monitor in Datadog with the document it should be, field by field.

Only fields that the document sets are compared: Datadog adds ids, dates and defaults of its own. Widgets are
matched by the titles of their group and their own, so that an added widget is one change. `provisioning.py`
plans by these changes, `scripts/provision.py` shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

MAX_CHANGES = 20  # shown per document
MAX_VALUE = 160  # characters of a value that are shown

_EMPTY: tuple[object, ...] = (None, "", [], {})  # Datadog stores these or leaves them out


class Change(NamedTuple):
    """One field with its value in Datadog and the value it should have; None is not set."""

    field: str
    old: Any  # Any: JSON
    new: Any


def changes(found: Mapping[str, Any], declared: Mapping[str, Any]) -> list[Change]:
    """Return the fields of `declared` that differ in `found`, and the widgets that only one of them has.

    An empty list means that nothing has to be written.
    """
    result = [*_compare("", found, {key: value for key, value in declared.items() if key != "widgets"})]
    before, after = dict(_widgets(found)), dict(_widgets(declared))
    result += [Change(title, "widget", None) for title in before if title not in after]
    result += [Change(title, None, "widget") for title in after if title not in before]
    both = [title for title in after if title in before]
    for title in both:
        result += _compare(title, before[title]["definition"], after[title]["definition"])
    # An added widget moves all that follow it: these are one change, and not one per widget.
    moved = [title for title in both if [*_compare("", before[title].get("layout"), after[title]["layout"])]]
    if moved:
        result.append(Change("layout", None, f"{len(moved)} widgets moved"))
    return result


def show(found: list[Change]) -> Iterator[str]:
    """Yield lines that show each change to a person, the first `MAX_CHANGES` of them."""
    for field, old, new in found[:MAX_CHANGES]:
        before, after = _text(old), _text(new)
        if len(field) + len(before) + len(after) <= 64:
            yield f"{field}: {before} -> {after}"
        else:
            yield from (f"{field}:", f"  - {before}", f"  + {after}")
    if len(found) > MAX_CHANGES:
        yield f"and {len(found) - MAX_CHANGES} more fields"


def _widgets(document: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the widgets with their titles, prefixed with that of their group.

    A group itself is yielded without its widgets.
    """
    for widget in document.get("widgets") or ():
        definition = dict(widget["definition"])
        title = f"{group}{definition.get('title') or definition['type']}"
        yield from _widgets({"widgets": definition.pop("widgets", ())}, f"{title} / ")
        yield title, {**widget, "definition": definition}


def _compare(field: str, old: Any, new: Any) -> Iterator[Change]:
    """Yield the fields of `new` that differ in `old`, with their path; absent equals empty."""
    if isinstance(new, dict) and isinstance(old, dict):
        for key, value in new.items():
            yield from _compare(f"{field}.{key}".lstrip("."), old.get(key), value)
    elif isinstance(new, list) and isinstance(old, list):
        # Lists of texts are tags, which Datadog may return in another order.
        if all(isinstance(value, str) for value in (*old, *new)):
            old, new = sorted(old), sorted(new)
        for index, (before, after) in enumerate(zip_longest(old, new)):
            yield from _compare(f"{field}[{index}]", before, after)
    elif old != new and not (old in _EMPTY and new in _EMPTY):
        yield Change(field, old, new)


def _text(value: Any) -> str:
    """Return a value as JSON, cut to MAX_VALUE characters."""
    if value is None:
        return "(not set)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
