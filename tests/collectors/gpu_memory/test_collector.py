"""The gpu_memory collector: what events become, what is held back, dropped, added up and remembered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

import pytest

from collectors.gpu_memory.collector import COLLECTOR
from collectors.gpu_memory.metrics import METRICS
from common.metric import Mark, Sample
from common.net.retry import Deadline
from support.xenna_ticks import NOW, Points
from support.xenna_ticks import Ticks as RecordTicks

DATA = Path(__file__).parents[2] / "data" / "stormlog"
GIB = 2**30
TAGS = ("gpu:0", "job_id:j1", "rank:0")


class Ticks(RecordTicks):
    """Ticks over sinks; points by name without its first word, each sent at most once in a tick."""

    collector = COLLECTOR

    def __init__(self, path: Path, **settings: str) -> None:
        super().__init__(path, **settings)
        self.held: Points = {}
        self.hosts: set[str | None] = set()
        self.deadline = Deadline(60, clock=lambda: 0.0)

    def tick(self) -> Points:
        points = {
            (name.removeprefix("gpu_memory."), tags, at): value
            for (name, tags, at), value in super().tick().items()
        }
        samples = [item for item in self.items if isinstance(item, Sample)]
        assert len(samples) == len(points)
        self.hosts |= {sample.host for sample in samples if sample.timestamp < self.now}
        self.held |= points
        return points

    def measure(self, *events: dict[str, Any], to: str = "sink/segment-000001.jsonl") -> Path:
        self.write(*events, to=to)
        os.utime(self.path / to, (NOW - 10, NOW - 10))
        return self.path / to

    def manifest(self, *sessions: dict[str, Any], sink: str = "sink", **more: object) -> None:
        (self.path / sink).mkdir(exist_ok=True)
        document = {"sessions": sessions, "segments": [], **more}
        (self.path / sink / "manifest.json").write_text(json.dumps(document))


def event(ago: float, allocated: int | None = GIB, kind: str = "sample", **more: Any) -> dict[str, Any]:
    return {
        "schema_version": 4,
        "event_type": kind,
        "timestamp_ns": round((NOW - ago) * 1_000_000_000),
        "session_id": "s1",
        "job_id": "j1",
        "rank": 0,
        "host": "node-1",
        "device_id": 0,
        "allocator_allocated_bytes": allocated,
        "allocator_reserved_bytes": 2 * GIB,
        "device_used_bytes": 4 * GIB,
        "device_total_bytes": 16 * GIB,
        **more,
    }


def events_of(points: Points) -> Points:
    """The points at the events' own times."""
    return {key: value for key, value in points.items() if key[2] < NOW}


def of(points: Points, name: str) -> dict[tuple[tuple[str, ...], int], float]:
    return {(tags, NOW - at): value for (found, tags, at), value in points.items() if found == name}


@pytest.fixture
def ticks(tmp_path: Path) -> Ticks:
    return Ticks(tmp_path)


def test_an_event_becomes_gauges_at_its_own_time_and_under_its_own_host(ticks: Ticks) -> None:
    ticks.measure(event(99.25))
    at = NOW - 100
    assert events_of(ticks.tick()) == {
        ("allocated_bytes", TAGS, at): GIB,
        ("reserved_bytes", TAGS, at): 2 * GIB,
        ("device_used_bytes", TAGS, at): 4 * GIB,
        ("device_total_bytes", TAGS, at): 16 * GIB,
        ("utilization_pct", TAGS, at): 25.0,
        ("peak_allocated_bytes", TAGS, at): GIB,
    }
    assert ticks.hosts == {"node-1"}
    assert events_of(ticks.tick()) == {}
    assert ticks.tally.dropped == {}


def test_the_peak_is_remembered_from_tick_to_tick_and_from_events_too_old_to_be_sent(ticks: Ticks) -> None:
    ticks.measure(event(3601, 9), event(100, 5))
    assert of(ticks.tick(), "peak_allocated_bytes") == {(TAGS, 100): 9}
    assert ticks.tally.dropped == {"too_old": 1}
    ticks.measure(event(50, 6), event(40, 12))
    assert of(ticks.tick(), "peak_allocated_bytes") == {(TAGS, 50): 9, (TAGS, 40): 12}


def test_a_device_that_does_not_tell_has_at_least_what_the_allocator_holds_and_no_capacity(
    ticks: Ticks,
) -> None:
    ticks.measure(event(100, device_used_bytes=None, device_total_bytes=None, device_id=-1))
    tags = ("job_id:j1", "rank:0")
    assert {name: value for (name, found, _), value in events_of(ticks.tick()).items() if found == tags} == {
        "allocated_bytes": GIB,
        "reserved_bytes": 2 * GIB,
        "device_used_bytes": 2 * GIB,
        "peak_allocated_bytes": GIB,
    }


def test_a_capacity_of_zero_is_one_that_is_not_known(ticks: Ticks) -> None:
    ticks.measure(event(100, device_total_bytes=0))
    points = ticks.tick()
    assert of(points, "device_total_bytes") == of(points, "utilization_pct") == {}


def test_what_a_later_event_of_a_second_does_not_tell_stays_as_an_earlier_one_told_it(ticks: Ticks) -> None:
    ticks.measure(event(99.75, 5), event(99.25, 3, device_total_bytes=None))
    points = ticks.tick()
    assert of(points, "allocated_bytes") == {(TAGS, 100): 3}
    assert of(points, "peak_allocated_bytes") == {(TAGS, 100): 5}
    assert of(points, "device_total_bytes") == {(TAGS, 100): 16 * GIB}
    assert of(points, "utilization_pct") == {(TAGS, 100): 25.0}


def test_ranks_and_devices_are_told_apart(ticks: Ticks) -> None:
    ticks.measure(event(100, 1), to="a/segment-000001.jsonl")
    ticks.measure(event(100, 2, rank=1, session_id="s2"), to="b/segment-000001.jsonl")
    ticks.measure(event(100, 3, device_id=1), to="c/segment-000001.jsonl")
    assert of(ticks.tick(), "allocated_bytes") == {
        (TAGS, 100): 1,
        (("gpu:0", "job_id:j1", "rank:1"), 100): 2,
        (("gpu:1", "job_id:j1", "rank:0"), 100): 3,
    }


def test_of_two_sessions_with_the_same_tags_the_one_that_began_later_is_shown_whichever_is_read_first(
    ticks: Ticks,
) -> None:
    ticks.measure(*(event(ago, 1) for ago in (100, 90, 80)), to="old/segment-000001.jsonl")
    ticks.tick()
    ticks.measure(*(event(ago, 2, session_id="s0") for ago in (90, 85)), to="new/segment-000001.jsonl")
    ticks.tick()
    ticks.measure(event(88, 3), event(70, 4), to="old/segment-000002.jsonl")
    ticks.tick()
    assert ticks.tally.dropped == {"superseded": 6}
    shown = {100: 1, 90: 2, 85: 2, 80: 1, 70: 4}
    assert of(ticks.held, "allocated_bytes") == {(TAGS, ago): value for ago, value in shown.items()}


def test_alerts_are_counted_per_second_and_by_type(ticks: Ticks) -> None:
    kinds = ("warning", "warning", "peak", "critical", "error", "sample", "allocation", "collector_degraded")
    ticks.measure(*(event(99.5, kind=kind) for kind in kinds), event(98.5, kind="warning"))
    assert of(ticks.tick(), "alerts") == {
        ((*TAGS, "type:warning"), 100): 2,
        ((*TAGS, "type:peak"), 100): 1,
        ((*TAGS, "type:critical"), 100): 1,
        ((*TAGS, "type:error"), 100): 1,
        ((*TAGS, "type:warning"), 99): 1,
    }


def test_alerts_of_a_second_that_two_segments_share_add_up_even_when_one_is_read_late(ticks: Ticks) -> None:
    ticks.measure(event(100, kind="warning"), event(99.9, kind="warning"), to="sink/segment-000001.jsonl")
    ticks.measure(event(99.8, kind="warning"), to="sink/segment-000002.jsonl")
    warning = (*TAGS, "type:warning")
    assert of(ticks.tick(), "alerts") == {(warning, 100): 3}
    ticks.measure(event(99.7, kind="warning", session_id="s2"), to="late/segment-000001.jsonl")
    assert of(ticks.tick(), "alerts") == {(warning, 100): 4}
    assert [key for key in ticks.parts if key.startswith("cell:")] == [f"cell:{NOW - 100}"]
    ticks.now += 3600
    ticks.tick()
    assert [key for key in ticks.parts if key.startswith("cell:")] == []


def test_however_many_seconds_there_are_marks_let_them_be_delivered_bit_by_bit(
    ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.records.engine.BATCH_SIZE", 10)
    ticks.measure(*(event(100 - ago, kind="warning") for ago in range(50)))
    items = list(COLLECTOR.collect(ticks.context()))
    marks = [place for place, item in enumerate(items) if isinstance(item, Mark)]
    assert len(marks) == 50 * 7 // 10 + 1
    assert {after - before for before, after in pairwise(marks[:-1])} == {11}
    assert [mark for mark in marks[:-1] if items[mark] != Mark({})] == []


def test_a_second_that_may_grow_waits_and_is_then_sent_whole(ticks: Ticks) -> None:
    ticks.measure(event(6, 1), event(4.5, 2, kind="warning"))
    assert of(ticks.tick(), "allocated_bytes") == {(TAGS, 6): 1}
    ticks.measure(event(4.25, 3, kind="warning"))
    ticks.now += 10
    points = ticks.tick()
    assert of(points, "allocated_bytes") == {(TAGS, 5): 3}
    assert of(points, "alerts") == {((*TAGS, "type:warning"), 5): 2}


def test_the_second_at_the_edge_of_settling_waits_as_a_whole(ticks: Ticks) -> None:
    ticks.measure(event(5, 1), event(4.75, 2))
    assert of(ticks.tick(), "allocated_bytes") == {}
    ticks.now += 1
    assert of(ticks.tick(), "allocated_bytes") == {(TAGS, 5): 2}


def test_a_tick_that_has_had_its_share_of_bytes_reads_the_second_under_way_to_its_end(
    tmp_path: Path,
) -> None:
    ticks = Ticks(tmp_path, bytes_per_tick="1000000")
    padded: dict[str, Any] = {"kind": "warning", "context": "x" * 1000}
    many = [event(100 - number // 300 - number % 300 / 1000, **padded) for number in range(2100)]
    ticks.measure(*many[:1500], {}, *many[1500:])
    ticks.measure(event(92, kind="warning"), to="sink/segment-000002.jsonl")
    warning = (*TAGS, "type:warning")
    counts = [of(ticks.tick(), "alerts") for _ in range(4)]
    assert [list(found.values()) for found in counts] == [[300] * 3, [300] * 3, [300, 1], []]
    assert counts[2] == {(warning, 94): 300, (warning, 92): 1}


def test_a_second_larger_than_a_tick_s_share_is_sent_in_parts_that_add_up(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path, bytes_per_tick="1000000")
    ticks.measure(*(event(99.5, kind="warning", context="x" * 1000) for _ in range(2400)))
    first, second = (of(ticks.tick(), "alerts")[(*TAGS, "type:warning"), 100] for _ in range(2))
    assert 1200 < first < 1600
    assert second == 2400


def test_reading_ends_in_time_to_deliver_and_begins_however_late_the_files_were_found(ticks: Ticks) -> None:
    for rank in range(3):
        ticks.measure(event(100, rank=rank), to=f"{rank}/segment-000001.jsonl")
    times = chain([0.0, 40.0, 49.9], repeat(50.0))  # half of the twenty seconds is kept
    ticks.deadline = Deadline(60, clock=lambda: next(times))
    points = ticks.tick()
    assert {tags for name, tags, _ in points if name == "allocated_bytes"} == {TAGS, (*TAGS[:2], "rank:1")}
    assert points["ingest.backlog_bytes", (), NOW] > 0
    ticks.deadline = Deadline(60, clock=lambda: 0.0)
    assert len(of(ticks.tick(), "allocated_bytes")) == 1


def test_a_torn_line_is_read_once_it_is_whole(ticks: Ticks) -> None:
    path = ticks.measure(event(100, 1))
    line = json.dumps(event(90, 2)) + "\n"
    for cut in (1, len(line) // 2, len(line) - 1):
        with path.open("a") as file:
            file.write(line[:cut])
        assert (NOW - 90) not in {at for _, _, at in ticks.tick()}
        assert ticks.tally.dropped == {}
        os.truncate(path, path.stat().st_size - cut)
    with path.open("a") as file:
        file.write(line)
    assert of(ticks.tick(), "allocated_bytes") == {(TAGS, 90): 2}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not_json"),
        ("[]", "not_an_object"),
        ("{}", "not_an_event"),
        ('{"schema_version": 9, "event_type": "sample"}', "unknown_version"),
        ('{"schema_version": 4, "event_type": "sample", "timestamp_ns": null}', "bad_timestamp"),
    ],
)
def test_a_bad_line_costs_itself_and_is_counted(ticks: Ticks, line: str, reason: str) -> None:
    with ticks.measure(event(100)).open("a") as file:
        file.write(line + "\n")
    ticks.measure(event(90))
    points = ticks.tick()
    assert ticks.tally.dropped == {reason: 1}
    assert ticks.tally.lost == []
    assert points["ingest.bad_records", (), NOW] == 1
    assert points["ingest.records", (), NOW] == 2
    assert set(of(points, "allocated_bytes")) == {(TAGS, 100), (TAGS, 90)}


def test_an_event_of_the_future_is_dropped_and_no_session_of_it_is_known(ticks: Ticks) -> None:
    ticks.measure(event(-601), event(100))
    assert set(of(ticks.tick(), "allocated_bytes")) == {(TAGS, 100)}
    assert ticks.tally.dropped == {"in_future": 1}
    [known] = [saved for key, saved in ticks.parts.items() if key.startswith("run:")]
    assert isinstance(known, dict)
    assert (known["started"], known["last"], known["more"]) == (NOW - 100, NOW - 100, {"peak": GIB})


def test_an_event_without_a_session_belongs_to_the_one_the_manifest_gives_its_segment(ticks: Ticks) -> None:
    ticks.manifest(segments=[{"filename": "segment-000001.jsonl", "session_id": "mine"}])
    ticks.measure(event(100, session_id=None))
    ticks.measure(event(90, session_id=None, rank=1), to="sink/segment-000002.jsonl")
    ticks.tick()
    sessions = {json.loads(key.partition(":")[2])[0] for key in ticks.parts if key.startswith("run:")}
    assert sessions == {"mine", str(ticks.path / "sink")}


class TestWithoutJobId:
    """Jobs of one host and rank become one series."""

    TAGS = ("rank:0",)

    @pytest.fixture
    def ticks(self, tmp_path: Path) -> Ticks:
        return Ticks(tmp_path, tag_job_id="false")

    def first(self, ticks: Ticks) -> None:
        ticks.measure(event(100, 3, "warning"), event(90, 1, "warning"), to="a/segment-000001.jsonl")

    def second(self, ticks: Ticks, **more: Any) -> None:
        other = {"job_id": "j2", "session_id": "s2", "device_used_bytes": 6 * GIB, **more}
        ticks.measure(event(100, 10, "warning", **other), to="b/segment-000001.jsonl")

    def bucket(self, points: Points) -> dict[str, float]:
        start = (NOW - 100) // 60 * 60
        return {
            name: value for (name, tags, at), value in points.items() if at == start and tags == self.TAGS
        }

    @pytest.mark.parametrize("late", [False, True])
    def test_two_jobs_are_added_and_a_device_they_share_counts_once(self, ticks: Ticks, late: bool) -> None:
        self.first(ticks)
        if late:
            ticks.tick()
        self.second(ticks)
        points = ticks.tick()
        assert self.bucket(points) == {
            "allocated_bytes": 11,
            "reserved_bytes": 4 * GIB,
            "device_used_bytes": 6 * GIB,
            "device_total_bytes": 16 * GIB,
            "utilization_pct": 37.5,
            "peak_allocated_bytes": 13,
        }
        assert of(ticks.held, "alerts") == {
            (("rank:0", "type:warning"), 100): 2,
            (("rank:0", "type:warning"), 90): 1,
        }

    def test_two_devices_are_added(self, ticks: Ticks) -> None:
        self.first(ticks)
        self.second(ticks, device_id=1)
        found = self.bucket(ticks.tick())
        assert found["device_used_bytes"] == 10 * GIB
        assert found["device_total_bytes"] == 32 * GIB
        assert found["utilization_pct"] == 31.25

    def test_utilisation_is_of_the_devices_whose_capacity_is_known(self, ticks: Ticks) -> None:
        self.first(ticks)
        self.second(ticks, device_id=-1, device_total_bytes=None)
        found = self.bucket(ticks.tick())
        assert found["device_used_bytes"] == 10 * GIB
        assert found["device_total_bytes"] == 16 * GIB
        assert found["utilization_pct"] == 25.0

    def test_a_late_file_adds_to_a_bucket_that_another_session_has_left(self, ticks: Ticks) -> None:
        self.first(ticks)
        ticks.tick()
        ticks.measure(event(20, 50), to="a/segment-000002.jsonl")
        ticks.tick()
        self.second(ticks)
        assert self.bucket(ticks.tick())["allocated_bytes"] == 11

    def test_what_a_session_measured_in_a_bucket_it_has_left_is_late(self, ticks: Ticks) -> None:
        ticks.measure(event(20, 50))
        ticks.tick()
        ticks.measure(event(200, 5), to="sink/segment-000002.jsonl")
        assert of(ticks.tick(), "allocated_bytes") == {}
        assert ticks.tally.dropped == {"late": 6}

    def test_buckets_that_can_no_longer_be_sent_leave_the_state(self, ticks: Ticks) -> None:
        ticks.measure(event(200), event(20))
        ticks.tick()
        kept = {key.partition(":")[0] for key in ticks.parts}
        assert kept == {"file", "run", "bucket", "open"}
        ticks.now += 3700
        ticks.tick()
        assert {key.partition(":")[0] for key in ticks.parts} == {"file", "run"}


def session(name: str, status: str, ended_ago: float | None = None) -> dict[str, Any]:
    ended = None if ended_ago is None else int((NOW - ended_ago) * 1e9)
    started = (NOW - 2 * 86400) * 10**9
    return {"session_id": name, "status": status, "started_at_ns": started, "ended_at_ns": ended}


def test_sessions_are_counted_by_status_and_none_is_zero(ticks: Ticks) -> None:
    ticks.measure(event(100))
    ticks.measure(event(100, rank=1), to="other/segment-000001.jsonl")
    ticks.manifest(
        session("a", "running"), session("b", "interrupted", 3600), session("c", "interrupted", 86400)
    )
    ticks.manifest(session("d", "running"), session("e", "interrupted"), {"session_id": 5}, sink="other")
    points = ticks.tick()
    assert {tags: value for (tags, _), value in of(points, "sessions").items()} == {
        ("status:running",): 2,
        ("status:completed",): 0,
        ("status:interrupted",): 3,
        ("status:incomplete",): 0,
    }
    assert points["sessions.interrupted_24h", (), NOW] == 1
    assert ticks.tally.dropped == {"bad_manifest_entry": 1}


def test_a_bad_manifest_loses_its_sessions_and_no_event(ticks: Ticks) -> None:
    ticks.measure(event(100))
    ticks.measure(event(100, rank=1), to="other/segment-000001.jsonl")
    ticks.manifest(session("a", "running"), sink="other")
    (ticks.path / "sink" / "manifest.json").write_text("{")
    points = ticks.tick()
    assert len(of(points, "allocated_bytes")) == 2
    assert points["sessions", ("status:running",), NOW] == 1
    [lost] = ticks.tally.lost
    assert lost.startswith(f"the sessions of {ticks.path / 'sink'}: cannot read the manifest")


def test_dumps_of_the_last_day_are_counted_by_when_they_were_written(ticks: Ticks) -> None:
    ticks.measure(event(100))
    for name in ("20261115T010000Z_7", "20261116T004000Z_7", "20261114T004000Z_7", "undated"):
        (ticks.path / "sink" / f"oom_dump_{name}").mkdir()
    dated = ticks.path / "dumps" / "oom_dump_unnamed"
    dated.mkdir(parents=True)
    (dated / "manifest.json").write_text('{"created_at_utc": "2026-11-16T00:00:00Z"}')
    points = ticks.tick()
    assert points["oom_dumps_24h", (), NOW] == 3
    assert ticks.tally.dropped == {"undated_oom_dump": 1}
    assert ticks.tally.lost == []


def test_a_glob_finds_sinks_their_manifests_and_dumps(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path, paths=f"{tmp_path}/*/segment-*.jsonl")
    ticks.measure(event(100))
    ticks.manifest(session("a", "running"))
    (tmp_path / "sink" / "oom_dump_20261116T004000Z_7").mkdir()
    points = ticks.tick()
    assert of(points, "allocated_bytes") == {(TAGS, 100): GIB}
    assert points["sessions", ("status:running",), NOW] == 1
    assert points["oom_dumps_24h", (), NOW] == 1


def test_other_files_of_a_directory_are_not_segments(ticks: Ticks) -> None:
    ticks.measure({"kind": "xenna"}, to="sink/xenna.jsonl")
    assert ticks.tick()["ingest.files", (), NOW] == 0
    assert ticks.tally.dropped == {}


def test_an_empty_directory_has_no_session_and_no_dump(ticks: Ticks) -> None:
    points = ticks.tick()
    assert points["sessions", ("status:running",), NOW] == 0
    assert points["sessions.interrupted_24h", (), NOW] == 0
    assert points["oom_dumps_24h", (), NOW] == 0
    assert events_of(points) == {}


@pytest.mark.parametrize("tag_job_id", ["true", "false"])
def test_what_is_saved_and_is_not_ours_does_no_harm(tmp_path: Path, tag_job_id: str) -> None:
    ticks = Ticks(tmp_path, tag_job_id=tag_job_id)
    names = ('["a"]', "{", "5", '["a", "b", "c", "d", "e"]', '["a", 5]', "1794789000")
    saved: Iterable[object] = (5, None, [], {}, {"x": 1}, [1, 2, "x"], {"start": 5, "values": 6})
    for value in saved:
        prefixes = ("run", "count", "bucket", "open")
        ticks.state = {f"{prefix}:{name}": value for prefix in prefixes for name in names}
        ticks.measure(event(100, kind="warning"), to=f"{len(list(tmp_path.iterdir()))}/segment-000001.jsonl")
        assert sum(name == "allocated_bytes" for name, _, _ in ticks.tick()) == 1


def test_sessions_not_heard_of_for_long_are_forgotten(ticks: Ticks) -> None:
    path = ticks.measure(event(100))
    ticks.tick()
    path.unlink()
    ticks.now += 7 * 86400 + 1
    ticks.tick()
    assert ticks.state == {}


def shifted(source: Path, target: Path, seconds: int) -> None:
    """A copy of a real sink that was recorded that much later."""
    target.mkdir()
    manifest = json.loads((source / "manifest.json").read_text())
    for one in manifest["sessions"]:
        for key in ("started_at_ns", "ended_at_ns"):
            one[key] = one[key] and one[key] + seconds * 10**9
    (target / "manifest.json").write_text(json.dumps(manifest))
    for path in source.glob("segment-*"):
        with (target / path.name).open("w") as file:
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    value = json.loads(line)
                    value["timestamp_ns"] += seconds * 10**9
                    line = json.dumps(value) + "\n"
                file.write(line)


@pytest.fixture
def real(tmp_path: Path) -> Ticks:
    """The three real sinks, as if they had been recorded within the last hour."""
    for sink in ("cpu-sink", "gpu-sink", "torn-running-sink"):
        shifted(DATA / sink, tmp_path / sink, NOW - 1000 - 1_794_786_294)
    return Ticks(tmp_path)


def test_real_sinks_become_what_a_straight_read_of_them_says(real: Ticks) -> None:
    truth: dict[tuple[str, int], float] = {}
    warnings: dict[int, int] = {}
    peak = 0
    for path in sorted((real.path / "gpu-sink").glob("segment-*")):
        for value in map(json.loads, path.read_text().splitlines()):
            at = value["timestamp_ns"] // 10**9
            peak = max(peak, value["allocator_allocated_bytes"] or 0)
            truth["allocated_bytes", at] = value["allocator_allocated_bytes"]
            truth["peak_allocated_bytes", at] = peak
            warnings[at] = warnings.get(at, 0) + (value["event_type"] == "warning")
    points = real.tick()
    tags = ("gpu:0", "job_id:sim-train-7", "rank:1")
    found = {(name, at): value for (name, one, at), value in points.items() if one == tags}
    assert {key: found[key] for key in truth} == truth
    assert {at: points["alerts", (*tags, "type:warning"), at] for at in warnings} == warnings
    assert sum(warnings.values()) == 38
    assert real.hosts == {"n1"}
    assert real.tally.dropped == {"superseded": 12}
    assert real.tally.lost == []
    statuses = {tag: value for ((tag,), _), value in of(points, "sessions").items()}
    assert statuses == {
        "status:running": 1,
        "status:completed": 4,
        "status:interrupted": 1,
        "status:incomplete": 0,
    }
    assert points["sessions.interrupted_24h", (), NOW] == 1
    assert points["ingest.records", (), NOW] == 186 + 327 + 167
    assert points["ingest.bad_records", (), NOW] == 0


def test_every_declared_metric_is_emitted_and_no_other(real: Ticks) -> None:
    emitted = {f"gpu_memory.{name}" for name, _, _ in real.tick()}
    assert emitted == {metric.name for metric in METRICS}
