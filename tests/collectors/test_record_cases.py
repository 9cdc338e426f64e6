"""Each folder of tests/data/records/<collector>/ is a case: records, perhaps settings, and what is sent.

A point of `expected.json` is its metric without the collector's name, its tags, the seconds before the
records were written, and its value.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from support.record_folder import NOW, Folder

DATA = Path(__file__).parents[1] / "data" / "records"
CASES = sorted(path.parent for path in DATA.glob("*/*/expected.json"))
WRITTEN = 800  # seconds before NOW


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_a_case_becomes_what_it_says(case: Path, tmp_path: Path) -> None:
    shutil.copytree(case, tmp_path / "records")
    for path in tmp_path.rglob("*.jsonl"):
        os.utime(path, (NOW - WRITTEN, NOW - WRITTEN))
    settings = case / "settings.json"
    options = json.loads(settings.read_text()) if settings.exists() else {}
    expected = json.loads((case / "expected.json").read_text())
    folder = Folder(case.parent.name, tmp_path / "records", **options)
    lost, dropped = list[str](), Counter[str]()
    for now in (NOW - 900, NOW):  # together they cover what was written
        report = folder.run(now).report
        lost += report.lost
        dropped += report.dropped
    hidden = {metric.name for metric in folder.collector.live_only}
    sent = {key: value for key, value in folder.points.items() if key[0] not in hidden}
    points = {
        (name, " ".join(tags), ago - WRITTEN): value
        for (name, tags, ago), value in folder.short(sent).items()
    }
    assert points == {(name, tags, ago): value for name, tags, ago, value in expected["points"]}
    assert dropped == expected["dropped"]
    assert lost == []
