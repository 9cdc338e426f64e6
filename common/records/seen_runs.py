"""Remembers which records of which run were taken, so that a file read again yields nothing twice.

The numbers of a run are kept as ranges, usually a single one: whole files may be read in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from common.records.saved import SavedState

MAX_RANGES = 1000
PREFIX = "seen:"


class Sequence:
    """A set of whole numbers, as the sorted edges of its ranges: the first number in, the next one out."""

    def __init__(self, edges: Iterable[int] = ()) -> None:
        self.edges = [*edges]

    @classmethod
    def from_state(cls, saved: Any) -> Sequence:  # Any: parsed JSON
        """The set that was saved; raises where it is not one of ours."""
        edges = saved["edges"]
        if len(edges) % 2 or any(type(edge) is not int for edge in edges) or edges != sorted({*edges}):
            raise ValueError("not the edges of ranges")
        return cls(edges)

    def __contains__(self, number: int) -> bool:
        return bisect_right(self.edges, number) % 2 == 1

    def add(self, number: int) -> None:
        """Put a number in. Beyond so many gaps the lowest one is closed: everything is bounded."""
        edges = self.edges
        if edges and edges[-1] == number:  # nearly every one
            edges[-1] += 1
            return
        place = bisect_right(edges, number)
        if place % 2 == 0:
            joins, joined = edges[place - 1 : place] == [number], edges[place : place + 1] == [number + 1]
            edges[place - joins : place + joined] = [number] * (not joins) + [number + 1] * (not joined)
            if len(edges) > 2 * MAX_RANGES:
                del edges[1:3]


class SeenRuns:
    """The sequences of all runs: those of the saved state, and what this tick adds to them."""

    def __init__(self, saved: SavedState, now: int) -> None:
        self._saved = saved
        self._now = now
        self._sequences: dict[str, Sequence] = {}

    def __getitem__(self, run: str) -> Sequence:
        sequence = self._sequences.get(run)
        if sequence is None:
            sequence = self._saved.part(PREFIX + run, Sequence.from_state) or Sequence()
            self._sequences[run] = sequence
        return sequence

    def changes(self, runs: set[str]) -> dict[str, object]:
        """What to save of some runs; a copy, because a mark is saved later than it is made."""
        return {PREFIX + run: {"edges": [*self[run].edges], "at": self._now} for run in runs}

    def expired(self, before: float) -> Iterator[str]:
        """The saved keys of runs that nothing was read of since `before`."""
        for key, saved in self._saved.state.items():
            if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in self._sequences:
                at = saved.get("at") if isinstance(saved, dict) else None
                if not isinstance(at, int | float) or at < before:
                    yield key
