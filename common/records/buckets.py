"""What writers that share a series add up to, bucket by bucket, so that none overwrites another.

Time is cut into buckets. What was added up in one is saved for as long as the intake takes its points: what
is read late adds to its bucket, which is then sent again, whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar

import orjson
from pydantic import Field, Json, TypeAdapter

from common.intake import MAX_AGE
from common.records.saved import Number, SavedState, Second, Whole

MAX_KEPT = 30_000_000  # characters of all saved buckets
MAX_SPAN = 4 * MAX_AGE  # seconds from the oldest time that a reading takes to the latest

Key = tuple[str, ...]
# Of the writers of a series: their values, how many they are, the highest.
Sum = tuple[Number, Annotated[Whole, Field(ge=1)], Number]
V = TypeVar("V")

_TEXT: TypeAdapter[str] = TypeAdapter(str)
_SECOND: TypeAdapter[int] = TypeAdapter(Second)
_LAST_OF = TypeAdapter(tuple[Second, list[tuple[Key, Number]]])


class Cells(Generic[V]):
    """Values by bucket and key that add up. A bucket is saved as text, and parsed only where it grows.

    `kind` is the type of a saved value; `add` puts two together and changes neither.
    """

    def __init__(
        self,
        saved: SavedState,
        prefix: str,
        oldest: float,
        kind: Any,  # Any: a type, or one with conditions
        add: Callable[[V, V], V],
    ) -> None:
        self._prefix = prefix
        self._schema: TypeAdapter[list[tuple[Key, V]]] = _cells_of(kind)
        self._add = add
        self._before = saved
        self._saved: dict[int, str] = {}
        for name, said in saved.parts(prefix, _TEXT):
            if (start := _start(name)) >= oldest:
                self._saved[start] = said
            else:
                saved.forgotten[prefix + name] = None
        forgotten = saved.part(f"forgotten:{prefix}", _SECOND) or 0
        self._forgotten = forgotten if forgotten < oldest + MAX_SPAN else 0
        self._open: dict[int, dict[Key, V]] = {}
        self._grown: dict[int, set[Key]] = {}
        self.growth = 0

    def add(self, start: int, key: Key, value: V) -> bool:
        """Add a value to its bucket; False where that one is forgotten."""
        if start <= self._forgotten:
            return False
        cells = self._open.get(start)
        if cells is None:
            cells = self._opened(start)
        known = cells.get(key)
        cells[key] = value if known is None else self._add(known, value)
        grown = self._grown.setdefault(start, set())
        if key not in grown:
            grown.add(key)
            self.growth += 1
        return True

    def at(self, start: int) -> Mapping[Key, V]:
        """All values of a bucket."""
        return self._open.get(start) or self._opened(start)

    def grown(self) -> Iterator[tuple[int, Key, V]]:
        """Every value that was added to since the last changes, with its bucket, key by key.

        Points of one series that follow each other are sent together, which costs far less.
        """
        starts: dict[Key, list[int]] = {}
        for start in sorted(self._grown):
            for key in self._grown[start]:
                starts.setdefault(key, []).append(start)
        for key in sorted(starts):
            for start in starts[key]:
                yield start, key, self._open[start][key]

    def changes(self, *, forget: bool) -> dict[str, object]:
        """What to save of what has grown; at most so much, where some may be forgotten."""
        changes: dict[str, object] = {}
        for start in self._grown:
            said = dumps(list(self._open[start].items()))
            self._saved[start] = changes[f"{self._prefix}{start}"] = said
        kept = sum(map(len, self._saved.values()))
        for start in sorted(self._saved) if forget else ():
            if kept <= MAX_KEPT:
                break
            kept -= len(self._saved.pop(start))
            self._forgotten = start
            changes |= {f"{self._prefix}{start}": None, f"forgotten:{self._prefix}": start}
        self._open, self._grown, self.growth = {}, {}, 0
        return changes

    def _opened(self, start: int) -> dict[Key, V]:
        said = self._saved.get(start)
        cells = self._open[start] = dict((said and self._before.parsed(said, self._schema)) or ())
        return cells


@lru_cache
def _cells_of(kind: Any) -> TypeAdapter[Any]:  # Any: see `Cells`
    return TypeAdapter(Json[list[tuple[Key, kind]]])


def dumps(value: object) -> str:
    """Text to save; sums may be larger than any number of 64 bits, which orjson refuses."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value)


def plus(one: Sum, other: Sum) -> Sum:
    """Two sums as one."""
    return one[0] + other[0], one[1] + other[1], max(one[2], other[2])


class Shared:
    """Series that several writers share. In each bucket a writer counts once, with its last values there."""

    def __init__(self, saved: SavedState, width: int, oldest: float) -> None:
        self._width = width
        self._oldest = oldest
        self._left = Cells(saved, "bucket:", oldest - width, Sum, plus)
        self._open: dict[str, tuple[int, dict[Key, float]]] = {}  # by writer: its latest bucket
        for writer, (start, values) in saved.parts("open:", _LAST_OF):
            if start < oldest + MAX_SPAN:
                self._open[writer] = (start, dict(values))
            else:
                saved.bad += 1
        self._touched: set[int] = set()
        self._heard: set[str] = set()

    def __bool__(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._touched)

    def add(self, writer: str, timestamp: float, values: Mapping[Key, float]) -> bool:
        """Let a writer's values stand for it in their bucket; False where it is in a later one already."""
        start = int(timestamp) // self._width * self._width
        before, known = self._open.get(writer, (start, {}))
        if start < before:
            return False
        if start > before:
            for series, value in known.items():
                self._left.add(before, series, (value, 1, value))
            known = {}
        self._open[writer] = (start, {**known, **values})
        self._touched.add(start)
        self._heard.add(writer)
        return True

    def sums(self) -> Iterator[tuple[int, dict[Key, Sum]]]:
        """Every bucket that changed, whole, with its start."""
        buckets = {start: dict(self._left.at(start)) for start in sorted(self._touched)}
        for start, values in self._open.values():
            if start in buckets:
                sums = buckets[start]
                for series, value in values.items():
                    one = (value, 1, value)
                    sums[series] = plus(sums[series], one) if series in sums else one
        yield from buckets.items()

    def changes(self) -> dict[str, object]:
        """What to save, and what is too old to be sent again and is forgotten."""
        saved: dict[str, object] = {}
        for writer, (start, values) in self._open.items():
            if start + self._width < self._oldest:
                saved[f"open:{writer}"] = None
            elif writer in self._heard:
                saved[f"open:{writer}"] = [start, list(values.items())]
        self._touched, self._heard = set(), set()
        return {**self._left.changes(forget=False), **saved}


def _start(text: str) -> int:
    """When a saved bucket begins; -1, which is too old, where it is not one of ours."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else -1
