"""What earlier ticks saved, part by part, each judged by its type.

One that is not ours is forgotten and counted; the rest stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from common.shards import slotted, split

MAX_TIME = 2**33  # seconds since the epoch
MAX_SAVED = 10**300  # of any number; what is larger, or none at all, would not come through arithmetic

Whole = Annotated[int, Field(strict=True, gt=-MAX_SAVED, lt=MAX_SAVED)]
Number = Whole | Annotated[float, Field(strict=True, gt=-MAX_SAVED, lt=MAX_SAVED)]
Second = Annotated[int, Field(strict=True, ge=0, lt=MAX_TIME)]
Time = Second | Annotated[float, Field(strict=True, ge=0, lt=MAX_TIME)]

T = TypeVar("T")


class SavedState:
    """A saved state, and the keys of it that are to be forgotten.

    Every part belongs to a slot: that of the file under way when it was first told of. What is said of it
    later stays there, whichever file it is read from.
    """

    def __init__(self, state: Mapping[str, object]) -> None:
        self.state = state
        self.bad = 0
        self.forgotten: dict[str, object] = {}
        self.slot = ""  # of the file under way
        self._slots: dict[str, str] = {}  # by key
        # By prefix: slot, rest, the whole key, and what is saved there.
        self._keys: dict[str, list[tuple[str, str, str, object]]] = {}
        for whole, part in state.items():
            number, key = split(whole)
            prefix, colon, rest = key.partition(":")
            self._keys.setdefault(prefix + colon, []).append((number, rest, whole, part))

    def parts_by_slot(self, prefix: str, schema: TypeAdapter[T]) -> Iterator[tuple[str, str, T]]:
        """Every part under a prefix that is as it should be, with its slot and the rest of its key."""
        parse = schema.validator.validate_python  # the adapter's own method costs as much again
        for number, rest, whole, part in self._keys.get(prefix, ()):
            try:
                yield number, rest, parse(part)
            except ValidationError:
                self.bad += 1
                self.forgotten[whole] = None

    def parts(self, prefix: str, schema: TypeAdapter[T]) -> Iterator[tuple[str, T]]:
        """Every part under a prefix that only one slot can have."""
        for number, rest, found in self.parts_by_slot(prefix, schema):
            self._slots[prefix + rest] = number
            yield rest, found

    def everywhere(self, key: str, schema: TypeAdapter[T]) -> Iterator[tuple[str, T]]:
        """A part that every slot may have, with the slot."""
        prefix, colon, rest = key.partition(":")
        for number, name, whole, _ in self._keys.get(prefix + colon, ()):
            if name == rest and (found := self.part(whole, schema)) is not None:
                yield number, found

    def claim(self, key: str, slot: str | None = None) -> str:
        """The slot of a part; where it is new a given one, or that of the file under way."""
        return self._slots.setdefault(key, self.slot if slot is None else slot)

    def placed(self, changes: Mapping[str, object]) -> dict[str, object]:
        """Changes under the keys they are saved by: each with the slot of its part, where it has one."""
        slots = self._slots
        return {slotted(slots.get(key, ""), key): value for key, value in changes.items()}

    def part(self, key: str, schema: TypeAdapter[T]) -> T | None:
        """One part; None where it is not there, or not ours, which is for the caller to write anew."""
        saved = self.state.get(key)
        return None if saved is None else self.parsed(saved, schema)

    def parsed(self, saved: Any, schema: TypeAdapter[T]) -> T | None:  # Any: parsed JSON
        """What was saved, or None where it is not ours."""
        try:
            return schema.validate_python(saved)
        except ValidationError:
            self.bad += 1
            return None
