"""What one answer means: data, or the error that says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.wandb.api import (
    Api,
    FailedPageError,
    OverloadedError,
    RateLimitedError,
    RefusedKeyError,
    RefusedProjectError,
    UnknownProjectError,
)
from collectors.wandb.query import Extra, PageRequest, RunPage, UnknownPartsError, fetch_runs
from collectors.wandb.runs import RunReader
from collectors.wandb.settings import Project
from common.errors import SourceError
from common.logs import redact
from common.net.retry import Deadline, TransientError
from support.servers.faults import Fault
from support.servers.wandb import KEY, Wandb, cursor
from support.wandb_reading import Read, context

ANTS = Project("acme", "ants")
VIEWER = {"id": "x"}
PLAIN: dict[str, str | None] = {"Content-Encoding": None}  # a body in place of a compressed one


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


def api(server: Wandb) -> Api:
    given = context(server, Read())
    return Api(given.settings, given.network.http(server.url, "WANDB_BASE_URL"))


def fetch(server: Wandb, **options: Any) -> RunPage:
    request = PageRequest(ANTS, {}, 5, **options)
    return fetch_runs(api(server), request, RunReader("github.sky.*", None, 1), Deadline(20)).content


def answers(server: Wandb, body: object, status: int | None = None) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    server.faults.add(Fault(status=status, body=text, headers=PLAIN))


def beside(message: str, **data: object) -> dict[str, object]:
    return {"errors": [{"message": message}], "data": {"viewer": VIEWER, **data}}


MEANINGS: list[tuple[int | None, object, type[Exception], str]] = [
    (None, beside("rate limit exceeded", project=None), RateLimitedError, "answered: rate limit exceeded"),
    (None, {"errors": "Rate limit", "data": None}, RateLimitedError, "answered: Rate limit"),
    (None, {"errors": ["too complex"], "data": None}, FailedPageError, "without data: too complex"),
    (None, {"data": None}, FailedPageError, "without data: and without an error"),
    (None, {"data": {"viewer": None}}, RefusedKeyError, "does not accept the key"),
    (None, {"data": {"viewer": VIEWER, "project": None}}, UnknownProjectError, "knows no project acme/ants"),
    (None, beside("permission denied", project=None), RefusedProjectError, "acme/ants: permission denied"),
    (None, beside("shard is down", project=None), TransientError, "for acme/ants: shard is down"),
    (None, beside("deadline exceeded", project={"runs": None}), FailedPageError, "list runs: deadline"),
    (None, {"data": {"viewer": VIEWER, "project": {"runs": None}}}, SourceError, "in an unknown shape"),
    (None, {"data": {"viewer": VIEWER, "project": {"runs": {}}}}, SourceError, "in an unknown shape"),
    (
        None,
        {"data": {"viewer": VIEWER, "project": {"runs": {"edges": 3}}}},
        SourceError,
        "in an unknown shape",
    ),
    (None, {"data": {"viewer": VIEWER, "project": 7}}, SourceError, "in an unknown shape"),
    (None, "{", TransientError, "not JSON"),
    (None, "[]", TransientError, "not GraphQL: a JSON list"),
    (429, "", RateLimitedError, "answered 429"),
    (413, "", OverloadedError, "answered 413"),
    (502, "", OverloadedError, "answered 502"),
    (504, "", OverloadedError, "answered 504"),
    (500, "context deadline exceeded", FailedPageError, "answered 500"),
    (503, "timed out", TransientError, "answered 503"),
    (401, "", RefusedProjectError, "check that WANDB_API_KEY may read the project"),
    (403, "", RefusedProjectError, "check that WANDB_API_KEY may read the project"),
    (404, "", UnknownProjectError, "check WANDB_PROJECTS"),
    (302, "", RefusedProjectError, "answered 302"),
    (400, {"errors": [{"message": 'Cannot query field "tags"'}]}, UnknownPartsError, 'field "tags"'),
    (400, {"errors": [{"message": 'Cannot query field "state"'}]}, SourceError, "rejects the query"),
    (400, "bad request", SourceError, "answered 400"),
]


@pytest.mark.parametrize(("status", "body", "kind", "text"), MEANINGS)
def test_every_answer_without_a_page_is_an_error_of_its_kind(
    server: Wandb, status: int | None, body: object, kind: type[Exception], text: str
) -> None:
    answers(server, body, status)
    with pytest.raises(kind) as caught:
        fetch(server)
    assert type(caught.value) is kind
    assert text in str(caught.value)
    if isinstance(caught.value, UnknownPartsError):
        assert caught.value.parts == {Extra.TAGS}


def test_a_part_that_was_not_requested_and_is_rejected_is_an_error(server: Wandb) -> None:
    answers(server, {"errors": [{"message": 'Cannot query field "tags"'}]}, 400)
    with pytest.raises(SourceError, match="rejects the query"):
        fetch(server, missing=frozenset({Extra.TAGS}))


@pytest.mark.parametrize(
    ("status", "text"), [(401, "WANDB_API_KEY and WANDB_BASE_URL"), (404, "WANDB_BASE_URL")]
)
def test_a_key_that_is_refused_by_itself_is_configuration(server: Wandb, status: int, text: str) -> None:
    answers(server, "", status)
    with pytest.raises(RefusedKeyError, match=f"; check {text}$"):
        api(server).check_key(Deadline(20))
    api(server).check_key(Deadline(20))


def test_the_key_and_its_encoded_form_never_reach_a_log(server: Wandb) -> None:
    server.add("acme", "ants")
    fetch(server)
    token = server.requests[0].headers["Authorization"].removeprefix("Basic ")
    assert redact(f"{KEY} {token}") == "[redacted] [redacted]"


def test_limits_of_creation_time_join_the_filter(server: Wandb) -> None:
    request = PageRequest(ANTS, {"state": "running"}, 5, 1_794_700_800, None, 4)
    variables = request.variables
    assert json.loads(variables["filters"]) == {
        "$and": [{"state": "running"}, {"createdAt": {"$gte": "2026-11-15T00:00:00Z"}}]
    }
    assert (variables["after"], PageRequest(ANTS, {}, 5, cursor="opaque").variables["after"]) == (
        cursor(3),
        "opaque",
    )


@pytest.mark.parametrize(
    ("end_cursor", "end", "opaque"), [(cursor(6), 6, None), ("opaque", None, "opaque"), (7, None, None)]
)
def test_a_page_ends_at_an_offset_or_at_a_cursor(
    server: Wandb, end_cursor: object, end: int | None, opaque: str | None
) -> None:
    edges = [
        {"node": {"id": "r0", "state": "finished", "createdAt": "2026-11-14T00:00:00.5Z"}},
        {"node": {"id": "r1", "state": "odd", "createdAt": "2026-11-14T00:00:01Z"}},
        {"node": {"id": "r2", "state": "finished", "createdAt": "yesterday"}},
        {"node": None},
    ]
    runs = {
        "totalCount": "4",
        "pageInfo": {"hasNextPage": True, "endCursor": end_cursor},
        "edges": edges,
    }
    answers(server, {"data": {"viewer": VIEWER, "project": {"runs": runs}}})
    read = fetch(server)
    assert (read.page.end, read.page.cursor, read.page.total, read.page.more) == (end, opaque, None, True)
    assert [(row.created, row.value and row.value.id) for row in read.page.rows] == [
        (1_794_614_400.5, "r0"),
        (1_794_614_401.0, None),
        (None, None),
        (None, None),
    ]
    assert [*read.flaws.values()] == [["unknown_state"], ["bad_timestamp"], ["malformed_run"]]


def test_the_servers_limits_come_with_the_answer(server: Wandb) -> None:
    server.add("acme", "ants")
    server.headers = {"RateLimit-Remaining": "3", "RateLimit-Reset": "5"}
    answer = fetch_runs(api(server), PageRequest(ANTS, {}, 5), RunReader("x", None, 1), Deadline(20))
    assert (answer.requests_left, answer.reset, answer.content.page.total) == (3, 5, 0)
