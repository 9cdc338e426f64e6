"""The data_plane collector: what a record becomes, and what of it is dropped and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.record_folder import Folder, named, operations, outstanding

TAGS = ("job:ants", "op:put", "partition_id:p", "rank:0")
WRITER = ("job:ants", "rank:0")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("data_plane", tmp_path)


def test_every_declared_metric_is_emitted_and_no_other(folder: Folder) -> None:
    folder.write(operations(0, 100), outstanding(1, 100, {"p": 1}, foreign_clears=0, keys_overflowed=0))
    assert {name for name, *_ in folder.tick().sent} == {metric.name for metric in folder.collector.metrics}


def test_what_a_writer_does_not_know_is_no_tag(folder: Folder) -> None:
    folder.write(operations(0, 100, rank=None, job=None, op="close", partition_id=""))
    assert named(folder.points_at(), "ops") == {(("op:close",), 100): 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"sole_writer": False},
        {"sole_writer": 1},
        {"sole_writer": None},
        {"bytes_outstanding": None, "interval_s": 10.0},
    ],
    ids=repr,
)
def test_one_that_does_not_know_all_says_nothing_of_the_job(folder: Folder, fields: dict[str, Any]) -> None:
    record = outstanding(0, 100, {"p": 7}, **fields, foreign_clears=3, keys_overflowed=0)
    if record["bytes_outstanding"] is None:  # it has no client
        del record["bytes_outstanding"]
    folder.write(record)
    assert folder.points_at() == {("foreign_clears", WRITER, 100): 3, ("keys_overflowed", WRITER, 100): 0}
    assert folder.ran[-1].report.dropped == {}


def wall(**fields: object) -> dict[str, Any]:
    """Times of one call, one of them wrong."""
    return {"wall_ms": {"sum": 1.0, "min": 1, "max": 1.0, "buckets": {"3": 1}, **fields}}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": 1}, "not_a_record"),
        (operations(0, 100, schema_version=2), "unknown_schema_version"),
        (operations(0, 100, event="begin"), "not_a_record"),
        (operations(0, 100, timestamp="soon"), "bad_timestamp"),
        (operations(0, 100, status="fine"), "bad_body"),
        (operations(0, 100, op=""), "bad_body"),
        (operations(0, 100, count=2), "bad_body"),
        (operations(0, 100, count=True), "bad_body"),
        (operations(0, 100, keys=-1), "bad_body"),
        (operations(0, 100, bytes=1.5), "bad_body"),
        (operations(0, 100, bytes=None), "bad_body"),
        (operations(0, 100, wall_ms=None), "bad_body"),
        (operations(0, 100, wall_ms={"sum": 1.0, "min": 1.0, "max": 1.0}), "bad_body"),
        (operations(0, 100, **wall(min=2.0)), "bad_body"),
        (operations(0, 100, **wall(min=-1)), "bad_body"),
        (operations(0, 100, **wall(sum="1")), "bad_body"),
        (operations(0, 100, **wall(sum=float("nan"))), "bad_body"),
        (operations(0, 100, **wall(buckets={"117": 1})), "bad_body"),
        (operations(0, 100, **wall(buckets={"x": 1})), "bad_body"),
        (operations(0, 100, **wall(buckets={"3": 2, "4": -1})), "bad_body"),
        (outstanding(0, 100, {"p": -1}), "bad_body"),
        (outstanding(0, 100, {}, bytes_outstanding=[]), "bad_body"),
        (outstanding(0, 100, {}, keys_outstanding=None), "bad_body"),
        (outstanding(0, 100, {}, peak_bytes_outstanding=2**63), "bad_body"),
        (outstanding(0, 100, {}, foreign_clears=-1, keys_overflowed=0), "bad_body"),
    ],
)
def test_a_line_that_is_no_record_costs_itself_and_is_counted(
    folder: Folder, value: dict[str, Any], reason: str
) -> None:
    folder.write(value, operations(7, 90))
    ran = folder.tick()
    points = folder.short(ran.sent)
    assert ran.report.dropped == {reason: 1}
    assert ran.report.lost == []
    assert named(points, "ops") == {(TAGS, 90): 1}
    assert (points["ingest.bad_records", (), 0], points["ingest.records", (), 0]) == (1, 1)


def test_a_bucket_of_times_that_holds_none_is_no_damage(folder: Folder) -> None:
    folder.write(operations(0, 90, **wall(buckets={"3": 0, "4": 1})))
    assert named(folder.points_at(), "ops") == {(TAGS, 90): 1}
    assert folder.ran[-1].report.dropped == {}


def test_sums_larger_than_any_number_of_64_bits_stop_nothing(folder: Folder) -> None:
    most = 2**63 - 1
    folder.write(
        *(operations(seq, 100, (1, most, 1.0)) for seq in range(5)), outstanding(5, 100, {"p": most})
    )
    assert list(named(folder.points_at(), "bytes").values()) == [5 * most]
    assert folder.ran[-1].report.dropped == {}
