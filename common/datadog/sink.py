"""How points leave the process: checked one by one, grouped, packed to the intake's limits, delivered once.

How Datadog is asked, and what is tried again, is in `common/datadog/client.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from common.config.settings import CoreSettings, DatadogSettings
from common.datadog.client import DatadogClient
from common.datadog.payloads import Payload, Queue, documents
from common.datadog.series import SeriesTable
from common.errors import DeliveryError, RefusedError
from common.intake import MAX_AGE, MAX_AHEAD
from common.metric import Sample
from common.net.retry import Deadline

TOLERATED_SKEW = 60.0


class DatadogSink(DatadogClient):
    """Takes samples, and delivers them in payloads as full as the intake takes.

    `oldest` is the earliest second to send, for metrics that have historical ingestion on; without it the
    intake's window holds. `many_ticks` says that the samples are of many ticks.
    """

    def __init__(
        self,
        settings: DatadogSettings,
        core: CoreSettings,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.time,
        oldest: int | None = None,
        many_ticks: bool = False,
    ) -> None:
        super().__init__(settings, core, deadline, clock=clock)
        self._oldest = oldest
        tags = (f"env:{core.env}", f"service:{core.service}")
        self._table = SeriesTable(tags, core.series_cap, many_ticks=many_ticks)
        self._queue = Queue()
        self.dropped, self.examples = self._table.dropped, self._table.examples
        self.points_sent = 0

    @property
    def taken(self) -> int:
        """How many points were taken so far, to be delivered in this order."""
        return self._queue.taken

    @property
    def settled(self) -> int:
        """How many of them, counted from the first, the intake accepted."""
        return self._queue.settled

    def send(self, samples: Iterable[Sample]) -> None:
        """Deliver samples: returning means that the intake accepted them; otherwise it raises."""
        self.take(samples)
        self.deliver(everything=True)

    def take(self, samples: Iterable[Sample]) -> None:
        """Check and group samples; of one series and second the last gauge stands and counts add up."""
        now = int(self._clock())
        oldest = now - MAX_AGE if self._oldest is None else self._oldest
        self._queue.extend(documents(self._table.take(samples, oldest, now + MAX_AHEAD)))

    def deliver(self, *, everything: bool, within: float | None = None) -> None:
        """Deliver what fills payloads, or everything, perhaps within so many seconds; or raise."""
        if within is not None:
            self.deadline = self.deadline.within(within)
        while payload := self._queue.next_payload(everything=everything):
            self._deliver(payload)
            self._queue.settle()

    def _deliver(self, payload: Payload) -> None:
        """Send one payload, in halves where it is too large for the wire."""
        body = payload.body()
        if body is not None:
            try:
                server_time = self.submit(body)
            except RefusedError as refused:
                if refused.status != 413:
                    raise
            else:
                self._count(payload, server_time)
                return
        halves = payload.halves()
        if not halves:
            name = payload.series()[0]["metric"]
            raise RefusedError(f"{self.address} answered 413 to a single point of {name}")
        for half in halves:
            self._deliver(half)

    def _count(self, payload: Payload, server_time: float | None) -> None:
        """Count what was accepted, without what the intake's own clock makes it drop in silence."""
        points = payload.points
        if server_time is None:
            self.points_sent += points
            return
        oldest = server_time - MAX_AGE if self._oldest is None else self._oldest
        old, early = payload.outside(oldest, server_time + MAX_AHEAD)
        self.points_sent += points - old - early
        self.dropped.update({reason: n for reason, n in (("too_old", old), ("in_future", early)) if n})
        if (old or early) and abs(self.clock_skew or 0) > TOLERATED_SKEW:
            raise DeliveryError(
                f"this machine's clock is {self.clock_skew:+.0f} s off the intake's, which dropped "
                f"{old + early} of {points} points without a word; correct the clock"
            )
