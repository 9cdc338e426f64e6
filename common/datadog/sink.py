"""How points leave the process: checked one by one, grouped, split to the intake's limits, delivered once.

The official client sends plain dictionaries. How it is asked, and what is tried again, is in
`common/datadog/client.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from common.config.settings import CoreSettings, DatadogSettings
from common.datadog.client import DatadogClient
from common.datadog.payloads import Payload, SeriesTable, payloads
from common.errors import DeliveryError, RefusedError
from common.intake import MAX_AGE, MAX_AHEAD
from common.metric import Sample
from common.net.retry import Deadline

if TYPE_CHECKING:
    from datadog_api_client import ApiClient

TOLERATED_SKEW = 60.0


class _Ready(dict[str, Any]):
    """A body that is plain already.

    The client converts a body, value by value, before it serialises it: half the cost of a delivery, and
    nothing to do for ours. It skips one that is false.
    """

    def __bool__(self) -> bool:
        return False


class DatadogSink:
    """Delivers samples. `send` returning means that the intake accepted them; otherwise it raises.

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
        sleep: Callable[[float], None] = time.sleep,
        oldest: int | None = None,
        many_ticks: bool = False,
    ) -> None:
        self._clock = clock
        self._oldest = oldest
        tags = (f"env:{core.env}", f"service:{core.service}")
        self._table = SeriesTable(tags, core.series_cap, many_ticks=many_ticks)
        self._client = DatadogClient(settings, core, deadline, clock=clock, sleep=sleep)
        self.points_sent = 0

    @property
    def dropped(self) -> Counter[str]:
        """Points that were not sent, by reason."""
        return self._table.dropped

    @property
    def clock_skew(self) -> float | None:
        """How far our clock is ahead of the intake's, once it has answered."""
        return self._client.clock_skew

    def send(self, samples: Iterable[Sample]) -> None:
        """Deliver samples; of one series and second the last gauge stands and counts add up."""
        now = int(self._clock())
        oldest = now - MAX_AGE if self._oldest is None else self._oldest
        for payload in payloads(self._table.take(samples, oldest, now + MAX_AHEAD)):
            self._deliver(payload)

    def validate(self) -> str:
        """Ask the intake whether the key is good; raises where it is not."""
        self._client.validate()
        return f"the API key is valid at {self._client.address}"

    def _deliver(self, payload: Payload) -> None:
        """Send one payload, in halves where it is too large for the wire."""
        if payload.fits_the_wire():
            try:
                answer = self._client.ask(lambda client: self._submit(client, payload))
            except RefusedError as refused:
                if refused.status != 413:
                    raise
            else:
                self._count(payload, answer.server_time)
                return
        halves = payload.halves()
        if halves is None:
            name = payload.series[0]["metric"]
            raise RefusedError(f"{self._client.address} answered 413 to a single point of {name}")
        for half in halves:
            self._deliver(half)

    def _submit(self, client: ApiClient, payload: Payload) -> Any:  # Any: the client is not typed
        from datadog_api_client.v2.api.metrics_api import MetricsApi

        # The body's declared type is a model class; check_input_type=False documents dictionaries as well.
        body: Any = _Ready(series=payload.series)
        return MetricsApi(client).submit_metrics(body=body, content_encoding=_gzip())

    def _count(self, payload: Payload, server_time: float | None) -> None:
        """Count what was accepted, without what the intake's own clock makes it drop in silence."""
        stamps = [point["timestamp"] for series in payload.series for point in series["points"]]
        if server_time is None:
            self.points_sent += len(stamps)
            return
        oldest = server_time - MAX_AGE if self._oldest is None else self._oldest
        old = sum(stamp < oldest for stamp in stamps)
        early = sum(stamp > server_time + MAX_AHEAD for stamp in stamps)
        self.points_sent += len(stamps) - old - early
        self.dropped.update({reason: n for reason, n in (("too_old", old), ("in_future", early)) if n})
        if (old or early) and abs(self.clock_skew or 0) > TOLERATED_SKEW:
            raise DeliveryError(
                f"this machine's clock is {self.clock_skew:+.0f} s off the intake's, which dropped "
                f"{old + early} of {len(stamps)} points without a word; correct the clock"
            )


def _gzip() -> Any:  # Any: the client is not typed
    from datadog_api_client.v2.model.metric_content_encoding import MetricContentEncoding

    return MetricContentEncoding.GZIP
