"""Whoever shares a series is added up, in whatever order and files the records are."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.record_folder import NOW, START, Folder, added_up, named, operations, outstanding

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


def test_without_partitions_calls_and_bytes_of_a_second_add_up(tmp_path: Path) -> None:
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
    assert list(named(folder.points_at(), "bytes").values()) == [5 * most]
    assert folder.ran[-1].report.dropped == {}
