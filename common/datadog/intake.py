"""Delivery of series to Datadog's intake: checked, packed into payloads, sent, and counted.

The checks are in `series.py`, the limits in `payloads.py`, the requests in `client.py`. The sink of a dry
run, with the same interface, is `common/show/points.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from common.config.settings import CoreSettings
from common.datadog.client import DatadogClient
from common.datadog.payloads import encode, halves, pack
from common.datadog.series import SeriesTable
from common.errors import DeliveryError, RefusedError
from common.metric import Series
from common.window import MAX_AGE, MAX_AHEAD

# Seconds. `Date` has a resolution of a second, and a slow response adds its own delay.
TOLERATED_SKEW = 60.0

log = logging.getLogger(__name__)


class DatadogSink:
    """Collects the series of one run and delivers them through a client.

    `since` is the beginning of a backfill: points from then on are sent whatever their age, for metrics that
    have historical ingestion enabled. Without it points outside the intake's window are dropped. With
    `exact_clock` a delivery fails where our clock and the intake's differ.

    `points_sent` counts accepted points; `dropped`, `examples` and `lost` are those of the table, and
    grow as series are added.
    """

    def __init__(
        self,
        client: DatadogClient,
        core: CoreSettings,
        *,
        since: int | None = None,
        exact_clock: bool = False,
    ) -> None:
        self.points_sent = 0
        self._client = client
        self._since = since
        self._exact_clock = exact_clock
        self._skew_logged = False
        now = int(client.clock())
        oldest = now - MAX_AGE if since is None else since
        tags = (f"env:{core.env}", f"service:{core.service}")
        self._table = SeriesTable(tags, core.series_cap, oldest, now + MAX_AHEAD)
        # The same objects, so that what the table drops later is visible here.
        self.dropped, self.examples = self._table.dropped, self._table.examples
        self.lost = self._table.lost

    def add(self, series: Series) -> None:
        """Add a series, to be sent with the next `flush`; points that cannot be stored are dropped now."""
        self._table.add(series)

    def flush(self) -> None:
        """Deliver the series added since the last call.

        Raises DeliveryError, ConfigurationError or DeadlineExceededError unless all were accepted; payloads
        that were accepted before remain so, and are counted.
        """
        for batch in pack(self._table.drain()):
            self._deliver(batch)

    def _deliver(self, every: Sequence[Series]) -> None:
        """Send the series of a payload, in halves where it is too large for the intake.

        Raises RefusedError where a single point is too large.
        """
        points = sum(len(series.times) for series in every)
        body = encode(every, self._table.common_tags, self._client.encoding)
        if body is not None:
            try:
                self._client.submit(body)
            except RefusedError as refused:
                # A proxy on the way may have a lower limit than the intake.
                if refused.status != 413:
                    raise
            else:
                self.points_sent += points
                self._check_clock(every)
                return
        if points == 1:
            name = every[0].metric.name
            raise RefusedError(f"{self._client.address} answered 413 to a single point of {name}")
        for half in halves(every):
            self._deliver(half)

    def _check_clock(self, every: Sequence[Series]) -> None:
        """Raise DeliveryError where our clock makes points of an accepted payload lost or wrong.

        The 202 does not report what the intake drops by its own clock. With `exact_clock` any skew is an
        error, otherwise a warning, once.
        """
        skew = self._client.clock_skew
        if skew is None or abs(skew) <= TOLERATED_SKEW:
            return
        problem = f"this machine's clock is {skew:+.0f} s off the intake's; correct the clock"
        server_time = self._client.clock() - skew
        oldest = server_time - MAX_AGE if self._since is None else self._since
        newest = server_time + MAX_AHEAD
        # Sums are sent once per bucket. A clock that is ahead closes a bucket before its records are written,
        # and no later run corrects the sum.
        if self._exact_clock or any(each.times[0] < oldest or each.times[-1] > newest for each in every):
            raise DeliveryError(f"{problem}: points were dropped or are of the wrong time")
        if not self._skew_logged:
            self._skew_logged = True
            log.warning("%s", problem)
