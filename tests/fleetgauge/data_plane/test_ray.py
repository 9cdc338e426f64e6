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


def test_every_actor_writes_its_own_rank_process_and_foreign_clears(ran: Ran) -> None:
    driver, actors = ran.report["driver"]["pid"], ran.report["shared"]["pids"]
    found = {(one["pid"], one.get("rank")) for one in ran.records("shared")}
    assert found == {*zip(actors, range(4), strict=True), (driver, 99)}
    assert {one.get("rank") for one in ran.records("sole") if one["pid"] != driver} == {None}
    foreign = Counter(dict.fromkeys(actors, 0))
    for one in ran.records("shared"):
        foreign[one["pid"]] += one.get("foreign_clears", 0)
    assert foreign == dict.fromkeys(actors, 0) | {driver: PUTS * KEYS}
    assert ran.report["shared"]["held"] == 0


def sent(ran: Ran, job: str) -> Points:
    """What the service makes of the records of a job."""
    times = [int(one["timestamp"]) for one in ran.records(job)]
    runs = Runs("data_plane", ran.directory / job)
    points = runs.backfill(min(times), max(times) + 1, max(times) + 60)
    assert {reason for each in runs.ran for reason in each.report.dropped} == set()
    return points


def test_outstanding_bytes_are_sent_for_a_sole_writer_alone_and_exact(ran: Ran) -> None:
    points = sent(ran, "shared")
    assert [key for key in points if "outstanding" in key[0]] == []
    assert sum(n for key, n in points.items() if key[0] == "data_plane.foreign_clears") == PUTS * KEYS
    assert sum(value for key, value in points.items() if key[0] == "data_plane.keys") == 2 * PUTS * KEYS
    held = {
        at: value
        for (name, tags, _, at), value in sent(ran, "sole").items()
        if name == "data_plane.bytes_outstanding" and "rank:99" in tags
    }
    assert held[max(held)] == ran.report["sole"]["held"] > 0
