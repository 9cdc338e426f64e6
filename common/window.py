"""The span of time that a run answers for. Pure: the clock is passed in.

`common/run/session.py` computes the window of a live run, `common/run/backfill.py` splits one of the past,
and `common/records/collector.py` has windows of records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.times import iso, tick

# Limits of Datadog's intake. It responds with 202 also to points outside of them.
MAX_AGE = 3600  # seconds: Datadog's intake silently drops points that are older,
MAX_AHEAD = 600  # or further ahead


@dataclass(frozen=True)
class Window:
    """The seconds `since <= t < until`; a collector that answers for instants answers for its `ticks`.

    A live run may send again what an earlier one may have sent in part, from before `since` and not before
    `earliest`: the intake drops what is older. In a backfill `earliest` is None, and nothing from before
    `since` is sent. All are seconds since the epoch, and `step` is in seconds.
    """

    since: int
    until: int
    step: int
    earliest: int | None = None

    def __str__(self) -> str:
        return f"{iso(self.since)} to {iso(self.until)}"

    @property
    def seconds(self) -> int:
        """Its length, 0 for an empty window."""
        return self.until - self.since

    @property
    def is_live(self) -> bool:
        """Whether it is that of a live run, and not of a backfill."""
        return self.earliest is not None

    @property
    def ticks(self) -> range:
        """The multiples of `step` in `(since, until]`, which are the instants of live runs."""
        return range((self.since // self.step + 1) * self.step, self.until + 1, self.step)

    def slice(self, index: int, count: int) -> Window:
        """Return one of `count` parts of a backfill that follow each other, cut at multiples of the step.

        `index` is counted from 0. A part may be empty. Together the parts are exactly this window, so that
        each tick and second is sent by one of them.
        """
        # Cuts are on ticks, because `ticks` excludes the start and includes the end of a window.
        first = -(-self.since // self.step) * self.step
        steps = max(0, (self.until - first) // self.step)
        cuts = [first + steps * number // count * self.step for number in range(1, count)]
        edges = [self.since, *(min(cut, self.until) for cut in cuts), self.until]
        return Window(edges[index], edges[index + 1], self.step)

    def split(self, width: int) -> Iterator[Window]:
        """Yield the parts of a backfill, cut at multiples of `width` seconds, oldest first.

        The first and the last may be shorter. Multiples, so that an hour is the same hour for every span.
        """
        since = self.since
        while since < self.until:
            until = min((since // width + 1) * width, self.until)
            yield Window(since, until, self.step)
            since = until


def due(now: int, step: int, sent_until: int | None, earliest: int) -> Window:
    """Return the window of a live run of a collector that answers for ticks.

    It ends at this tick. It begins at the last one that was sent, where that is known and the intake still
    takes what follows; without a known one it has this tick alone. It is empty where this tick was sent.
    """
    at = tick(now, step)
    # A time in the future is of a clock that was wrong: it is as good as unknown.
    if sent_until is None or sent_until > now:
        return Window(at - step, at, step, earliest)
    # The oldest tick that the intake still accepts. With a long --timeout it could be after this tick.
    first = min(at, -(-earliest // step) * step)
    return Window(min(at, max(sent_until, first - step)), at, step, earliest)
