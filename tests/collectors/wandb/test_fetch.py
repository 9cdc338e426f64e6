"""Reading over the wire: how few requests it takes, and everything a listing can do wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from random import Random

import pytest

from common.errors import ConfigurationError, DeadlineExceededError, SourceError
from common.logs import redact
from support.servers.faults import Fault
from support.servers.wandb import KEY, Query, Wandb, cursor
from support.wandb_runs import AT, collect, row, rows

PLAIN: dict[str, str | None] = {"Content-Encoding": None}  # a body put in place of a compressed one


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


def page(server: Wandb, **changes: object) -> str:
    """An answer with one page of nothing, changed."""
    runs = {"totalCount": 0, "pageInfo": {"hasNextPage": False, "endCursor": None}, "edges": [], **changes}
    return json.dumps({"data": {"viewer": {"id": "x"}, "project": {"runs": runs}}})


class TestRequests:
    def test_600_recent_runs_take_two_requests(self, server: Wandb) -> None:
        old = [row(f"old{place}", started=-900, ended=-800) for place in range(400)]
        server.add("acme", "ants", [*rows(600), *old])
        ran = collect(server)
        assert ran.value("runs.completed_24h") == 600
        assert len(server.requests) == ran.report.requests == 2

    def test_the_filter_asks_by_heartbeat_creation_or_state_and_the_order_is_by_creation(
        self, server: Wandb
    ) -> None:
        server.add("acme", "ants")
        collect(server)
        asked = server.requests[0].variables
        since = {"$gte": "2026-11-14T00:00:00Z"}
        assert AT == 1_794_614_400 + 86_400
        assert json.loads(asked["filters"]) == {
            "$or": [
                {"heartbeatAt": since},
                {"createdAt": since},
                {"state": "running"},
                {"state": "preempting"},
                {"state": "pending"},
            ]
        }
        assert (asked["order"], asked["first"]) == ("+created_at", 500)

    def test_the_answer_may_come_compressed(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(100))
        assert collect(server).value("runs.completed_24h") == 100
        assert server.requests[0].headers["Accept-Encoding"] == "gzip"
        assert server.requests[0].sent < server.requests[0].raw_size / 4

    def test_a_pause_between_requests_can_be_set(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="20", FLEETGAUGE_WANDB_PAUSE="2s")
        assert len(server.requests) == 3
        assert ran.waits == [pytest.approx(2, abs=0.5)] * 2
        assert collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="20").waits == []

    def test_no_time_for_a_pause_ends_the_run(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="20", FLEETGAUGE_WANDB_PAUSE="10m")
        assert isinstance(ran.error, DeadlineExceededError)
        assert ran.waits == []


class TestPaging:
    def test_short_and_empty_pages_do_not_end_it_and_hidden_runs_are_counted(
        self, server: Wandb, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        listed = server.add("acme", "ants", rows(100))
        for one in listed[5:45]:
            one.hidden = True
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert ran.error is None
        assert ran.value("runs.completed_24h") == 60
        assert ran.value("runs.unseen") == 40
        assert "acme/ants: 60 runs listed, 40 unseen" in caplog.messages
        assert ran.report.lost == []

    def test_an_empty_page_may_have_no_cursor(self, server: Wandb) -> None:
        server.cursor_on_empty_pages = False
        for one in server.add("acme", "ants", rows(100))[:35]:
            one.hidden = True
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.completed_24h"), ran.value("runs.unseen")) == (65, 35)

    def test_nothing_is_unseen_where_all_is_shown(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(30))
        assert collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10").value("runs.unseen") == 0

    def test_rows_that_come_twice_count_once(self, server: Wandb) -> None:
        server.repeated = 4
        server.add("acme", "ants", [*rows(30), row("odd", "exploded", started=-2.9999)])
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.completed_24h"), ran.value("runs.unseen")) == (30, 0)
        assert ran.dropped == {"unknown_state": 1}

    def test_of_a_run_that_ends_between_two_rows_the_later_row_stands(self, server: Wandb) -> None:
        server.repeated = 5
        listed = server.add("acme", "ants", rows(20))
        listed[9].state, listed[9].heartbeat_at = "running", AT - 5

        def end(_: Query) -> None:
            listed[9].state = "failed"

        server.on("answered", end)
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.failed_24h"), ran.value("runs.active")) == (1, 0)

    def test_a_flaw_that_the_later_row_no_longer_has_is_not_counted(self, server: Wandb) -> None:
        server.repeated = 5
        listed = server.add("acme", "ants", rows(20))
        listed[9].state = "exploded"

        def mend(_: Query) -> None:
            listed[9].state = "finished"

        server.on("answered", mend)
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.completed_24h"), ran.dropped) == (20, {})

    def test_runs_created_while_reading_are_read_too(self, server: Wandb) -> None:
        listed = server.add("acme", "ants", rows(15))
        server.on("answered", lambda _: listed.append(row(f"new{len(listed)}", "running", 0, 0)))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.completed_24h"), ran.value("runs.active")) == (15, 1)

    def test_a_run_is_not_missed_because_an_earlier_one_left_the_listing(self, server: Wandb) -> None:
        zombies = [row(f"z{place}", "running", started=-900, ended=-800) for place in range(3)]
        server.add("acme", "ants", [*zombies, *rows(27)])

        def crash(_: Query) -> None:
            for zombie in zombies:
                zombie.state = "crashed"

        server.on("answered", crash)
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert ran.value("runs.completed_24h") == 27
        assert ran.value("runs.unseen") == 0

    def test_an_empty_page_may_have_the_cursor_it_was_asked_with(self, server: Wandb) -> None:
        for one in server.add("acme", "ants", rows(25))[:20]:
            one.hidden = True
        server.remove("RunConnection.totalCount")
        server.faults.add(Fault())  # which tells that there are no totals
        for after in (None, cursor(9)):
            standing = page(server, totalCount=None, pageInfo={"hasNextPage": True, "endCursor": after})
            server.faults.add(Fault(body=standing, headers=PLAIN))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        asked = [request.variables["after"] for request in server.requests]
        assert asked == [None, None, cursor(9), cursor(19)]
        assert ran.value("runs.completed_24h") == 5

    @pytest.mark.parametrize("total", [None, "many"])
    def test_without_a_count_unseen_runs_are_unknown(self, server: Wandb, total: object) -> None:
        server.faults.add(Fault(body=page(server, totalCount=total)))
        ran = collect(server)
        assert (ran.value("runs.completed_24h"), ran.value("runs.unseen")) == (0, None)

    def test_a_page_that_is_empty_once_costs_no_run(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(15))
        server.faults.add(Fault())
        server.faults.add(Fault(body=page(server, totalCount=15), headers=PLAIN))
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (ran.value("runs.completed_24h"), ran.value("runs.unseen")) == (15, 0)

    def test_a_listing_without_end_is_an_error(self, server: Wandb) -> None:
        server.add("acme", "ants")
        endless = page(server, pageInfo={"hasNextPage": True, "endCursor": None})
        server.faults.add(Fault(body=endless), times=None)
        ran = collect(server, FLEETGAUGE_WANDB_MAX_RUNS="10", FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert str(ran.error) == "the listing of acme/ants does not end"
        assert ran.points == []

    def test_too_many_runs_are_an_error_not_a_wrong_count(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        ran = collect(server, FLEETGAUGE_WANDB_MAX_RUNS="49", FLEETGAUGE_WANDB_PAGE_SIZE="20")
        assert isinstance(ran.error, SourceError)
        assert "FLEETGAUGE_WANDB_MAX_RUNS" in str(ran.error)
        assert ran.points == []
        assert collect(server, FLEETGAUGE_WANDB_MAX_RUNS="50").value("runs.completed_24h") == 50


class TestRunsThatCannotBeServed:
    @pytest.mark.parametrize("bad", [[0], [1], [49], [23], [10, 11, 12], [3, 13, 21, 33, 43]])
    def test_they_are_stepped_over_and_counted(self, server: Wandb, bad: list[int]) -> None:
        listed = server.add("acme", "ants", rows(50))
        for place in bad:
            listed[place].unservable = True
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="20")
        assert ran.error is None
        assert ran.value("runs.completed_24h") == 50 - len(bad)
        assert ran.value("runs.unseen") == len(bad)
        assert ran.dropped == {"unserved_run": len(bad)}
        assert ran.report.lost == []

    def test_one_among_500_takes_few_requests(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(600))[371].unservable = True
        ran = collect(server)
        assert ran.value("runs.completed_24h") == 599
        assert ran.report.requests <= 35

    def test_a_page_that_fails_once_is_only_asked_again(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        server.faults.add(Fault(status=500), times=3)
        ran = collect(server)
        assert (ran.value("runs.completed_24h"), ran.report.requests) == (50, 4)
        assert [request.variables["first"] for request in server.requests if request.variables] == [500]

    def test_a_server_that_only_fails_is_not_taken_for_bad_runs(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        server.faults.add(Fault(status=500), times=None)
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="8")
        assert isinstance(ran.error, SourceError)
        assert "one run after another" in str(ran.error)
        assert ran.points == []
        assert ran.report.requests < 30

    def test_too_many_of_them_are_an_error(self, server: Wandb) -> None:
        for one in server.add("acme", "ants", rows(50))[::2]:
            one.unservable = True
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="5")
        assert isinstance(ran.error, SourceError)
        assert ran.points == []

    def test_cursors_that_are_no_offsets_cannot_be_stepped_over(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(2))
        server.faults.add(Fault(body=page(server, pageInfo={"hasNextPage": True, "endCursor": "b3BhcXVl"})))
        server.faults.add(Fault(status=500), times=None)
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="1")
        assert "'b3BhcXVl' is not an offset" in str(ran.error)

    def test_a_page_too_large_to_hold_is_halved(self, server: Wandb) -> None:
        listed = server.add("acme", "ants", rows(40))
        for one in listed:
            one.config = {"_wandb": {"value": {"padding": "x" * 2**19}}}
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="40")
        assert ran.value("runs.completed_24h") == 40
        assert ran.dropped == {}
        sizes = [request.variables["first"] for request in server.requests]
        assert sizes[:4] == [40, 20, 10, 5]
        assert max(sizes[4:]) < 10

    def test_a_run_too_large_to_hold_is_stepped_over(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(40))[0].config = {"_wandb": "x" * 2**24}
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="16", FLEETGAUGE_WANDB_CONNECTIONS="1")
        assert ran.value("runs.completed_24h") == 39
        assert ran.dropped == {"unserved_run": 1}
        sizes = [request.variables["first"] for request in server.requests]
        assert sizes[:9] == [16, 8, 4, 2, 1, 1, 4, 5, 6]


class TestServersThatKnowLess:
    @pytest.mark.parametrize(
        ("part", "lost"),
        [
            ("Run.computeSeconds", "computeSeconds"),
            ("Run.runInfo", "runInfo"),
            ("RunInfo.gpuCount", "runInfo"),
            ("RunConnection.totalCount", "totalCount"),
            ("RunEdge.cursor", "edges { cursor }"),
            ("Run.config.keys", "config(keys:)"),
            ("Run.summaryMetrics.keys", "summaryMetrics(keys:)"),
        ],
    )
    def test_each_optional_part_is_dropped_with_a_warning(
        self, server: Wandb, part: str, lost: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.remove(part)
        server.add("acme", "ants", rows(30))
        ran = collect(server)
        assert ran.error is None
        assert ran.value("runs.completed_24h") == 30
        assert [request.status for request in server.requests] == [400, 200]
        warnings = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
        assert [f"does not know {lost}" in entry.getMessage() for entry in warnings] == [True]

    def test_all_of_them_at_once_take_one_more_request(self, server: Wandb) -> None:
        server.remove(
            "Run.computeSeconds",
            "Run.runInfo",
            "RunConnection.totalCount",
            "Run.config.keys",
            "Run.summaryMetrics.keys",
        )
        summary = {"overview/sps": 5, "_step": 3}
        server.add("acme", "ants", [*rows(60), row("p", name="github.sky.x", summary=summary)])
        ran = collect(server)
        assert [request.status for request in server.requests] == [400, 200, 200]
        assert [request.variables["first"] for request in server.requests] == [500, 50, 50]
        assert ran.value("runs.completed_24h") == 61
        assert ran.value("push_to_main.overview.sps") == 5
        assert ran.value("runs.unseen") is None

    def test_what_one_project_taught_is_not_asked_of_the_next(self, server: Wandb) -> None:
        server.remove("Run.runInfo")
        server.add("acme", "ants")
        server.add("acme", "bees")
        collect(server, WANDB_PROJECTS="acme/ants,acme/bees", FLEETGAUGE_WANDB_CONNECTIONS="1")
        assert [request.status for request in server.requests] == [400, 200, 200]

    def test_errors_may_come_with_status_200(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(3))
        said = {"errors": [{"message": "Cannot query field 'runInfo' on type 'Run'."}], "data": None}
        server.faults.add(Fault(body=json.dumps(said)))
        ran = collect(server)
        assert ran.value("runs.completed_24h") == 3
        assert "runInfo" in json.loads(server.requests[0].body)["query"]
        assert "runInfo" not in json.loads(server.requests[1].body)["query"]

    def test_a_server_that_goes_on_about_what_it_is_not_asked_for_is_an_error(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(3))
        said = {"errors": [{"message": "Cannot query field 'runInfo' on type 'Run'."}], "data": None}
        for _ in range(2):
            server.faults.add(Fault(body=json.dumps(said)))
        ran = collect(server)
        assert isinstance(ran.error, SourceError)
        assert f"{server.url}/graphql rejects what it was not asked for: " in str(ran.error)
        assert ran.report.requests == 2

    def test_a_core_field_that_is_missing_is_an_error(self, server: Wandb) -> None:
        server.remove("Run.heartbeatAt")
        server.add("acme", "ants")
        ran = collect(server)
        assert isinstance(ran.error, SourceError)
        assert "Cannot query field 'heartbeatAt'" in str(ran.error)
        assert ran.report.requests == 1


class TestRefusals:
    @pytest.mark.parametrize("status", [401, 403])
    def test_a_refused_key_is_a_matter_of_configuration(self, server: Wandb, status: int) -> None:
        server.bad_key_status = status
        ran = collect(server, WANDB_API_KEY="wrong-key-wrong-key-wrong-key-wrong-key-")
        assert isinstance(ran.error, ConfigurationError)
        assert f"answered {status}" in str(ran.error)
        assert "WANDB_API_KEY" in str(ran.error)
        assert ran.report.requests == 2

    def test_a_key_nobody_knows_is_a_matter_of_configuration(self, server: Wandb) -> None:
        server.add("acme", "ants")
        ran = collect(server, WANDB_API_KEY="wrong-key-wrong-key-wrong-key-wrong-key-")
        assert isinstance(ran.error, ConfigurationError)
        assert str(ran.error).endswith(" does not accept the key; check WANDB_API_KEY and WANDB_BASE_URL")

    def test_the_key_and_its_encoded_form_never_reach_a_log(self, server: Wandb) -> None:
        server.add("acme", "ants")
        collect(server)
        token = server.requests[0].headers["Authorization"].removeprefix("Basic ")
        assert redact(f"{KEY} {token}") == "[redacted] [redacted]"

    def test_an_unknown_project_is_named(self, server: Wandb) -> None:
        ran = collect(server)
        assert isinstance(ran.error, ConfigurationError)
        assert str(ran.error).endswith(
            " knows no project acme/ants, or the key may not see it; check WANDB_PROJECTS"
        )

    @pytest.mark.parametrize(("status", "headers"), [(404, {}), (301, {"Location": "http://127.0.0.1:9/"})])
    def test_another_address_is_not_followed(
        self, server: Wandb, status: int, headers: dict[str, str]
    ) -> None:
        server.faults.add(Fault(status=status, headers=headers), times=None)
        ran = collect(server)
        assert isinstance(ran.error, ConfigurationError)
        assert "WANDB_BASE_URL" in str(ran.error)
        assert ran.report.requests == 2

    def test_another_refusal_says_what_came_back(self, server: Wandb) -> None:
        server.faults.add(Fault(status=422, body="no thanks"))
        assert str(collect(server).error).endswith("answered 422: no thanks")


class TestFailures:
    def test_429_waits_as_long_as_it_was_asked_to(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(3))
        server.faults.add(Fault(status=429, headers={"Retry-After": "7"}))
        ran = collect(server)
        assert ran.value("runs.completed_24h") == 3
        assert len(ran.waits) == 1
        assert 7 <= ran.waits[0] <= 7.5

    def test_429_with_more_wait_than_time_ends_at_once(self, server: Wandb) -> None:
        server.add("acme", "ants")
        server.faults.add(Fault(status=429, headers={"Retry-After": "50"}))
        ran = collect(server, deadline=40)
        assert isinstance(ran.error, SourceError)
        assert "answered 429" in str(ran.error)
        assert (ran.waits, ran.report.requests) == ([], 1)

    @pytest.mark.parametrize(
        "fault",
        [
            Fault(status=503),
            Fault(status=502),
            Fault(reset="before"),
            Fault(reset="after"),
            Fault(truncate=True),
            Fault(body="{"),
            Fault(body="[]"),
            Fault(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),
        ],
    )
    def test_what_passes_is_asked_again_and_nothing_is_lost(self, server: Wandb, fault: Fault) -> None:
        server.add("acme", "ants", rows(3))
        server.faults.add(fault, times=2)
        ran = collect(server)
        assert (ran.value("runs.completed_24h"), ran.report.requests, ran.report.lost) == (3, 3, [])

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (Fault(status=503), "answered 503"),
            (Fault(body="<html>"), "not JSON"),
            (Fault(reset="after"), "no answer"),
            (
                Fault(body='{"data": {"viewer": {}, "project": null}, "errors": [{"message": "broken"}]}'),
                "did not answer for acme/ants: broken",
            ),
        ],
    )
    def test_what_stays_is_an_error_that_says_what_came_back(
        self, server: Wandb, fault: Fault, said: str
    ) -> None:
        server.faults.add(fault, times=None)
        ran = collect(server, deadline=500)
        assert isinstance(ran.error, SourceError)
        assert said in str(ran.error)
        assert "(tried 12 times)" in str(ran.error)
        assert ran.points == []

    def test_a_server_that_hangs_ends_with_the_deadline(self, server: Wandb) -> None:
        server.faults.add(Fault(hang=True), times=None)
        ran = collect(server, deadline=0.3)
        assert isinstance(ran.error, SourceError | DeadlineExceededError)
        assert ran.points == []

    def test_errors_beside_the_data_cost_a_count_and_a_warning(
        self, server: Wandb, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.add("acme", "ants", rows(3))
        answer = json.loads(page(server, totalCount=1, edges=[{"node": None}]))
        answer["errors"] = [{"message": "resolver of summaryMetrics failed"}]
        server.faults.add(Fault(body=json.dumps(answer)))
        ran = collect(server)
        assert ran.error is None
        assert ran.value("runs.active") == 0
        assert ran.value("runs.unseen") == 0
        assert ran.dropped == {"graphql_error": 1, "malformed_run": 1}
        assert "resolver of summaryMetrics failed" in caplog.text

    @pytest.mark.parametrize("viewer", [{"id": "x"}, None])
    def test_errors_instead_of_an_answer_are_taken_neither_for_an_unknown_project_nor_for_a_bad_key(
        self, server: Wandb, viewer: object
    ) -> None:
        answer = {"data": {"viewer": viewer, "project": None}, "errors": [{"message": "shard is down"}]}
        server.faults.add(Fault(body=json.dumps(answer)), times=None)
        ran = collect(server)
        assert isinstance(ran.error, SourceError)
        assert "shard is down" in str(ran.error)

    @pytest.mark.parametrize(
        "answer",
        [
            {"errors": [{"message": "too complex"}], "data": None},
            {"errors": ["bad run"], "data": {"viewer": {"id": "x"}, "project": {"runs": None}}},
            {"errors": ["shard is down"], "data": {"viewer": {"id": "x"}, "project": None}},
            {"errors": ["rate limit exceeded"], "data": None},
            {"errors": ["rate limit exceeded"], "data": {"viewer": {"id": "x"}, "project": None}},
        ],
    )
    def test_errors_that_pass_are_asked_again_and_no_run_is_blamed(
        self, server: Wandb, answer: object
    ) -> None:
        server.add("acme", "ants", rows(3))
        server.faults.add(Fault(body=json.dumps(answer), headers=PLAIN), times=3)
        ran = collect(server)
        assert (ran.value("runs.completed_24h"), ran.report.requests, ran.dropped) == (3, 4, {})
        assert {request.variables["first"] for request in server.requests} == {500}

    def test_errors_that_stay_are_an_error_that_says_what_came_back(self, server: Wandb) -> None:
        server.faults.add(Fault(body='{"errors": [{"message": "too complex"}], "data": null}'), times=None)
        ran = collect(server, FLEETGAUGE_WANDB_PAGE_SIZE="4")
        assert isinstance(ran.error, SourceError)
        assert "answered without data: too complex" in str(ran.error)
        assert ran.points == []

    @pytest.mark.parametrize("seed", range(5))
    def test_errors_that_come_and_go_cost_no_run(self, server: Wandb, seed: int) -> None:
        server.add("acme", "ants", rows(3000))
        server.nulls = Random(seed), 0.3
        ran = collect(server, deadline=500)
        assert (ran.value("runs.completed_24h"), ran.dropped) == (3000, {})

    @pytest.mark.parametrize("runs", [None, {}, {"edges": 3}, {"edges": [], "pageInfo": None}, []])
    def test_an_unknown_shape_is_an_error(self, server: Wandb, runs: object) -> None:
        answer = {"data": {"viewer": {"id": "x"}, "project": {"runs": runs}}}
        server.faults.add(Fault(body=json.dumps(answer)))
        ran = collect(server)
        assert isinstance(ran.error, SourceError)
        assert "in a shape nobody knows" in str(ran.error)
