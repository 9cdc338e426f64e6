"""W&B's GraphQL API on loopback: the schema executed over runs that a test or the demo puts in.

Unknown fields and arguments fail as they would at the service, rows may be hidden or not servable, and
cursors are offsets. Runs may be changed between requests: every answer is of the state at that moment.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from graphql import (
    DocumentNode,
    GraphQLError,
    GraphQLObjectType,
    GraphQLSchema,
    build_schema,
    execute_sync,
    parse,
    validate,
)

from support.servers.fleet import Row
from support.servers.loopback import Answer, LoopbackServer, Request
from support.servers.mongo import BadFilterError, predicate

SCHEMA = Path(__file__).parents[2] / "data" / "wandb-schema.graphql"
KEY = "0123456789abcdef0123456789abcdef01234567"
HANGS = 0  # in place of a status: never answered
_SMALL = 1400  # what fits in a packet is not compressed


class CannotServeError(Exception):  # answered with a 500
    """A page holds a run that the server fails on."""


@dataclass(slots=True)
class Query(Request):
    """A request, with its variables."""

    variables: dict[str, Any] = field(default_factory=dict)


class Wandb(LoopbackServer[Query]):
    """`POST /graphql` over the runs in `projects`, by entity and name.

    `repeated` rows of the page before come again on every page. `bad_key_status` answers a wrong key with a
    status; without it, as the service is reported to, with a viewer of null.

    A server may be slow (`latency`, in seconds, as a function of the query) and so answer out of order, fail
    now and then with `runs: null` beside an error (`nulls`: a generator and how often), refuse projects with
    a status (`refused`), end listings early (`ends_at`: behind an offset), and send headers with all answers.
    `drift` is called with each query that was answered, to change the rows before the next one.
    """

    request_type = Query

    def __init__(self, key: str = KEY, clock: Callable[[], float] = time.time) -> None:
        self.key = key
        self.projects: dict[tuple[str, str], list[Row]] = {}
        self.created: dict[tuple[str, str], str] = {}  # when projects were, as text
        self.repeated = 0
        self.bad_key_status: int | None = None
        self.latency: Callable[[Query], float] = lambda _: 0.0
        self.nulls: tuple[Random, float] | None = None
        self.entities: set[str] = set()  # that have no project
        self.refused: dict[tuple[str, str], tuple[int, str]] = {}
        self.ends_at: int | None = None
        self.headers: dict[str, str | None] = {}
        self.drift: Callable[[Query], object] = lambda _: None
        self.most_at_once = 0
        self.at_once = 0
        self._removed: set[str] = set()
        self._schema = schema()
        self._documents: dict[str, DocumentNode | list[GraphQLError]] = {}
        self._lock = threading.Lock()
        super().__init__(clock)

    def add(self, entity: str, project: str, rows: Iterable[Row] = ()) -> list[Row]:
        """Make a project, and return its rows to change at will."""
        return self.projects.setdefault((entity, project), list(rows))

    def remove(self, *parts: str) -> None:
        """Forget fields (`Run.runInfo`) or arguments (`Run.config.keys`), as a server that never had them."""
        self._removed |= set(parts)
        self._schema = schema(frozenset(self._removed))
        self._documents.clear()

    def respond(self, request: Query) -> Answer:
        if (request.method, request.path) != ("POST", "/graphql"):
            return Answer.json(404, {"error": "Not Found"})
        credentials = base64.b64encode(f"api:{self.key}".encode()).decode()
        known = request.headers.get("Authorization") == f"Basic {credentials}"
        if not known and self.bad_key_status is not None:
            return Answer.json(self.bad_key_status, {"errors": [{"message": "invalid API key"}]})
        packed = request.headers.get("Content-Encoding") == "gzip"
        asked = json.loads(gzip.decompress(request.body) if packed else request.body)
        request.variables = asked.get("variables") or {}
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            answer = self._fault(request) or self._execute(asked["query"], request.variables, known)
            self.drift(request)
        hanging = answer.status == HANGS
        if self._closing.wait(None if hanging else self.latency(request)):
            return answer
        with self._lock:
            self.at_once -= 1
        return _packed(Answer(answer.status, answer.body, {**answer.headers, **self.headers}), request)

    def _fault(self, request: Query) -> Answer | None:
        """What a query is answered with in place of the truth, where it meets one of the server's faults."""
        asked = request.variables
        place = (asked.get("entity", ""), asked.get("project", ""))
        if place in self.refused:
            status, said = self.refused[place]
            return Answer.json(status, {"errors": [{"message": said}]})
        if self.nulls and asked.get("first") and self.nulls[0].random() < self.nulls[1]:
            data = {"viewer": {"id": "VXNlcjox"}, "project": {"runs": None}}
            return Answer.json(200, {"data": data, "errors": [{"message": "could not resolve runs"}]})
        return None

    def _execute(self, text: str, variables: Mapping[str, Any], known: bool) -> Answer:
        document = self._document(text)
        if isinstance(document, list):
            return Answer.json(400, {"errors": [error.formatted for error in document]})
        root = self._root() if known else {}
        result = execute_sync(self._schema, document, root, variable_values=dict(variables))
        for error in result.errors or []:
            if isinstance(error.original_error, CannotServeError | BadFilterError):
                return Answer.json(500, {"error": str(error.original_error)})
        return Answer.json(200, result.formatted)

    def _document(self, text: str) -> DocumentNode | list[GraphQLError]:
        if text not in self._documents:
            try:
                parsed = parse(text)
                self._documents[text] = validate(self._schema, parsed) or parsed
            except GraphQLError as error:
                self._documents[text] = [error]
        return self._documents[text]

    def _root(self) -> dict[str, Any]:
        return {
            "viewer": {
                "id": "VXNlcjox",
                "entity": "acme",
                "username": "ci",
                "name": "CI",
                "email": "ci@example.com",
                "admin": False,
                "flags": "{}",
                "teams": {"edges": []},
            },
            "serverInfo": {"features": []},
            "project": self._project,
            "models": self._models,
        }

    def _models(
        self,
        _: Any,
        entityName: str,  # noqa: N803
        first: int = 50,
        after: str | None = None,
    ) -> dict[str, Any] | None:
        names = sorted(name for entity, name in self.projects if entity == entityName)
        if not names and entityName not in self.entities:
            return None
        begin = _offset(after) + 1 if after else 0
        shown = list(enumerate(names))[begin : begin + first]
        nodes = [self._project(None, name, entityName) for _, name in shown]
        return {
            "edges": [
                {"node": node, "cursor": cursor(place)} for (place, _), node in zip(shown, nodes, strict=True)
            ],
            "pageInfo": {
                "hasNextPage": begin + first < len(names),
                "endCursor": cursor(shown[-1][0]) if shown else None,
            },
        }

    def _project(self, _: Any, name: str, entityName: str) -> dict[str, Any] | None:  # noqa: N803
        rows = self.projects.get((entityName, name))
        if rows is None:
            return None
        return {
            "id": base64.b64encode(f"Project:{entityName}/{name}".encode()).decode(),
            "internalId": "1",
            "name": name,
            "entityName": entityName,
            "createdAt": self.created.get((entityName, name)),
            "readOnly": False,
            "totalRuns": len(rows),
            "runCount": lambda _, filters=None: len(_chosen(rows, filters, None)),
            "runs": lambda _, **asked: self._runs(rows, **asked),
            "run": lambda _, name: next((row.node() for row in rows if row.id == name), None),
        }

    def _runs(
        self,
        rows: list[Row],
        filters: str | None = None,
        order: str | None = None,
        first: int = 50,
        after: str | None = None,
    ) -> dict[str, Any]:
        chosen = _chosen(rows, filters, order)
        begin = _offset(after) + 1 if after else 0
        until = begin + first if self.ends_at is None else min(begin + first, self.ends_at + 1)
        shown = list(enumerate(chosen))[max(0, begin - self.repeated) : until]
        if any(row.unservable for _, row in shown):
            raise CannotServeError("internal server error")
        return {
            "totalCount": len(chosen),
            "edges": [
                {"node": row.node(), "cursor": cursor(place)} for place, row in shown if not row.hidden
            ],
            "pageInfo": {
                "hasNextPage": until < len(chosen) and (self.ends_at is None or until <= self.ends_at),
                "endCursor": cursor(shown[-1][0]) if shown else None,
            },
        }


@lru_cache
def schema(removed: frozenset[str] = frozenset()) -> GraphQLSchema:
    """The schema on file, without some fields (`Type.field`) and arguments (`Type.field.argument`)."""
    made = build_schema(SCHEMA.read_text(encoding="utf-8"))
    for part in removed:
        kind, name, *argument = part.split(".")
        owner = made.type_map[kind]
        if not isinstance(owner, GraphQLObjectType):
            raise TypeError(f"{kind} has no fields")
        if argument:
            del owner.fields[name].args[argument[0]]
        else:
            del owner.fields[name]
    return made


def cursor(offset: int) -> str:
    """The cursor of the row at an offset."""
    return base64.b64encode(f"arrayconnection:{offset}".encode()).decode()


def _offset(text: str) -> int:
    return int(base64.b64decode(text).decode().removeprefix("arrayconnection:"))


def _chosen(rows: list[Row], filters: str | None, order: str | None) -> list[Row]:
    matches = predicate(json.loads(filters or "{}"))
    chosen = sorted((row for row in rows if matches(row.values())), key=Row.created)
    return chosen[::-1] if (order or "").startswith("-") else chosen


def _packed(answer: Answer, request: Query) -> Answer:
    """The answer as it goes over the wire, compressed where the client takes that."""
    if len(answer.body) < _SMALL or "gzip" not in request.headers.get("Accept-Encoding", ""):
        return answer
    body = gzip.compress(answer.body, compresslevel=5)
    return Answer(answer.status, body, {**answer.headers, "Content-Encoding": "gzip"})
