"""Remembers which records of which run were taken, so that a file read again yields nothing twice.

The numbers of a run are kept as ranges, usually a single one: whole files may be read in any order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter

from common.records.saved import SavedState, Time, Whole

MAX_RANGES = 1000
PREFIX = "seen:"


def _of_ranges(edges: list[int]) -> list[int]:
    if len(edges) % 2 or edges != sorted({*edges}):
        raise ValueError("not the edges of ranges")
    return edges


@dataclass
class Sequence:
    """A set of whole numbers, as the sorted edges of its ranges: the first number in, the next one out.

    `at` is when one of its run was last met.
    """

    edges: Annotated[list[Whole], AfterValidator(_of_ranges)] = field(default_factory=list)
    at: Time = 0

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


_SEQUENCE = TypeAdapter(Sequence)


class SeenRuns:
    """The sequences of all runs: those of the saved state, and what this tick adds to them."""

    def __init__(self, saved: SavedState, now: int) -> None:
        self._now = now
        self._sequences = defaultdict(Sequence, saved.parts(PREFIX, _SEQUENCE))

    def __getitem__(self, run: str) -> Sequence:
        sequence = self._sequences[run]
        sequence.at = self._now
        return sequence

    def changes(self, runs: set[str]) -> dict[str, object]:
        """What to save of some runs; a copy, because a mark is saved later than it is made."""
        return {PREFIX + run: {"edges": [*self[run].edges], "at": self._now} for run in runs}

    def expired(self, before: float) -> set[str]:
        """The keys of runs that nothing was read of since `before`."""
        return {PREFIX + run for run, sequence in self._sequences.items() if sequence.at < before}
