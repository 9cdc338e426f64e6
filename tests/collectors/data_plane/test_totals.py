"""Whoever shares a series is added up, in whatever order and whichever tick records are read."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.data_plane.collector import COLLECTOR
from collectors.data_plane.jobs import REMEMBERED
from common.metric import Mark
from common.records import engine
from fleetgauge.data_plane import OperationTotals
from support.data_plane_ticks import START, DataPlaneTicks, added_up, held, operations, short, the
from support.xenna_ticks import NOW, Points

TAGS = ("job:ants", "op:put", "partition_id:p", "rank:0")
WRITER = ("job:ants", "rank:0")


@pytest.fixture
def ticks(tmp_path: Path) -> DataPlaneTicks:
    return DataPlaneTicks(tmp_path)


def test_ranks_have_series_of_their_own(ticks: DataPlaneTicks) -> None:
    for rank in range(8):
        ticks.write(operations(0, 100, *[(1, 1, 1.0)] * (rank + 1), rank=rank), to=f"{rank}.jsonl")
    assert the(ticks.tick(), "ops") == {
        (("job:ants", "op:put", "partition_id:p", f"rank:{rank}"), 100): rank + 1 for rank in range(8)
    }


def test_writers_without_a_rank_add_up_in_the_same_second(ticks: DataPlaneTicks) -> None:
    for number in range(8):
        one = operations(0, 100.5, (1, 10, float(number + 1)), rank=None, run_id=str(number))
        doubts = {"foreign_clears": number, "keys_overflowed": 1, "unknown": "copied"}
        word = held(1, 100.5, {"p": 3}, rank=None, run_id=str(number), **doubts)
        ticks.write(one, word, to=f"{number}.jsonl")
    points = short(ticks.tick())
    tags = ("job:ants", "op:put", "partition_id:p")
    assert points["foreign_clears", ("job:ants",), 101] == 28
    assert points["keys_overflowed", ("job:ants",), 101] == 8
    assert points["ops", tags, 101] == 8
    assert points["bytes", tags, 101] == 80
    assert points["wall_ms.avg", tags, 101] == 4.5
    assert points["wall_ms.max", tags, 101] == 8.0


def test_two_records_of_one_second_are_one_point(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 99.75, (1, 1, 1.0)), operations(1, 99.25, (2, 2, 3.0)))
    ticks.write(held(2, 99.75, {"p": 5}), held(3, 99.25, {"p": 7}))
    points = ticks.tick()
    assert the(points, "ops") == {(TAGS, 100): 2}
    assert the(points, "wall_ms.avg") == {(TAGS, 100): 2.0}
    assert list(the(points, "bytes_outstanding").values()) == [7]


def test_without_partitions_their_calls_and_bytes_are_added_up_in_the_same_second(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_partition_id="false")
    ticks.write(operations(0, 100, (1, 10, 1.0)), operations(1, 100, (2, 20, 3.0), partition_id="q"))
    ticks.write(held(2, 100, {"p": 5, "q": 7}))
    points = short(ticks.tick())
    tags = ("job:ants", "op:put", "rank:0")
    assert points["ops", tags, 100] == 2
    assert points["keys", tags, 100] == 3
    assert points["wall_ms.avg", tags, 100] == 2.0
    assert points["bytes_outstanding", WRITER, 100] == 12
    assert points["keys_outstanding", WRITER, 100] == 5


def test_without_ranks_percentiles_come_from_the_merged_buckets(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_rank="false")
    slow, fast = [(1, 1, 100.0)] * 2, [(1, 1, 1.0)] * 98
    ticks.write(operations(0, NOW - START - 3, *fast))
    ticks.write(operations(0, NOW - START - 42, *slow, rank=1), to="b.jsonl")
    points = short(ticks.tick())
    tags, ago = ("job:ants", "op:put", "partition_id:p"), NOW - START
    assert points["ops", tags, ago] == 100
    assert points["wall_ms.avg", tags, ago] == pytest.approx(2.98)
    assert points["wall_ms.p50", tags, ago] == added_up(*fast, *slow).wall_ms_percentile(50)
    assert points["wall_ms.p95", tags, ago] < 1.2
    assert 90 < points["wall_ms.p99", tags, ago] <= 100
    assert {key[1:] for key in points} == {(tags, ago)}


def test_without_ranks_what_a_job_holds_keeps_its_second(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_rank="false")
    ticks.write(held(0, NOW - START - 3, {"p": 1000, "gone": 9}), held(1, NOW - START - 50, {"p": 10}))
    ticks.write(held(0, NOW - START - 30, {"p": 7}, rank=1, job="bees"), to="b.jsonl")
    assert the(ticks.tick(), "bytes_outstanding") == {
        (("job:ants", "partition_id:gone"), NOW - START - 3): 9,
        (("job:ants", "partition_id:p"), NOW - START - 3): 1000,
        (("job:ants", "partition_id:p"), NOW - START - 50): 10,
        (("job:bees", "partition_id:p"), NOW - START - 30): 7,
    }


def test_what_jobs_hold_is_not_added_up(tmp_path: Path) -> None:
    """Whether all of them were read is not known."""
    ticks = DataPlaneTicks(tmp_path, tag_job="false")
    doubts = {"foreign_clears": 2, "keys_overflowed": 0}
    ticks.write(held(0, NOW - START - 3, {"p": 1}, **doubts))
    ticks.write(held(0, NOW - START - 30, {"p": 7}, job="bees", run_id="b", **doubts), to="b.jsonl")
    assert short(ticks.tick()) == {
        ("foreign_clears", ("rank:0",), NOW - START): 4,
        ("keys_overflowed", ("rank:0",), NOW - START): 0,
    }


def test_without_jobs_ranks_are_still_told_apart(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_job="false")
    ticks.write(operations(0, NOW - START - 3))
    ticks.write(operations(0, NOW - START - 9, job="bees", run_id="other"), to="b.jsonl")
    ticks.write(operations(0, NOW - START - 9, rank=1), to="c.jsonl")
    assert the(ticks.tick(), "ops") == {
        (("op:put", "partition_id:p", "rank:0"), NOW - START): 2,
        (("op:put", "partition_id:p", "rank:1"), NOW - START): 1,
    }


@pytest.mark.parametrize("rank", [0, None])
def test_a_record_read_late_is_added_and_does_not_replace(ticks: DataPlaneTicks, rank: int | None) -> None:
    ticks.write(operations(0, 100, (1, 1, 4.0), rank=rank))
    ticks.tick()
    ticks.write(operations(0, 100, (1, 1, 2.0), rank=rank, run_id="late"), to="b.jsonl")
    points = ticks.tick()
    assert list(the(points, "ops").values()) == [2]
    assert list(the(points, "wall_ms.avg").values()) == [3.0]
    assert list(the(points, "wall_ms.max").values()) == [4.0]
    assert ticks.tally.dropped == {}


# What is remembered


def test_what_was_sent_is_remembered_for_as_long_as_it_can_be_sent_again(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 100), held(1, 90, {"p": 1}))
    ticks.tick()
    ticks.now = NOW - 100 + 3600
    ticks.tick()
    assert [key for key in ticks.parts if key.startswith("cell:")] == [f"cell:{NOW - 100}"]
    ticks.now += 1
    ticks.tick()
    assert [key for key in ticks.parts if key.startswith("cell:")] == []
    assert "job:ants" in ticks.parts
    ticks.now = NOW - 90 + 3600 + REMEMBERED
    ticks.tick()
    assert "job:ants" in ticks.parts
    ticks.now += 1
    ticks.tick()
    assert "job:ants" not in ticks.parts


@pytest.mark.parametrize(
    "saved",
    [
        5,
        {},
        [],
        [1],
        [1, 5],
        ["x", "{"],
        [1, "[]", 3],
        [1, "5"],
        [1, '[["a", 5]]'],
        [1, f'[[["ants", "put", "p", "0"], {[1] * 9}]]'],
        [1, f'[[["ants", "put", "p", "0"], {[1] * 6 + [{"3": 2}, 0, 0]}]]'.replace("'", '"')],
        [1, f'[[["ants", "put", "p", "0"], {[1] * 6 + [{"x": 1}, 0, 0]}]]'.replace("'", '"')],
        '{"ants": [1, 2]}',
        '{"ants": [null, "x", {}]}',
        '{"ants": [null, 1, {"a": [1]}]}',
        "[5]",
        "{",
    ],
)
def test_a_saved_state_that_is_not_ours_is_as_good_as_none(ticks: DataPlaneTicks, saved: object) -> None:
    ticks.state = {
        f"cell:{NOW - 100}": saved,
        "cell:x": {},
        "forgotten:cell:": "x",
        "job:ants": saved,
        "job:bees": saved,
    }
    ticks.write(operations(0, 100), held(1, 100, {"p": 1}))
    points = ticks.tick()
    assert the(points, "ops") == {(TAGS, 100): 1}
    assert list(the(points, "keys_outstanding").values()) == [5]
    assert "cell:x" not in ticks.state


def test_past_so_many_series_the_oldest_are_forgotten_and_what_follows_is_late(
    ticks: DataPlaneTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.records.buckets.MAX_KEPT", 3 * 100)
    ticks.write(*(operations(seq, 200 - seq) for seq in range(5)))
    ticks.tick()
    kept = [key for key in ticks.parts if key.startswith("cell:")]
    assert kept == [f"cell:{NOW - ago}" for ago in (198, 197, 196)]
    ticks.write(*(operations(0, ago, run_id=str(ago)) for ago in (200, 199, 198)), to="b.jsonl")
    assert the(ticks.tick(), "ops") == {(TAGS, 198): 2}
    assert ticks.tally.dropped == {"late": 2}
    assert the(ticks.points, "ops") == {(TAGS, ago): 1 + (ago == 198) for ago in (200, 199, 198, 197, 196)}


def test_a_large_tick_is_marked_on_the_way_between_two_seconds(
    ticks: DataPlaneTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_CELLS", 5)
    ticks.write(*(operations(seq, 200 - seq // 4, partition_id=f"{seq:02}") for seq in range(20)))
    ticks.tick()
    marked, seconds = -1, []
    for item in ticks.items:
        if isinstance(item, Mark):
            seconds.append(NOW - marked)
        elif item.timestamp < NOW:
            marked = item.timestamp
    assert seconds == [199, 197, 196]


def test_a_tick_killed_behind_a_mark_on_the_way_adds_nothing_twice(
    ticks: DataPlaneTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_CELLS", 2)
    ticks.write(*(operations(seq, 200 - seq // 4) for seq in range(20)))
    items = COLLECTOR.collect(ticks.context())
    ticks.save(next(item for item in items if isinstance(item, Mark)))
    ticks.write(operations(0, 200, run_id="late"), to="b.jsonl")
    assert the(ticks.tick(), "ops") == {(TAGS, 200): 5} | {(TAGS, ago): 4 for ago in (198, 197, 196)}


def test_unchanged_files_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = DataPlaneTicks(tmp_path)
    ticks.write(operations(0, 100))
    os.utime(tmp_path / "a.jsonl", (NOW - 100, NOW - 100))
    ticks.tick()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("common.records.local.open", refuse, raising=False)
    assert ticks.tick()["data_plane.ingest.files", (), NOW] == 1


# Whatever happens


def straight_read(written: list[dict[str, Any]], on: Mapping[str, bool], width: int) -> Points:
    """What the intake must hold in the end, from all records at once."""
    sums: dict[tuple[tuple[str, ...], int], OperationTotals] = {}
    for one in written:
        if "op" in one:
            start = int(one["timestamp"]) // width * width
            tags = tags_of(one, on, "job", "op", "partition_id", "rank")
            totals_of_one = added_up(*one["calls"])
            sums[tags, start] = sums[tags, start] + totals_of_one if (tags, start) in sums else totals_of_one
    points: Points = {}
    for (tags, start), whole in sums.items():
        points["data_plane.ops", tags, start] = whole.count
        points["data_plane.bytes", tags, start] = whole.bytes
        points["data_plane.wall_ms.p95", tags, start] = whole.wall_ms_percentile(95)
        points["data_plane.wall_ms.max", tags, start] = whole.wall_ms_max
    last = {(one["run_id"], one["timestamp"]): one for one in written if "op" not in one and on["job"]}
    for (_, at), one in last.items():
        for partition_id, n_bytes in one["bytes_outstanding"].items():
            tags = tags_of({**one, "partition_id": partition_id}, on, "job", "partition_id", "rank")
            points["data_plane.bytes_outstanding", tags, at] = n_bytes
    return points


def tags_of(one: Mapping[str, Any], on: Mapping[str, bool], *names: str) -> tuple[str, ...]:
    return tuple(f"{name}:{one[name]}" for name in names if on.get(name, True))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 25)),
        st.tuples(st.just("rotate"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("tick"), st.integers(0, 60), st.integers(0, 40)),
    ),
    max_size=40,
)


@given(STEPS, st.fixed_dictionaries({name: st.booleans() for name in ("job", "partition_id", "rank")}))
@settings(deadline=None, max_examples=150)
def test_wherever_a_tick_is_killed_the_intake_ends_equal_to_a_straight_read(
    plan: list[tuple[str, int, int]], on: dict[str, bool]
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        ticks = DataPlaneTicks(directory, **{f"tag_{name}": str(value) for name, value in on.items()})
        written: list[dict[str, Any]] = []
        seqs = [itertools.count() for _ in range(3)]
        ticks.now = NOW - 3000
        for step, (what, one, other) in enumerate(plan):
            if what == "write":
                ticks.now += other
                calls = [(1, other, float(other + 1)), (2, step, 5.0)]
                partition_id, job = f"p{step % 2}", f"j{one}"
                more: dict[str, Any] = {"job": job, "rank": one, "calls": calls}
                ago = NOW - ticks.now
                told = operations(next(seqs[one]), ago, *calls, **more, partition_id=partition_id)
                state = held(next(seqs[one]), ago, {partition_id: step}, **more)
                written += [told, state]
                ticks.write(told, state, to=f"{one}.jsonl")
            elif what == "rotate":
                path = directory / f"{one}.jsonl"
                if path.exists():
                    path.rename(directory / f"{one}.{step:06d}.jsonl")
            else:
                ticks.be_killed(after=one, unsaved=other)
        ticks.now += 100
        ticks.tick()
        truth = straight_read(written, on, 1 if on["job"] and on["rank"] else 60)
        names = {name for name, _, _ in truth}
        assert {key: value for key, value in ticks.points.items() if key[0] in names} == truth
    finally:
        shutil.rmtree(directory)


def test_sums_larger_than_any_number_of_64_bits_stop_nothing(ticks: DataPlaneTicks) -> None:
    most = 2**63 - 1
    ticks.write(*(operations(seq, 100, (1, most, 1.0)) for seq in range(5)), held(5, 100, {"p": most}))
    assert list(the(ticks.tick(), "bytes").values()) == [5 * most]
    ticks.write(operations(6, 100, (1, 0, 1.0)), held(7, 99, {"p": most}))
    assert list(the(ticks.tick(), "bytes").values()) == [5 * most]
    assert ticks.tally.dropped == {}


def test_the_saved_state_is_plain_json(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 100), held(1, 100, {"p": 1}))
    ticks.tick()
    first = json.dumps(ticks.state)
    ticks.write(operations(2, 100, (1, 1, 2.0), status="error"), held(3, 90, {"p": 2}))
    ticks.tick()
    assert json.loads(first) != json.loads(json.dumps(ticks.state)) == ticks.state
