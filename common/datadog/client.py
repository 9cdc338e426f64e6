"""The Datadog API: one client for submitting, validating and the endpoints that need an application key.

Requests use `common.net.http`, with its timeouts, under one deadline. Retrying is ours, because the official
client ignores `Retry-After`, gives up on resets and can sleep for hours. Its models and endpoints are used
over the same connections (`DatadogClient.official`).

Only Datadog's own responses count: a proxy, a captive portal or a mistyped address sends 200 as well, and
what was submitted to it is lost. `intake.py`, `historical.py` and `provisioning.py` use the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from common.config.settings import CoreSettings, DatadogSettings
from common.datadog.payloads import Encoding
from common.errors import ConfigurationError, DeliveryError, RefusedError, SourceError
from common.logs import redact
from common.net.http import Http, Reply, TooLargeError, UnavailableError, pool_for
from common.net.retry import RETRIED_STATUSES, Deadline, TransientError, persist, requested_wait
from common.text import excerpt
from common.times import parse_http_date

if TYPE_CHECKING:
    from datadog_api_client import ApiClient

RESPONSE_TIMEOUT = 15.0  # seconds
# Bytes. The API's responses are smaller; a larger one is reported as another server's.
RESPONSE_LIMIT = 2**20
MAX_PROBLEMS = 5  # quoted from one response

# Datadog refuses a key of another site in the same way as an invalid one.
_HINTS = {
    401: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    403: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    404: "check DD_SITE or FLEETGAUGE_DD_URL",
}
_NOT_DATADOG = "this does not look like Datadog: check DD_SITE, FLEETGAUGE_DD_URL and HTTPS_PROXY"

T = TypeVar("T")


class DatadogClient:
    """Sends requests to Datadog, retries what may succeed and raises where it does not.

    `purpose` is what an application key is needed for: only then is it sent, and ConfigurationError is raised
    where there is none. `encoding` is that of submitted bodies: zstd for Datadog's own intake, gzip for any
    other address, which may not know Datadog's name `zstd1`. `requests`, `server_time` and `clock_skew` are
    updated with each request, and `deadline` may be replaced between requests. One thread at a time may use a
    client.
    """

    def __init__(
        self,
        settings: DatadogSettings,
        core: CoreSettings,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.time,
        purpose: str = "",
    ) -> None:
        self.address = settings.address
        self.clock = clock
        self.deadline = deadline
        self.encoding = Encoding.ZSTD if settings.url is None else Encoding.GZIP
        self.requests = 0
        self.server_time: float | None = None  # `Date` of the last response
        self.clock_skew: float | None = None  # seconds that our clock is ahead of Datadog's
        self._keys = {"DD-API-KEY": settings.api_key}
        if purpose:
            if settings.app_key is None:
                raise ConfigurationError(f"{purpose}: {settings.not_set('DD_APP_KEY')}")
            self._keys["DD-APPLICATION-KEY"] = settings.app_key
        setting = "DD_SITE" if settings.url is None else "FLEETGAUGE_DD_URL"
        self._http = Http(pool_for(self.address, core), self, setting=setting)
        self._reply: Reply | None = None  # to the last request

    def submit(self, body: bytes) -> None:
        """Deliver a payload that is in `encoding` already; return once Datadog has accepted it.

        A repeated POST is safe: a point has the time it is true for, and Datadog stores the last value of a
        series and second. Raises RefusedError, with status 413 for a body that is too large, DeliveryError
        once retries have failed, ConfigurationError and DeadlineExceededError.
        """
        headers = {"Content-Type": "application/json", "Content-Encoding": self.encoding}
        self.retry(lambda: self._check_accepted(self._send("POST", "/api/v2/series", body, headers)))

    def validate(self) -> str:
        """Return a text that the API key is valid, and where; RefusedError where it is not."""
        self.retry(lambda: self._check_valid(self.request("GET", "/api/v1/validate")))
        return f"the API key is valid at {self.address}"

    def retry(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, retried until the deadline; DeliveryError once retries have failed.

        `call` sends one request and raises TransientError where another attempt may succeed. A TypeError,
        ValueError or LookupError after a response arrived means that it cannot be read, and is retried too.
        """

        def attempt() -> T:
            self._reply = None
            try:
                return call()
            except (TypeError, ValueError, LookupError):
                # Nothing was received, so that the error is a defect of ours.
                if self._reply is None:
                    raise
                raise TransientError(self._unexpected(self._reply)) from None

        try:
            return persist(attempt, self.deadline, self.deadline.sleep)
        except TransientError as error:
            raise DeliveryError(str(error)) from error

    def request(self, method: str, path: str, body: object = None) -> Reply:
        """Send one request, with a JSON body where there is one, and return its 2xx response.

        It is not retried: `retry` is for that. Raises UnavailableError and other TransientErrors,
        RefusedError, ConfigurationError and DeadlineExceededError.
        """
        if body is None:
            return self._send(method, path, None, {})
        return self._send(method, path, orjson.dumps(body), {"Content-Type": "application/json"})

    def explain_refusal(self, refused: RefusedError, permission: str) -> DeliveryError | ConfigurationError:
        """Return an error that names the refused key, for a request with both keys; other errors as they are.

        The response does not identify the key, so that the API key is validated: RefusedError where it is the
        bad one. `permission` is what the application key needs.
        """
        if refused.status not in {401, 403}:
            return refused
        self.validate()
        quoted = f"; Datadog's message: {'; '.join(refused.problems)}" if refused.problems else ""
        return ConfigurationError(
            f"{self.address} answered {refused.status}, though DD_API_KEY is good: check that "
            f"DD_APP_KEY is valid, is of the same organisation and has the permission {permission}{quoted}"
        )

    def official(self) -> ApiClient:
        """Return the official client, for its models and endpoints; its requests use this client's transport.

        It is imported here, because few runs need it and its import is slow. Operations accept plain dicts
        instead of its model classes (`check_input_type=False`) and return the response with its headers.
        """
        from datadog_api_client import ApiClient, Configuration

        api = ApiClient(Configuration(host=self.address, return_http_data_only=False, check_input_type=False))
        api.rest_client = _Transport(self)
        return api

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """Send one request with the keys; return its 2xx response, and note the server's time.

        Raises UnavailableError for 408, 429 and 5xx, RefusedError for any other status.
        """
        keys = {name: key.get_secret_value() for name, key in self._keys.items()}
        try:
            reply = self._http.send(
                method,
                self.address + path,
                body,
                {"Accept": "application/json", **headers, **keys},
                self.deadline,
                read_timeout=RESPONSE_TIMEOUT,
                largest=RESPONSE_LIMIT,
            )
        except TooLargeError as error:
            raise RefusedError(f"{error}; {_NOT_DATADOG}") from None
        except SourceError as error:
            raise RefusedError(str(error)) from None
        self._reply = reply
        # The `Date` of any response shows the skew of our clock, also that of a refusal.
        self.server_time = parse_http_date(reply.headers.get("Date", ""))
        if self.server_time is not None:
            self.clock_skew = self.clock() - self.server_time
        if reply.status in RETRIED_STATUSES:
            wait = requested_wait(reply.headers, self.clock())
            # The body is left out: an error page of a load balancer helps no reader of the log.
            raise UnavailableError(self.address, reply.status, b"", wait)
        if not 200 <= reply.status <= 299:
            raise self._refusal(reply)
        return reply

    def _refusal(self, reply: Reply) -> RefusedError:
        """Return the error for a final status. Without an error document it is not from Datadog.

        A 403 of a proxy must not count as a refused key: `problems` is empty there.
        """
        problems = _problems(reply.document)
        if not problems:
            return RefusedError(self._unexpected(reply), status=reply.status)
        text = _HINTS.get(reply.status) or f"response: {'; '.join(problems)}"
        text = f"{self.address} answered {reply.status}; {text}"
        return RefusedError(text, status=reply.status, problems=problems)

    def _unexpected(self, reply: Reply) -> str:
        """Return the message for a response that Datadog would not send, with the start of its body."""
        return f"{self.address} answered {reply.status}; response: {_text(reply)}; {_NOT_DATADOG}"

    def _check_accepted(self, reply: Reply) -> None:
        """Raise unless the intake accepted the points, as only a 202 without errors confirms.

        RefusedError for another status, and for a 202 whose document lists errors.
        """
        document = reply.document
        if reply.status != 202:
            raise RefusedError(self._unexpected(reply))
        # A 202 with a damaged body may be the intake's, garbled on the way. Sending the points again is
        # harmless.
        if not isinstance(document, dict):
            raise TransientError(self._unexpected(reply))
        errors = document.get("errors")
        if errors not in (None, []):
            raise RefusedError(f"{self.address} answered 202 with errors: {_quote(str(errors), 500)}")

    def _check_valid(self, reply: Reply) -> None:
        """Raise RefusedError unless the key is good, as only `valid: true` confirms."""
        document = reply.document
        valid = document.get("valid") if isinstance(document, dict) else None
        if valid is False:
            raise RefusedError(f"{self.address} reports that the key is not valid; {_HINTS[403]}", status=403)
        if reply.status != 200 or valid is not True:
            raise RefusedError(self._unexpected(reply))


class _Transport:
    """The transport of the official client; its own would retry, and lose a response it cannot read."""

    def __init__(self, client: DatadogClient) -> None:
        self._client = client

    # Any: the signature is the official client's, which is not typed
    def request(self, method: str, url: str, *, body: Any = None, **_options: Any) -> SimpleNamespace:
        """Send a request with our own keys and limits; no operation in use has query parameters."""
        reply = self._client.request(method, url.removeprefix(self._client.address), body)
        return SimpleNamespace(status=reply.status, headers=reply.headers, data=reply.body)


def _text(reply: Reply) -> str:
    """Return the start of a body on one line, without secrets; `nothing` where it is empty."""
    return _quote(reply.body.decode("utf-8", "replace"), 200) or "nothing"


def _problems(document: object) -> tuple[str, ...]:
    """Return the messages of an error document; none where it is not one of the API's."""
    errors = document.get("errors") if isinstance(document, dict) else None
    if not isinstance(errors, list):
        return ()
    texts = (
        (error.get("detail") or error.get("title")) if isinstance(error, dict) else error
        for error in errors[:MAX_PROBLEMS]
    )
    return tuple(_quote(str(text), 200) for text in texts if text)


def _quote(text: str, most: int) -> str:
    """Return the start of a server's text on one line, without a secret it may have repeated."""
    return excerpt(redact(text), most)
