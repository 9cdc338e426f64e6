"""Reading projects over HTTP: what is requested when, what a failure costs, and what is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from urllib3.util import connection

from collectors.wandb import reader as reader_module
from collectors.wandb.api import Extra
from collectors.wandb.query import active_since
from collectors.wandb.reader import Reader
from collectors.wandb.settings import Project
from common.errors import ConfigurationError, DeadlineExceededError, SourceError
from common.shards import Shard
from support.servers.faults import Fault
from support.servers.wandb import HANGS, Query, Wandb
from support.wandb_runs import AT, Ran, context, read, row, rows

PLAIN: dict[str, str | None] = {"Content-Encoding": None}  # a body in place of a compressed one
ROOT = Path(__file__).resolve().parents[3]


def many(server: Wandb, number: int, runs: int = 1) -> str:
    """Add so many projects; return the setting that names them."""
    for index in range(number):
        server.add("acme", f"p{index}", rows(runs + index % 3))
    return ",".join(f"acme/p{index}" for index in range(number))


def created(query: Query) -> dict[str, str]:
    """Return the limits of creation time that a query has."""
    parts = json.loads(query.variables["filters"]).get("$and", [{}])
    return dict(parts[-1].get("createdAt", {}))


def sizes(server: Wandb) -> list[int]:
    return [query.variables["first"] for query in server.requests]


def answer(total: int, *nodes: object, more: bool = False, **errors: object) -> Fault:
    """Return an answer with these runs, in place of the true one."""
    edges = [{"node": node} for node in nodes]
    runs = {"totalCount": total, "pageInfo": {"hasNextPage": more, "endCursor": None}, "edges": edges}
    body = {"data": {"viewer": {"id": "x"}, "project": {"runs": runs}}, **errors}
    return Fault(body=json.dumps(body), headers=PLAIN)


def errors_beside(project: object, message: str) -> Fault:
    body = {"errors": [message], "data": {"viewer": {}, "project": project}}
    return Fault(body=json.dumps(body), headers=PLAIN)


class TestRequests:
    def test_600_of_many_runs_take_two_requests(self, server: Wandb) -> None:
        old = [row(f"old{index}", started=-900, ended=-800) for index in range(400)]
        server.add("acme", "ants", [*rows(600), *old])
        left = read(server)
        assert (left.counts, left.report.requests, left.report.lost) == ({"acme/ants": 600}, 2, [])
        first, second = server.requests
        assert (created(first), [*created(second)]) == ({}, ["$gte"])
        assert {query.variables["order"] for query in server.requests} == {"+created_at"}
        assert {query.variables["after"] for query in server.requests} == {None}

    def test_5000_runs_are_all_listed_in_hardly_more_requests_than_pages(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(5000))
        left = read(server)
        assert (left.counts, left.listings[0].unseen, left.report.dropped) == ({"acme/ants": 5000}, 0, {})
        assert left.report.requests <= 12
        assert server.most_at_once <= 4

    def test_half_of_the_answers_may_fail(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(3000))
        server.nulls = Random(1), 0.5
        left = read(server, deadline=500)
        assert (left.counts, left.report.dropped, left.report.lost) == ({"acme/ants": 3000}, {}, [])
        assert left.report.requests <= 60

    @pytest.mark.parametrize(("seconds", "then_requested"), [(11, 250), (9, 500)])
    @pytest.mark.parametrize(
        "fault",
        [
            *(Fault(status=500), Fault(status=503), Fault(reset="after"), Fault(body="{", headers=PLAIN)),
            errors_beside({"runs": None}, "context deadline exceeded"),
        ],
    )
    def test_a_failure_after_ten_seconds_asks_for_fewer_rows(
        self, server: Wandb, fault: Fault, seconds: int, then_requested: int
    ) -> None:
        server.add("acme", "ants", rows(200))
        left = Ran()
        server.on("read", lambda _: left.waits.append(seconds))
        server.faults.add(fault)
        assert read(server, ran=left, deadline=500).counts == {"acme/ants": 200}
        assert server.requests[1].variables["first"] == then_requested

    def test_a_connection_that_times_out_says_nothing_of_the_rows(
        self, server: Wandb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.add("acme", "ants", rows(300))
        left, connect = Ran(), connection.create_connection

        def unanswered(*where: Any, **options: Any) -> object:
            if sum(left.waits) > 60:
                return connect(*where, **options)
            left.waits.append(20)  # two addresses, each for ten seconds
            raise TimeoutError("timed out")

        monkeypatch.setattr(connection, "create_connection", unanswered)
        assert read(server, ran=left, deadline=500).counts == {"acme/ants": 300}
        assert sizes(server) == [500]

    @pytest.mark.parametrize("position", [0, 301, 599])
    def test_a_run_that_cannot_be_served_is_stepped_over_named_and_remembered(
        self, server: Wandb, position: int
    ) -> None:
        server.add("acme", "ants", rows(600))[position].unservable = True
        left = read(server, deadline=500)
        assert (left.counts, left.report.lost) == ({"acme/ants": 599}, [])
        assert left.report.dropped == {"unserved_run": 1}
        assert left.report.examples["unserved_run"].startswith("acme/ants, a run created at 2026-11-14T2")
        assert left.report.requests <= 80
        stored = json.loads(json.dumps(left.memory))
        again = read(server, stored, deadline=500)
        assert (again.counts, again.report.dropped) == (left.counts, left.report.dropped)
        assert json.loads(json.dumps(again.memory)) == stored
        assert again.report.requests <= 9  # its second has other runs, and is read in two rounds
        server.projects["acme", "ants"][position].unservable = False
        healed = read(server, again.memory)
        assert (healed.counts, healed.report.dropped) == ({"acme/ants": 600}, {})
        assert healed.memory["unserved:runs"] == {}

    @pytest.mark.parametrize(
        "memory",
        [
            *(
                7,
                {"acme/ants": 7},
                {"acme/ants": [["x", 1], [5, "x"]]},
                {"acme/ants": [[10**18, 0], [-5, -1]]},
            ),
            {"acme/ants": [[AT - 9, 0], [AT - 8, 0]]},
        ],
    )
    def test_a_memory_that_is_damaged_or_outdated_costs_nothing(self, server: Wandb, memory: object) -> None:
        server.add("acme", "ants", rows(30))
        left = read(server, {"unserved:runs": memory})
        assert (left.error, left.counts) == (None, {"acme/ants": 30})

    def test_unservable_active_run_has_a_memory_of_its_own(self, server: Wandb) -> None:
        active = [row(f"b{n}", "running", started=-n - 1, ended=-0.01) for n in range(9)]
        server.add("acme", "ants", active)[4].unservable = True
        left = Ran()
        reader = Reader(context(server, left, 500))
        [listing] = reader.read([Project("acme", "ants")], active_since(AT - 900), system_metrics=True)
        assert (listing.error, len(listing.runs), [*left.memory]) == (None, 8, ["unserved:active"])

    @pytest.mark.parametrize(("hidden", "lost"), [(False, []), (True, ["2026-11-14T22:00:00Z"])])
    def test_crowded_second_is_read_by_offset_and_named_if_not_proven(
        self, server: Wandb, hidden: bool, lost: list[str]
    ) -> None:
        crowd = [row(f"c{index}", started=-2, hidden=hidden and index % 9 < 8) for index in range(25)]
        server.add("acme", "ants", [*rows(30), *crowd])
        left = read(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        [listing] = left.listings
        assert (len(listing.runs), listing.unseen) == (55 - 23 * hidden, 23 * hidden)
        assert left.report.requests <= 40  # most of them hidden, or not
        assert any(query.variables["after"] for query in server.requests)
        named = [f"acme/ants, runs created at {second}: not all of them could be listed" for second in lost]
        assert (listing.slices.partial, left.report.lost) == (lost, named)

    def test_a_listing_that_ends_early_is_continued_by_time(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(60))
        server.ends_at = 9
        assert read(server, FLEETGAUGE_WANDB_PAGE_SIZE="10").counts == {"acme/ants": 60}

    def test_a_server_that_ignores_the_filter_loses_the_project(self, server: Wandb) -> None:
        old = [{"id": f"r{n}", "state": "finished", "createdAt": "2020-01-01T00:00:00Z"} for n in range(8)]
        recent = {"id": "r8", "state": "finished", "createdAt": "2026-11-14T20:00:00Z"}
        server.faults.add(answer(20, *old, recent, more=True), times=None)
        assert "ignores the filter on createdAt" in str(read(server, FLEETGAUGE_WANDB_PAGE_SIZE="9").error)

    @pytest.mark.parametrize(
        ("removed", "part"),
        [
            ("RunConnection.totalCount", Extra.TOTAL_COUNT),
            ("Run.computeSeconds", Extra.COMPUTE_SECONDS),
            ("Run.config.keys", Extra.CONFIG_KEYS),
            ("Run.summaryMetrics.keys", Extra.SUMMARY_KEYS),
            ("Run.user", Extra.USER),
        ],
    )
    def test_a_field_that_the_server_refuses_is_no_failure(
        self, server: Wandb, removed: str, part: Extra
    ) -> None:
        server.remove(removed)
        server.latency = lambda _: 0.02  # so that all connections meet it at once
        names = many(server, 5, runs=60)
        left = read(server, FLEETGAUGE_WANDB_PAGE_SIZE="20", WANDB_PROJECTS=names)
        assert (len(left.counts), left.report.lost, left.missing) == (5, [], frozenset({part}))
        assert [query.status for query in server.requests].count(400) <= 4


class TestProjectsSideBySide:
    def test_every_first_page_comes_before_any_second(self, server: Wandb) -> None:
        names = many(server, 20, runs=30)
        chance = Random(3)
        server.latency = lambda _: chance.uniform(0, 0.005)
        left = read(server, WANDB_PROJECTS=names, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        # Whichever answer comes first, listings are in the order of the projects.
        assert [*left.counts.items()] == [(f"acme/p{index}", 30 + index % 3) for index in range(20)]
        second = next(index for index, query in enumerate(server.requests) if created(query))
        assert len({query.variables["project"] for query in server.requests[: second + 4]}) == 20
        assert server.most_at_once <= 4
        assert server.connections <= 5

    @pytest.mark.parametrize("position", [0, 3])
    @pytest.mark.parametrize(("status", "text"), [(403, "403"), (404, "404"), (500, "could not be read: ")])
    def test_one_that_is_refused_or_fails_for_ever_costs_itself(
        self, server: Wandb, status: int, text: str, position: int
    ) -> None:
        names = many(server, 3).split(",")
        names.insert(position, "acme/closed")
        server.refused["acme", "closed"] = (status, "project not found")
        left = read(server, WANDB_PROJECTS=",".join(names), deadline=500)
        assert (left.error, len(left.counts)) == (None, 3)
        [lost] = left.report.lost
        assert lost.startswith("acme/closed: ")
        assert text in lost

    def test_answers_that_come_after_their_project_was_lost_are_ignored(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(100))
        server.add("acme", "bees", rows(1))
        server.latency = lambda query: 0.3 if query.variables["project"] == "bees" else 0.02

        def refuse(query: Query) -> None:
            if query.variables["project"] == "ants":
                server.refused["acme", "ants"] = (403, "permission denied")

        server.drift = refuse
        left = read(server, WANDB_PROJECTS="acme/ants,acme/bees", FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (left.error, left.counts, len(left.report.lost)) == (None, {"acme/bees": 1}, 1)
        assert left.report.requests > 3

    @pytest.mark.parametrize(("status", "kind"), [(403, ConfigurationError), (500, SourceError)])
    def test_only_where_all_are_refused_it_is_configuration(
        self, server: Wandb, status: int, kind: type[Exception]
    ) -> None:
        server.refused["acme", "ants"] = (403, "permission denied")
        server.refused["acme", "bees"] = (status, "permission denied")
        left = read(server, WANDB_PROJECTS="acme/ants,acme/bees", deadline=500)
        assert isinstance(left.error, kind)
        assert [lost.partition(":")[0] for lost in left.report.lost] == ["acme/ants", "acme/bees"]

    @pytest.mark.parametrize("status", [None, 401])
    def test_a_wrong_key_is_configuration_and_ends_all(self, server: Wandb, status: int | None) -> None:
        server.bad_key_status = status
        wrong = "wrong-key-wrong-key-wrong-key-wrong-key-"
        left = read(server, WANDB_PROJECTS=many(server, 30), WANDB_API_KEY=wrong)
        assert isinstance(left.error, ConfigurationError)
        assert "check WANDB_API_KEY and WANDB_BASE_URL" in str(left.error)
        assert left.report.requests <= 6

    def test_connections_are_shared_by_all_shards(self, server: Wandb) -> None:
        names = many(server, 24, runs=30)
        server.latency = lambda _: 0.002
        options: dict[str, Any] = {"WANDB_PROJECTS": names, "FLEETGAUGE_WANDB_CONNECTIONS": "6"}
        shards = [read(server, shard=Shard(index, 3), **options) for index in range(3)]
        assert sum(len(left.counts) for left in shards) == 24
        assert server.most_at_once <= 2


class TestTime:
    def test_a_project_that_hangs_costs_itself(self, server: Wandb) -> None:
        names = many(server, 9)
        server.refused["acme", "hangs"] = (HANGS, "")
        left = read(server, WANDB_PROJECTS=f"acme/hangs,{names}", deadline=2)
        assert len(left.counts) == 9
        [lost] = left.report.lost
        assert lost.startswith("acme/hangs: the deadline of 2 s passed after 0 runs; ")

    def test_what_is_not_complete_in_time_is_not_listed(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(2000))
        left = Ran()
        server.on("read", lambda _: left.waits.append(10))
        read(server, ran=left, deadline=300, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert isinstance(left.error, DeadlineExceededError)
        assert "of 2,000 runs; raise --timeout" in str(left.error)
        assert left.listings == []

    @pytest.mark.parametrize(("connections", "rows_requested"), [("1", {60}), ("4", {60, 30})])
    def test_answers_under_way_together_share_the_memory_of_one(
        self, server: Wandb, monkeypatch: pytest.MonkeyPatch, connections: str, rows_requested: set[int]
    ) -> None:
        server.add("acme", "ants", rows(60))
        monkeypatch.setattr(reader_module, "MAX_RESPONSE_BYTES", 60_000)
        options: dict[str, Any] = {"FLEETGAUGE_WANDB_CONNECTIONS": connections}
        left = read(server, FLEETGAUGE_WANDB_PAGE_SIZE="60", **options)
        assert (left.counts, dict(left.report.dropped)) == ({"acme/ants": 60}, {})
        assert set(sizes(server)) == rows_requested

    def test_a_run_too_large_to_hold_is_stepped_over(
        self, server: Wandb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader_module, "MAX_RESPONSE_BYTES", 2**17)
        server.add("acme", "ants", rows(40, seconds=60))[0].config = {"_wandb": "x" * 2**17}
        left = read(server, FLEETGAUGE_WANDB_PAGE_SIZE="16", FLEETGAUGE_WANDB_CONNECTIONS="1", deadline=300)
        assert left.error is None
        assert (left.counts, dict(left.report.dropped)) == ({"acme/ants": 39}, {"unserved_run": 1})


class TestFailures:
    @pytest.mark.parametrize(
        "fault",
        [
            Fault(status=503),
            Fault(status=500),
            Fault(reset="before"),
            Fault(reset="after"),
            Fault(truncate=True),
            Fault(body="{", headers=PLAIN),
            errors_beside({"runs": None}, "bad run"),
            errors_beside(None, "shard is down"),
            errors_beside(None, "rate limit exceeded"),
        ],
    )
    def test_what_passes_is_tried_again_and_nothing_is_lost(self, server: Wandb, fault: Fault) -> None:
        server.add("acme", "ants", rows(3))
        server.faults.add(fault, times=2)
        left = read(server)
        assert (left.counts, left.report.requests, left.report.lost) == ({"acme/ants": 3}, 3, [])
        assert left.waits  # not at once

    @pytest.mark.parametrize(
        ("fault", "text"),
        [
            (Fault(status=503), "answered 503"),
            (Fault(body="<html>", headers=PLAIN), "not JSON"),
            (Fault(status=504), "answered 504"),
        ],
    )
    def test_what_stays_is_an_error_with_the_answer(self, server: Wandb, fault: Fault, text: str) -> None:
        server.faults.add(fault, times=None)
        left = read(server, deadline=2000)
        assert isinstance(left.error, SourceError)
        assert text in str(left.error)
        assert left.report.requests <= 24 + 3  # those under way when it gave up

    def test_a_project_that_keeps_failing_has_one_request_at_a_time(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(400))
        server.latency = lambda _: 0.02
        at_once: list[int] = []

        def fail(_: Query) -> None:
            if len(server.requests) >= 4:
                server.refused["acme", "ants"] = (500, "internal server error")
            at_once.append(server.at_once)

        server.drift = fail
        left = read(server, deadline=2000, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert "24 failures in a row" in str(left.error)
        assert max(at_once[:8]) > 1
        assert max(at_once[12:]) == 1

    def test_overload_at_the_smallest_size_is_waited_out_and_no_run_is_dropped(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(50))
        server.faults.add(Fault(status=504), times=14)
        left = read(server, deadline=500)
        assert (left.counts, left.report.dropped, left.report.lost) == ({"acme/ants": 50}, {}, [])

    @pytest.mark.parametrize("fault", [Fault(status=503), Fault(status=502), Fault(reset="before")])
    def test_an_outage_is_waited_out_by_all_projects_in_few_requests(
        self, server: Wandb, fault: Fault
    ) -> None:
        names, left = many(server, 20), Ran()
        server.faults.add(fault, times=16)
        read(server, ran=left, WANDB_PROJECTS=names, deadline=500)
        assert (len(left.counts), left.report.lost) == (20, [])
        assert left.report.requests == 20 + 16
        assert sum(left.waits) > 20

    def test_an_outage_that_stays_is_named_for_every_project(self, server: Wandb) -> None:
        names = many(server, 20)
        server.faults.add(Fault(), times=1)  # one is read
        server.faults.add(Fault(status=503), times=None)
        left = read(server, WANDB_PROJECTS=names, deadline=60)
        assert (len(left.counts), len(left.report.lost)) == (1, 19)
        assert all("answered 503" in lost for lost in left.report.lost)

    def test_errors_beside_the_data_are_counted(self, server: Wandb) -> None:
        server.faults.add(answer(1, None, errors=[{"message": "resolver failed"}]))
        left = read(server)
        assert (left.error, left.listings[0].unseen) == (None, 0)
        assert left.report.dropped == {"graphql_error": 1, "malformed_run": 1}

    def test_an_example_of_what_was_dropped_is_short(self, server: Wandb) -> None:
        server.faults.add(answer(1, {"id": "x" * 10**6, "state": "exploded"}))
        assert len(read(server).report.examples["unknown_state"]) < 200

    def test_of_a_run_that_is_shown_twice_the_later_row_counts(self, server: Wandb) -> None:
        listed = server.add("acme", "ants", rows(20))
        listed[9].state = "exploded"
        server.repeated = 5
        server.drift = lambda _: setattr(listed[9], "state", "finished")
        left = read(server, FLEETGAUGE_WANDB_PAGE_SIZE="10")
        assert (left.counts, left.report.dropped) == ({"acme/ants": 20}, {})


class TestLimits:
    @pytest.mark.parametrize(
        ("refusal", "seconds"),
        [
            (Fault(status=429, headers={"Retry-After": "7"}), 7),
            (errors_beside(None, "rate limit exceeded"), 0),
        ],
    )
    def test_after_a_rate_limit_all_wait_half_go_on_and_then_all_again(
        self, server: Wandb, refusal: Fault, seconds: float
    ) -> None:
        names = many(server, 40)
        server.latency = lambda _: 0.05
        server.faults.add(Fault())
        server.faults.add(refusal)
        at_once: list[int] = []
        server.drift = lambda _: at_once.append(server.at_once)
        left = read(server, WANDB_PROJECTS=names)
        assert len(left.counts) == 40
        assert seconds - 1 < sum(left.waits) <= seconds + 1
        assert max(at_once[7:9]) <= 2  # at most seven were sent before the refusal was read
        assert max(at_once[30:]) > 2

    def test_a_429_with_more_wait_than_time_ends_at_once(self, server: Wandb) -> None:
        server.add("acme", "ants")
        server.faults.add(Fault(status=429, headers={"Retry-After": "50"}))
        left = read(server, deadline=40)
        assert "answered 429" in str(left.error)
        assert (left.waits, left.report.requests) == ([], 1)

    @pytest.mark.parametrize(("remaining", "connections"), [("0", "4"), ("1", "4"), ("0", "1")])
    def test_the_servers_count_of_requests_is_kept_to(
        self, server: Wandb, remaining: str, connections: str
    ) -> None:
        names = many(server, 6)
        server.headers = {"RateLimit-Remaining": remaining, "RateLimit-Reset": "5"}
        left = read(server, WANDB_PROJECTS=names, FLEETGAUGE_WANDB_CONNECTIONS=connections)
        assert len(left.counts) == 6
        assert left.waits
        assert all(4 < wait <= 5 for wait in left.waits)

    def test_a_pause_separates_the_starts_of_all_requests(self, server: Wandb) -> None:
        left = read(server, WANDB_PROJECTS=many(server, 8), FLEETGAUGE_WANDB_PAUSE="2s")
        assert len(left.counts) == 8
        assert sum(left.waits) == pytest.approx(14, abs=2)
