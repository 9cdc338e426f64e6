"""How Datadog is asked: the official client, under one deadline, with every failure sorted.

Time-outs and retrying are ours, because the client's own retry ignores `Retry-After`, gives up on resets
and can sleep for hours. Knows keys, statuses and clocks; what is asked is the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import SecretStr

from common.config.settings import CoreSettings, DatadogSettings
from common.errors import DeliveryError, RefusedError
from common.logs import redact
from common.net.http import proxy_for
from common.net.retry import RETRIED_STATUSES, Deadline, TransientError, persist, requested_wait
from common.signals import shielded
from common.times import parse_http_date

if TYPE_CHECKING:
    from datadog_api_client import ApiClient
    from urllib3 import BaseHTTPResponse

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 15.0
MAX_PROBLEMS = 5  # of one answer that are quoted

_HINTS = {
    401: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    403: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    404: "check DD_SITE or FLEETGAUGE_DD_URL",
}


class DatadogClient:
    """Asks until it is answered well, and raises where it is not.

    The application key is sent only by a client that was given one, and `previews` are the operations of
    the official client that Datadog may still change.
    """

    def __init__(
        self,
        settings: DatadogSettings,
        core: CoreSettings,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        app_key: SecretStr | None = None,
        previews: Iterable[str] = (),
    ) -> None:
        self.address = settings.address
        self.requests = 0
        self.clock_skew: float | None = None
        self._keys = {"apiKeyAuth": settings.api_key} | ({"appKeyAuth": app_key} if app_key else {})
        self._previews = tuple(previews)
        self._proxy = proxy_for(settings.address, core)
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._made: ApiClient | None = None
        self._answer: BaseHTTPResponse | None = None  # to the request under way

    def ask(self, call: Callable[[ApiClient], Any]) -> Answer:  # Any: the client is not typed
        """Call until it is answered well."""
        try:
            return persist(lambda: self._once(call), self._deadline, self._sleep)
        except TransientError as error:
            raise DeliveryError(f"{self.address}: {error}") from error

    def validate(self) -> None:
        """Ask whether the API key is good; raises where it is not."""
        from datadog_api_client.v1.api.authentication_api import AuthenticationApi

        answer = self.ask(lambda client: AuthenticationApi(client).validate())
        if getattr(answer.content, "valid", True) is False:
            raise self._sort(403, {}, "")

    def _once(self, call: Callable[[ApiClient], Any]) -> Answer:
        """One request, with every failure sorted into: try again, or give up."""
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
                content, status, headers = call(client)
        except ApiException as error:
            raise self._sort(error.status, error.headers or {}, error.body or error.reason) from None
        except HTTPError as error:
            raise TransientError(f"no answer: {type(error).__name__}: {error}") from None
        except (TypeError, ValueError, LookupError) as error:
            raise self._sort_unreadable(error) from None
        server_time = self._observe(headers)
        errors = list(getattr(content, "errors", None) or ())
        if errors:
            said = _quote("; ".join(map(str, errors)), 500)
            raise RefusedError(f"{self.address} answered {status} with errors: {said}")
        return Answer(content, server_time)

    def _sort(self, status: int, headers: Mapping[str, str], body: object) -> Exception:
        """What a status other than 2xx means for us; the client's status 0 is a failure of TLS."""
        self._observe(headers)
        if status in RETRIED_STATUSES:
            return TransientError(f"answered {status}", requested_wait(headers, self._clock()))
        problems = _problems(body)
        said = _quote("; ".join(problems) or str(body), 200)
        if status == 0 and "CERTIFICATE_VERIFY_FAILED" not in said:
            return TransientError(f"TLS failed: {said}")
        if status == 0:
            return RefusedError(f"TLS with {self.address} failed: {said}")
        hint = _HINTS.get(status, f"it said: {said}")
        return RefusedError(f"{self.address} answered {status}; {hint}", status=status, problems=problems)

    def _sort_unreadable(self, error: Exception) -> Exception:
        """The client trips over a body that is not what it expects; the status counts all the same."""
        answer = self._answer
        if answer is None:  # it never got to asking: a defect of ours
            return error
        if 200 <= answer.status <= 299:
            return TransientError(f"an answer that cannot be read: {type(error).__name__}")
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
                host=self.address,
                return_http_data_only=False,
                check_input_type=False,
                retry_policy=False,  # neither retries nor redirects: both are ours to decide
            )
            # Not as an argument: the client would add what it finds in the environment by itself.
            configuration.api_key = {name: key.get_secret_value() for name, key in self._keys.items()}
            for operation in self._previews:
                configuration.unstable_operations[operation] = True
            if self._proxy:
                configuration.proxy = self._proxy.url
                configuration.proxy_headers = self._proxy.headers
            self._made = ApiClient(configuration)
            pool = self._made.rest_client.pool_manager
            pool.request = self._witness(pool.request)
        return self._made

    def _witness(self, request: Callable[..., BaseHTTPResponse]) -> Callable[..., BaseHTTPResponse]:
        """Count requests and keep each answer: of a body it cannot read the client forgets the status too."""

        # Any: whatever the client passes on
        def witnessed(*arguments: Any, **options: Any) -> BaseHTTPResponse:
            self.requests += 1
            self._answer = request(*arguments, **options)
            return self._answer

        return witnessed


class Answer(NamedTuple):
    """A good answer, and the time on the server's clock where it said so."""

    content: Any  # a model of the client, which is not typed
    server_time: float | None


def _problems(body: object) -> tuple[str, ...]:
    """What an error document of the API says is wrong; nothing where a body is no such document."""
    errors = body.get("errors") if isinstance(body, dict) else None
    if not isinstance(errors, list):
        return ()
    first = errors[:MAX_PROBLEMS]
    said = ((one.get("detail") or one.get("title")) if isinstance(one, dict) else one for one in first)
    return tuple(_quote(str(one), 200) for one in said if one)


def _quote(said: str, most: int) -> str:
    """What a server said, in one line and without a secret it may have repeated."""
    return " ".join(redact(said).split())[:most]
