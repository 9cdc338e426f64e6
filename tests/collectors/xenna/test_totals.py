"""Without run_hash, runs are added up or averaged, whatever order and whichever tick they are read in."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.xenna.collector import COLLECTOR
from common.metric import Mark
from support.xenna_ticks import NOW, Points, Ticks, named, record

KIND = "pipeline_kind:curate"


@pytest.fixture
def ticks(tmp_path: Path) -> Ticks:
    return Ticks(tmp_path, stage_run_hash="false")


def stage(points: Points) -> dict[tuple[str, tuple[str, ...], int], float]:
    return {
        (name.removeprefix("xenna.stage."), tags, at): value
        for (name, tags, at), value in named(points, "xenna.stage").items()
    }


BODY = {"stage/a/queue_in": 2, "stage/a/speed_tasks_per_s": 1.5, "progress": 10.0}
OTHER = {"stage/a/queue_in": 5, "stage/a/speed_tasks_per_s": 2.5, "progress": 30.0}
START = NOW // 60 * 60 - 120  # of a bucket


def test_a_run_counts_once_in_a_bucket_with_its_last_values(ticks: Ticks) -> None:
    ticks.write(
        record(0, NOW - START - 10, BODY),
        record(1, NOW - START - 59, OTHER),
        record(2, NOW - START - 60, BODY),
    )
    assert [(key[0], key[2] - START, value) for key, value in stage(ticks.tick()).items()] == [
        ("queue_in", 0, 5),
        ("speed_tasks_per_s", 0, 2.5),
        ("queue_in", 60, 2),
        ("speed_tasks_per_s", 60, 1.5),
    ]


def test_a_run_read_in_a_later_tick_is_added_to_the_bucket_and_does_not_replace_it(ticks: Ticks) -> None:
    ticks.write(record(0, NOW - START - 10, BODY), record(1, NOW - START - 70, BODY))
    ticks.tick()
    ticks.write(record(0, NOW - START - 20, OTHER, run_id="r2"), to="b.jsonl")
    assert stage(ticks.tick()) == {
        ("queue_in", (KIND, "stage:a"), START): 7,
        ("speed_tasks_per_s", (KIND, "stage:a"), START): 2.0,
    }
    ticks.write(record(1, NOW - START - 80, OTHER, run_id="r2"), to="b.jsonl")
    ticks.tick()
    assert stage(ticks.points)["queue_in", (KIND, "stage:a"), START] == 7
    assert stage(ticks.points)["queue_in", (KIND, "stage:a"), START + 60] == 7


def test_a_clock_that_went_back_is_late_and_counted(ticks: Ticks) -> None:
    ticks.write(record(0, NOW - START - 70, BODY), record(1, NOW - START - 10, OTHER))
    assert [at - START for (_, _, at) in stage(ticks.tick())] == [60, 60]
    assert ticks.tally.dropped == {"late": 2}


def test_values_that_are_not_finite_do_not_spoil_a_sum(ticks: Ticks) -> None:
    (ticks.path / "a.jsonl").write_text(
        json.dumps(record(0, 100, {"stage/a/queue_in": float("inf"), "stage/b/queue_in": 1})) + "\n"
    )
    os.utime(ticks.path / "a.jsonl", (NOW, NOW))
    ((name, tags, _),) = stage(ticks.tick())
    assert (name, tags) == ("queue_in", (KIND, "stage:b"))
    assert ticks.tally.dropped == {"not_finite": 1}


def test_all_is_saved_in_one_mark_behind_the_totals(ticks: Ticks) -> None:
    for number in range(5):
        ticks.write(record(0, 100, BODY, run_id=f"r{number}"), to=f"{number}.jsonl")
    ticks.tick()
    marks = [item for item in ticks.items if isinstance(item, Mark)]
    assert [bool(mark.changes) for mark in marks] == [False] * 5 + [True]
    assert ticks.items[-1] is marks[-1]


def test_however_many_samples_there_are_marks_let_them_be_delivered_bit_by_bit(
    ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.records.engine.BATCH_SIZE", 10)
    for number in range(30):
        ticks.write(record(0, 3000 - 70 * number, BODY, run_id=f"r{number}"), to=f"{number}.jsonl")
    ticks.tick()
    samples = [item.metric.name[:8] if not isinstance(item, Mark) else "" for item in ticks.items]
    assert samples[:4] == ["xenna.pi", "", "xenna.pi", ""]
    assert samples[60:82] == [*["xenna.st"] * 10, ""] * 2


def test_buckets_too_old_to_be_sent_leave_the_state(ticks: Ticks) -> None:
    ticks.write(record(0, NOW - START - 10, BODY), record(1, NOW - START - 70, BODY))
    ticks.tick()
    assert {f"bucket:{START}", "open:r1"} <= ticks.parts.keys()
    ticks.now = START + 3600 + 60
    ticks.tick()
    assert {f"bucket:{START}", "open:r1"} <= ticks.parts.keys()
    ticks.now += 1
    ticks.tick()
    assert f"bucket:{START}" not in ticks.parts
    assert "open:r1" in ticks.parts
    ticks.now += 60
    ticks.tick()
    assert "open:r1" not in ticks.parts


@pytest.mark.parametrize("series", ["x", "5", "[1,2,3]", '["k","a","gone"]', '["k","a"]'])
def test_saved_totals_that_are_not_ours_are_as_good_as_none(ticks: Ticks, series: str) -> None:
    good = json.dumps(["curate", "a", "queue_in"])
    ticks.state = {
        f"bucket:{START}": {series: [5, 1], good: [5, 1, 1]},
        "bucket:x": {},
        f"bucket:{START - 60}": 5,
        "open:r1": {"start": START, "values": {series: 5, good: "x"}},
        "open:r2": {"start": None},
        "open:r3": 5,
    }
    ticks.write(record(0, NOW - START - 10, {"stage/a/queue_in": 2}))
    assert stage(ticks.tick()) == {("queue_in", (KIND, "stage:a"), START): 2}


def straight_read(written: Iterable[dict[str, Any]], shared: bool) -> Points:
    """What the intake must hold in the end, from all records at once."""
    points: Points = {}
    buckets: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for one in sorted(written, key=lambda one: one["seq"]):
        tags = (KIND, f"run_hash:{one['run_hash']}")
        for key, value in one["metrics"].items():
            if key == "progress":
                points["xenna.pipeline.progress", tags, int(one["timestamp"])] = value
            elif not shared:
                name = f"xenna.stage.{key.rpartition('/')[2]}"
                points[name, (*tags, "stage:a"), int(one["timestamp"])] = value
        buckets[int(one["timestamp"]) // 60 * 60][one["run_id"]] = one["metrics"]
    for start, runs in buckets.items() if shared else ():
        values = list(runs.values())
        points["xenna.stage.queue_in", (KIND, "stage:a"), start] = sum(v["stage/a/queue_in"] for v in values)
        speed = sum(v["stage/a/speed_tasks_per_s"] for v in values) / len(values)
        points["xenna.stage.speed_tasks_per_s", (KIND, "stage:a"), start] = round(speed, 9)
    return points


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 40)),
        st.tuples(st.just("rotate"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("tick"), st.integers(0, 40), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(steps, st.booleans())
@settings(deadline=None, max_examples=150)
def test_wherever_a_tick_is_killed_the_intake_ends_equal_to_a_straight_read(
    plan: list[tuple[str, int, int]], shared: bool
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        ticks = Ticks(directory, stage_run_hash=str(not shared))
        written: list[dict[str, Any]] = []
        seqs = [itertools.count() for _ in range(3)]
        ticks.now = NOW - 3000
        for step, (what, one, other) in enumerate(plan):
            if what == "write":
                ticks.now += other
                seq = next(seqs[one])
                body = {"progress": seq + 0.5, "stage/a/queue_in": seq, "stage/a/speed_tasks_per_s": seq / 4}
                written.append(record(seq, NOW - ticks.now, body, run_id=f"r{one}", run_hash=str(one)))
                ticks.write(written[-1], to=f"{one}.jsonl")
            elif what == "rotate":
                path = directory / f"{one}.jsonl"
                if path.exists():
                    path.rename(directory / f"{one}.{step:06d}.jsonl")
            else:
                ticks.be_killed(after=one, unsaved=other)
        ticks.now += 100
        ticks.tick()
        held = {
            key: value for key, value in ticks.points.items() if key[0].startswith(("xenna.p", "xenna.s"))
        }
        assert held == straight_read(written, shared)
    finally:
        shutil.rmtree(directory)


def test_a_tick_that_is_not_saved_leaves_the_saved_state_as_it_was(ticks: Ticks) -> None:
    ticks.write(record(0, NOW - START - 10, BODY), record(1, NOW - START - 70, BODY))
    ticks.write(record(0, NOW - START - 10, BODY, run_id="r2"), to="b.jsonl")
    ticks.tick()
    ticks.write(record(1, NOW - START - 80, BODY, run_id="r2"), to="b.jsonl")
    before = json.dumps(ticks.state, sort_keys=True)
    once = list(COLLECTOR.collect(ticks.context()))
    assert json.dumps(ticks.state, sort_keys=True) == before
    assert list(COLLECTOR.collect(ticks.context())) == once
