"""W&B's GraphQL API: one page of runs at a time, with every answer that is not one given a clear name."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from collectors.wandb.query import WIDE, Extra, query, unknown_parts
from collectors.wandb.runs import Json, RunReader
from collectors.wandb.settings import Project, WandbSettings
from common.errors import ConfigurationError, DeadlineExceededError, SourceError
from common.logs import remember_secret
from common.net.http import Http, RejectedError, TooLargeError, UnavailableError
from common.net.retry import Deadline, TransientError, persist

ORDER = "+created_at"  # what is created while we read comes last, and is read too
WIDE_PAGE = 50  # whole configs and summaries are a hundred kilobytes a run

log = logging.getLogger(__name__)


class UnknownProjectError(ConfigurationError):
    """There is no such project, or the key may not see it."""


class UnservableError(Exception):  # answered by asking for less
    """The server fails on this page, again and again: one of its runs cannot be served."""


@dataclass(frozen=True)
class Page:
    """One page of a listing. `asked` is how many rows it could hold; `total` is None where nobody says."""

    asked: int
    nodes: list[Json]
    total: int | None
    more: bool
    cursor: str | None
    errors: int


class Api:
    """The API with one key. What a server turned out to lack is not asked for again."""

    def __init__(
        self,
        settings: WandbSettings,
        reading: RunReader,
        http: Http,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = f"{settings.base_url}/graphql"
        self._headers = {"Content-Type": "application/json", "Authorization": _basic(settings)}
        self._reading = reading
        self._most = self._fits = settings.page_size
        self._pause = settings.pause
        self._http = http
        self._sleep = sleep
        self._asked = False
        self.missing: set[Extra] = set()

    @property
    def page_size(self) -> int:
        """How many runs to ask for at once."""
        return min(self._fits, WIDE_PAGE) if self.missing & WIDE else self._fits

    def page(
        self, project: Project, filters: str, first: int, after: str | None, tries: int, deadline: Deadline
    ) -> Page:
        """One page. Raises `UnservableError` once the server has answered 500 `tries` times."""
        variables: dict[str, Json] = {
            "entity": project.entity,
            "project": project.name,
            "filters": filters,
            "order": ORDER,
            "first": first,
            "after": after,
        }
        while True:
            try:
                answer = self._ask(variables, tries, deadline)
            except TooLargeError as error:
                self._shrink(variables["first"], error)
            else:
                messages = _messages(answer)
                missing = unknown_parts(messages) - self.missing
                if not missing:
                    self._fits = min(self._most, 2 * self._fits)
                    return _page(answer, messages, project, self._url, variables["first"])
                self._do_without(missing)
            variables["first"] = min(first, self.page_size)

    def _shrink(self, asked: int, error: TooLargeError) -> None:
        """Ask for less, until answers are short enough again; a run that is too large alone is unservable."""
        self._fits = max(1, asked // 2)
        if asked == 1:
            raise UnservableError(str(error)) from None

    def _do_without(self, missing: set[Extra]) -> None:
        for part in sorted(missing, key=lambda part: part.name):
            log.warning("%s does not know %s", self._url, part.value)
        self.missing |= missing

    def _ask(self, variables: dict[str, Json], tries: int, deadline: Deadline) -> dict[str, Json]:
        """Send the query until it is answered with a GraphQL document, be it one of errors."""
        text = query(self._reading.config_keys, self._reading.summary_keys, self.missing)
        body = orjson.dumps({"query": text, "variables": variables})
        failures = 0

        def attempt() -> dict[str, Json]:
            nonlocal failures
            self._keep_pace(deadline)
            try:
                return _document(self._http.post(self._url, body, self._headers, deadline))
            except UnavailableError as error:
                failures += error.status == 500
                if failures >= tries:
                    raise UnservableError(f"{self._url} {error} (tried {failures} times)") from None
                raise
            except RejectedError as error:
                return _refusal(error)

        try:
            return persist(attempt, deadline, self._sleep)
        except TransientError as error:
            raise SourceError(f"W&B could not be read: {error}") from error

    def _keep_pace(self, deadline: Deadline) -> None:
        if self._asked and self._pause:
            if self._pause >= deadline.remaining():
                raise DeadlineExceededError(
                    f"no time is left for a pause of {self._pause} s before the next request"
                )
            self._sleep(self._pause)
        self._asked = True


def _basic(settings: WandbSettings) -> str:
    """The header that carries the key; its encoded form is as secret as the key."""
    token = base64.b64encode(f"api:{settings.api_key.get_secret_value()}".encode()).decode()
    remember_secret(token)
    return f"Basic {token}"


def _document(body: bytes) -> dict[str, Json]:
    try:
        answer: Any = orjson.loads(body)  # Any: whatever was sent
    except orjson.JSONDecodeError as error:
        raise TransientError(f"sent an answer that is not JSON: {error}") from None
    if not isinstance(answer, dict):
        raise TransientError(f"sent an answer that is not GraphQL: a JSON {type(answer).__name__}")
    return answer


def _refusal(error: RejectedError) -> dict[str, Json]:
    """The GraphQL errors of a refused request; raises where the refusal is not about the query."""
    if error.status in {401, 403}:
        raise ConfigurationError(
            f"{error}; check that WANDB_API_KEY is valid for WANDB_BASE_URL and may read the project"
        ) from None
    if error.status < 400 or error.status in {404, 405}:
        raise ConfigurationError(f"{error}; check WANDB_BASE_URL") from None
    try:
        answer = _document(error.body)
    except TransientError:
        raise error from None
    if not unknown_parts(_messages(answer)):
        raise error
    return answer


def _messages(answer: dict[str, Json]) -> list[str]:
    errors = answer.get("errors")
    return [
        str(error.get("message") if isinstance(error, dict) else error)
        for error in (errors if isinstance(errors, list) else [errors] if errors else [])
    ]


def _page(answer: dict[str, Json], messages: list[str], project: Project, url: str, asked: int) -> Page:
    """The page in an answer, or why there is none."""
    said = "; ".join(messages)[:500]
    data = answer.get("data")
    if not isinstance(data, dict):
        raise SourceError(f"{url} answered without data: {said or 'and without an error'}")
    if data.get("viewer") is None and not messages:
        raise ConfigurationError(f"{url} does not accept the key; check WANDB_API_KEY and WANDB_BASE_URL")
    found = data.get("project")
    if found is None:
        if messages:
            raise SourceError(f"{url} did not answer for {project}: {said}")
        raise UnknownProjectError(
            f"{url} knows no project {project}, or the key may not see it; check WANDB_PROJECTS"
        )
    runs: Json = found.get("runs") if isinstance(found, dict) else None
    if runs is None and messages:
        raise UnservableError(f"{url} could not list runs: {said}")
    if messages:
        log.warning("%s answered for %s with errors beside the data: %s", url, project, said)
    try:
        information, total = runs["pageInfo"], runs.get("totalCount")
        return Page(
            asked=asked,
            nodes=[edge["node"] for edge in runs["edges"]],
            total=total if isinstance(total, int) else None,
            more=bool(information["hasNextPage"]),
            cursor=information.get("endCursor"),
            errors=len(messages),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise SourceError(f"{url} answered for {project} in a shape nobody knows: {error!r}") from None
