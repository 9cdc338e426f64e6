"""A real Ray: one client built in the driver, used by four actors, and what the service makes of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fleetgauge import records
from support.record_runs import Runs
from support.requirements import skip_without
from support.xenna_pipeline import namespace

pytestmark = pytest.mark.slow

PUTS, KEYS = 4 * 5, 50  # of each of four actors in five steps

Json = dict[str, Any]


@pytest.mark.parametrize("version", ["311", "312"])
def test_client_handed_to_actors_counts_in_each_for_itself(version: str, tmp_path: Path) -> None:
    try:
        namespace.run_script(version, tmp_path, Path(__file__).with_name("data_plane_on_ray.py"))
    except namespace.MissingError as missing:
        skip_without(missing.name, str(missing))
    report: Json = json.loads((tmp_path / "report.json").read_text())
    driver, actors = report["driver"], report["actors"]
    written = [one for path in sorted((tmp_path / "records").iterdir()) for one in records.read(path)]
    for op, n_bytes in (("put", 5 * KEYS * 4 * (10 + 11 + 12 + 13)), ("clear", 0)):
        found = [one for one in written if one.get("op") == op]
        totals = [sum(one[name] for one in found) for name in ("count", "keys", "bytes")]
        assert totals == [PUTS, PUTS * KEYS, n_bytes]
    ranks = {(one["pid"], one.get("rank")) for one in written}
    assert ranks == {*zip(actors, range(4), strict=True), (driver, 99)}
    foreign = Counter(dict.fromkeys(actors, 0))
    for one in written:
        foreign[one["pid"]] += one.get("foreign_clears", 0)
    assert foreign == dict.fromkeys(actors, 0) | {driver: PUTS * KEYS}

    times = [int(one["timestamp"]) for one in written]
    runs = Runs("data_plane", tmp_path / "records")
    points = runs.backfill(min(times), max(times) + 1, max(times) + 60)
    assert {reason for each in runs.ran for reason in each.report.dropped} == set()
    assert [key for key in points if "outstanding" in key[0]] == []
    assert sum(n for key, n in points.items() if key[0] == "data_plane.foreign_clears") == PUTS * KEYS
    assert sum(value for key, value in points.items() if key[0] == "data_plane.keys") == 2 * PUTS * KEYS
