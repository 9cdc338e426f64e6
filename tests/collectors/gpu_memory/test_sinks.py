"""Sessions by their manifests, and out-of-memory dumps: what is counted, when, and what is read for it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from support.bucket import NAME, Bucket
from support.record_folder import GIB, NOW, Folder, event, named
from support.record_runs import Runs
from support.servers.aws import Aws
from support.servers.faults import Fault

TAGS = ("gpu:0", "job_id:j1", "rank:0")
STATUSES = ("running", "completed", "interrupted", "incomplete")
DAY = 86_400


class SinkFolder(Folder):
    """Sinks and dumps on disk."""

    def manifest(
        self, *sessions: dict[str, Any], sink: str = "sink", modified: float = NOW, **more: object
    ) -> None:
        document = {"sessions": sessions, "segments": [], **more}
        self.put(f"{sink}/manifest.json", json.dumps(document), modified)

    def put(self, name: str, content: str, modified: float = NOW) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (modified, modified))

    def statuses(self, now: int = NOW) -> list[float | None]:
        """Run once; return how many sessions there are of each status."""
        sent = self.run(now).sent
        return [sent.get(("gpu_memory.sessions", (f"status:{name}",), None, now)) for name in STATUSES]


@pytest.fixture
def folder(tmp_path: Path) -> SinkFolder:
    return SinkFolder("gpu_memory", tmp_path)


def session(name: str, status: str, ended_ago: float | None = None) -> dict[str, Any]:
    ended = None if ended_ago is None else int((NOW - ended_ago) * 1e9)
    return {
        "session_id": name,
        "status": status,
        "started_at_ns": (NOW - 2 * DAY) * 10**9,
        "ended_at_ns": ended,
    }


def test_sessions_are_counted_by_status_and_none_is_zero(folder: SinkFolder) -> None:
    folder.write(event(100))
    folder.write(event(100, rank=1), to="other/segment-000001.jsonl")
    folder.manifest(session("a", "running"), session("b", "interrupted", 3600))
    folder.manifest(session("c", "running"), session("d", "interrupted"), {"session_id": 5}, sink="other")
    assert folder.statuses() == [2, 0, 2, 0]
    assert folder.ran[-1].report.dropped == {"bad_manifest_entry": 1}


def test_interrupted_sessions_are_counts_at_the_time_they_ended(folder: SinkFolder) -> None:
    folder.write(event(100))
    ended = {"a": 960, "b": 100, "c": 100.5, "d": 961, "e": 60}
    folder.manifest(
        *(session(name, "interrupted", ago) for name, ago in ended.items()),
        session("f", "interrupted"),
        session("g", "completed", 100),
    )
    interrupted = named(folder.points_at(), "sessions.interrupted")
    assert interrupted == {((), 960): 1, ((), 100): 1, ((), 101): 1}
    assert named(folder.points_at(NOW + 900), "sessions.interrupted") == {((), 60): 1}


def test_dumps_are_counts_at_the_time_they_were_written(folder: SinkFolder) -> None:
    folder.write(event(100))
    for name in ("20261116T005500Z_7", "20261116T004400Z_8", "20261116T004359Z_9", "undated"):
        folder.put(f"sink/oom_dump_{name}/events.json", "[]")
    folder.put("dumps/oom_dump_unnamed/manifest.json", '{"created_at_utc": "2026-11-16T00:55:00Z"}')
    folder.put("renamed/events.json", "[]")
    folder.put("renamed/metadata.json", "{}")
    folder.put("renamed/manifest.json", '{"created_at_utc": "2026-11-16T00:56:00Z"}')
    assert named(folder.points_at(), "oom_dumps") == {((), 300): 2, ((), 960): 1, ((), 240): 1}
    assert folder.ran[-1].report.dropped == {"undated_oom_dump": 1}
    assert folder.ran[-1].report.lost == []


def test_a_backfill_counts_sessions_and_dumps_however_long_ago(folder: SinkFolder) -> None:
    long_ago = 40 * DAY
    folder.write(event(long_ago), modified=NOW - long_ago)
    folder.manifest(session("a", "interrupted", long_ago), modified=NOW - long_ago)
    since = NOW - long_ago - 3600
    points = folder.backfill(since, since + 7200, NOW)
    found = {(name, NOW - at) for name, _, _, at in points}
    assert {("gpu_memory.sessions.interrupted", long_ago), ("gpu_memory.allocated_bytes", long_ago)} <= found
    assert "gpu_memory.sessions" not in {name for name, _ in found}


def test_a_backfill_finds_the_sinks_of_every_day(tmp_path: Path) -> None:
    folder = SinkFolder("gpu_memory", tmp_path, paths=f"{tmp_path}/{{date}}")
    for day in (14, 16):
        folder.put(f"2026-11-{day}/oom_dump_202611{day}T005500Z_7/events.json", "[]")
    points = folder.backfill(NOW - 3 * DAY, NOW, NOW)
    assert [NOW - at for name, _, _, at in points if name == "gpu_memory.oom_dumps"] == [2 * DAY + 300, 300]


def test_a_sink_is_watched_while_its_manifest_or_a_segment_is_touched(folder: SinkFolder) -> None:
    for sink, manifest, segment in (("a", 2, 2), ("b", 2, 0.5), ("c", 0.5, 2)):
        folder.manifest(session(sink, "running"), sink=sink, modified=NOW - manifest * DAY)
        folder.write(to=f"{sink}/segment-000001.jsonl", modified=NOW - segment * DAY)
    assert folder.statuses() == [2, 0, 0, 0]


@pytest.mark.parametrize("content", ["{", "[" * 5000 + "]" * 5000, "[]", "", "\ud800"])
def test_a_bad_manifest_loses_its_sessions_and_no_event(folder: SinkFolder, content: str) -> None:
    folder.write(event(100))
    folder.write(event(100, rank=1), to="other/segment-000001.jsonl")
    folder.manifest(session("a", "running"), sink="other")
    (folder.path / "sink" / "manifest.json").write_bytes(content.encode(errors="surrogatepass"))
    os.utime(folder.path / "sink" / "manifest.json", (NOW, NOW))
    ran = folder.tick()
    points = folder.short(ran.sent)
    assert len(named(points, "allocated_bytes")) == 2
    assert named(points, "sessions") == {}  # how many there are is not known
    [lost] = ran.report.lost
    assert lost.startswith(f"the sessions of {folder.path / 'sink'}: cannot read the manifest")


def test_a_backfill_sends_no_sums_up_to_the_last_write_of_a_lost_manifest(folder: SinkFolder) -> None:
    ago = (9000, 6000, 2000)
    folder.write(*(event(seconds, kind="warning") for seconds in ago), modified=NOW - 2000)
    folder.write(to="lost/segment-000001.jsonl", modified=NOW - 6000)
    folder.put("lost/manifest.json", "{", modified=NOW - 6000)
    points = folder.backfill(NOW - 10_800, NOW, NOW)
    assert [len(ran.report.lost) for ran in folder.ran] == [1, 1, 0]
    assert [NOW - at for name, _, _, at in points if name == "gpu_memory.alerts"] == [2000]
    assert [NOW - at for name, _, _, at in points if name == "gpu_memory.allocated_bytes"] == [*ago]


def test_an_event_without_a_session_belongs_to_that_of_its_segment(folder: SinkFolder) -> None:
    """Two sessions with the same tags: of the same moment, that with the larger name is shown."""
    segments = [{"filename": "segment-000001.jsonl", "session_id": "z"}]
    folder.manifest(segments=segments)
    folder.write(event(100, 1, session_id=None))
    folder.write(event(100, 2, session_id="m"), to="other/segment-000001.jsonl")
    assert named(folder.points_at(), "allocated_bytes") == {(TAGS, 100): 1}
    folder.manifest(segments=[{**segments[0], "session_id": "a"}])
    assert named(folder.points_at(NOW + 900), "allocated_bytes") == {(TAGS, 100): 2}


def test_a_glob_finds_sinks_and_their_manifests(tmp_path: Path) -> None:
    folder = SinkFolder("gpu_memory", tmp_path, paths=f"{tmp_path}/*/segment-*.jsonl")
    folder.write(event(100))
    folder.manifest(session("a", "running"))
    assert folder.statuses() == [1, 0, 0, 0]
    assert named(folder.short(folder.points), "allocated_bytes") == {(TAGS, 100): GIB}


def test_what_else_is_in_a_directory_of_sinks_is_not_lost(folder: SinkFolder) -> None:
    folder.write(event(100))
    folder.manifest(session("a", "running"))
    os.mkfifo(folder.path / "sink" / "control")
    (folder.path / "notes-\udce9.txt").write_text("")
    assert folder.statuses() == [1, 0, 0, 0]
    assert folder.ran[-1].report.lost == []


def test_in_s3_a_manifest_is_read_once_and_a_denied_one_is_lost(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(aws)
    for sink in ("a", "b"):
        segment = json.dumps(event(100, session_id=None)).encode() + b"\n"
        bucket.put(f"sinks/{sink}/segment-000001.jsonl", segment)
        manifest = {"sessions": [session(sink, "running")], "segments": []}
        bucket.put(f"sinks/{sink}/manifest.json", json.dumps(manifest).encode())
    now = int(time.time()) + 10
    aws.requests.clear()
    runs = Runs("gpu_memory", tmp_path, {"paths": bucket.path("sinks")}, core=bucket.core)
    assert runs.run(now).sent["gpu_memory.sessions", ("status:running",), None, now] == 2
    assert [len(bucket.ranges(f"sinks/{sink}/manifest.json")) for sink in ("a", "b")] == [1, 1]
    assert not any("prefix=manifest" in request for request in map(str, aws.requests)), "a role may list less"
    of_segments = {"paths": bucket.path("sinks/a/segment-*.jsonl")}
    one_sink = Runs("gpu_memory", tmp_path, of_segments, core=bucket.core)
    denied = Fault(status=403, body="<Error><Code>AccessDenied</Code></Error>")
    listings = iter([False, True])  # of segments and of manifests
    aws.faults.add(denied, match=lambda path: path.rstrip("/") == f"/{NAME}" and next(listings))
    [lost] = one_sink.run(now).report.lost
    assert lost.startswith(f"the sessions of {bucket.path('sinks/a/manifest.json')}: S3 answers AccessDenied")
    assert one_sink.run(now).report.lost == []
    for fault in (denied, Fault(status=200, body="<html>")):
        aws.faults.clear()
        aws.faults.add(fault, None, match=f"/{NAME}/sinks/a/manifest.json")
        [lost] = runs.run(now).report.lost
        assert lost.startswith(f"the sessions of {bucket.path('sinks/a')}: cannot read the manifest")
