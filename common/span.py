"""A span of the past, the grid of instants in it that a backfill answers for, and what live ticks missed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from common.metric import Sample
from common.times import iso, tick


@dataclass(frozen=True)
class Span:
    """From `since` up to, and not including, `until`, in whole seconds; its ticks are multiples of `step`."""

    since: int
    until: int
    step: int

    def __str__(self) -> str:
        return f"{iso(self.since)} to {iso(self.until)}"

    @property
    def seconds(self) -> int:
        """How long it is."""
        return self.until - self.since

    @property
    def ticks(self) -> range:
        """The instants of the grid, which are those of the live ticks: writing them again changes nothing."""
        return range(-(-self.since // self.step) * self.step, self.until, self.step)

    def holds(self, sample: Sample) -> bool:
        """Whether a sample is of this span."""
        return self.since <= sample.timestamp < self.until

    def part(self, index: int, count: int) -> Span:
        """One of `count` parts that follow each other without a gap, cut at ticks; it may be empty."""
        ticks = self.ticks
        cuts = [ticks.start + len(ticks) * number // count * self.step for number in range(1, count)]
        ends = [self.since, *(min(cut, self.until) for cut in cuts), self.until]
        return Span(ends[index], ends[index + 1], self.step)


class Missed(NamedTuple):
    """What lies between the last delivered tick and this one: what can still be sent, and what cannot."""

    ticks: list[int]
    gap: Span


def missed(last: int, at: int, step: int, oldest: int) -> Missed:
    """The ticks after `last` and before `at`: those not older than `oldest`, and the span of the others."""
    first = tick(last, step) + step
    sendable = range(max(first, -(-oldest // step) * step), at, step)
    # Where not even the present tick can be sent, all that lies before it is lost.
    end = max(first, min(sendable.start, -(-at // step) * step))
    return Missed(list(sendable), Span(first, end, step))
