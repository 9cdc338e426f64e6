"""Whatever a line holds costs that line: no run fails, and every good record is delivered."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from support.record_damage import NOW, damaged, file_name, good_points
from support.record_fleets import STEP, Points
from support.record_runs import HOUR, Runs, differences

FILES, LINES = 4, 200  # for each of three kinds: 2,400 damaged records

each_kind = pytest.mark.parametrize("kind", ["xenna", "gpu_memory", "data_plane"])


def write(kind: str, folder: Path) -> Points:
    """Write damaged files; return the points of the good records in them."""
    chance, good = Random(f"{kind} 17"), Points()
    for number in range(FILES):
        found = damaged(kind, chance, LINES)
        path = folder / str(number) / file_name(kind)
        path.parent.mkdir(parents=True)
        path.write_bytes(found.content)
        os.utime(path, (NOW, NOW))
        good |= found.good
    return good


@each_kind
def test_damaged_lines_cost_only_themselves_in_live_runs(kind: str, tmp_path: Path) -> None:
    good = write(kind, tmp_path)
    runs = Runs(kind, tmp_path)
    for now in (NOW, NOW + STEP, NOW + 2 * STEP):
        ran = runs.run(now)
        assert ran.report.lost == []
        assert ran.report.dropped["unusable_record"] < LINES
        json.dumps(ran.report.examples, allow_nan=False)
    assert differences(good_points(runs.points), good) == []
    assert runs.points[f"{kind}.ingest.bad_records", (), None, NOW] > LINES


@each_kind
def test_damaged_lines_cost_only_themselves_in_a_backfill(kind: str, tmp_path: Path) -> None:
    good = write(kind, tmp_path)
    runs = Runs(kind, tmp_path)
    points = runs.backfill(NOW // HOUR * HOUR - HOUR, NOW // HOUR * HOUR + HOUR, NOW + 2 * HOUR)
    assert differences(good_points(points), good) == []
