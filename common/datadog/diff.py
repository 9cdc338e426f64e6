"""Compare a dashboard or monitor in Datadog with the document it should be, field by field.

Only fields that the document sets are compared: Datadog adds ids, dates and defaults of its own. Widgets are
matched by the titles of their group and their own, so that an added widget is one change.
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
    """Return the fields of `declared` that differ in `found`, in the order of `declared`."""
    top = {key: value for key, value in declared.items() if key != "widgets"}
    result = [*_compare("", found, top)]
    before, after = dict(_widgets(found)), dict(_widgets(declared))
    result += [Change(title, "widget", None) for title in before if title not in after]
    moved = 0
    for title, widget in after.items():
        if title not in before:
            result.append(Change(title, None, "widget"))
            continue
        result += _compare(title, before[title]["definition"], widget["definition"])
        moved += [*_compare("", before[title].get("layout"), widget["layout"])] != []
    if moved or [*before] != [*after]:
        result.append(Change("layout", None, f"{moved} widgets moved"))
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
    """Yield the widgets with a title that is unique in the document; a group without its widgets."""
    used: dict[str, int] = {}
    for widget in document.get("widgets") or ():
        definition = widget["definition"]
        title = f"{group}{definition.get('title') or definition['type']}"
        used[title] = used.get(title, 0) + 1
        if used[title] > 1:
            title += f" ({used[title]})"
        inside = {key: value for key, value in definition.items() if key != "widgets"}
        yield title, {**widget, "definition": inside}
        yield from _widgets(definition, f"{title} / ")


def _compare(field: str, old: Any, new: Any) -> Iterator[Change]:
    if isinstance(new, dict) and isinstance(old, dict):
        for key, value in new.items():
            yield from _compare(f"{field}.{key}".lstrip("."), old.get(key), value)
    elif isinstance(new, list) and isinstance(old, list):
        if all(isinstance(value, str) for value in (*old, *new)):
            if sorted(old) != sorted(new):
                yield Change(field, old, new)
            return
        for index, (before, after) in enumerate(zip_longest(old, new)):
            yield from _compare(f"{field}[{index}]" if max(len(old), len(new)) > 1 else field, before, after)
    elif old != new and not (old in _EMPTY and new in _EMPTY):
        yield Change(field, old, new)


def _text(value: Any) -> str:
    if value is None:
        return "(not set)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
