"""Whatever a line holds costs that line: no tick fails, and every good record is delivered."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from random import Random

import pytest

from support.data_plane_ticks import held, operations
from support.record_fuzzer import KINDS, Kind, damaged, ticks_of
from support.replay_writers import event
from support.xenna_ticks import NOW, Ticks, record

FILES, LINES = 4, 200  # for each of three kinds: 2,400 damaged records

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collector.name)


@each_kind
def test_damaged_records_cost_only_themselves(kind: Kind, tmp_path: Path) -> None:
    chance = Random(f"{kind.collector.name} 17")
    expected: dict[tuple[str, int], float] = {}
    for number in range(FILES):
        found = damaged(kind, chance, LINES)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / kind.name).write_bytes(b"".join(line + b"\n" for line in found.lines))
        os.utime(folder / kind.name, (NOW, NOW))
        expected |= found.good
    ticks = ticks_of(kind, tmp_path)
    for ticks.now in (NOW, NOW + 300, NOW + 700):  # lines whose time was yet to come hold up what follows
        ticks.tick()
        assert ticks.tally.lost == []
        assert "unusable_record" not in ticks.tally.dropped or ticks.tally.dropped["unusable_record"] < LINES
        json.dumps(ticks.state, allow_nan=False)
    delivered = {
        (writer, at): value
        for (name, tags, at), value in ticks.points.items()
        for writer in (tag.partition(":")[2] for tag in tags if ":good-" in tag)
        if name == kind.metric
    }
    assert delivered == expected
    assert ticks.points[f"{kind.collector.name}.ingest.bad_records", (), NOW] > LINES


HUGE = 10**400
XENNA, GPU_MEMORY, DATA_PLANE = KINDS


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (XENNA, json.dumps(record(0, 100, run_id="odd", timestamp=HUGE))),
        (XENNA, json.dumps(record(0, 100, run_id="odd", rank=HUGE))),
        (XENNA, json.dumps(record(HUGE, 100, run_id="odd"))),
        (XENNA, json.dumps(record(0, 100, run_id="odd", timestamp="0001-01-01T00:00:00+23:59"))),
        (DATA_PLANE, json.dumps(operations(0, 100, run_id="odd", timestamp=HUGE))),
        (DATA_PLANE, json.dumps(operations(0, 100, run_id="odd", bytes=HUGE))),
        (DATA_PLANE, json.dumps(held(0, 100, {"p": HUGE}, run_id="odd"))),
        (
            DATA_PLANE,
            json.dumps(
                operations(
                    0, 100, wall_ms={"sum": 1, "min": 1, "max": 1, "buckets": {"1" * 5000: 1}}, run_id="odd"
                )
            ),
        ),
        (GPU_MEMORY, json.dumps({"timestamp": NOW - 100, "type": "sample", "memory_mb": 1e308})),
        (GPU_MEMORY, json.dumps({"timestamp": NOW - 100, "type": "sample", "memory_mb": HUGE})),
        (GPU_MEMORY, json.dumps(event(NOW - 100, 5, job_id="odd", device_id=HUGE))),
    ],
)
def test_a_number_of_any_size_stops_nothing(kind: Kind, line: str, tmp_path: Path) -> None:
    good = json.dumps(kind.make("good-1", 7, NOW - 90))
    (tmp_path / kind.name).write_text(f"{line}\n{good}\n")
    os.utime(tmp_path / kind.name, (NOW, NOW))
    ticks = ticks_of(kind, tmp_path)
    points = ticks.tick()
    assert [value for (name, _, at), value in points.items() if name == kind.metric and at == NOW - 90]
    assert ticks.tally.lost == []
    ticks.tick()


def test_a_run_that_learns_its_hash_later_or_changes_its_kind_goes_on(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path)
    ticks.write(record(0, 100, run_hash=None, event="start", metrics={}), record(1, 90), record(2, 80))
    ticks.write(record(0, 70, run_id="r2", pipeline_kind="a"), record(1, 60, run_id="r2", pipeline_kind="b"))
    points = ticks.tick()
    kept = ("pipeline_kind:curate", "run_hash:abc")
    shown = {(tags, NOW - at) for (name, tags, at) in points if name == "xenna.pipeline.progress"}
    assert shown == {(kept, 90), (kept, 80)} | {
        ((f"pipeline_kind:{kind}", "run_hash:abc"), ago) for kind, ago in (("a", 70), ("b", 60))
    }
    ages = {tags: value for (name, tags, _), value in points.items() if name.endswith("age_seconds")}
    assert ages == {kept: 80, ("pipeline_kind:b", "run_hash:abc"): 60}
    assert ticks.tally.dropped == {}


def test_with_verbose_the_first_of_each_reason_are_told_with_file_byte_line_and_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ticks = Ticks(tmp_path)
    first = record(0, 100)
    ticks.write(
        first, record(1, 100, timestamp="soon"), record(2, 100, {"surprise": 7, "progress": "x" * 500})
    )
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b"{\n")
    ticks.write(*(record(number, 4000, {"progress": 1}) for number in range(3, 33)))
    ticks.tick()
    said = [one for one in caplog.messages if one.startswith("dropped")]
    second = len(json.dumps(first)) + 1
    assert said[0].startswith(f"dropped {tmp_path}/a.jsonl@")
    assert f"dropped {tmp_path}/a.jsonl@{second} (line 2): bad_timestamp: timestamp is 'soon'" in said
    assert sum("(line 3): unknown_metric: surprise is 7" in one for one in said) == 1
    assert sum("(line 3): not_a_number: progress is 'xxx" in one and len(one) < 300 for one in said) == 1
    assert sum("(line 4): not_json" in one for one in said) == 1
    assert sum(": too_old: timestamp is " in one for one in said) == 20
    assert ticks.tally.dropped["too_old"] == 30
    caplog.clear()
    ticks.write(record(40, 100, {"surprise": 8}))
    ticks.tick()
    [said_later] = [one for one in caplog.messages if one.startswith("dropped")]
    assert "(line" not in said_later  # reading did not begin at the start of the file


@each_kind
def test_a_byte_order_mark_costs_nothing(kind: Kind, tmp_path: Path) -> None:
    line = json.dumps(kind.make("good-1", 7, NOW - 90)).encode()
    (tmp_path / kind.name).write_bytes(b"\xef\xbb\xbf" + line + b"\n")
    os.utime(tmp_path / kind.name, (NOW, NOW))
    ticks = ticks_of(kind, tmp_path)
    points = ticks.tick()
    assert [value for (name, _, at), value in points.items() if name == kind.metric and at == NOW - 90]
    assert ticks.tally.dropped == {}
