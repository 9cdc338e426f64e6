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
from typing import Any, NamedTuple

from common.datadog.documents import Document

MAX_DIFF = 30  # lines of one object that are shown
TAG = "managed_by:fleetgauge"  # of every monitor of ours, to ask for them alone
OPEN = "-"  # stands for what is not known before Datadog has answered
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
    permission: str
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
    *("dashboard", "/api/v1/dashboard", "title", "dashboards_write"),
    (
        "title",
        "description",
        "layout_type",
        "reflow_type",
        "template_variables",
        "widgets",
        "notify_list",
        "tags",
    ),
)
MONITOR = Kind(
    *("monitor", "/api/v1/monitor", "name", "monitors_write"),
    ("name", "type", "query", "message", "tags", "options", "priority"),
)


def digest(document: object) -> str:
    """Twelve hexadecimal digits that stand for a document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


# Any: JSON, whatever Datadog makes of what it was given
def bare(value: Any) -> Any:
    """Without ids, marks and what is not set; lists of plain values in one order, whole numbers as such."""
    if isinstance(value, dict):
        return {key: bare(one) for key, one in value.items() if key != "id" and one is not None}
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
    before, after = dict(_flat(found, "")), dict(_flat(wanted, ""))
    lines = []
    for path in sorted({*after, *(path for path in before if _set_by_us(path, wanted))}):
        old, new = before.get(path), after.get(path)
        if old != new:
            lines += [f"- {path}: {old}"] if old is not None else []
            lines += [f"+ {path}: {new}"] if new is not None else []
    more = len(lines) - MAX_DIFF
    return lines if more <= 0 else [*lines[:MAX_DIFF], f"  and {more:,} lines more"]


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every plain value of a document by where it stands."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flat(one, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _flat(one, f"{path}[{place}]")
    else:
        yield path, json.dumps(value, ensure_ascii=False)


def _set_by_us(path: str, wanted: Any) -> bool:
    """Whether a value of Datadog's stands in a list that we set whole, as one more element."""
    at = wanted
    for key, place in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        if place:
            if not isinstance(at, list):
                return False
            if int(place) >= len(at):
                return True
            at = at[int(place)]
        elif not isinstance(at, dict) or key not in at:
            return False
        else:
            at = at[key]
    return True
