"""How points leave the process: checked, grouped by series, packed to the intake's limits, delivered.

How Datadog is asked, and what is tried again, is in `common/datadog/client.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from common.config.settings import CoreSettings, DatadogSettings
from common.datadog.client import DatadogClient
from common.datadog.payloads import Payload, payloads
from common.datadog.series import SeriesTable
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.intake import MAX_AGE, MAX_AHEAD
from common.metric import Series
from common.net.retry import Deadline

TOLERATED_SKEW = 60.0

log = logging.getLogger(__name__)


class DatadogSink(DatadogClient):
    """Takes series, and delivers them in payloads as full as the intake takes.

    `since` is the beginning of a backfill: points from then on are sent whatever their age, for metrics that
    have historical ingestion on. Without it the intake's window holds. With `exact_clock` a delivery fails
    where our clock and the intake's differ.
    """

    def __init__(
        self,
        settings: DatadogSettings,
        core: CoreSettings,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.time,
        since: int | None = None,
        exact_clock: bool = False,
    ) -> None:
        super().__init__(settings, core, deadline, clock=clock)
        self._since = since
        self._exact_clock = exact_clock
        self._warned = False
        now = int(clock())
        tags = (f"env:{core.env}", f"service:{core.service}")
        oldest = now - MAX_AGE if since is None else since
        self._cap = core.series_cap
        self._table = SeriesTable(tags, self._cap, oldest, now + MAX_AHEAD, many_ticks=since is not None)
        self.dropped, self.examples = self._table.dropped, self._table.examples
        self.beyond_cap = self._table.beyond_cap
        self.points_sent = 0

    def add(self, series: Series) -> None:
        """Take a series, to be sent with the next `flush`."""
        self._table.add(series)

    def flush(self, within: float | None = None) -> None:
        """Deliver what was added, perhaps within so many seconds; it raises unless all was accepted.

        In a backfill, series beyond the cap are an error: other ones would be left out of each part of it.
        """
        before = self.deadline
        self.deadline = before if within is None else before.within(within)
        try:
            for payload in payloads(self._table.drain()):
                if self._since is not None and self.dropped["series_cap"]:
                    raise ConfigurationError(
                        f"it would send more than {self._cap:,} series (FLEETGAUGE_SERIES_CAP): "
                        "raise that, or ask for less"
                    )
                self._deliver(payload)
        finally:
            self.deadline = before

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
            name = payload.series[0][0].name
            raise RefusedError(f"{self.address} answered 413 to a single point of {name}")
        for half in halves:
            self._deliver(half)

    def _count(self, payload: Payload, server_time: float | None) -> None:
        """Count what was accepted, without what the intake's own clock makes it drop silently."""
        old = early = 0
        if server_time is not None:
            oldest = server_time - MAX_AGE if self._since is None else self._since
            old, early = payload.outside(oldest, server_time + MAX_AHEAD)
        self.points_sent += payload.points - old - early
        self.dropped.update({reason: n for reason, n in (("too_old", old), ("in_future", early)) if n})
        skew = self.clock_skew or 0.0
        if abs(skew) <= TOLERATED_SKEW:
            return
        off = f"this machine's clock is {skew:+.0f} s off the intake's"
        if old or early:
            raise DeliveryError(
                f"{off}, which silently dropped {old + early} of {payload.points} points; correct the clock"
            )
        if self._exact_clock:
            raise DeliveryError(f"{off}: points would be sent for the wrong time; correct the clock")
        if not self._warned:
            self._warned = True
            log.warning("%s; correct the clock", off)
