"""Which projects are read: those that are named, all of an entity, and one of those with the same tags."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collectors.wandb.api import Extra
from collectors.wandb.query import PROJECTS_PER_PAGE
from common.errors import ConfigurationError, SourceError
from common.shards import Shard
from support.servers.faults import Fault
from support.servers.wandb import Wandb
from support.wandb_runs import COHORT, Ran, read, rows

ALL: dict[str, Any] = {"WANDB_PROJECTS": "acme/*"}
PLAIN: dict[str, str | None] = {"Content-Encoding": None}
EARLY, LATE = "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"


def projects(*names: object, cursor: object, more: object = True, **errors: object) -> Fault:
    """Return an answer with these projects, in place of the true one; what is no text is a complete node."""
    edges = [{"node": {"name": name} if isinstance(name, str) else name} for name in names]
    models = {"edges": edges, "pageInfo": {"hasNextPage": more, "endCursor": cursor}}
    body = {"data": {"viewer": {"id": "x"}, "models": models}, **errors}
    return Fault(body=json.dumps(body), headers=PLAIN)


class TestEntities:
    def test_a_star_stands_for_every_project_and_each_is_read_once(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        server.add("acme", "bees", rows(2))
        server.add("other", "cows", rows(3))
        left = read(server, WANDB_PROJECTS="acme/bees,other/*,acme/*,acme/*")
        assert left.counts == {"acme/bees": 2, "other/cows": 3, "acme/ants": 1}
        assert left.report.requests == 2 * 2 + 3

    def test_a_thousand_projects_of_which_fifty_have_runs_take_few_requests(self, server: Wandb) -> None:
        for index in range(1000):
            server.add("acme", f"p{index:04d}", rows(2) if index % 20 == 0 else [])
        left = read(server, **ALL)
        assert (left.error, left.report.lost, len(left.listings)) == (None, [], 1000)
        assert sum(left.counts.values()) == 100
        assert {listing.unseen for listing in left.listings} == {0}
        assert left.report.requests <= 80

    def test_the_number_of_runs_is_that_of_the_filter(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(2))
        read(server, **ALL)
        query = json.loads(server.requests[0].body)["query"]
        assert f"runCount(filters: {json.dumps(json.dumps(COHORT))})" in query

    @pytest.mark.parametrize(
        ("removed", "part", "requests"),
        [
            ("Project.createdAt", Extra.PROJECT_CREATED, 4),
            ("Project.runCount", Extra.RUN_COUNT, 5),
            ("Project.runCount.filters", Extra.RUN_COUNT, 5),
        ],
    )
    def test_a_field_that_the_server_refuses_is_no_failure(
        self, server: Wandb, removed: str, part: Extra, requests: int
    ) -> None:
        server.remove(removed)
        server.add("acme", "ants", rows(1))
        server.add("acme", "bees")
        left = read(server, **ALL)
        assert (left.counts, left.report.lost) == ({"acme/ants": 1, "acme/bees": 0}, [])
        assert (left.report.requests, left.missing) == (requests, frozenset({part}))

    def test_a_server_that_cannot_count_runs_is_listed_without(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        server.add("acme", "bees")
        nothing = Fault(body='{"data": {"viewer": {}, "models": null}, "errors": ["x"]}', headers=PLAIN)
        for fault in (nothing, projects(None, cursor=None, more=False, errors=["x"])):
            for times, requests in ((1, 1 + 2 + 1), (3, 3 + 2 + 2)):
                server.faults.add(fault, times=times)
                left = read(server, **ALL)
                assert (left.counts, left.report.lost) == ({"acme/ants": 1, "acme/bees": 0}, [])
                assert left.report.requests == requests

    @pytest.mark.parametrize(
        ("node", "errors", "why"),
        [
            (None, {"errors": ["denied"]}, "denied"),
            (None, {}, "some have no name"),
            (0, {}, "some have no name"),
            ({}, {}, "some have no name"),
            ({"name": 7}, {}, "some have no name"),
        ],
    )
    def test_a_project_that_cannot_be_read_is_lost_and_no_other(
        self, server: Wandb, node: object, errors: dict[str, Any], why: str
    ) -> None:
        server.add("acme", "ants", rows(1))
        answer = projects("ants", node, cursor=None, more=False, **errors)
        server.faults.add(answer, times=3 + 2)
        left = read(server, **ALL)
        assert (left.error, left.counts) == (None, {"acme/ants": 1})
        assert left.report.lost == [f"acme/*: W&B could not list all of its projects: {why}"]

    def test_a_project_that_only_one_listing_cannot_read_is_lost(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        server.faults.add(projects("ants", None, cursor=None, more=False), times=3 + 1)
        left = read(server, **ALL)
        assert left.counts == {"acme/ants": 1}
        assert left.report.lost == ["acme/*: W&B could not list all of its projects: some have no name"]

    def test_a_page_that_does_not_say_whether_it_is_the_last_is_an_error(self, server: Wandb) -> None:
        server.faults.add(projects("ants", cursor="x", more=None), times=None)
        assert "unknown shape" in str(read(server, **ALL).error)

    def test_a_number_of_runs_that_is_none_does_not_pass_for_zero(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        server.faults.add(projects({"name": "ants", "runCount": False}, cursor=None, more=False), times=2)
        assert read(server, **ALL).counts == {"acme/ants": 1}

    def test_a_count_that_makes_the_query_too_complex_is_left_out(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        server.faults.add(Fault(status=400, body='{"errors": [{"message": "too complex"}]}', headers=PLAIN))
        left = read(server, **ALL)
        assert (left.counts, left.report.lost, left.missing) == (
            {"acme/ants": 1},
            [],
            frozenset({Extra.RUN_COUNT}),
        )

    def test_all_pages_of_projects_are_listed_with_the_pause_between_them(self, server: Wandb) -> None:
        for index in range(2 * PROJECTS_PER_PAGE + 1):
            server.add("acme", f"p{index}")
        left = read(server, FLEETGAUGE_WANDB_PAUSE="2s", **ALL)
        assert (len(left.listings), left.waits) == (2 * PROJECTS_PER_PAGE + 1, [2] * 6)

    def test_an_entity_that_is_unknown_or_empty_is_lost_or_configuration(self, server: Wandb) -> None:
        server.entities.add("empty")
        server.add("acme", "ants", rows(1))
        for entity, text in (("mistyped", "knows no entity mistyped"), ("empty", "matches no project")):
            alone = read(server, WANDB_PROJECTS=f"{entity}/*")
            assert isinstance(alone.error, ConfigurationError)
            assert text in str(alone.error)
            beside = read(server, WANDB_PROJECTS=f"{entity}/*,acme/ants")
            assert beside.counts == {"acme/ants": 1}
            [lost] = beside.report.lost
            assert lost.startswith(f"{entity}/*: ")
            for index in range(2):  # every shard listed it, and lost it
                shard = read(server, WANDB_PROJECTS=f"{entity}/*,acme/ants", shard=Shard(index, 2))
                assert shard.report.lost or shard.error

    @pytest.mark.parametrize(("status", "requests"), [(503, 40), (429, 40), (500, 12), (504, 12)])
    def test_an_outage_is_waited_out_and_does_not_cost_the_numbers_of_runs(
        self, server: Wandb, status: int, requests: int
    ) -> None:
        server.add("acme", "ants", rows(1))
        server.add("acme", "bees")
        server.faults.add(Fault(status=status, headers={"Retry-After": "7"}), times=40)
        left = read(server, deadline=3000, **ALL)
        assert min(left.waits[:11]) >= 7
        if status in (503, 429):
            assert (left.counts, left.missing) == ({"acme/ants": 1, "acme/bees": 0}, frozenset())
        else:
            assert "cannot list the projects of acme" in str(left.error)
        assert [query.status for query in server.requests].count(status) == requests

    def test_a_server_that_counts_too_slowly_is_listed_without_in_time(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        left = Ran()
        server.on("read", lambda query: left.waits.append(45 * (b"runCount" in query.body)))
        server.faults.add(Fault(status=504))
        read(server, ran=left, deadline=120, **ALL)
        assert (left.counts, left.missing) == ({"acme/ants": 1}, frozenset({Extra.RUN_COUNT}))

    @pytest.mark.parametrize("cursor", ["x", None, "", ["x"]])
    def test_a_listing_that_does_not_advance_is_an_error(self, server: Wandb, cursor: object) -> None:
        server.faults.add(projects("ants", cursor=cursor), times=None)
        assert "does not end" in str(read(server, **ALL).error)

    def test_a_page_without_projects_may_have_others_behind_it(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        server.add("acme", "bees", rows(2))
        for _ in range(2):  # every listing
            server.faults.add(projects("bees", cursor="a"))
            server.faults.add(projects(cursor="b"))
            server.faults.add(projects("ants", cursor=None, more=False))
        left = read(server, **ALL)
        assert (left.counts, left.error) == ({"acme/bees": 2, "acme/ants": 1}, None)

    def test_a_server_without_such_a_listing_is_an_error(self, server: Wandb) -> None:
        server.remove("Query.models")
        left = read(server, **ALL)
        assert isinstance(left.error, SourceError)
        assert "models" in str(left.error)


class TestGone:
    def test_a_project_that_one_of_two_listings_lacks_is_read(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        bees = server.add("acme", "bees", rows(2))
        del server.projects["acme", "bees"]
        server.drift = lambda _: server.add("acme", "bees", bees)
        assert read(server, **ALL).counts == {"acme/ants": 1, "acme/bees": 2}


class TestCollisions:
    @pytest.mark.parametrize(("first", "second"), [("Demo", "demo"), ("s a", "s_a")])
    @pytest.mark.parametrize("swapped", [False, True])
    def test_the_one_created_first_is_read_and_the_other_lost(
        self, server: Wandb, first: str, second: str, swapped: bool
    ) -> None:
        server.add("acme", first, rows(1))
        server.add("acme", second, rows(1))
        older, newer = (second, first) if swapped else (first, second)
        server.created = {("acme", older): EARLY, ("acme", newer): LATE}
        left = read(server, **ALL)
        assert left.counts == {f"acme/{older}": 1}
        [lost] = left.report.lost
        assert lost.startswith(f"acme/{newer}: Datadog stores its tags as those of acme/{older}")

    def test_where_creation_is_unknown_it_is_the_one_named_first_then_by_name(self, server: Wandb) -> None:
        server.add("acme", "Demo", rows(1))
        server.add("acme", "demo", rows(1))
        assert [*read(server, WANDB_PROJECTS="acme/demo,acme/Demo").counts] == ["acme/demo"]
        assert [*read(server, WANDB_PROJECTS="acme/*,acme/demo").counts] == ["acme/demo"]
        assert [*read(server, **ALL).counts] == ["acme/Demo"]
        server.created = {("acme", "Demo"): LATE}  # of one alone
        assert [*read(server, WANDB_PROJECTS="acme/demo,acme/*").counts] == ["acme/demo"]

    def test_entities_collide_as_projects_do(self, server: Wandb) -> None:
        server.add("acme", "ants", rows(1))
        server.add("Acme", "ants", rows(1))
        left = read(server, WANDB_PROJECTS="Acme/ants,acme/ants")
        assert ([*left.counts], len(left.report.lost)) == (["Acme/ants"], 1)

    def test_it_is_decided_before_sharding_and_lost_in_one_shard(self, server: Wandb) -> None:
        for name in ("Demo", "demo", "demO", "other"):
            server.add("acme", name, rows(1))
        shards = [read(server, shard=Shard(index, 16), **ALL) for index in range(16)]
        assert sorted(name for left in shards for name in left.counts) == ["acme/Demo", "acme/other"]
        assert len([lost for left in shards for lost in left.report.lost]) == 2
        # A shard that has nothing but a collision is not failed.
        assert any(left.report.lost and not left.counts for left in shards)
        assert [left.error for left in shards] == [None] * 16
