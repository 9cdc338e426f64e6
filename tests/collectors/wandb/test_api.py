"""What one answer means: data, or the error that says what to do."""

from __future__ import annotations

import json

import pytest

from collectors.wandb.api import Api, Extra, FailedRequestError, RefusedKeyError, RefusedProjectError
from collectors.wandb.query import Row, read_runs, runs_query
from collectors.wandb.runs import RunReader
from collectors.wandb.settings import Project
from collectors.wandb.slices import LATEST, Failure, Page, Slice, SliceRequest
from common.errors import SourceError
from common.logs import redact
from common.net.retry import Deadline
from common.times import EARLIEST
from support.servers.faults import Fault
from support.servers.wandb import KEY, Wandb
from support.wandb_runs import Ran, context, rows

ANTS = Project("acme", "ants")
VIEWER = {"id": "x"}
PLAIN: dict[str, str | None] = {"Content-Encoding": None}  # a body in place of a compressed one


READING = RunReader("github.sky.*", None, 1)


def requested(since: int = EARLIEST, offset: int = 0) -> SliceRequest:
    return SliceRequest(Slice(since, LATEST, 5), since, LATEST, 5, offset)


def api_of(server: Wandb) -> Api:
    given = context(server, Ran())
    return Api(given.settings, given.http(server.url, "WANDB_BASE_URL"))


def fetch(server: Wandb, api: Api | None = None) -> Page[Row]:
    request = requested()
    query = runs_query(ANTS, {}, READING, False, request)
    return read_runs(ANTS, (api or api_of(server)).post(query, Deadline(20)), READING, request)


def answers(server: Wandb, body: object, status: int | None = None) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    server.faults.add(Fault(status=status, body=text, headers=PLAIN))


def beside(message: str, **data: object) -> dict[str, object]:
    return {"errors": [{"message": message}], "data": {"viewer": VIEWER, **data}}


def project(found: object) -> dict[str, object]:
    return {"data": {"viewer": VIEWER, "project": found}}


MEANINGS: list[tuple[int | None, object, type[Exception] | Failure, str]] = [
    (None, beside("rate limit exceeded", project=None), Failure.RATE_LIMITED, "rate limit exceeded"),
    (None, {"errors": "Rate limit", "data": None}, Failure.RATE_LIMITED, "answered: Rate limit"),
    (None, {"errors": ["too complex"], "data": None}, Failure.QUICK, "without data: too complex"),
    (None, {"data": None}, Failure.QUICK, "without data: and without an error"),
    (None, {"data": {"viewer": None}}, RefusedKeyError, "does not accept the key"),
    (None, project(None), RefusedProjectError, "knows no project acme/ants"),
    (None, beside("permission denied", project=None), RefusedProjectError, "acme/ants: permission denied"),
    (None, beside("shard is down", project=None), Failure.QUICK, "for acme/ants: shard is down"),
    (None, beside("deadline exceeded", project={"runs": None}), Failure.QUICK, "list runs: deadline"),
    (None, project({"runs": None}), SourceError, "in an unknown shape"),
    (None, project({"runs": {}}), SourceError, "in an unknown shape"),
    *(
        (None, project({"runs": {"edges": edges, "pageInfo": {"hasNextPage": more}}}), SourceError, "unknown")
        for edges, more in ((3, False), ({}, False), ("", False), ([], None), ([], 0), ([], "no"))
    ),
    (None, project(7), SourceError, "in an unknown shape"),
    (None, beside("x" * 600 + 'Cannot query field "name"'), SourceError, "rejects the query: xxx"),
    (None, "{", Failure.QUICK, "not JSON"),
    (None, "[]", Failure.QUICK, "not GraphQL: a JSON list"),
    (429, "", Failure.RATE_LIMITED, "answered 429"),
    (413, "", Failure.HEAVY, "answered 413"),
    (502, "", Failure.UNAVAILABLE, "answered 502"),
    (504, "", Failure.HEAVY, "answered 504"),
    (500, "context deadline exceeded", Failure.QUICK, "answered 500"),
    (401, "", RefusedKeyError, "check WANDB_API_KEY and WANDB_BASE_URL"),
    (403, "", RefusedProjectError, "check WANDB_PROJECTS, WANDB_API_KEY and WANDB_BASE_URL"),
    (404, "", RefusedProjectError, "check WANDB_PROJECTS, WANDB_API_KEY and WANDB_BASE_URL"),
    (302, "", RefusedKeyError, "check WANDB_BASE_URL"),
    (405, "", RefusedKeyError, "check WANDB_BASE_URL"),
    (400, {"errors": [{"message": 'Cannot query field "name"'}]}, SourceError, "rejects the query"),
    (400, "bad request", SourceError, "answered 400"),
]


@pytest.mark.parametrize(("status", "body", "kind", "text"), MEANINGS)
def test_every_answer_without_a_page_is_an_error_of_its_kind(
    server: Wandb, status: int | None, body: object, kind: type[Exception] | Failure, text: str
) -> None:
    answers(server, body, status)
    with pytest.raises(FailedRequestError if isinstance(kind, Failure) else kind) as caught:
        fetch(server)
    error = caught.value
    assert (error.failure if isinstance(error, FailedRequestError) else type(error)) is kind
    assert text in str(error)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ('Cannot query field "group" on type "Run"', {Extra.GROUP}),
        ("Cannot query field `username`; Cannot query field `gpuCount`", {Extra.USER, Extra.RUN_INFO}),
        ('Unknown argument "keys" on field "Run.config"', {Extra.CONFIG_KEYS}),
        ('Cannot query field "state"', None),
        ('Cannot query field "group"; Cannot query field "state"', None),
    ],
)
def test_what_a_server_does_not_know_is_left_out_where_it_can_be(
    server: Wandb, message: str, found: set[Extra] | None
) -> None:
    server.add("acme", "ants", rows(1))
    answers(server, {"errors": [{"message": message}]}, 400)
    api = api_of(server)
    if found is None:
        with pytest.raises(SourceError, match="rejects the query"):
            fetch(server, api)
    else:
        assert len(fetch(server, api).rows) == 1
        assert api.missing == found


def test_the_key_and_its_encoded_form_never_reach_a_log(server: Wandb) -> None:
    server.add("acme", "ants")
    fetch(server)
    token = server.requests[0].headers["Authorization"].removeprefix("Basic ")
    assert redact(f"{KEY} {token}") == "[redacted] [redacted]"


@pytest.mark.parametrize("before", range(440, 500, 9))
def test_a_key_in_an_answer_is_removed_before_the_text_is_cut(server: Wandb, before: int) -> None:
    text = "x" * before + KEY
    answers(server, {"errors": [{"message": text}], "data": None})
    with pytest.raises(FailedRequestError) as caught:
        fetch(server)
    node = {"name": text[before - 180 :]}
    answers(server, project({"runs": {"edges": [{"node": node}], "pageInfo": {"hasNextPage": False}}}))
    for shown in (str(caught.value), *fetch(server).rows):
        assert "xxx[red" in shown
        assert KEY[:8] not in shown


def test_page_has_rows_times_and_flaws(server: Wandb) -> None:
    nodes = [
        {"id": "r0", "state": "finished", "createdAt": "2026-11-14T00:00:00.5Z"},
        {"id": "r1", "state": "odd", "createdAt": "2026-11-14T00:00:01Z"},
        {"id": "r2", "state": "finished", "createdAt": "yesterday"},
        None,
        None,
    ]
    edges = [{"node": node} for node in nodes]
    answers(server, project({"runs": {"totalCount": "4", "pageInfo": {"hasNextPage": True}, "edges": edges}}))
    page = fetch(server)
    assert (page.total, page.more) == (None, True)
    assert [row.run and row.run.id for row in page.rows.values()] == ["r0", None, None, None, None]
    assert page.times == [1_794_614_400.5, 1_794_614_401.0]
    flaws = [row.flaws for row in page.rows.values()]
    assert flaws == [(), ("unknown_state",), ("bad_timestamp",), ("malformed_run",), ("malformed_run",)]
