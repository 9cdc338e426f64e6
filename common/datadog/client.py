"""The Datadog API: one client for submitting, validating and the endpoints that need an application key.

Requests use `common.net.http`, with its timeouts, under one deadline. Retrying is ours, because the official
client ignores `Retry-After`, gives up on resets and can sleep for hours.

Only Datadog's own responses count: a proxy, a captive portal or a mistyped address sends 200 as well, and
what was submitted to it is lost. `intake.py`, `historical.py` and `provisioning.py` use the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import orjson

from common.config.settings import CoreSettings, DatadogSettings
from common.datadog.payloads import Encoding
from common.errors import ConfigurationError, DeliveryError, RefusedError, SourceError
from common.net.http import Http, RejectedError, Reply, TooLargeError, quote
from common.net.retry import Deadline, TransientError, persist
from common.outcome import Report
from common.times import parse_http_date

RESPONSE_TIMEOUT = 15.0  # seconds of one attempt
# Bytes. The API's responses are smaller; a larger one is reported as another server's.
RESPONSE_LIMIT = 2**20
MAX_PROBLEMS = 5  # quoted from one response

# Datadog refuses a key of another site in the same way as an invalid one.
_VALID_KEY = "that DD_API_KEY is valid and belongs to this site (DD_SITE)"
_NOT_DATADOG = "this does not look like Datadog: check DD_SITE, FLEETGAUGE_DD_URL and HTTPS_PROXY"

T = TypeVar("T")


class DatadogClient:
    """Sends requests to Datadog, retries what may succeed and raises where it does not.

    ConfigurationError is raised without an API key. `permissions` are what an application key is needed for:
    only then is it sent, and required. `encoding` is that of submitted bodies: zstd for Datadog's own intake,
    gzip for any other address, which may not know Datadog's name `zstd1`. `clock_skew` is updated with each
    request, and `deadline` may be replaced between requests. One thread at a time may use a client.
    """

    def __init__(
        self,
        settings: DatadogSettings,
        core: CoreSettings,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.time,
        permissions: str = "",
    ) -> None:
        self.address = settings.address
        self.clock = clock
        self.deadline = deadline
        self.encoding = Encoding.ZSTD if settings.url is None else Encoding.GZIP
        self.clock_skew: float | None = None  # seconds that our clock is ahead of Datadog's
        if settings.api_key is None:
            raise ConfigurationError(settings.not_set("DD_API_KEY"))
        self._keys = {"DD-API-KEY": settings.api_key}
        self._hint = f"check {_VALID_KEY}"
        if permissions:
            if settings.app_key is None:
                missing = settings.not_set("DD_APP_KEY")
                raise ConfigurationError(f"this needs an application key ({permissions}): {missing}")
            self._keys["DD-APPLICATION-KEY"] = settings.app_key
            # The response does not identify the key that was refused.
            app_key = f"that DD_APP_KEY is valid and has the permissions {permissions}"
            self._hint = f"check {app_key}, and {_VALID_KEY}"
        setting = "DD_SITE" if settings.url is None else "FLEETGAUGE_DD_URL"
        self._http = Http(self.address, core, Report(), setting=setting)  # these requests are not reported
        self._reply: Reply | None = None  # to the last request
        self._dated: tuple[float, float] | None = None  # the last `Date`, and when it was received

    def submit(self, body: bytes) -> None:
        """Deliver a payload that is in `encoding` already; return once Datadog has accepted it.

        A repeated POST is safe: a point has the time it is true for, and Datadog stores the last value of a
        series and second. Raises RefusedError, with status 413 for a body that is too large, DeliveryError
        once retries have failed, ConfigurationError and DeadlineExceededError.
        """

        def attempt() -> None:
            reply = self.request("POST", "/api/v2/series", body, self.encoding)
            # Only a 202 without errors confirms that the intake accepted the points.
            if reply.status != 202:
                raise RefusedError(self._unexpected(reply))
            # A 202 with a damaged body may be the intake's, garbled on the way. Sending the points again is
            # harmless.
            if not isinstance(document := reply.document, dict):
                raise TransientError(self._unexpected(reply))
            if (errors := document.get("errors")) not in (None, []):
                raise RefusedError(f"{self.address} answered 202 with errors: {quote(str(errors))}")

        self.retry(attempt)

    def validate(self) -> str:
        """Return a text that the API key is valid, and where; RefusedError where it is not."""
        reply = self.retry(lambda: self.request("GET", "/api/v1/validate"))
        valid = reply.document.get("valid") if isinstance(reply.document, dict) else None
        if valid is False:
            raise RefusedError(f"{self.address} reports that the key is not valid; {self._hint}", status=403)
        if reply.status != 200 or valid is not True:
            raise RefusedError(self._unexpected(reply))
        return f"the API key is valid at {self.address}"

    def retry(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, retried until the deadline; DeliveryError once retries have failed.

        `call` sends one request and raises TransientError where another attempt may succeed. A TypeError,
        ValueError, LookupError or AttributeError after a response arrived means that it cannot be read, and
        is retried too.
        """

        def attempt() -> T:
            self._reply = None
            try:
                return call()
            except (TypeError, ValueError, LookupError, AttributeError):
                # Nothing was received, so that the error is a defect of ours.
                if self._reply is None:
                    raise
                raise TransientError(self._unexpected(self._reply)) from None

        try:
            return persist(attempt, self.deadline)
        except TransientError as error:
            raise DeliveryError(str(error)) from error

    def request(self, method: str, path: str, body: object = None, encoding: str | None = None) -> Reply:
        """Send one request with the keys and return its 2xx response.

        `body` is sent as JSON; bytes are JSON already, in `encoding`. It is not retried: `retry` is for that.
        Raises TransientError (408, 429, 5xx, no response), RefusedError for any other status,
        ConfigurationError and DeadlineExceededError.
        """
        headers = {name: key.get_secret_value() for name, key in self._keys.items()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if encoding:
            headers["Content-Encoding"] = encoding
        try:
            self._reply = reply = self._http.send(
                method,
                self.address + path,
                body if isinstance(body, bytes | None) else orjson.dumps(body),
                {"Accept": "application/json", **headers},
                self.deadline,
                read_timeout=RESPONSE_TIMEOUT,
                largest=RESPONSE_LIMIT,
            )
        except TooLargeError as error:
            raise RefusedError(f"{error}; {_NOT_DATADOG}") from None
        except SourceError as error:
            raise RefusedError(str(error)) from None
        # The `Date` of any response shows the skew of our clock, also that of a refusal.
        date = parse_http_date(reply.headers.get("Date", ""))
        if date is not None:
            self.clock_skew = self.clock() - date
            self._dated = date, self.deadline.elapsed()
        try:
            return reply.checked()
        except RejectedError:
            raise self._refusal(reply) from None

    def server_time(self) -> float:
        """Return the time on Datadog's clock; DeliveryError where no response had a date.

        It is the `Date` of the last response, and what has passed since on the deadline's monotonic clock.
        """
        if self._dated is None:
            raise DeliveryError("Datadog's responses have no Date header; check HTTPS_PROXY")
        date, received = self._dated
        return date + self.deadline.elapsed() - received

    def _refusal(self, reply: Reply) -> RefusedError:
        """Return the error for a final status. Without an error document it is not from Datadog.

        A 403 of a proxy must not count as a refused key: `problems` is empty there.
        """
        problems = _problems(reply.document)
        if not problems:
            return RefusedError(self._unexpected(reply), status=reply.status)
        hint = {401: self._hint, 403: self._hint, 404: "check DD_SITE or FLEETGAUGE_DD_URL"}.get(reply.status)
        parts = [f"{self.address} answered {reply.status}", hint, f"response: {'; '.join(problems)}"]
        return RefusedError("; ".join(filter(None, parts)), status=reply.status, problems=problems)

    def _unexpected(self, reply: Reply) -> str:
        """Return the message for a response that Datadog would not send, with the start of its body."""
        return f"{self.address} answered {reply.status}; response: {reply.text or 'nothing'}; {_NOT_DATADOG}"


def _problems(document: object) -> tuple[str, ...]:
    """Return the messages of an error document; none where it is not one of the API's."""
    errors = document.get("errors") if isinstance(document, dict) else None
    if not isinstance(errors, list):
        return ()
    texts = (
        (error.get("detail") or error.get("title")) if isinstance(error, dict) else error
        for error in errors[:MAX_PROBLEMS]
    )
    return tuple(quote(str(text)) for text in texts if text)
