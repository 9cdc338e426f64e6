"""W&B's GraphQL API: one request at a time, with every answer that is no page of runs given a clear name.

Knows no state and waits for nothing, so that several threads may ask at once. What is tried again, and
when, is decided in `collectors.wandb.schedule`.
"""

from __future__ import annotations

import base64
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from collectors.wandb.pages import Page, cursor_before, offset_of, offsets_of
from collectors.wandb.query import PROJECTS, VIEWER, Extra, query, unknown_parts
from collectors.wandb.runs import Json, Run, RunReader
from collectors.wandb.settings import Project, WandbSettings
from common.errors import ConfigurationError, SourceError
from common.logs import remember_secret
from common.net.http import MAX_ANSWER_BYTES, Http, RejectedError, TimedOutError, UnavailableError
from common.net.retry import Deadline, TransientError, requested_wait, requests_left

ORDER = "+created_at"  # what is created while we read comes last, and is read too
PROJECTS_PER_PAGE = 200
MAX_PROJECTS = 100_000

_OVERLOADED = re.compile(r"deadline exceeded|timed? ?out", re.IGNORECASE)
_LIMITED = re.compile(r"rate limit", re.IGNORECASE)
_REFUSED = re.compile(r"permission|denied|forbidden|unauthori[sz]ed|not found", re.IGNORECASE)

log = logging.getLogger(__name__)


class RefusedProjectError(ConfigurationError):
    """The answer for this project is that it may not be read: 401, 403, 404, or an error that says so."""


class UnknownProjectError(RefusedProjectError):
    """There is no such project, or the key may not see it."""


class RefusedKeyError(ConfigurationError):
    """The key itself is not accepted, or this is not the address of the API: no project can be read."""


class OverloadedError(TransientError):
    """The server could not answer for so many rows in time."""


class FailedPageError(TransientError):
    """The server fails on this page; where it does so again and again, one of its runs cannot be served."""


class RateLimitedError(TransientError):
    """The server takes no more requests for now."""


class UnknownPartsError(Exception):  # answered by asking for less
    """The server does not know some of the optional parts of the query."""

    def __init__(self, parts: set[Extra], said: str) -> None:
        super().__init__(said)
        self.parts = parts


@dataclass(frozen=True)
class Ask:
    """One page to be asked for: which rows, with which parts of the query, in how many bytes."""

    project: Project
    filters: str
    begin: int
    asked: int
    after: str | None = None
    missing: frozenset[Extra] = frozenset()
    largest: int = MAX_ANSWER_BYTES

    @property
    def cursor(self) -> str | None:
        return self.after if self.after is not None else cursor_before(self.begin)


@dataclass(frozen=True)
class Answer:
    """A page, and what the server says of its limits: how many more requests it takes, and for how long."""

    page: Page
    left: int | None
    reset: float | None


class Api:
    """The API with one key."""

    def __init__(self, settings: WandbSettings, reading: RunReader, http: Http) -> None:
        self.url = f"{settings.base_url}/graphql"
        token = base64.b64encode(f"api:{settings.api_key.get_secret_value()}".encode()).decode()
        remember_secret(token)  # which is as secret as the key
        self._headers = {"Content-Type": "application/json", "Authorization": f"Basic {token}"}
        self._reading = reading
        self._http = http
        self._unpacking = threading.Lock()

    def page(self, ask: Ask, deadline: Deadline) -> Answer:
        """One page of runs."""
        variables: dict[str, Json] = {
            "entity": ask.project.entity,
            "project": ask.project.name,
            "filters": ask.filters,
            "order": ORDER,
            "first": ask.asked,
            "after": ask.cursor,
        }
        text = query(self._reading.config_keys, self._reading.summary_keys, ask.missing)
        body, headers = self._post(text, variables, deadline, ask.largest)
        with self._unpacking:  # one after another, which costs no time and a fraction of the memory
            data, errors = self._data(body)
            del body
            page = _page(self._runs(data, _said(errors), ask.project), ask, self._reading, len(errors))
        return Answer(page, requests_left(headers), requested_wait(headers, 0))

    def ask_for_key(self, deadline: Deadline) -> None:
        """Raise where the key is not accepted whatever it is used for, or nobody answers here."""
        self._data(self._post(VIEWER, {}, deadline, refused=_refusal_of_key)[0])

    def projects(self, entity: str, after: str | None, deadline: Deadline) -> tuple[list[str], str | None]:
        """Some of the projects of an entity, and the cursor behind which there are more."""
        variables: dict[str, Json] = {"entity": entity, "first": PROJECTS_PER_PAGE, "after": after}
        data, errors = self._data(self._post(PROJECTS, variables, deadline)[0])
        models = data.get("models")
        if models is None and errors:
            raise FailedPageError(f"{self.url} could not list the projects of {entity}: {_said(errors)}")
        if models is None:
            raise self._unknown(f"entity {entity}")
        try:
            names = [str(edge["node"]["name"]) for edge in models["edges"] if edge["node"]]
            information = models["pageInfo"]
            return names, information["endCursor"] if information["hasNextPage"] else None
        except (TypeError, KeyError) as error:
            raise _unknown_shape(f"the projects of {entity}", error) from None

    def _post(
        self,
        text: str,
        variables: dict[str, Json],
        deadline: Deadline,
        largest: int = MAX_ANSWER_BYTES,
        refused: Callable[[RejectedError], Exception] | None = None,
    ) -> tuple[bytes, Any]:  # Any: headers, of whatever mapping urllib3 has
        body = orjson.dumps({"query": text, "variables": variables})
        try:
            return self._http.post(self.url, body, self._headers, deadline, largest)
        except TimedOutError as error:
            raise OverloadedError(str(error)) from None
        except UnavailableError as error:
            raise _sorted_out(error, self.url) from None
        except RejectedError as error:
            raise (refused or _refusal)(error) from None

    def _data(self, body: bytes) -> tuple[dict[str, Json], list[str]]:
        """The data of an answer and the errors beside it, where the key is good."""
        answer = _document(body)
        errors, data = _messages(answer), answer.get("data")
        said = _said(errors)
        if unknown := unknown_parts(errors):
            raise UnknownPartsError(unknown, said)
        if _LIMITED.search(said):
            raise RateLimitedError(f"{self.url} answered: {said}")
        if not isinstance(data, dict):
            raise FailedPageError(f"{self.url} answered without data: {said or 'and without an error'}")
        if data.get("viewer") is None and not errors:
            raise RefusedKeyError(
                f"{self.url} does not accept the key; check WANDB_API_KEY and WANDB_BASE_URL"
            )
        return data, errors

    def _runs(self, data: dict[str, Json], said: str, project: Project) -> Json:
        """The listing in an answer, or why there is none."""
        found = data.get("project")
        if found is None and not said:
            raise self._unknown(f"project {project}")
        if found is None and _REFUSED.search(said):
            raise RefusedProjectError(f"{self.url} refused {project}: {said}")
        if found is None:
            raise TransientError(f"{self.url} did not answer for {project}: {said}")
        runs: Json = found.get("runs") if isinstance(found, dict) else None
        if runs is None and said:
            kind = OverloadedError if _OVERLOADED.search(said) else FailedPageError
            raise kind(f"{self.url} could not list runs: {said}")
        if said:
            log.warning("%s answered for %s with errors beside the data: %s", self.url, project, said)
        return runs

    def _unknown(self, what: str) -> UnknownProjectError:
        said = f"{self.url} knows no {what}, or the key may not see it; check WANDB_PROJECTS"
        return UnknownProjectError(said)


def _document(body: bytes) -> dict[str, Json]:
    try:
        answer: Any = orjson.loads(body)  # Any: whatever was sent
    except orjson.JSONDecodeError as error:
        raise TransientError(f"sent an answer that is not JSON: {error.msg}") from None
    if not isinstance(answer, dict):
        raise TransientError(f"sent an answer that is not GraphQL: a JSON {type(answer).__name__}")
    return answer


def _sorted_out(error: UnavailableError, url: str) -> TransientError:
    """What an answer that asks for another try says about the server."""
    text = f"{url} {error}"
    if error.status == 429:
        return RateLimitedError(text, error.wait)
    if error.status in {502, 504} or (error.status == 500 and _OVERLOADED.search(str(error))):
        return OverloadedError(text, error.wait)
    if error.status == 500:
        return FailedPageError(text, error.wait)
    return TransientError(text, error.wait)


def _refusal(error: RejectedError) -> Exception:
    """What a request for a project was refused for. Whether it is the key or the address, `viewer` tells."""
    if error.status in {401, 403}:
        return RefusedProjectError(f"{error}; check that WANDB_API_KEY may read the project")
    if error.status == 404:
        return UnknownProjectError(f"{error}; check WANDB_PROJECTS")
    if error.status < 400 or error.status == 405:
        return RefusedProjectError(str(error))
    try:
        unknown = unknown_parts(_messages(_document(error.body)))
    except TransientError:
        unknown = set()
    # Without the answer's body, which may be long.
    return UnknownPartsError(unknown, str(error)) if unknown else SourceError(str(error))


def _refusal_of_key(error: RejectedError) -> RefusedKeyError:
    suspects = "WANDB_API_KEY and WANDB_BASE_URL" if error.status in {401, 403} else "WANDB_BASE_URL"
    return RefusedKeyError(f"{error}; check {suspects}")


def _unknown_shape(what: str, error: Exception) -> SourceError:
    return SourceError(f"W&B answered for {what} in a shape nobody knows: {error!r}")


def _said(errors: list[str]) -> str:
    return "; ".join(errors)[:500]


def _messages(answer: dict[str, Json]) -> list[str]:
    errors = answer.get("errors")
    return [
        str(error.get("message") if isinstance(error, dict) else error)
        for error in (errors if isinstance(errors, list) else [errors] if errors else [])
    ]


def _page(runs: Json, ask: Ask, reading: RunReader, errors: int) -> Page:
    """The page in a listing; its rows are read at once, so that nothing else of it need be kept."""
    try:
        information, total, edges = runs["pageInfo"], runs.get("totalCount"), runs["edges"]
        nodes = [edge["node"] for edge in edges]
        more, end_cursor = bool(information["hasNextPage"]), information.get("endCursor")
    except (TypeError, KeyError, AttributeError) as error:
        raise _unknown_shape(str(ask.project), error) from None
    offsets = offsets_of([edge.get("cursor") for edge in edges], ask.begin, ask.asked)
    ids = [node.get("id") if isinstance(node, dict) else None for node in nodes]
    read: list[Run | None] = []
    flaws: dict[int, list[str]] = {}
    for place, node in enumerate(nodes):
        found: list[str] = []
        if isinstance(ids[place], str):
            read.append(reading.read(node, found))
        else:
            ids[place] = None
            read.append(None)
            found.append("malformed_run")
        if found:
            flaws[place] = found
    end = offset_of(end_cursor)
    last = offsets[-1] if offsets else -1
    return Page(
        begin=ask.begin,
        asked=ask.asked,
        end=ask.begin + ask.asked - 1 if end is None or end < ask.begin else max(end, last),
        offsets=offsets,
        ids=ids,
        runs=read,
        flaws=flaws,
        total=total if isinstance(total, int) else None,
        more=more,
        cursor=end_cursor if more and isinstance(end_cursor, str) and end is None else None,
        errors=errors,
    )
