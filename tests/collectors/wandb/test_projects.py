"""All projects of an entity: listed once a run, and none of them an error for coming or going."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from collectors.wandb.api import PROJECTS_PER_PAGE
from collectors.wandb.fleet import open_fleet
from common.errors import ConfigurationError, SourceError
from common.shards import Shard
from common.window import Window
from support.points import Point
from support.servers.faults import Fault
from support.servers.wandb import Query, Wandb
from support.wandb_runs import AT, Ran, check, collect, context, rows

ALL: dict[str, Any] = {"WANDB_PROJECTS": "acme/*"}


@pytest.fixture
def server() -> Iterator[Wandb]:
    with Wandb() as running:
        yield running


def _held(point: Point) -> tuple[object, ...]:
    return point.metric.name, *point[1:]


def completed(ran: Ran) -> dict[str, float]:
    return {
        "/".join(tag.partition(":")[2] for tag in sample.tags): sample.value
        for sample in ran.points
        if sample.metric.name == "wandb.runs.completed_24h"
    }


def test_a_star_stands_for_every_project_of_the_entity(server: Wandb) -> None:
    server.add("acme", "ants", rows(1))
    server.add("acme", "bees", rows(2))
    server.add("other", "cows", rows(3))
    assert completed(collect(server, **ALL)) == {"acme/ants": 1, "acme/bees": 2}


def test_named_projects_and_entities_may_stand_side_by_side_and_each_is_read_once(server: Wandb) -> None:
    server.add("acme", "ants", rows(1))
    server.add("acme", "bees", rows(2))
    server.add("other", "cows", rows(3))
    ran = collect(server, WANDB_PROJECTS="acme/bees,other/*,acme/*,acme/*")
    assert completed(ran) == {"acme/bees": 2, "other/cows": 3, "acme/ants": 1}
    assert ran.report.requests == 2 + 3


def test_more_projects_than_fit_on_a_page_are_all_found(server: Wandb) -> None:
    for place in range(450):
        server.add("acme", f"p{place}", rows(1))
    ran = collect(server, **ALL)
    assert len(completed(ran)) == 450
    assert ran.report.requests == 3 + 450


def test_a_pause_holds_between_the_pages_of_a_listing_of_projects(server: Wandb) -> None:
    for place in range(2 * PROJECTS_PER_PAGE + 1):
        server.add("acme", f"p{place}")
    ran = Ran()
    fleet = open_fleet(context(server, ran, **ALL, FLEETGAUGE_WANDB_PAUSE="2s"), ran.sleep)
    assert (len(fleet.chosen.projects), ran.waits) == (2 * PROJECTS_PER_PAGE + 1, [2, 2])


IDLE = {"r1": [AT - 900, AT - 900, AT - 900, 0, None, None]}


def test_a_project_that_appears_is_read_and_one_that_is_gone_is_forgotten(server: Wandb) -> None:
    server.add("acme", "ants", rows(1))
    ran = collect(server, memory={"idle": {"acme/gone": IDLE, "other/cows": IDLE}}, **ALL)
    assert (ran.error, ran.report.lost) == (None, [])
    assert completed(ran) == {"acme/ants": 1}
    assert ran.memory["idle"] == {}


@pytest.mark.parametrize("status", [None, 404])
def test_one_that_goes_before_it_is_read_is_no_error(server: Wandb, status: int | None) -> None:
    server.add("acme", "ants", rows(1))
    server.add("acme", "bees", rows(2))

    def go(query: Query) -> None:
        if query.variables.get("project") is None:
            if status is None:
                server.projects.pop(("acme", "bees"), None)
            else:
                server.refused["acme", "bees"] = (status, "project not found")

    server.drift = go
    ran = collect(server, memory={"idle": {"acme/bees": IDLE}}, **ALL)
    assert (ran.error, ran.report.lost) == (None, [])
    assert completed(ran) == {"acme/ants": 1}
    assert ran.memory["idle"] == {}


def test_one_that_may_not_be_read_is_lost_and_not_forgotten(server: Wandb) -> None:
    server.add("acme", "ants", rows(1))
    server.add("acme", "bees", rows(2))
    server.refused["acme", "bees"] = (403, "permission denied")
    ran = collect(server, memory={"idle": {"acme/bees": IDLE}}, **ALL)
    assert completed(ran) == {"acme/ants": 1}
    [lost] = ran.report.lost
    assert lost.startswith("acme/bees: ")
    assert " answered 403: " in lost
    assert lost.endswith("; check that WANDB_API_KEY may read the project")
    assert ran.memory["idle"] == {"acme/bees": IDLE}


def test_an_entity_without_projects_is_empty_and_one_nobody_knows_is_configuration(server: Wandb) -> None:
    server.entities.add("acme")
    ran = collect(server, **ALL)
    assert (ran.error, ran.points) == (None, [])
    unknown = collect(server, WANDB_PROJECTS="nobody/*")
    assert isinstance(unknown.error, ConfigurationError)
    assert "knows no entity nobody" in str(unknown.error)


def test_an_entity_that_cannot_be_listed_costs_itself(server: Wandb) -> None:
    server.add("acme", "ants", rows(1))
    ran = collect(server, WANDB_PROJECTS="nobody/*,acme/ants")
    assert completed(ran) == {"acme/ants": 1}
    assert ran.report.lost[0].startswith("nobody/*: ")


def test_a_listing_that_fails_is_tried_again_and_then_an_error(server: Wandb) -> None:
    server.add("acme", "ants", rows(1))
    server.faults.add(Fault(status=503), times=2)
    assert completed(collect(server, **ALL)) == {"acme/ants": 1}
    server.faults.add(Fault(status=503), times=None)
    failed = collect(server, **ALL)
    assert isinstance(failed.error, SourceError)
    assert "the projects of acme could not be listed" in str(failed.error)


def test_a_listing_that_stands_still_is_an_error(server: Wandb) -> None:
    standing = (
        '{"data": {"viewer": {"id": "x"}, "models": {"edges": [{"node": {"name": "ants"}}], '
        '"pageInfo": {"hasNextPage": true, "endCursor": "x"}}}}'
    )
    server.faults.add(Fault(body=standing), times=None)
    assert "does not end" in str(collect(server, **ALL).error)


def test_a_server_without_such_a_listing_says_so(server: Wandb) -> None:
    server.remove("Query.models")
    ran = collect(server, **ALL)
    assert isinstance(ran.error, SourceError)
    assert "Cannot query field 'models'" in str(ran.error)


def test_a_refused_key_is_told_from_an_entity(server: Wandb) -> None:
    ran = collect(server, WANDB_API_KEY="wrong-key-wrong-key-wrong-key-wrong-key-", **ALL)
    assert isinstance(ran.error, ConfigurationError)
    assert "does not accept the key" in str(ran.error)


def test_a_backfill_knows_them_too(server: Wandb) -> None:
    server.add("acme", "ants", rows(1))
    server.add("acme", "bees", rows(2))
    again = collect(server, window=Window(AT - 900, AT, 900), **ALL)
    assert completed(again) == {"acme/ants": 1, "acme/bees": 2}


def test_a_check_tells_how_many_there_are_and_reads_one(server: Wandb) -> None:
    for name in ("ants", "bees", "cows"):
        server.add("acme", name, rows(2))
    ran = check(server, **ALL)
    assert ran.findings == [
        "acme/* stands for 3 projects",
        "the key can read acme/ants, which has 2 runs to look at",
    ]


def test_shards_read_each_project_once_and_say_of_it_what_one_reader_says(server: Wandb) -> None:
    for place in range(12):
        server.add("acme", f"p{place}", rows(place + 1))
    whole = collect(server, **ALL)
    shards = [collect(server, shard=Shard(index, 5), **ALL) for index in range(5)]
    assert {held for ran in shards for held in map(_held, ran.points)} == {*map(_held, whole.points)}
    assert sum(len(completed(ran)) for ran in shards) == 12


@pytest.mark.parametrize(("count", "connections"), [(1, 8), (3, 2), (20, 1)])
def test_connections_are_those_of_all_shards_together(server: Wandb, count: int, connections: int) -> None:
    shard = Shard(0, count)
    fleet = open_fleet(context(server, Ran(), shard=shard, FLEETGAUGE_WANDB_CONNECTIONS="8"), lambda _: None)
    assert fleet.context.settings.connections == connections
