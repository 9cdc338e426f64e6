"""How points leave the process: checked one by one, grouped, split to the intake's limits, delivered once.

The official client sends plain dictionaries; retrying, time-outs and splitting are ours, because the
client's own retry ignores `Retry-After`, gives up on resets and can sleep for hours.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from common.errors import DeliveryError, Refused
from common.http import proxy_for
from common.logs import redact
from common.metric import Sample
from common.payloads import Payload, SeriesTable, payloads
from common.retry import RETRIED_STATUSES, Deadline, Transient, persist, requested_wait
from common.settings import CoreSettings, DatadogSettings
from common.signals import shielded
from common.times import parse_http_date

if TYPE_CHECKING:
    from datadog_api_client import ApiClient
    from urllib3 import BaseHTTPResponse

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 15.0
OLDEST = 3600  # the intake silently drops points further back than this,
FURTHEST = 600  # or further ahead than this
TOLERATED_SKEW = 60.0

_HINTS = {
    401: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    403: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    404: "check DD_SITE or FLEETGAUGE_DD_URL",
}

log = logging.getLogger(__name__)


class _TooLarge(Exception):  # noqa: N818  # answered by splitting
    pass


class _Ready(dict[str, Any]):
    """A body that is plain already.

    The client converts a body, value by value, before it serialises it: half the cost of a delivery, and
    nothing to do for ours. It skips one that is false.
    """

    def __bool__(self) -> bool:
        return False


class DatadogSink:
    """Delivers samples. `send` returning means that the intake accepted them; otherwise it raises."""

    def __init__(
        self,
        settings: DatadogSettings,
        core: CoreSettings,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._table = SeriesTable((f"env:{core.env}", f"service:{core.service}"), core.series_cap)
        self._proxy = proxy_for(settings.address, core)
        self._made: ApiClient | None = None
        self._answer: BaseHTTPResponse | None = None  # to the request under way
        self.points_sent = 0
        self.clock_skew: float | None = None

    @property
    def dropped(self) -> Counter[str]:
        """Points that were not sent, by reason."""
        return self._table.dropped

    def send(self, samples: Iterable[Sample]) -> None:
        """Deliver samples; of one series and second the last gauge stands and counts add up."""
        now = int(self._clock())
        for payload in payloads(self._table.take(samples, now - OLDEST, now + FURTHEST)):
            self._deliver(payload)

    def validate(self) -> str:
        """Ask the intake whether the key is good; raises where it is not."""
        from datadog_api_client.v1.api.authentication_api import AuthenticationApi

        self._persist(lambda client: AuthenticationApi(client).validate())
        return f"the API key is valid at {self._settings.address}"

    def _deliver(self, payload: Payload) -> None:
        """Send one payload, in halves where it is too large for the wire."""
        try:
            if not payload.fits_the_wire():
                raise _TooLarge
            server_time = self._persist(lambda client: self._submit(client, payload))
        except _TooLarge:
            halves = payload.halves()
            if halves is None:
                name = payload.series[0]["metric"]
                raise Refused(f"{self._settings.address} answered 413 to a single point of {name}") from None
            for half in halves:
                self._deliver(half)
        else:
            self._count(payload, server_time)

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
        old = sum(stamp < server_time - OLDEST for stamp in stamps)
        early = sum(stamp > server_time + FURTHEST for stamp in stamps)
        self.points_sent += len(stamps) - old - early
        self.dropped.update({reason: n for reason, n in (("too_old", old), ("in_future", early)) if n})
        if (old or early) and abs(self.clock_skew or 0) > TOLERATED_SKEW:
            raise DeliveryError(
                f"this machine's clock is {self.clock_skew:+.0f} s off the intake's, which dropped "
                f"{old + early} of {len(stamps)} points without a word; correct the clock"
            )

    def _persist(self, call: Callable[[ApiClient], Any]) -> float | None:
        """Call until it is answered well; the server's time then, where it said so."""
        try:
            return persist(lambda: self._once(call), self._deadline, self._sleep)
        except Transient as error:
            raise DeliveryError(f"{self._settings.address}: {error}") from error

    def _once(self, call: Callable[[ApiClient], Any]) -> float | None:
        """One request, with every failure sorted into: try again, split, or give up."""
        from datadog_api_client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        client = self._client()
        client.configuration.request_timeout = (
            self._deadline.timeout(CONNECT_TIMEOUT),
            self._deadline.timeout(READ_TIMEOUT),
        )
        self._answer = None
        try:
            with shielded():
                answer, status, headers = call(client)
        except ApiException as error:
            raise self._sort(error.status, error.headers or {}, str(error.body or error.reason)) from None
        except HTTPError as error:
            raise Transient(f"no answer: {type(error).__name__}: {error}") from None
        except (TypeError, ValueError, LookupError) as error:
            raise self._sort_unreadable(error) from None
        server_time = self._observe(headers)
        if getattr(answer, "valid", True) is False:  # of a key, asked by `validate`
            raise self._sort(403, headers, "")
        errors = list(getattr(answer, "errors", None) or ())
        if errors:
            said = _quote("; ".join(map(str, errors)), 500)
            raise Refused(f"{self._settings.address} answered {status} with errors: {said}")
        return server_time

    def _sort(self, status: int, headers: Mapping[str, str], said: str) -> Exception:
        """What a status other than 2xx means for us; the client's status 0 is a failure of TLS."""
        self._observe(headers)
        if status == 413:
            return _TooLarge()
        if status in RETRIED_STATUSES:
            return Transient(f"answered {status}", requested_wait(headers, self._clock()))
        said = _quote(said, 200)
        if status == 0 and "CERTIFICATE_VERIFY_FAILED" not in said:
            return Transient(f"TLS failed: {said}")
        if status == 0:
            return Refused(f"TLS with {self._settings.address} failed: {said}")
        hint = _HINTS.get(status, f"it said: {said}")
        return Refused(f"{self._settings.address} answered {status}; {hint}")

    def _sort_unreadable(self, error: Exception) -> Exception:
        """The client trips over a body that is not what it expects; the status counts all the same."""
        answer = self._answer
        if answer is None:  # it never got to asking: a defect of ours
            return error
        if 200 <= answer.status <= 299:
            return Transient(f"an answer that cannot be read: {type(error).__name__}")
        return self._sort(answer.status, answer.headers, "something that cannot be read")

    def _observe(self, headers: Mapping[str, str]) -> float | None:
        """Read the intake's clock, and how far ours is ahead of it."""
        server_time = parse_http_date({key.lower(): value for key, value in headers.items()}.get("date", ""))
        if server_time is not None:
            self.clock_skew = self._clock() - server_time
        return server_time

    def _client(self) -> ApiClient:
        if self._made is None:
            from datadog_api_client import ApiClient, Configuration

            configuration = Configuration(
                host=self._settings.address,
                api_key={"apiKeyAuth": self._settings.api_key.get_secret_value()},
                return_http_data_only=False,
                check_input_type=False,
                retry_policy=False,  # neither retries nor redirects: both are ours to decide
            )
            if self._proxy:
                configuration.proxy = self._proxy.url
                configuration.proxy_headers = self._proxy.headers
            self._made = ApiClient(configuration)
            pool = self._made.rest_client.pool_manager
            pool.request = self._witness(pool.request)
        return self._made

    def _witness(self, request: Callable[..., BaseHTTPResponse]) -> Callable[..., BaseHTTPResponse]:
        """Keep each answer: where the client cannot read its body, it forgets the status as well."""

        # Any: whatever the client passes on
        def witnessed(*arguments: Any, **options: Any) -> BaseHTTPResponse:
            self._answer = request(*arguments, **options)
            return self._answer

        return witnessed


def _quote(said: str, most: int) -> str:
    """What a server said, in one line and without a secret it may have repeated."""
    return " ".join(redact(said).split())[:most]


def _gzip() -> Any:  # Any: the client is not typed
    from datadog_api_client.v2.model.metric_content_encoding import MetricContentEncoding

    return MetricContentEncoding.GZIP
