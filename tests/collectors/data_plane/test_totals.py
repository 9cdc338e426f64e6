"""Whoever shares a series is added up, in whatever order and files the records are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.record_folder import NOW, START, Folder, Short, added_up, named, operations, outstanding

TAGS = ("job:ants", "op:put", "partition_id:p", "rank:0")
WRITER = ("job:ants", "rank:0")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("data_plane", tmp_path)


def since(second: float) -> float:
    """How long ago a second of the bucket at START was."""
    return NOW - START - second


def test_ranks_have_series_of_their_own(folder: Folder) -> None:
    for rank in range(8):
        folder.write(operations(0, 100, *[(1, 1, 1.0)] * (rank + 1), rank=rank), to=f"{rank}.jsonl")
    assert named(folder.points_at(), "ops") == {
        (("job:ants", "op:put", "partition_id:p", f"rank:{rank}"), 100): rank + 1 for rank in range(8)
    }


def test_writers_without_a_rank_add_up_in_the_same_second(folder: Folder) -> None:
    for number in range(8):
        calls = operations(0, 100.5, (1, 10, float(number + 1)), rank=None, run_id=str(number))
        doubts = {"foreign_clears": number, "keys_overflowed": 1, "sole_writer": False}
        state = outstanding(1, 100.5, {"p": 3}, rank=None, run_id=str(number), **doubts)
        folder.write(calls, state, to=f"{number}.jsonl")
    points = folder.points_at()
    tags = ("job:ants", "op:put", "partition_id:p")
    assert points["foreign_clears", ("job:ants",), 101] == 28
    assert points["keys_overflowed", ("job:ants",), 101] == 8
    assert points["ops", tags, 101] == 8
    assert points["bytes", tags, 101] == 80
    assert points["wall_ms.avg", tags, 101] == 4.5
    assert points["wall_ms.max", tags, 101] == 8.0


def test_two_records_of_one_second_are_one_point(folder: Folder) -> None:
    folder.write(operations(0, 99.75, (1, 1, 1.0)), operations(1, 99.25, (2, 2, 3.0)))
    folder.write(outstanding(2, 99.75, {"p": 5}), outstanding(3, 99.25, {"p": 7}))
    points = folder.points_at()
    assert named(points, "ops") == {(TAGS, 100): 2}
    assert named(points, "wall_ms.avg") == {(TAGS, 100): 2.0}
    assert list(named(points, "bytes_outstanding").values()) == [7]


def test_without_partitions_calls_and_bytes_are_added_up_in_the_same_second(tmp_path: Path) -> None:
    folder = Folder("data_plane", tmp_path, tag_partition_id="false")
    folder.write(operations(0, 100, (1, 10, 1.0)), operations(1, 100, (2, 20, 3.0), partition_id="q"))
    folder.write(outstanding(2, 100, {"p": 5, "q": 7}), outstanding(3, 90, {}))
    points = folder.points_at()
    tags = ("job:ants", "op:put", "rank:0")
    assert points["ops", tags, 100] == 2
    assert points["keys", tags, 100] == 3
    assert points["wall_ms.avg", tags, 100] == 2.0
    assert named(points, "bytes_outstanding") == {(WRITER, 100): 12, (WRITER, 90): 0}
    assert points["keys_outstanding", WRITER, 100] == 5


def test_without_ranks_percentiles_come_from_the_merged_buckets(tmp_path: Path) -> None:
    folder = Folder("data_plane", tmp_path, tag_rank="false")
    slow, fast = [(1, 1, 100.0)] * 2, [(1, 1, 1.0)] * 98
    folder.write(operations(0, since(3), *fast))
    folder.write(operations(0, since(42), *slow, rank=1), to="b.jsonl")
    points = folder.points_at()
    tags, ago = ("job:ants", "op:put", "partition_id:p"), NOW - START
    assert points["ops", tags, ago] == 100
    assert points["wall_ms.avg", tags, ago] == pytest.approx(2.98)
    assert points["wall_ms.p50", tags, ago] == added_up(*fast, *slow).wall_ms_percentile(50)
    assert points["wall_ms.p95", tags, ago] < 1.2
    assert 90 < points["wall_ms.p99", tags, ago] <= 100
    assert {key[1:] for key in points} == {(tags, ago)}


def test_without_ranks_what_a_job_has_outstanding_keeps_its_second(tmp_path: Path) -> None:
    folder = Folder("data_plane", tmp_path, tag_rank="false")
    folder.write(outstanding(0, since(3), {"p": 1000, "gone": 9}), outstanding(1, since(50), {"p": 10}))
    folder.write(outstanding(0, since(30), {"p": 7}, rank=1, job="bees"), to="b.jsonl")
    assert named(folder.points_at(), "bytes_outstanding") == {
        (("job:ants", "partition_id:gone"), since(3)): 9,
        (("job:ants", "partition_id:p"), since(3)): 1000,
        (("job:ants", "partition_id:p"), since(50)): 10,
        (("job:bees", "partition_id:p"), since(30)): 7,
    }


def test_what_jobs_have_outstanding_is_not_added_up(tmp_path: Path) -> None:
    """Whether all of them were read is not known."""
    folder = Folder("data_plane", tmp_path, tag_job="false")
    doubts = {"foreign_clears": 2, "keys_overflowed": 0}
    folder.write(outstanding(0, since(3), {"p": 1}, **doubts))
    folder.write(outstanding(0, since(30), {"p": 7}, job="bees", run_id="b", **doubts), to="b.jsonl")
    assert folder.points_at() == {
        ("foreign_clears", ("rank:0",), NOW - START): 4,
        ("keys_overflowed", ("rank:0",), NOW - START): 0,
    }


def test_without_jobs_ranks_still_have_series_of_their_own(tmp_path: Path) -> None:
    folder = Folder("data_plane", tmp_path, tag_job="false")
    folder.write(operations(0, since(3)))
    folder.write(operations(0, since(9), job="bees", run_id="other"), to="b.jsonl")
    folder.write(operations(0, since(9), rank=1), to="c.jsonl")
    assert named(folder.points_at(), "ops") == {
        (("op:put", "partition_id:p", "rank:0"), NOW - START): 2,
        (("op:put", "partition_id:p", "rank:1"), NOW - START): 1,
    }


def test_sums_larger_than_any_number_of_64_bits_stop_nothing(folder: Folder) -> None:
    most = 2**63 - 1
    folder.write(
        *(operations(seq, 100, (1, most, 1.0)) for seq in range(5)), outstanding(5, 100, {"p": most})
    )
    assert list(named(folder.points_at(), "bytes").values()) == [float(5 * most)]
    assert folder.ran[-1].report.dropped == {}


def straight_read(records: list[dict[str, Any]], on: Mapping[str, bool], width: int) -> Short:
    """What the intake must hold in the end, from all records at once."""
    calls: dict[tuple[tuple[str, ...], int], list[tuple[int, int, float]]] = {}
    points: Short = {}
    for one in records:
        start = int(one["timestamp"]) // width * width
        if "op" in one:
            tags = tags_of(one, on, "job", "op", "partition_id", "rank")
            calls.setdefault((tags, NOW - start), []).extend(one["calls"])
        elif on["job"]:
            held: dict[tuple[str, ...], int] = {}
            for partition_id, n_bytes in one["bytes_outstanding"].items():
                tags = tags_of({**one, "partition_id": partition_id}, on, "job", "partition_id", "rank")
                held[tags] = held.get(tags, 0) + n_bytes
            at = NOW - int(one["timestamp"])
            points |= {("bytes_outstanding", tags, at): value for tags, value in held.items()}
    for (tags, ago), each in calls.items():
        total = added_up(*each)
        points["ops", tags, ago] = total.count
        points["bytes", tags, ago] = total.bytes
        points["wall_ms.p95", tags, ago] = total.wall_ms_percentile(95)
        points["wall_ms.max", tags, ago] = total.wall_ms_max
    return points


def tags_of(one: Mapping[str, Any], on: Mapping[str, bool], *names: str) -> tuple[str, ...]:
    return tuple(f"{name}:{one[name]}" for name in names if on.get(name, True))


@pytest.mark.parametrize("on", [*itertools.product((True, False), repeat=3)], ids=repr)
def test_live_runs_and_a_backfill_equal_a_straight_read(tmp_path: Path, on: tuple[bool, bool, bool]) -> None:
    tagged = dict(zip(("job", "partition_id", "rank"), on, strict=True))
    settings: dict[str, Any] = {f"tag_{name}": str(value) for name, value in tagged.items()}
    folder = Folder("data_plane", tmp_path, **settings)
    chance, records = random.Random(str(on)), list[dict[str, Any]]()
    begin = NOW - 840
    seqs = [itertools.count() for _ in range(3)]
    for now in range(NOW + 10, NOW + 10 + 4 * 900, 900):
        while begin < now - 30:
            begin += chance.randrange(1, 60)
            number = chance.randrange(3)
            more: dict[str, Any] = {"job": f"j{number}", "rank": number, "calls": [(1, begin % 99, 7.5)] * 2}
            partition_id, ago = f"p{chance.randrange(2)}", NOW - begin
            written = (
                operations(next(seqs[number]), ago, *more["calls"], **more, partition_id=partition_id),
                outstanding(next(seqs[number]), ago, {partition_id: begin % 77, "q": 1}, **more),
            )
            folder.write(*written, to=f"{number}.jsonl", modified=begin)
            records += written
        if chance.random() < 0.5:
            (tmp_path / f"{number}.jsonl").rename(tmp_path / f"{number}.{now}.jsonl")
        folder.tick(now)
    width = 1 if tagged["job"] and tagged["rank"] else 60
    until = folder.ran[-1].window.until
    truth = straight_read([one for one in records if one["timestamp"] < until], tagged, width)
    names = {name for name, _, _ in truth}
    live = {key: value for key, value in folder.short(folder.points).items() if key[0] in names}
    assert live == truth
    past = folder.short(folder.backfill(NOW - 900, until, NOW + 86_400))
    assert {key: value for key, value in past.items() if key[0] in names} == truth
