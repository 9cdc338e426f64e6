"""How what we made in Datadog is told from what others made, and what differs from what is wanted.

A mark holds the key of the declaration, who made the object, its own id, and digests of what was asked for
and of what Datadog answered. A clone has another id in its mark, another team's copy another owner, and what
somebody changed by hand another answer. A mark that is open is of a write that was cut off.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import ndiff
from itertools import zip_longest
from typing import Any, NamedTuple

from common.datadog.documents import Document

MAX_DIFF = 30  # lines of one object that are shown
TAG = "managed_by:fleetgauge"  # of every monitor of ours, to ask for them alone
OPEN = "-"  # stands for what is not known before Datadog has answered
_NOTHING: tuple[object, ...] = (None, "", [], {})  # which Datadog may say or leave out
_MARK = re.compile(r"fleetgauge_mark:([a-z0-9-]+)/([0-9a-f]{12})/([\w-]+)/([0-9a-f]{12})/([0-9a-f]{12}|-)")


class Mark(NamedTuple):
    """What says that an object is ours, and as it was left."""

    key: str
    owner: str
    id: str
    asked: str
    answered: str

    def __str__(self) -> str:
        return "fleetgauge_mark:" + "/".join(self)

    @classmethod
    def read(cls, text: str) -> Mark | None:
        """The last mark in a text."""
        found = [*_MARK.finditer(text)]
        return cls(*found[-1].groups()) if found else None


@dataclass(frozen=True)
class Kind:
    """How objects of a kind are asked for, which of their fields a person decides, and where a mark is."""

    name: str
    path: str
    title: str
    content: tuple[str, ...]

    def mark(self, found: Mapping[str, Any]) -> Mark | None:
        """The mark of an object."""
        if self is MONITOR:
            return Mark.read("\n".join(map(str, found.get("tags") or ())))
        return Mark.read(str(found.get("description") or ""))

    def marked(self, wanted: Document, mark: Mark) -> Document:
        """The document with the mark in it."""
        if self is MONITOR:
            return {**wanted, "tags": [*wanted["tags"], TAG, str(mark)]}
        return {**wanted, "description": f"{wanted['description']}\n\n{mark}"}

    def digest(self, found: Mapping[str, Any]) -> str:
        """Of all that a person could have changed: neither ids nor dates, author, state or the mark."""
        return digest(bare({key: found[key] for key in self.content if key in found}))


DASHBOARD = Kind(
    *("dashboard", "/api/v1/dashboard", "title"),
    (
        *("title", "description", "layout_type", "reflow_type", "template_variables", "widgets", "tags"),
        *("notify_list", "template_variable_presets", "restricted_roles", "is_read_only"),
    ),
)
MONITOR = Kind(
    *("monitor", "/api/v1/monitor", "name"),
    ("name", "type", "query", "message", "tags", "options", "priority", "restricted_roles"),
)
METADATA = Kind("metadata", "/api/v1/metrics", "short_name", ())


def digest(document: object) -> str:
    """Twelve hexadecimal digits that stand for a document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


# Any: JSON, whatever Datadog makes of what it was given
def bare(value: Any) -> Any:
    """Without ids, marks and what is not set; lists of plain values in one order, whole numbers as such."""
    if isinstance(value, dict):
        return {key: bare(one) for key, one in value.items() if key != "id" and one not in _NOTHING}
    if isinstance(value, list):
        plain = all(not isinstance(one, dict | list) for one in value)
        kept = [bare(one) for one in value]
        return sorted((one for one in kept if one), key=str) if plain else kept
    if isinstance(value, str):
        return _MARK.sub("", value).strip()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def owner(service: str, instance: str) -> str:
    """Who makes objects, as a mark has it."""
    return digest([service, instance])


def difference(found: Any, wanted: Any) -> list[str]:
    """What differs of the fields that we set, as lines for a person; Datadog's own additions are left out."""
    lines = [*_changes("", found, wanted)]
    more = len(lines) - MAX_DIFF
    return lines if more <= 0 else [*lines[:MAX_DIFF], f"  and {more:,} lines more"]


def _changes(path: str, old: Any, new: Any) -> Iterator[str]:
    kinds = {type(one) for one in (old, new) if one is not None}
    if kinds == {dict}:
        for key in old if new is None else new:
            yield from _changes(f"{path}.{key}".lstrip("."), (old or {}).get(key), (new or {}).get(key))
    elif kinds == {list}:
        for place, (before, after) in enumerate(zip_longest(old or (), new or ())):
            yield from _changes(f"{path}[{place}]", before, after)
    elif kinds == {str} and "\n" in (old or "") + (new or ""):
        for line in ndiff((old or "").split("\n"), (new or "").split("\n")):
            if line[0] in "+-" and line[2:]:
                yield f"{line[0]} {path}: {line[2:]}"
    elif old != new:
        for sign, one in (("-", old), ("+", new)):
            if one is not None:
                yield f"{sign} {path}: {json.dumps(one, ensure_ascii=False)}"
