"""W&B's GraphQL API: one request at a time, and a clear error for every answer that is not data.

It has no state and waits for nothing, so that several threads may use it. Retries are up to the caller.

    ConfigurationError
    ├── RefusedKeyError              the key, or the address: nothing can be read
    └── RefusedProjectError          this project may not be read
        └── UnknownProjectError      or does not exist
    TransientError                   no answer, or none about rows: try again
    ├── OverloadedError              too many rows: request fewer
    ├── FailedPageError              chance, or a row that cannot be served
    └── RateLimitedError             wait, on all connections
    RejectedQueryError               a field or an argument that the server does not know
"""

from __future__ import annotations

import base64
import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from collectors.wandb.settings import WandbSettings
from common.errors import ConfigurationError, SourceError
from common.logs import remember_secret
from common.net.http import (
    MAX_RESPONSE_BYTES,
    Http,
    RejectedError,
    Reply,
    TimedOutError,
    TooLargeError,
    UnavailableError,
)
from common.net.retry import Deadline, TransientError, requested_wait, requests_left

HEAVY_AFTER = 10.0  # seconds: what fails later failed because of its size
VIEWER = "query Viewer { viewer { id } }"

_LIMITED = re.compile(r"rate limit", re.IGNORECASE)
_REFUSED = re.compile(r"permission|denied|forbidden|unauthori[sz]ed|not found", re.IGNORECASE)

log = logging.getLogger(__name__)

T = TypeVar("T")
Json = Any  # what a JSON document may hold; every use checks what it got
Data = dict[str, Json]


class RefusedProjectError(ConfigurationError):
    """This project may not be read: 401, 403, 404, or an error of that meaning."""


class UnknownProjectError(RefusedProjectError):
    """There is no such project or entity, or the key may not see it."""


class RefusedKeyError(ConfigurationError):
    """The key is not accepted for anything, or this is not the address of the API."""


class OverloadedError(TransientError):
    """The server could not answer for so many rows, or its answer was too large."""


class FailedPageError(TransientError):
    """The server failed on these rows, by chance or because one of them cannot be served."""


class RateLimitedError(TransientError):
    """The server takes no more requests for now."""


class RejectedQueryError(Exception):  # resolved by requesting less
    """The server does not know a part of the query; `messages` are its errors."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(summary(messages))
        self.messages = messages


class Response(NamedTuple, Generic[T]):
    """What was read from an answer, and the server's limits: requests left, and seconds until more are."""

    content: T
    requests_left: int | None
    reset: float | None


class Api:
    """The API with one key."""

    def __init__(self, settings: WandbSettings, http: Http) -> None:
        self.url = f"{settings.base_url}/graphql"
        token = base64.b64encode(f"api:{settings.api_key.get_secret_value()}".encode()).decode()
        remember_secret(token)  # which is as secret as the key
        self._headers = {"Content-Type": "application/json", "Authorization": f"Basic {token}"}
        self._http = http
        self._parsing = threading.Lock()

    def execute(
        self,
        query: str,
        variables: Mapping[str, Json],
        read: Callable[[Data, list[str]], T],
        deadline: Deadline,
        largest: int = MAX_RESPONSE_BYTES,
    ) -> Response[T]:
        """Send a query; return what `read` makes of its data and of the errors beside it.

        One of the errors above, or SourceError, where there is no data.
        """
        started = deadline.elapsed()
        try:
            reply = self._post(query, variables, deadline, largest)
            with self._parsing:  # one after another: it takes as long, and a fraction of the memory
                content = self._read(reply, read)
        except (OverloadedError, RateLimitedError):
            raise
        except TransientError as error:
            took = deadline.elapsed() - started
            if took < HEAVY_AFTER:
                raise
            raise OverloadedError(f"{error} (after {took:.0f} s)", error.wait) from None
        return Response(content, requests_left(reply.headers), requested_wait(reply.headers, 0))

    def check_key(self, deadline: Deadline) -> None:
        """Raise RefusedKeyError where the key is not accepted for anything, or the address is wrong."""
        try:
            self.execute(VIEWER, {}, lambda *_: None, deadline)
        except RefusedProjectError as error:
            cause = error.__cause__
            is_key = isinstance(cause, RejectedError) and cause.status in {401, 403}
            settings = "WANDB_API_KEY and WANDB_BASE_URL" if is_key else "WANDB_BASE_URL"
            raise RefusedKeyError(f"{cause or error}; check {settings}") from None

    def unknown(self, what: str) -> UnknownProjectError:
        """Return the error for a project or an entity that is not there."""
        return UnknownProjectError(
            f"{self.url} knows no {what}, or the key may not see it; "
            "check WANDB_PROJECTS, or WANDB_ENTITY and WANDB_PROJECT"
        )

    def _post(self, query: str, variables: Mapping[str, Json], deadline: Deadline, largest: int) -> Reply:
        body = orjson.dumps({"query": query, "variables": variables})
        try:
            return self._http.post(self.url, body, self._headers, deadline, largest)
        except (TimedOutError, TooLargeError) as error:
            raise OverloadedError(str(error)) from None
        except UnavailableError as error:
            raise _unavailable(error) from None
        except RejectedError as error:
            raise _rejection(error) from error

    def _read(self, reply: Reply, read: Callable[[Data, list[str]], T]) -> T:
        document = _document(reply.body)
        errors, data = _messages(document), document.get("data")
        if any("Cannot query field" in error or "Unknown argument" in error for error in errors):
            raise RejectedQueryError(errors)
        if _LIMITED.search(summary(errors)):
            raise RateLimitedError(f"{self.url} answered: {summary(errors)}")
        if not isinstance(data, dict):
            raise FailedPageError(
                f"{self.url} answered without data: {summary(errors) or 'and without an error'}"
            )
        if data.get("viewer") is None and not errors:
            raise RefusedKeyError(
                f"{self.url} does not accept the key; check WANDB_API_KEY and WANDB_BASE_URL"
            )
        return read(data, errors)

    def runs_of(self, project: object, data: Data, errors: list[str]) -> Data:
        """Return the connection `runs` of an answer, or raise what it means that there is none."""
        text, found = summary(errors), data.get("project")
        if found is None:
            if not text:
                raise self.unknown(f"project {project}")
            if _REFUSED.search(text):
                raise RefusedProjectError(f"{self.url} refused {project}: {text}")
            raise TransientError(f"{self.url} did not answer for {project}: {text}")
        runs = found.get("runs") if isinstance(found, dict) else None
        if runs is None and text:
            raise FailedPageError(f"{self.url} could not list runs: {text}")
        if not isinstance(runs, dict):
            raise unknown_shape(str(project), TypeError(f"runs is {type(runs).__name__}"))
        if text:
            log.warning("%s answered for %s with errors beside the data: %s", self.url, project, text)
        return runs


def summary(messages: list[str]) -> str:
    """Return the errors of an answer as one short text."""
    return "; ".join(messages)[:500]


def unknown_shape(subject: str, error: Exception) -> SourceError:
    """Return the error for an answer that does not follow the schema."""
    return SourceError(f"W&B answered for {subject} in an unknown shape: {error!r}")


def _unavailable(error: UnavailableError) -> TransientError:
    """Return what a status that may change means for the rows of a request."""
    kinds = {429: RateLimitedError, 500: FailedPageError, 502: OverloadedError, 504: OverloadedError}
    return kinds.get(error.status, TransientError)(str(error), error.wait)


def _rejection(error: RejectedError) -> Exception:
    """Return what a refused request means. Whether the key is refused for anything, `check_key` finds out."""
    if error.status in {401, 403}:
        return RefusedProjectError(f"{error}; check that WANDB_API_KEY may read the project")
    if error.status == 404:
        return UnknownProjectError(f"{error}; check WANDB_PROJECTS")
    if error.status == 413:
        return OverloadedError(str(error))
    if error.status < 400 or error.status == 405:
        return RefusedProjectError(str(error))
    try:
        messages = _messages(_document(error.body))
    except TransientError:
        messages = []
    if any("Cannot query field" in message or "Unknown argument" in message for message in messages):
        return RejectedQueryError(messages)
    return SourceError(str(error))


def _document(body: bytes) -> Data:
    try:
        document: Json = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise TransientError(f"sent an answer that is not JSON: {error.msg}") from None
    if not isinstance(document, dict):
        raise TransientError(f"sent an answer that is not GraphQL: a JSON {type(document).__name__}")
    return document


def _messages(document: Data) -> list[str]:
    errors = document.get("errors")
    return [
        str(error.get("message") if isinstance(error, dict) else error)
        for error in (errors if isinstance(errors, list) else [errors] if errors else [])
    ]
