"""W&B's GraphQL API: one request at a time, and a clear error for every answer that is not data.

It waits for nothing, and several threads may use it. Retries are up to the caller, but for a query that has a
part which the server does not know: it is sent again without that part (`Extra`).

    ConfigurationError
    ├── RefusedKeyError          the key, or the address: nothing can be read
    └── RefusedProjectError      this project may not be read, or does not exist
    FailedRequestError           try again; its `failure` is what it means for the rows requested
    SourceError                  anything else
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

import orjson

from collectors.wandb.groups import Json
from collectors.wandb.settings import WandbSettings
from collectors.wandb.slices import Failure
from common.errors import ConfigurationError, SourceError
from common.logs import redact, remember_secret
from common.net.http import (
    MAX_RESPONSE_BYTES,
    Http,
    NotConnectedError,
    RejectedError,
    Reply,
    TimedOutError,
    TooLargeError,
)
from common.net.retry import Deadline, TransientError

HEAVY_AFTER = 10.0  # seconds: what fails later failed because of its size

# By status; None is no response at all.
_FAILURES = dict.fromkeys((None, 408, 502, 503), Failure.UNAVAILABLE)
_FAILURES |= {429: Failure.RATE_LIMITED, 504: Failure.HEAVY}
_RATE_LIMITED = re.compile(r"rate limit", re.IGNORECASE)
_UNKNOWN_FIELD = re.compile(
    r"Cannot query field [\"'`]?(\w+)|Unknown argument [\"'`]?\w+[\"'`]? on field [\"'`]?(?:\w+\.)?(\w+)"
)

log = logging.getLogger(__name__)


class RefusedProjectError(ConfigurationError):
    """This project may not be read, or there is none of that name."""


class RefusedKeyError(ConfigurationError):
    """The key is not accepted for anything, or this is not the address of the API."""


class FailedRequestError(TransientError):
    """A request that may succeed at another attempt.

    `failure` is what it means for the rows requested; `wait` is the delay that the server requests, or None.
    """

    def __init__(self, message: str, failure: Failure, wait: float | None = None) -> None:
        super().__init__(message, wait)
        self.failure = failure


class _UnknownFieldsError(Exception):  # resolved by requesting less
    """The server does not know some `fields` of a query, or an argument of theirs."""

    def __init__(self, message: str, fields: set[str]) -> None:
        super().__init__(message)
        self.fields = fields


class Extra(Enum):
    """What a server may lack: the part of a query's text that selects it, and what is lost without it.

    A self-hosted server may be older than the client, and newer servers drop fields such as `runInfo`.
    """

    COMPUTE_SECONDS = ("computeSeconds", "computeSeconds: the duration of a resumed run includes its pauses")
    RUN_INFO = ("runInfo { gpuCount }", "runInfo: the GPUs of runs of older clients are assumed")
    TOTAL_COUNT = ("totalCount", "totalCount: hidden runs are not counted, and pages come one by one")
    CONFIG_KEYS = ("(keys: %(config)s)", "config: complete configs are read, which is slow")
    SUMMARY_KEYS = (
        "(keys: %(summaryMetrics)s)",
        "summaryMetrics: complete summaries are read, which is slow",
    )
    USER = ("user { username }", "user: the users of runs are unknown (tag user)")
    GROUP = ("group", "group: the groups of runs are unknown (tag group)")
    JOB_TYPE = ("jobType", "jobType: the job types of runs are unknown (tag job_type)")
    TAGS = ("tags", "tags: groups by the tags of runs are unknown")
    SYSTEM_METRICS = ("systemMetrics", "systemMetrics: the utilisation of GPUs and idle runs are unknown")
    PROJECT_CREATED = ("created: createdAt", "createdAt: of colliding projects, the first by name is read")
    RUN_COUNT = ("runCount(filters: %(filters)s)", "runCount: every project of an entity costs a request")

    @property
    def names(self) -> set[str]:
        """Return the names by which a server may reject it: an error names a field, never the selection."""
        return set(re.findall(r"\w+", self.value[0]))

    def __str__(self) -> str:
        return str(self.value[1])


class GraphqlQuery(NamedTuple):
    """A query and its variables. `literals` are inserted into the text."""

    text: str
    variables: Mapping[str, Json]
    literals: Mapping[str, str]

    def without(self, missing: Collection[Extra]) -> str:
        """Return the text to send to a server that lacks some parts."""
        text = self.text
        for extra in missing:
            text = text.replace(extra.value[0], "")
        return text % self.literals


class Response(NamedTuple):
    """The data of a response, the errors beside it as one text, and its headers.

    `failure` is what it means for the rows requested where the data lacks them.
    """

    data: dict[str, Json]
    errors: str
    headers: Mapping[str, str]
    failure: Failure


class Api:
    """The API with one key; `missing` are the parts of queries that the server turned out not to know."""

    def __init__(self, settings: WandbSettings, http: Http) -> None:
        """Prepare the headers: W&B takes the key as the password of a user `api` (Basic authentication)."""
        self.url = f"{settings.base_url}/graphql"
        token = base64.b64encode(f"api:{settings.api_key.get_secret_value()}".encode()).decode()
        remember_secret(token)  # which is as secret as the key
        self._headers = {"Content-Type": "application/json", "Authorization": f"Basic {token}"}
        self.http = http
        self.missing: frozenset[Extra] = frozenset()

    def post(self, query: GraphqlQuery, deadline: Deadline, largest: int = MAX_RESPONSE_BYTES) -> Response:
        """Send a query; return the answer, or raise one of the errors above.

        `largest` is how many bytes an answer may have. DeadlineExceededError once the deadline has passed.
        """
        while True:
            missing = self.missing
            try:
                return self._send(query.without(missing), query.variables, deadline, largest)
            except _UnknownFieldsError as error:
                unknown = {extra for extra in Extra if extra.names & error.fields}
                # Compared with what this query left out: other threads add to `self.missing`.
                if unknown <= missing or error.fields - set[str]().union(*(each.names for each in unknown)):
                    raise SourceError(f"W&B rejects the query: {error}") from None
                for extra in sorted(unknown - self.missing, key=str):
                    log.warning("W&B does not know %s", extra)
                self.missing |= unknown

    def _send(self, text: str, variables: Mapping[str, Json], deadline: Deadline, largest: int) -> Response:
        body = orjson.dumps({"query": text, "variables": variables})
        started = deadline.elapsed()
        try:
            reply = self.http.send("POST", self.url, body, self._headers, deadline, largest=largest).checked()
        # Both are cured by fewer rows.
        except (TimedOutError, TooLargeError) as error:
            raise FailedRequestError(str(error), Failure.HEAVY) from None
        except TransientError as error:
            failure = _FAILURES.get(error.status, Failure.QUICK)
            # Connecting takes long where there is no server.
            if failure is not Failure.RATE_LIMITED and not isinstance(error, NotConnectedError):
                failure = _by_time(failure, deadline.elapsed() - started)
            raise FailedRequestError(str(error), failure, error.wait) from None
        except RejectedError as error:
            raise _rejection(error) from None
        return self._read(reply, _by_time(Failure.QUICK, deadline.elapsed() - started))

    def _read(self, reply: Reply, failure: Failure) -> Response:
        """Return the data of an answer. GraphQL reports errors with HTTP 200: the status says nothing."""
        try:
            document: Json = orjson.loads(reply.body)
        except orjson.JSONDecodeError as error:
            raise FailedRequestError(f"sent an answer that is not JSON: {error.msg}", failure) from None
        if not isinstance(document, dict):
            kind = type(document).__name__
            raise FailedRequestError(f"sent an answer that is not GraphQL: a JSON {kind}", failure)
        listed = document.get("errors") or []
        errors = "; ".join(
            str(error.get("message") if isinstance(error, dict) else error)
            for error in (listed if isinstance(listed, list) else [listed])
        )
        # Unknown fields are searched in the complete text, before it is shortened for messages. Secrets are
        # removed before as well: a part of one is not recognised any more.
        fields, errors, data = _unknown_fields(errors), redact(errors)[:500], document.get("data")
        if fields:
            raise _UnknownFieldsError(errors, fields)
        if _RATE_LIMITED.search(errors):
            raise FailedRequestError(f"{self.url} answered: {errors}", Failure.RATE_LIMITED)
        if not isinstance(data, dict):
            reason = errors or "and without an error"
            raise FailedRequestError(f"{self.url} answered without data: {reason}", failure)
        # A bad key can get HTTP 200, `viewer: null` and no error: every query selects the viewer for this
        # test.
        if data.get("viewer") is None and not errors:
            raise RefusedKeyError(
                f"{self.url} does not accept the key; check WANDB_API_KEY and WANDB_BASE_URL"
            )
        return Response(data, errors, reply.headers, failure)


def _by_time(failure: Failure, seconds: float) -> Failure:
    """Return what a failure after so long means: a server that works for long has too much to do."""
    return Failure.HEAVY if seconds >= HEAVY_AFTER else failure


def _rejection(error: RejectedError) -> Exception:
    """Return what a refused request means. W&B refuses a single project with 403 or 404, a key with 401."""
    match error.status:
        case 401:
            return RefusedKeyError(f"{error}; check WANDB_API_KEY and WANDB_BASE_URL")
        case 403 | 404:
            return RefusedProjectError(f"{error}; check WANDB_PROJECTS, WANDB_API_KEY and WANDB_BASE_URL")
        case 413:
            return FailedRequestError(str(error), Failure.HEAVY)
        case status if status < 400 or status == 405:
            return RefusedKeyError(f"{error}; check WANDB_BASE_URL")
    # The body is a JSON document whose quotes are escaped; the pattern expects the message itself.
    fields = _unknown_fields(error.body.decode(errors="replace").replace('\\"', '"'))
    return _UnknownFieldsError(str(error), fields) if fields else SourceError(str(error))


def _unknown_fields(text: str) -> set[str]:
    """Return the fields that an error text rejects, by themselves or for an argument of theirs."""
    return {field or argument for field, argument in _UNKNOWN_FIELD.findall(text)}
