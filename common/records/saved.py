"""What earlier ticks saved, part by part, each judged by its type.

One that is not ours is forgotten and counted; the rest stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

MAX_TIME = 2**33  # seconds since the epoch
MAX_SAVED = 10**300  # of any number; what is larger, or none at all, would not come through arithmetic

Whole = Annotated[int, Field(strict=True, gt=-MAX_SAVED, lt=MAX_SAVED)]
Number = Whole | Annotated[float, Field(strict=True, gt=-MAX_SAVED, lt=MAX_SAVED)]
Second = Annotated[int, Field(strict=True, ge=0, lt=MAX_TIME)]
Time = Second | Annotated[float, Field(strict=True, ge=0, lt=MAX_TIME)]

T = TypeVar("T")


class SavedState:
    """A saved state, and the keys of it that are to be forgotten."""

    def __init__(self, state: Mapping[str, object]) -> None:
        self.state = state
        self.bad = 0
        self.forgotten: dict[str, object] = {}

    def parts(self, prefix: str, schema: TypeAdapter[T]) -> Iterator[tuple[str, T]]:
        """Every part under a prefix that is as it should be, with the rest of its key."""
        for key in self.state:
            if key.startswith(prefix):
                found = self.part(key, schema)
                if found is None:
                    self.forgotten[key] = None
                else:
                    yield key.removeprefix(prefix), found

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
