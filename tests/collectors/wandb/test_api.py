"""What one answer means: a page, or the error that says what is to be done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.wandb.api import (
    Api,
    Ask,
    FailedPageError,
    OverloadedError,
    RateLimitedError,
    RefusedKeyError,
    RefusedProjectError,
    UnknownPartsError,
    UnknownProjectError,
)
from collectors.wandb.pages import Page
from collectors.wandb.query import Extra
from collectors.wandb.runs import RunReader
from collectors.wandb.settings import Project
from common.errors import SourceError
from common.net.retry import Deadline, TransientError
from support.servers.faults import Fault
from support.servers.wandb import Wandb, cursor
from support.wandb_runs import Ran, context

ANTS = Project("acme", "ants")
ME = {"id": "x"}
PLAIN: dict[str, str | None] = {"Content-Encoding": None}  # a body put in place of a compressed one


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


def api(server: Wandb) -> Api:
    given = context(server, Ran())
    return Api(given.settings, RunReader("github.sky.*", None, 1), given.network.http(server.url))


def answers(server: Wandb, body: object, status: int | None = None) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    server.faults.add(Fault(status=status, body=text, headers=PLAIN))


def page(server: Wandb, begin: int, asked: int, edges: list[Any], **information: Any) -> Page:
    """The page that is read where a listing shows these rows."""
    told = {"hasNextPage": False, "endCursor": None, **information}
    runs = {"totalCount": told.pop("totalCount", None), "pageInfo": told, "edges": edges}
    answers(server, {"data": {"viewer": ME, "project": {"runs": runs}}})
    return api(server).page(Ask(ANTS, "{}", begin, asked), Deadline(20)).page


def edge(place: int) -> dict[str, Any]:
    node = {"id": f"r{place}", "state": "finished", "createdAt": "2026-11-14T00:00:00Z"}
    return {"cursor": cursor(place), "node": node}


def said(message: str, **data: object) -> dict[str, object]:
    return {"errors": [{"message": message}], "data": {"viewer": ME, **data}}


MEANINGS: list[tuple[int | None, object, type[Exception], str]] = [
    (None, said("rate limit exceeded", project=None), RateLimitedError, "answered: rate limit exceeded"),
    (None, {"errors": "Rate limit", "data": None}, RateLimitedError, "answered: Rate limit"),
    (None, {"errors": {"message": "rate limit"}}, RateLimitedError, "answered: rate limit"),
    (None, {"errors": ["too complex"], "data": None}, FailedPageError, "without data: too complex"),
    (None, {"data": None}, FailedPageError, "without data: and without an error"),
    (None, {"data": {"viewer": None}}, RefusedKeyError, "does not accept the key"),
    (None, {"data": {"viewer": ME, "project": None}}, UnknownProjectError, "knows no project acme/ants"),
    (None, said("permission denied", project=None), RefusedProjectError, "acme/ants: permission denied"),
    (None, said("shard is down", project=None), TransientError, "for acme/ants: shard is down"),
    (None, said("deadline exceeded", project={"runs": None}), OverloadedError, "list runs: deadline"),
    (None, said("broken", project={"runs": None}), FailedPageError, "could not list runs: broken"),
    (None, {"data": {"viewer": ME, "project": {"runs": None}}}, SourceError, "a shape nobody knows"),
    (None, {"data": {"viewer": ME, "project": 7}}, SourceError, "a shape nobody knows"),
    (None, "{", TransientError, "not JSON"),
    (None, "[]", TransientError, "not GraphQL: a JSON list"),
    (429, "", RateLimitedError, "answered 429"),
    (502, "", OverloadedError, "answered 502"),
    (504, "", OverloadedError, "answered 504"),
    (500, "timed out", OverloadedError, "answered 500"),
    (500, "", FailedPageError, "answered 500"),
    (503, "timed out", TransientError, "answered 503"),
    (401, "", RefusedProjectError, "check that WANDB_API_KEY may read the project"),
    (403, "", RefusedProjectError, "check that WANDB_API_KEY may read the project"),
    (404, "", UnknownProjectError, "check WANDB_PROJECTS"),
    (405, "", RefusedProjectError, "answered 405"),
    (302, "", RefusedProjectError, "answered 302"),
    (400, {"errors": [{"message": 'Cannot query field "tags"'}]}, UnknownPartsError, "answered 400"),
    (400, "bad request", SourceError, "answered 400"),
]


@pytest.mark.parametrize(("status", "body", "kind", "text"), MEANINGS)
def test_every_answer_without_a_page_is_an_error_of_its_kind(
    server: Wandb, status: int | None, body: object, kind: type[Exception], text: str
) -> None:
    answers(server, body, status)
    with pytest.raises(kind) as caught:
        api(server).page(Ask(ANTS, "{}", 0, 5), Deadline(20))
    assert type(caught.value) is kind
    assert text in str(caught.value)
    if isinstance(caught.value, UnknownPartsError):
        assert caught.value.parts == {Extra.TAGS}


@pytest.mark.parametrize(
    ("status", "suspects"),
    [
        (401, "WANDB_API_KEY and WANDB_BASE_URL"),
        (403, "WANDB_API_KEY and WANDB_BASE_URL"),
        (404, "WANDB_BASE_URL"),
    ],
)
def test_a_key_that_is_refused_by_itself_is_a_matter_of_configuration(
    server: Wandb, status: int, suspects: str
) -> None:
    answers(server, "", status)
    with pytest.raises(RefusedKeyError, match=f"; check {suspects}$"):
        api(server).ask_for_key(Deadline(20))
    api(server).ask_for_key(Deadline(20))


class TestProjects:
    def test_a_page_of_them_ends_with_the_cursor_of_the_next(self, server: Wandb) -> None:
        models = {"edges": [{"node": {"name": "ants"}}, {"node": None}, {"node": {"name": "bees"}}]}
        for more, expected in ((True, "c"), (False, None)):
            information = {"pageInfo": {"hasNextPage": more, "endCursor": "c"}}
            answers(server, {"data": {"viewer": ME, "models": {**models, **information}}})
            assert api(server).projects("acme", None, Deadline(20)) == (["ants", "bees"], expected)

    @pytest.mark.parametrize(
        ("body", "kind", "text"),
        [
            (said("broken", models=None), FailedPageError, "not list the projects of acme: broken"),
            ({"data": {"viewer": ME, "models": None}}, UnknownProjectError, "knows no entity acme"),
            ({"data": {"viewer": ME, "models": {}}}, SourceError, "the projects of acme in a shape"),
            ({"data": {"viewer": ME, "models": 7}}, SourceError, "the projects of acme in a shape"),
        ],
    )
    def test_where_there_is_none_the_error_says_why(
        self, server: Wandb, body: object, kind: type[Exception], text: str
    ) -> None:
        answers(server, body)
        with pytest.raises(kind, match=text) as caught:
            api(server).projects("acme", None, Deadline(20))
        assert type(caught.value) is kind


class TestPages:
    @pytest.mark.parametrize(
        ("begin", "places", "end_cursor", "end"),
        [
            (4, [4, 5, 6], cursor(6), 6),
            (4, [4, 5, 6], cursor(8), 8),
            (4, [4, 5, 6], cursor(5), 6),
            (4, [4], cursor(4), 4),
            (4, [4], cursor(3), 8),
            (4, [4], None, 8),
            (4, [4], "opaque", 8),
            (0, [], cursor(0), 0),
            (4, [], cursor(6), 6),
        ],
    )
    def test_a_page_covers_rows_up_to_its_end_cursor_or_all_that_were_asked_for(
        self, server: Wandb, begin: int, places: list[int], end_cursor: str | None, end: int
    ) -> None:
        read = page(server, begin, 5, [edge(place) for place in places], endCursor=end_cursor)
        assert (read.begin, read.asked, read.end, [*(read.offsets or ())]) == (begin, 5, end, places)
        assert (read.more, read.cursor) == (False, None)

    @pytest.mark.parametrize(("end_cursor", "kept"), [(cursor(4), None), ("opaque", "opaque"), (7, None)])
    def test_a_cursor_that_is_no_offset_is_kept_where_there_are_more_rows(
        self, server: Wandb, end_cursor: object, kept: str | None
    ) -> None:
        read = page(server, 0, 5, [edge(0)], endCursor=end_cursor, hasNextPage=True)
        assert (read.more, read.cursor) == (True, kept)

    def test_a_row_without_an_id_is_malformed_and_shows_nothing(self, server: Wandb) -> None:
        edges = [edge(0), {"node": None}, {"node": {"id": 7}}, {"node": {"id": "r3", "state": "odd"}}]
        read = page(server, 0, 5, edges, totalCount=4)
        assert read.ids == ["r0", None, None, "r3"]
        assert [run and run.id for run in read.runs] == ["r0", None, None, None]
        assert read.flaws == {1: ["malformed_run"], 2: ["malformed_run"], 3: ["unknown_state"]}
        assert (read.total, read.errors) == (4, 0)
        assert page(server, 0, 5, [], totalCount="4").total is None

    def test_a_page_is_asked_for_by_the_row_before_it_or_by_the_cursor_that_came(self) -> None:
        assert Ask(ANTS, "{}", 0, 5).cursor is None
        assert Ask(ANTS, "{}", 5, 5).cursor == cursor(4)
        assert Ask(ANTS, "{}", 5, 5, "opaque").cursor == "opaque"

    def test_what_the_server_says_of_its_limits_comes_with_the_page(self, server: Wandb) -> None:
        server.add("acme", "ants")
        server.headers = {"RateLimit-Remaining": "3", "RateLimit-Reset": "5"}
        answer = api(server).page(Ask(ANTS, "{}", 0, 5), Deadline(20))
        assert (answer.left, answer.reset, answer.page.total) == (3, 5, 0)
