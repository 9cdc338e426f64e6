"""A span of the past, and the grid of instants in it that a backfill answers for."""

from __future__ import annotations

from dataclasses import dataclass

from common.metric import Sample


@dataclass(frozen=True)
class Span:
    """From `since` up to, and not including, `until`, in whole seconds; its ticks are multiples of `step`."""

    since: int
    until: int
    step: int

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
        ends = [self.since, *cuts, self.until]
        return Span(ends[index], ends[index + 1], self.step)
