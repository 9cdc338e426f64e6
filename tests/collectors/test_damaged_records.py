"""Whatever a line holds costs that line: no run fails, and every good record is delivered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.record_damage import damaged, lost_points
from support.record_fleets import BEGIN, Disk, ticks_over
from support.record_runs import HOUR, Runs

LINES = 700  # for each of three kinds


@pytest.mark.parametrize("kind", ["xenna", "gpu_memory", "data_plane"])
def test_damaged_lines_cost_only_themselves_live_and_in_a_backfill(kind: str, tmp_path: Path) -> None:
    made = damaged(kind, 17, LINES)
    disk, runs, bad_records = Disk(made, tmp_path), Runs(kind, tmp_path), 0.0
    for now in ticks_over(made):
        disk.advance(now)
        ran = runs.run(now)
        assert ran.report.lost_by_reason.keys() <= {"late"}  # a record that says it is old
        json.dumps(ran.report.examples, allow_nan=False)
        bad_records += ran.sent[f"{kind}.ingest.bad_records", (), None, now]
    assert lost_points(runs, made) == []
    assert bad_records > LINES / 3  # others are only odd; which ones differs by Python
    runs.points = runs.backfill(BEGIN, BEGIN + 2 * HOUR, BEGIN + 3 * HOUR)
    assert lost_points(runs, made) == []
