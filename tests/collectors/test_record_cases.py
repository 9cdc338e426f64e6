"""Each folder of tests/data/records/<collector>/ is a case: records, perhaps settings, and what is sent.

A point of `expected.json` is its metric without the collector's name, its tags, the seconds ago, its value.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from support.record_fuzzer import KINDS, ticks_of
from support.xenna_ticks import NOW

DATA = Path(__file__).parents[1] / "data" / "records"
CASES = sorted(path.parent for path in DATA.glob("*/*/expected.json"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_a_case_becomes_what_it_says(case: Path, tmp_path: Path) -> None:
    [kind] = [kind for kind in KINDS if kind.collector.name == case.parent.name]
    shutil.copytree(case, tmp_path / "records")
    for path in tmp_path.rglob("*.jsonl"):
        os.utime(path, (NOW, NOW))
    settings = case / "settings.json"
    options = json.loads(settings.read_text()) if settings.exists() else {}
    expected = json.loads((case / "expected.json").read_text())
    ticks = ticks_of(kind, tmp_path / "records", **options)
    points = {
        (name.partition(".")[2], " ".join(tags), NOW - at): value
        for (name, tags, at), value in ticks.tick().items()
        if at < NOW
    }
    assert points == {(name, tags, ago): value for name, tags, ago, value in expected["points"]}
    assert ticks.tally.dropped == expected["dropped"]
    assert ticks.tally.lost == []


def test_every_collector_over_records_has_cases() -> None:
    assert {case.parent.name for case in CASES} == {kind.collector.name for kind in KINDS}


def test_debug_lines_name_each_file_with_its_bytes_and_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind = KINDS[0]
    lines = [json.dumps(kind.make("a", number, NOW - 100 + number)) for number in range(3)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    os.utime(tmp_path / "x.jsonl", (NOW, NOW))
    with caplog.at_level(logging.DEBUG, "test"):
        ticks_of(kind, tmp_path).tick()
    size = (tmp_path / "x.jsonl").stat().st_size
    assert f"{tmp_path}/x.jsonl: read {size} bytes, 3 records" in caplog.messages
