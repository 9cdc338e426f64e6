"""The data_plane collector: what a record becomes, and what is held back, dropped and counted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from collectors.data_plane.metrics import METRICS
from common.metric import Kind
from support.data_plane_ticks import START, DataPlaneTicks, added_up, held, operations, short, the
from support.xenna_ticks import NOW, named

TAGS = ("job:ants", "op:put", "partition_id:p", "rank:0")
WRITER = ("job:ants", "rank:0")
NAN = math.nan


@pytest.fixture
def ticks(tmp_path: Path) -> DataPlaneTicks:
    return DataPlaneTicks(tmp_path)


def test_a_record_becomes_counts_and_times_at_its_own_time(ticks: DataPlaneTicks) -> None:
    calls = [(2, 8, 1.0), (3, 100, 2.0), (5, 0, 9.0)]
    ticks.write(operations(0, 100.25, *calls), operations(1, 100.25, (9, 9, 70.0), status="error"))
    ticks.write(operations(2, 100.25, (9, 9, 60.0), (9, 9, 60.0), status="timeout"))
    whole = added_up(*calls)
    assert short(ticks.tick()) == {
        ("ops", TAGS, 101): 3,
        ("errors", TAGS, 101): 1,
        ("timeouts", TAGS, 101): 2,
        ("keys", TAGS, 101): 10,
        ("bytes", TAGS, 101): 108,
        ("wall_ms.avg", TAGS, 101): 4.0,
        ("wall_ms.p50", TAGS, 101): whole.wall_ms_percentile(50),
        ("wall_ms.p95", TAGS, 101): 9.0,
        ("wall_ms.p99", TAGS, 101): 9.0,
        ("wall_ms.max", TAGS, 101): 9.0,
    }
    assert ticks.tally.dropped == {}
    assert short(ticks.tick()) == {}


def test_counts_are_counts_and_all_else_is_a_gauge() -> None:
    counted = {metric.name for metric in METRICS if metric.kind is Kind.COUNT}
    names = ("ops", "errors", "timeouts", "keys", "bytes", "foreign_clears", "keys_overflowed")
    assert counted == {f"data_plane.{name}" for name in names}


def test_every_metric_is_declared_and_every_declared_one_emitted(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 100), held(1, 100, {"p": 1}, foreign_clears=0, keys_overflowed=0))
    assert {name for name, _, _ in ticks.tick()} == {metric.name for metric in METRICS}


def test_what_a_writer_does_not_know_is_no_tag(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 100, rank=None, job=None, op="close", partition_id=""))
    assert the(ticks.tick(), "ops") == {(("op:close",), 100): 1}


# Time


def test_a_second_that_may_still_grow_waits_for_the_next_tick(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 16), operations(1, 15, (1, 1, 1.0)), operations(2, 3))
    points = ticks.tick()
    assert the(points, "ops") == {(TAGS, 16): 1}
    assert points["data_plane.ingest.records", (), NOW] == 1
    ticks.write(operations(3, 14.5, (1, 1, 1.0)))
    ticks.now += 60
    assert the(ticks.tick(), "ops") == {(TAGS, 15): 2, (TAGS, 3): 1}


def test_a_bucket_that_may_still_grow_waits_for_the_next_tick(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_rank="false")
    ticks.now = START + 60 + 14
    ticks.write(operations(0, NOW - START + 1), operations(1, NOW - START - 5))
    assert [ago for _, ago in the(ticks.tick(), "ops")] == [NOW - START + 60]
    ticks.now += 1
    ticks.write(operations(2, NOW - START - 59))
    assert list(the(ticks.tick(), "ops").items()) == [
        ((("job:ants", "op:put", "partition_id:p"), NOW - START), 2)
    ]


def test_points_the_intake_would_not_take_are_dropped_and_counted(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 3601), operations(1, 3600), held(2, -601.5, {}), operations(3, 50))
    assert [ago for _, ago in the(ticks.tick(), "ops")] == [3600, 50]
    assert ticks.tally.dropped == {"too_old": 1, "in_future": 1}


def test_a_bucket_that_began_too_long_ago_is_not_sent_in_part(tmp_path: Path) -> None:
    ticks = DataPlaneTicks(tmp_path, tag_rank="false")
    ticks.now = START + 3601
    ticks.write(operations(0, NOW - START - 59), operations(1, NOW - START - 60))
    assert [ago for _, ago in the(ticks.tick(), "ops")] == [NOW - START - 60]
    assert ticks.tally.dropped == {"too_old": 1}


# Damage


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
        (operations(0, 100, wall_ms={"sum": 1.0, "min": 2.0, "max": 1.0, "buckets": {"3": 1}}), "bad_body"),
        (operations(0, 100, wall_ms={"sum": 1.0, "min": -1, "max": 1.0, "buckets": {"3": 1}}), "bad_body"),
        (operations(0, 100, wall_ms={"sum": "1", "min": 1, "max": 1.0, "buckets": {"3": 1}}), "bad_body"),
        (operations(0, 100, wall_ms={"sum": 1, "min": 1, "max": 1.0, "buckets": {"117": 1}}), "bad_body"),
        (operations(0, 100, wall_ms={"sum": 1, "min": 1, "max": 1.0, "buckets": {"x": 1}}), "bad_body"),
        (held(0, 100, {"p": -1}), "bad_body"),
        (held(0, 100, {}, bytes_outstanding=[]), "bad_body"),
        (held(0, 100, {}, keys_outstanding=None), "bad_body"),
        (held(0, 100, {}, peak_bytes_outstanding=2**63), "bad_body"),
        (
            operations(0, 100, wall_ms={"sum": float("nan"), "min": 1, "max": 1, "buckets": {"3": 1}}),
            "bad_body",
        ),
    ],
)
def test_a_line_that_is_no_record_costs_itself_and_is_counted(
    ticks: DataPlaneTicks, value: dict[str, Any], reason: str
) -> None:
    ticks.write(value, operations(7, 90))
    points = ticks.tick()
    assert ticks.tally.dropped == {reason: 1}
    assert the(points, "ops") == {(TAGS, 90): 1}
    assert points["data_plane.ingest.bad_records", (), NOW] == 1
    assert points["data_plane.ingest.records", (), NOW] == 1
    assert ticks.tally.lost == []


def test_a_bucket_of_times_that_holds_none_is_no_damage(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 90, wall_ms={"sum": 1, "min": 1, "max": 1, "buckets": {"3": 0, "4": 1}}))
    assert the(ticks.tick(), "ops") == {(TAGS, 90): 1}
    assert ticks.tally.dropped == {}


def test_records_of_another_kind_are_passed_over_in_silence(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 100, kind="xenna"))
    points = ticks.tick()
    assert short(points) == {}
    assert ticks.tally.dropped == {}


def test_the_reading_reports_on_itself(ticks: DataPlaneTicks) -> None:
    ticks.write(operations(0, 100), held(1, 100, {"p": 1}))
    ticks.write(operations(0, 90, rank=1), to="b.jsonl")
    with (ticks.path / "a.jsonl").open("ab") as file:
        file.write(b"{\n")
    size = sum(path.stat().st_size for path in ticks.path.iterdir())
    assert named(ticks.tick(), "data_plane.ingest") == {
        ("data_plane.ingest.files", (), NOW): 2,
        ("data_plane.ingest.records", (), NOW): 3,
        ("data_plane.ingest.bad_records", (), NOW): 1,
        ("data_plane.ingest.other_kind", (), NOW): 0,
        ("data_plane.ingest.bytes", (), NOW): size,
        ("data_plane.ingest.backlog_bytes", (), NOW): 0,
        ("data_plane.ingest.lag_seconds", (), NOW): 0,
    }
    assert ticks.tally.dropped == {"not_json": 1}
