"""A real Ray: one client built in the driver, used by four actors, and what the service makes of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fleetgauge import records
from support.record_fleets import Points
from support.record_runs import Runs
from support.requirements import skip_without
from support.xenna_pipeline import namespace

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PUTS, KEYS = 4 * 5, 50  # of each of four actors in five steps

Json = dict[str, Any]


class Ran:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.report: Json = json.loads((directory / "report.json").read_text())

    def records(self, job: str) -> list[Json]:
        return [one for path in sorted((self.directory / job).iterdir()) for one in records.read(path)]

    def total(self, job: str, op: str) -> tuple[int, int, int]:
        found = [one for one in self.records(job) if one.get("op") == op]
        return tuple(sum(one[name] for one in found) for name in ("count", "keys", "bytes"))


@pytest.fixture(scope="module", params=["311", "312"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Both jobs of one Ray, run once."""
    directory = tmp_path_factory.mktemp("ray")
    try:
        namespace.run_script(request.param, directory, Path(__file__).with_name("data_plane_on_ray.py"))
    except namespace.MissingError as missing:
        skip_without(missing.name, str(missing))
    return Ran(directory)


def test_what_five_processes_did_adds_up_exactly(ran: Ran) -> None:
    assert ran.total("shared", "put") == (PUTS, PUTS * KEYS, 5 * KEYS * 4 * (10 + 11 + 12 + 13))
    assert ran.total("shared", "clear") == (PUTS, PUTS * KEYS, 0)
    assert ran.total("sole", "put") == (5, 5 * KEYS, 5 * KEYS * 4 * 9)
    assert ran.total("sole", "get") == (PUTS, PUTS * KEYS, PUTS * KEYS * 4)


def test_every_actor_tells_its_own_rank_and_process(ran: Ran) -> None:
    found = {(one["pid"], one.get("rank")) for one in ran.records("shared")}
    actors = list(zip(ran.report["shared"]["pids"], range(4), strict=True))
    assert found == {*actors, (ran.report["driver"]["pid"], 99)}
    ranks = {one.get("rank") for one in ran.records("sole") if one["pid"] != ran.report["driver"]["pid"]}
    assert ranks == {None}


def test_a_driver_that_clears_what_actors_put_says_so(ran: Ran) -> None:
    foreign = Counter(dict.fromkeys(ran.report["shared"]["pids"], 0))
    for one in ran.records("shared"):
        foreign[one["pid"]] += one.get("foreign_clears", 0)
    assert foreign == dict.fromkeys(ran.report["shared"]["pids"], 0) | {
        ran.report["driver"]["pid"]: PUTS * KEYS
    }
    assert ran.report["shared"]["held"] == 0


def test_outstanding_bytes_of_one_process_are_exact(ran: Ran) -> None:
    ends = [one for one in ran.records("sole") if one["event"] == "end"]
    assert {one["foreign_clears"] for one in ran.records("sole") if "op" not in one} == {0}
    assert sum(sum(one["bytes_outstanding"].values()) for one in ends) == ran.report["sole"]["held"] > 0


def sent(ran: Ran, job: str) -> Points:
    """What the service makes of the records of a job."""
    times = [int(one["timestamp"]) for one in ran.records(job)]
    runs = Runs("data_plane", ran.directory / job)
    points = runs.backfill(min(times), max(times) + 1, max(times) + 60)
    assert {reason for each in runs.ran for reason in each.report.dropped} == set()
    return points


def test_nothing_outstanding_is_sent_where_the_driver_clears(ran: Ran) -> None:
    points = sent(ran, "shared")
    assert [key for key in points if "outstanding" in key[0]] == []
    assert sum(n for key, n in points.items() if key[0] == "data_plane.foreign_clears") == PUTS * KEYS
    assert sum(value for key, value in points.items() if key[0] == "data_plane.keys") == 2 * PUTS * KEYS


def test_no_client_is_a_sole_writer_unless_it_was_declared(ran: Ran) -> None:
    found = [one for one in ran.records("apart") if "op" not in one]
    assert {(one["pid"], one["sole_writer"]) for one in found} == {
        (pid, False) for pid in ran.report["apart"]["pids"]
    }
    assert ran.report["apart"]["held"] == 3 * 4
    assert [key for key in sent(ran, "apart") if "outstanding" in key[0]] == []


def test_what_is_sent_of_a_sole_writer_is_exact(ran: Ran) -> None:
    held = {
        at: value
        for (name, tags, _, at), value in sent(ran, "sole").items()
        if name == "data_plane.bytes_outstanding" and "rank:99" in tags
    }
    assert held[max(held)] == ran.report["sole"]["held"]


def test_a_thousand_copies_sent_and_not_used_leave_no_thread_and_no_file(ran: Ran) -> None:
    assert ran.report["unused"] == {"threads": 0, "files": 0}
