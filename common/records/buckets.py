"""What writers that share a series add up to, bucket by bucket, so that none overwrites another.

Time is cut into buckets. What was added up in one is saved for as long as the intake takes its points: what
is read late adds to its bucket, which is then sent again, whole. While files wait to be read it may be held
back: nobody knows then whether a bucket is whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar

import orjson
from pydantic import Field, Json, TypeAdapter

from common.intake import MAX_AGE
from common.records.saved import MAX_TIME, Number, SavedState, Second, Whole
from common.shards import slotted

MAX_KEPT = 30_000_000  # characters of all saved buckets
MAX_SPAN = 4 * MAX_AGE  # seconds from the oldest time that a reading takes to the latest

Key = tuple[str, ...]
Part = tuple[str, int]  # of a bucket: the slot, and where the bucket begins
# Of the writers of a series: their values, how many they are, the highest.
Sum = tuple[Number, Annotated[Whole, Field(ge=1)], Number]
V = TypeVar("V")

_TEXT: TypeAdapter[str] = TypeAdapter(str)
_SECOND: TypeAdapter[int] = TypeAdapter(Second)
_LAST_OF = TypeAdapter(tuple[Second, list[tuple[Key, Number]]])


class Cells(Generic[V]):
    """Values by bucket and key that add up. A bucket is saved as text, and parsed only where it grows.

    Each slot has its own part of a bucket; what is sent is all of them together. `kind` is the type of a
    saved value; `add` puts two together and changes neither.
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
        self._saved: dict[Part, str] = {}
        self._slots: dict[int, dict[str, None]] = {}  # which there are of a bucket
        # By slot, from when on nothing was sent; and how many values were held back for too long.
        self.held, self.too_old = dict(saved.everywhere(f"held:{prefix}", _SECOND)), 0
        for number, name, said in saved.parts_by_slot(prefix, _TEXT):
            if (start := _start(name)) >= oldest:
                self._saved[number, start] = said
                self._slots.setdefault(start, {})[number] = None
            else:
                saved.forgotten[slotted(number, prefix + name)] = None
                if start >= self.held.get(number, MAX_TIME):
                    cells = saved.parsed(said, self._schema)
                    self.too_old += len(cells or ())
        forgotten = max((at for _, at in saved.everywhere(self._mark, _SECOND)), default=0)
        self.forgotten = forgotten if forgotten < oldest + MAX_SPAN else 0
        self._open: dict[Part, dict[Key, V]] = {}
        self._grown = {part: {*self._opened(part)} for part in self.held_back()}
        self.growth = sum(map(len, self._grown.values()))

    def held_back(self) -> list[Part]:
        """The saved parts that were not sent."""
        return [part for part in self._saved if part[1] >= self.held.get(part[0], MAX_TIME)]

    @property
    def _mark(self) -> str:
        """The key of the state that tells up to where buckets were forgotten."""
        return f"forgotten:{self._prefix}"

    def add(self, start: int, key: Key, value: V, slot: str | None = None) -> bool:
        """Add a value to its bucket; False where that one is forgotten."""
        if start <= self.forgotten:
            return False
        part = (self._before.slot if slot is None else slot, start)
        cells = self._open.get(part)
        if cells is None:
            cells = self._opened(part)
        known = cells.get(key)
        cells[key] = value if known is None else self._add(known, value)
        grown = self._grown.setdefault(part, set())
        if key not in grown:
            grown.add(key)
            self.growth += 1
        return True

    def at(self, start: int) -> Mapping[Key, V]:
        """All values of a bucket."""
        parts = [self._open.get((slot, start)) or self._opened((slot, start)) for slot in self._of(start)]
        if len(parts) == 1:
            return parts[0]
        found: dict[Key, V] = {}
        for part in parts:
            for key, value in part.items():
                found[key] = self._add(found[key], value) if key in found else value
        return found

    def grown(self) -> Iterator[tuple[int, Key, V]]:
        """Every value that was added to since the last changes, with its bucket, key by key.

        Points of one series that follow each other are sent together, which costs far less.
        """
        starts: dict[Key, dict[int, None]] = {}
        whole = {start: self.at(start) for start in sorted({start for _, start in self._grown})}
        for (_, start), keys in sorted(self._grown.items(), key=lambda one: one[0][1]):
            for key in keys:
                starts.setdefault(key, {})[start] = None
        for key in sorted(starts):
            for start in starts[key]:
                yield start, key, whole[start][key]

    def hold(self, parts: Iterable[Part] | None = None) -> None:
        """Send what has grown, or these parts, another time."""
        for slot, start in self._grown if parts is None else parts:
            self.held[slot] = min(start, self.held.get(slot, start))

    def changes(self, *, forget: bool, held: bool = False) -> dict[str, object]:
        """What to save of what has grown, sent or `held`; at most so much, where some may be forgotten."""
        mark, changes = f"held:{self._prefix}", dict[str, object]()
        for slot, start in self.held.items():
            changes[slotted(slot, mark)] = start if held else None
        self.held = self.held if held else {}
        for part in self._grown:
            said = dumps(list(self._open[part].items()))
            self._saved[part] = changes[self._key(*part)] = said
        kept = sum(map(len, self._saved.values()))
        for slot, start in sorted(self._saved, key=lambda part: part[1]) if forget else ():
            if kept <= MAX_KEPT and start > self.forgotten:
                break
            kept -= len(self._saved.pop((slot, start)))
            self.forgotten = start
            changes |= {self._key(slot, start): None, slotted(slot, self._mark): start}
        self._open, self._grown, self.growth = {}, {}, 0
        return changes

    def _key(self, slot: str, start: int) -> str:
        return slotted(slot, f"{self._prefix}{start}")

    def _of(self, start: int) -> Mapping[str, None]:
        """The slots that have a part of a bucket."""
        return self._slots.setdefault(start, {})

    def _opened(self, part: Part) -> dict[Key, V]:
        said = self._saved.get(part)
        self._slots.setdefault(part[1], {})[part[0]] = None
        cells = self._open[part] = dict((said and self._before.parsed(said, self._schema)) or ())
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
        self._saved = saved
        self._width = width
        self._oldest = oldest
        self._left = Cells(saved, "bucket:", oldest - width, Sum, plus)
        self._open: dict[str, tuple[int, dict[Key, float]]] = {}  # by writer: its latest bucket
        for writer, (start, values) in saved.parts("open:", _LAST_OF):
            if start < oldest + MAX_SPAN:
                self._open[writer] = (start, dict(values))
            else:
                saved.bad += 1
        self._heard: set[str] = set()
        since = min(self._left.held.values(), default=MAX_TIME)
        starts = {start for _, start in self._left.held_back()} | {start for start, _ in self._open.values()}
        self._touched = {start for start in starts if start >= since}

    def __bool__(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._touched)

    def add(self, writer: str, timestamp: float, values: Mapping[Key, float]) -> bool:
        """Let a writer's values stand for it in their bucket; False where it is in a later one already."""
        start = int(timestamp) // self._width * self._width
        before, known = self._open.get(writer, (start, {}))
        if start < before or start <= self._left.forgotten:
            return False
        slot = self._saved.claim(f"open:{writer}", self._saved.claim(f"run:{writer}"))
        if start > before:
            for series, value in known.items():
                self._left.add(before, series, (value, 1, value), slot)
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

    @property
    def too_old(self) -> int:
        """Values that were held back for too long."""
        return self._left.too_old

    def hold(self) -> None:
        """Send what has changed another time."""
        slots = {self._saved.claim(f"open:{writer}") for writer in self._heard}
        self._left.hold((slot, start) for slot in slots for start in self._touched)

    def changes(self, *, forget: bool, held: bool = False) -> dict[str, object]:
        """What to save, and what is too old to be sent again and is forgotten."""
        saved: dict[str, object] = {}
        for writer, (start, values) in self._open.items():
            if start + self._width < self._oldest:
                saved[f"open:{writer}"] = None
            elif writer in self._heard:
                saved[f"open:{writer}"] = [start, list(values.items())]
        self._touched, self._heard = set(), set()
        return {**self._left.changes(forget=forget, held=held), **saved}


def _start(text: str) -> int:
    """When a saved bucket begins; -1, which is too old, where it is not one of ours."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else -1
