"""The gpu_memory collector: what events become, and what jobs of one host and rank add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.record_folder import GIB, NOW, Folder, Short, event, named

TAGS = ("gpu:0", "job_id:j1", "rank:0")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder("gpu_memory", tmp_path)


def test_a_device_that_does_not_say_has_what_the_allocator_holds(folder: Folder) -> None:
    folder.write(event(100, device_used_bytes=None, device_total_bytes=None, device_id=-1))
    tags = ("job_id:j1", "rank:0")
    assert folder.points_at() == {
        ("allocated_bytes", tags, 100): GIB,
        ("reserved_bytes", tags, 100): 2 * GIB,
        ("device_used_bytes", tags, 100): 2 * GIB,
    }


def test_a_capacity_of_zero_is_not_known(folder: Folder) -> None:
    folder.write(event(100, device_total_bytes=0))
    points = folder.points_at()
    assert named(points, "device_total_bytes") == named(points, "utilization_pct") == {}


def test_a_later_event_of_a_second_replaces_only_what_it_measured(folder: Folder) -> None:
    folder.write(event(99.75, 5), event(99.25, 3, device_total_bytes=None))
    points = folder.points_at()
    assert named(points, "allocated_bytes") == {(TAGS, 100): 3}
    assert named(points, "device_total_bytes") == {(TAGS, 100): 16 * GIB}
    assert named(points, "utilization_pct") == {(TAGS, 100): 25.0}


@pytest.mark.parametrize(
    "key",
    ["allocator_allocated_bytes", "allocator_reserved_bytes", "device_used_bytes", "device_total_bytes"],
)
@pytest.mark.parametrize("value", [10**400, -(10**400), 2**64, "many", [], True, 0.5])
def test_a_damaged_field_moves_no_other_value(folder: Folder, key: str, value: object) -> None:
    folder.write(event(120, 1), event(110) | {key: value}, event(100, 2))
    points = folder.points_at()
    allocated = named(points, "allocated_bytes")
    assert (allocated[TAGS, 120], allocated[TAGS, 100]) == (1, 2)
    for name, expected in (("reserved_bytes", 2 * GIB), ("device_used_bytes", 4 * GIB)):
        found = named(points, name)
        assert (found[TAGS, 120], found[TAGS, 100]) == (expected, expected)


def test_alerts_are_counted_by_second_and_type_over_all_segments(folder: Folder) -> None:
    kinds = ("warning", "warning", "peak", "critical", "error", "sample", "allocation", "collector_degraded")
    folder.write(*(event(99.5, kind=kind) for kind in kinds), event(98.5, kind="warning"))
    folder.write(event(99.4, kind="warning"))
    folder.write(event(99.3, kind="warning", session_id="s2"), to="sink/segment-000002.jsonl")
    assert named(folder.points_at(), "alerts") == {
        ((*TAGS, "type:warning"), 100): 3,
        ((*TAGS, "type:peak"), 100): 1,
        ((*TAGS, "type:critical"), 100): 1,
        ((*TAGS, "type:error"), 100): 1,
        ((*TAGS, "type:warning"), 99): 1,
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not_json"),
        (b"[]", "not_an_object"),
        (b"{}", "not_an_event"),
        (b'{"schema_version": 9, "event_type": "sample"}', "unknown_version"),
        (b'{"schema_version": 4, "event_type": "sample", "timestamp_ns": null}', "bad_timestamp"),
    ],
)
def test_a_bad_line_costs_itself_and_is_counted(folder: Folder, line: bytes, reason: str) -> None:
    folder.write(event(100), line, event(90))
    ran = folder.tick()
    points = folder.short(ran.sent)
    assert ran.report.dropped == {reason: 1}
    assert ran.report.lost == []
    assert (points["ingest.bad_records", (), 0], points["ingest.records", (), 0]) == (1, 2)
    assert set(named(points, "allocated_bytes")) == {(TAGS, 100), (TAGS, 90)}


class TestWithoutJobId:
    """Jobs of one host and rank become one series."""

    TAGS = ("rank:0",)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        folder = Folder("gpu_memory", tmp_path, tag_job_id="false")
        folder.write(event(100, 3, "warning"), event(90, 1, "warning"), to="a/segment-000001.jsonl")
        return folder

    def write_second(self, folder: Folder, **more: Any) -> None:
        other = {"job_id": "j2", "session_id": "s2", "device_used_bytes": 6 * GIB, **more}
        folder.write(event(100, 10, "warning", **other), to="b/segment-000001.jsonl")

    def bucket(self, points: Short) -> dict[str, float]:
        return {name: value for (name, tags, ago), value in points.items() if (tags, ago) == (self.TAGS, 120)}

    def test_two_devices_are_added(self, folder: Folder) -> None:
        self.write_second(folder, device_id=1)
        found = self.bucket(folder.points_at())
        assert found["device_used_bytes"] == 10 * GIB
        assert found["device_total_bytes"] == 32 * GIB
        assert found["utilization_pct"] == 31.25

    def test_utilisation_is_of_the_devices_whose_capacity_is_known(self, folder: Folder) -> None:
        self.write_second(folder, device_id=-1, device_total_bytes=None)
        found = self.bucket(folder.points_at())
        assert found["device_used_bytes"] == 10 * GIB
        assert found["device_total_bytes"] == 16 * GIB
        assert found["utilization_pct"] == 25.0


def test_every_declared_metric_is_emitted_and_no_other(folder: Folder) -> None:
    folder.write(event(100, kind="warning"))
    ended = {"session_id": "s", "status": "interrupted", "ended_at_ns": (NOW - 100) * 10**9}
    folder.write({"sessions": [ended], "segments": []}, to="sink/manifest.json")
    folder.write({}, to="oom_dump_20261116T005500Z_7/events.json")
    ran = folder.tick()
    assert {name for name, *_ in ran.sent} == {metric.name for metric in folder.collector.metrics}
    assert (ran.report.dropped, ran.report.lost) == ({}, [])
