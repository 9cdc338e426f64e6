"""How Datadog is asked: the official client, under one deadline, with every failure sorted.

Time-outs and retrying are ours, because the client's own retry ignores `Retry-After`, gives up on resets
and can sleep for hours. Knows keys, statuses and clocks; what is asked is the caller's.

Only what Datadog says in its own words counts: a proxy, a captive portal or a mistyped address answers
200 as well, and what it was sent is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import SecretStr

from common.config.settings import CoreSettings, DatadogSettings
from common.errors import ConfigurationError, DeliveryError, RefusedError, SourceError
from common.logs import redact
from common.net.http import TooLargeError, proxy_for, sort_failure
from common.net.retry import RETRIED_STATUSES, Deadline, TransientError, persist, requested_wait
from common.text import excerpt
from common.times import parse_http_date

if TYPE_CHECKING:
    from common.datadog.transport import Client, HttpAnswer

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 15.0
MAX_PROBLEMS = 5  # of one answer that are quoted

_HINTS = {
    401: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    403: "check that DD_API_KEY is valid and belongs to this site (DD_SITE)",
    404: "check DD_SITE or FLEETGAUGE_DD_URL",
}
_STRANGE = "this does not look like Datadog: check DD_SITE, FLEETGAUGE_DD_URL and HTTPS_PROXY"


class DatadogClient:
    """Asks until it is answered well, and raises where it is not.

    `previews` are the operations of the official client that Datadog may still change.
    """

    previews: tuple[str, ...] = ()

    def __init__(
        self,
        settings: DatadogSettings,
        core: CoreSettings,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.address = settings.address
        self.clock_skew: float | None = None
        self.deadline = deadline
        self._sent_keys = self._keys(settings)
        self._proxy = proxy_for(settings.address, core)
        self._clock = clock
        self._made: Client | None = None

    def _keys(self, settings: DatadogSettings) -> dict[str, SecretStr]:
        return {"apiKeyAuth": settings.api_key}

    @property
    def requests(self) -> int:
        """How many requests were made, those tried again included."""
        return self._made.rest_client.requests if self._made else 0

    def submit(self, body: bytes) -> float | None:
        """Deliver series, as JSON in gzip; the time on the intake's clock, where it said so."""
        return self.ask(lambda client: self._accepted(client.ask("POST", "/api/v2/series", body)))

    def validate(self) -> str:
        """Ask whether the API key is good, and say so; raises where it is not."""
        self.ask(lambda client: self._valid(client.ask("GET", "/api/v1/validate")))
        return f"the API key is valid at {self.address}"

    def ask(self, call: Callable[[Client], None]) -> float | None:
        """Call until it is answered well; the time on the server's clock, where it said so."""
        try:
            return persist(lambda: self._once(call), self.deadline, self.deadline.sleep)
        except TransientError as error:
            raise DeliveryError(f"{self.address}: {error}") from error

    def _accepted(self, answer: HttpAnswer) -> None:
        """Only a 202 without errors means that the intake took the points."""
        if answer.status != 202 or not isinstance(answer.document, dict):
            raise self._strange(answer, garbled=answer.status == 202)
        errors = answer.document.get("errors")
        if errors not in (None, []):
            said = "; ".join(map(str, errors)) if isinstance(errors, list) else str(errors)
            raise RefusedError(f"{self.address} answered 202 with errors: {_quote(said, 500)}")

    def _valid(self, answer: HttpAnswer) -> None:
        """Only a plain `valid` means that the key is good."""
        valid = answer.document.get("valid") if isinstance(answer.document, dict) else None
        if valid is False:
            raise RefusedError(f"{self.address} says that the key is not valid; {_HINTS[403]}", status=403)
        if answer.status != 200 or valid is not True:
            raise self._strange(answer, garbled=False)

    def _strange(self, answer: HttpAnswer, *, garbled: bool) -> Exception:
        """A 2xx that is not Datadog's own; where it may only have been garbled, it is asked for again."""
        said = _quote(answer.data.decode("utf-8", "replace"), 200) or "nothing"
        text = f"answered {answer.status} and said: {said}; {_STRANGE}"
        return TransientError(text) if garbled else RefusedError(f"{self.address} {text}")

    def _once(self, call: Callable[[Client], None]) -> float | None:
        """One request, with every failure sorted into: try again, or give up."""
        from urllib3.exceptions import HTTPError

        from common.datadog.transport import StatusError

        client = self._client()
        transport = client.rest_client
        transport.deadline = self.deadline
        client.configuration.request_timeout = (
            self.deadline.timeout(CONNECT_TIMEOUT),
            self.deadline.timeout(READ_TIMEOUT),
        )
        transport.answer = None
        try:
            call(client)
        except StatusError as error:
            raise self._sort(error.answer) from None
        except HTTPError as error:
            failure = sort_failure(error, self.address)
            raise (RefusedError(str(failure)) if isinstance(failure, SourceError) else failure) from None
        except TooLargeError as error:
            raise RefusedError(f"{error}; {_STRANGE}") from None
        except (TypeError, ValueError, LookupError):  # the official client trips over a body it cannot read
            if transport.answer is None:  # it never got to asking: a defect of ours
                raise
            raise self._strange(transport.answer, garbled=True) from None
        finally:
            server_time = self._observe(transport.answer.headers if transport.answer else {})
        return server_time

    def _sort(self, answer: HttpAnswer) -> Exception:
        """What a status other than 2xx means for us."""
        status = answer.status
        if status in RETRIED_STATUSES:
            return TransientError(f"answered {status}", requested_wait(answer.headers, self._clock()))
        problems = _problems(answer.document)
        said = "; ".join(problems) or _quote(answer.data.decode("utf-8", "replace"), 200) or "nothing"
        hint = _HINTS.get(status) if problems else None
        text = f"{self.address} answered {status}; {hint or f'it said: {said}'}"
        if not problems:
            text += f"; {_STRANGE}"
        return RefusedError(text, status=status, problems=problems)

    def _observe(self, headers: Mapping[str, str]) -> float | None:
        """Read the intake's clock, and how far ours is ahead of it."""
        server_time = parse_http_date({key.lower(): value for key, value in headers.items()}.get("date", ""))
        if server_time is not None:
            self.clock_skew = self._clock() - server_time
        return server_time

    def _client(self) -> Client:
        if self._made is None:
            from datadog_api_client import Configuration

            from common.datadog.transport import Client

            configuration = Configuration(
                host=self.address,
                return_http_data_only=False,
                check_input_type=False,
            )
            # Not as an argument: the client would add what it finds in the environment by itself.
            configuration.api_key = {name: key.get_secret_value() for name, key in self._sent_keys.items()}
            for operation in self.previews:
                configuration.unstable_operations[operation] = True
            if self._proxy:
                configuration.proxy = self._proxy.url
                configuration.proxy_headers = self._proxy.headers
            self._made = Client(configuration)
        return self._made


class ApplicationClient(DatadogClient):
    """Asks with the application key as well, and only for what needs it; `purpose` says what that is."""

    purpose = ""

    def _keys(self, settings: DatadogSettings) -> dict[str, SecretStr]:
        if settings.app_key is None:
            raise ConfigurationError(f"{self.purpose}: {settings.not_set('DD_APP_KEY')}")
        return {**super()._keys(settings), "appKeyAuth": settings.app_key}

    def blame(self, refused: RefusedError, permission: str) -> DeliveryError | ConfigurationError:
        """Which key was refused: the answer does not tell, but the API key can be asked about by itself."""
        if refused.status not in {401, 403}:
            return refused
        self.validate()
        said = f"; Datadog said: {'; '.join(refused.problems)}" if refused.problems else ""
        return ConfigurationError(
            f"{self.address} answered {refused.status}, though DD_API_KEY is good: check that "
            f"DD_APP_KEY is valid, is of the same organisation and has the permission {permission}{said}"
        )


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
    return excerpt(redact(said), most)
