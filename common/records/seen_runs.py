"""Remembers which records of which run were taken, so that a file read again yields nothing twice.

The numbers of a run are kept as ranges, usually a single one: whole files may be read in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

MAX_RANGES = 1000
PREFIX = "seen:"


class Sequence:
    """A set of whole numbers, as sorted ranges [first, last] with a gap between any two."""

    def __init__(self, ranges: list[list[int]] | None = None) -> None:
        self.ranges = ranges or []

    def __contains__(self, number: int) -> bool:
        if not self.ranges or number > self.ranges[-1][1]:
            return False  # nearly every one
        place = bisect_right(self.ranges, number, key=lambda one: one[0]) - 1
        return place >= 0 and number <= self.ranges[place][1]

    def add(self, number: int) -> None:
        """Put a number in. Beyond so many gaps the lowest one is closed: everything is bounded."""
        if self.ranges and number == self.ranges[-1][1] + 1:
            self.ranges[-1][1] = number
            return
        place = bisect_right(self.ranges, number, key=lambda one: one[0])
        if place and number <= self.ranges[place - 1][1]:
            return
        self.ranges.insert(place, [number, number])
        if place + 1 < len(self.ranges) and self.ranges[place + 1][0] == number + 1:
            self.ranges[place][1] = self.ranges.pop(place + 1)[1]
        if place and self.ranges[place - 1][1] == number - 1:
            self.ranges[place - 1][1] = self.ranges.pop(place)[1]
        if len(self.ranges) > MAX_RANGES:
            self.ranges[0][1] = self.ranges.pop(1)[1]


class SeenRuns:
    """The sequences of all runs: those of the saved state, and what this tick adds to them."""

    def __init__(self, state: Mapping[str, object], now: int) -> None:
        self._state = state
        self._now = now
        self._sequences: dict[str, Sequence] = {}

    def __getitem__(self, run: str) -> Sequence:
        if run not in self._sequences:
            self._sequences[run] = Sequence(_ranges(self._state.get(PREFIX + run)))
        return self._sequences[run]

    def changes(self, runs: set[str]) -> dict[str, object]:
        """What to save of some runs; a copy, because a mark is saved later than it is made."""
        return {
            PREFIX + run: {"ranges": [list(one) for one in self[run].ranges], "at": self._now} for run in runs
        }

    def expired(self, before: float) -> Iterator[str]:
        """The saved keys of runs that nothing was read of since `before`."""
        for key, saved in self._state.items():
            if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in self._sequences:
                at = saved.get("at") if isinstance(saved, dict) else None
                if not isinstance(at, int | float) or at < before:
                    yield key


def _ranges(saved: object) -> list[list[int]]:
    """Ranges out of a saved state; what does not look like ours is nothing at all."""
    ranges = saved.get("ranges") if isinstance(saved, dict) else None
    if not isinstance(ranges, list):
        return []
    previous = -2
    for one in ranges:
        if not (isinstance(one, list) and len(one) == 2 and all(type(number) is int for number in one)):
            return []
        if not previous + 1 < one[0] <= one[1]:
            return []
        previous = one[1]
    return [list(one) for one in ranges]
