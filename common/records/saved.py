"""What earlier ticks saved, part by part. One that is not ours is forgotten and counted; the rest stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

MAX_TIME = 2**33  # seconds since the epoch
MAX_SAVED = 1e300  # of any number; what is larger, or none at all, would not come through arithmetic

T = TypeVar("T")


class SavedState:
    """A saved state, and the keys of it that are to be forgotten."""

    def __init__(self, state: Mapping[str, object]) -> None:
        self.state = state
        self.bad = 0
        self.forgotten: dict[str, object] = {}

    def parts(self, prefix: str, parse: Callable[[Any], T]) -> Iterator[tuple[str, T]]:  # Any: parsed JSON
        """Every part under a prefix, with the rest of its key; `parse` raises for what is not ours."""
        for key in self.state:
            if key.startswith(prefix):
                found = self.part(key, parse)
                if found is None:
                    self.forgotten[key] = None
                else:
                    yield key.removeprefix(prefix), found

    def part(self, key: str, parse: Callable[[Any], T]) -> T | None:
        """One part; None where it is not there, or not ours, which is for the caller to write anew."""
        saved = self.state.get(key)
        return None if saved is None else self.parsed(saved, parse)

    def parsed(self, saved: Any, parse: Callable[[Any], T]) -> T | None:  # Any: parsed JSON
        """What was saved, or None where it is not ours."""
        try:
            return parse(saved)
        except Exception:  # whatever somebody else may have written there
            self.bad += 1
            return None


def time(value: Any) -> float:  # Any: parsed JSON
    """Seconds since the epoch out of a saved state."""
    if not 0 <= number(value) < MAX_TIME:
        raise ValueError("not a time")
    return value  # type: ignore[no-any-return]


def number(value: Any) -> float:  # Any: parsed JSON
    """A number out of a saved state."""
    if type(value) not in (int, float) or not -MAX_SAVED < value < MAX_SAVED:
        raise ValueError("not a number that was saved")
    return value  # type: ignore[no-any-return]


def text(value: Any) -> str:  # Any: parsed JSON
    """A text out of a saved state."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
