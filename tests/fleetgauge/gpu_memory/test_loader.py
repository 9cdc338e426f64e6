"""A recording is read as it is on disk; what is broken costs itself and is counted."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetgauge.gpu_memory import (
    ManifestError,
    SessionSummary,
    load_recording,
    recording,
)
from fleetgauge.gpu_memory.oom import find_oom_dumps, read_oom_dump
from fleetgauge.gpu_memory.recording import open_recording
from fleetgauge.gpu_memory.sessions import read_manifest


def line(at: int, session: str = "s", **fields: object) -> str:
    record = {"schema_version": 4, "session_id": session, "timestamp_ns": at * 10**9, "event_type": "sample"}
    return json.dumps(record | {"allocator_allocated_bytes": at, "rank": 0} | fields) + "\n"


def sink(directory: Path, *segments: str, first: int = 1) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(segments, start=first):
        (directory / f"segment-{number:06d}.jsonl").write_text(text)
    return directory


def times(path: Path) -> list[float | None]:
    return [event.timestamp for session in load_recording(path).sessions for event in session.events()]


def test_statistics_of_a_gpu_session_are_the_trackers_own(samples: Path) -> None:
    loaded = load_recording(samples / "gpu-sink")
    [session] = loaded.sessions
    assert session.summary == SessionSummary(
        session_id="870f6941-2df7-485e-95cb-5d868a0cb617",
        status="completed",
        started_at_ns=1794786294546667085,
        ended_at_ns=1794786297619237044,
        host="n1",
        pid=554,
        job_id="sim-train-7",
        rank=1,
        local_rank=1,
        world_size=2,
        source="stormlog.tracker",
    )
    assert (loaded.losses, loaded.notes, loaded.oom_dumps) == (Counter(), (), ())
    told = json.loads((samples / "gpu-stats.json").read_text())
    measured_elsewhere = {"tracking_duration_seconds", "allocations_per_second", "bytes_allocated_per_second"}
    agreed = {name: value for name, value in session.stats.items() if name not in measured_elsewhere}
    assert agreed == {name: told[name] for name in agreed}
    assert len(agreed) == 20
    assert session.stats["tracking_duration_seconds"] == pytest.approx(3.068, abs=0.001)
    assert session.stats["allocations_per_second"] == pytest.approx(63 / 3.068166, abs=0.001)
    assert session.stats["bytes_allocated_per_second"] == pytest.approx(7215048398 / 3.068166, rel=1e-4)


def test_torn_sink_loses_no_complete_event(samples: Path, tmp_path: Path) -> None:
    *earlier, before, last = (samples / "cpu-sink" / "segment-000001.jsonl").read_bytes().splitlines(True)
    sink(tmp_path, b"".join(earlier[:170]).decode(), "")
    shutil.copy(samples / "cpu-sink" / "manifest.json", tmp_path)
    end = tmp_path / "segment-000002.jsonl"
    whole = b"".join([*earlier[180:], before, last])
    end.write_bytes(whole)
    expected = times(tmp_path)
    assert len(expected) == 176
    start, middle = len(whole) - len(before) - len(last), len(whole) - len(last)
    part = open_recording(tmp_path).parts[1]
    ends = (start, middle - 1, middle, len(whole) - 1, len(whole))
    for cut in sorted({at + near for at in ends for near in (-1, 0, 1)} & set(range(start, len(whole) + 1))):
        end.write_bytes(whole[:cut])
        losses: Counter[str] = Counter()
        found = [event.timestamp for batch in recording.read_part(part, losses) for event in batch]
        # A line that lacks only its end is whole.
        complete = (cut >= middle - 1) + (cut >= len(whole) - 1)
        assert found == expected[170 : 174 + complete]
        assert losses == ({} if cut in ends else {"torn_line": 1})
    end.write_bytes(whole[:-9])
    assert times(tmp_path) == expected[:-1]


def test_a_bad_line_costs_itself_and_is_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_EVENT_BYTES", 1000)
    bad = [
        "nonsense\n",
        "[1]\n",
        "{}\n",
        '{"schema_version": 9, "timestamp": 1}\n',
        "\0" * 20 + "\n",
        "[" * 900 + "\n",
    ]
    text = line(1) + "".join(bad) + "x" * 300_000 + "\n" + "\n" + line(2) + "y" * 300_000  # several blocks
    loaded = load_recording(sink(tmp_path, text))
    (tmp_path / "segment-000002.jsonl").write_bytes(
        b'{"timestamp": 3, "context": "\xff"}\n' + line(4).encode()
    )
    assert loaded.losses == {
        "not_json": 3,
        "not_an_object": 1,
        "not_an_event": 1,
        "unknown_version": 1,
        "line_too_long": 2,
    }
    assert times(tmp_path) == [1.0, 2.0, 4.0]


def test_a_line_without_end_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_EVENT_BYTES", 1000)
    path = sink(tmp_path, line(1) + "x" * 5_000_000)
    tracemalloc.start()
    try:
        assert load_recording(path).losses == {"line_too_long": 1}
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_segments_are_read_by_number_and_pruned_ones_are_missed(tmp_path: Path) -> None:
    sink(tmp_path, line(1), first=999_999)
    sink(tmp_path, line(2), first=1_000_000)
    sink(tmp_path, line(0), first=999_997)
    (tmp_path / "segment-other.jsonl").write_text(line(7))
    (tmp_path / "segment-000009.jsonl").mkdir()
    assert [part.path.name for part in open_recording(tmp_path).parts] == [
        "segment-999997.jsonl",
        "segment-999999.jsonl",
        "segment-1000000.jsonl",
    ]
    loaded = load_recording(tmp_path)
    assert times(tmp_path) == [0.0, 1.0, 2.0]
    assert loaded.sessions[0].stats["pruned_segment_count"] == 999_997
    assert loaded.sessions[0].stats["final_retained_files"] == 3
    assert loaded.notes == (f"999997 older segments of {tmp_path.name} were pruned: the start is missing",)


def test_a_file_that_is_gone_is_one_loss(tmp_path: Path) -> None:
    sink(tmp_path, line(1), line(2))
    opened = open_recording(tmp_path)
    opened.parts[0].path.unlink()
    losses: Counter[str] = Counter()
    batches = [batch for part in opened.parts for batch in recording.read_part(part, losses)]
    found = [event.timestamp for batch in batches for event in batch]
    assert (found, losses) == ([2.0], {"unreadable_file": 1})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Expecting value"),
        ('{"sessions": [', "Expecting value"),
        ("[]", "not a JSON object"),
        ('{"sessions": {}}', "`sessions` is not a list"),
        ('{"segments": 7}', "`segments` is not a list"),
        ("[" * 100_000, "nested too deeply"),
        ("\udcff", "can't decode"),
        (" " * 100_000 + "{}", "100,002 bytes are more than the 100,001 this reads"),
    ],
)
def test_segments_are_read_without_a_bad_manifest(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetgauge.gpu_memory.sessions.MAX_DOCUMENT_BYTES", 100_001)
    sink(tmp_path, line(1) + line(2, event_type="stop"))
    (tmp_path / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ManifestError, match=f"cannot read the manifest .*manifest.json: .*{complaint}"):
        read_manifest(tmp_path)
    loaded = load_recording(tmp_path)
    assert [session.summary.status for session in loaded.sessions] == ["completed"]
    assert [note.rpartition("; ")[2] for note in loaded.notes] == ["its segments were read without it"]


def test_bad_entry_of_a_manifest_costs_itself_and_a_pruned_one_is_listed(tmp_path: Path) -> None:
    good = {"session_id": "s", "status": " Completed ", "rank": True, "world_size": 0, "started_at_ns": 5}
    entries = [
        good,
        {"session_id": "pruned", "status": "interrupted", "started_at_ns": 6},
        7,
        {"session_id": " ", "status": "running"},
        {"session_id": "t", "status": "lost"},
        {"session_id": "u"},
    ]
    segments = [
        {"filename": "segment-000001.jsonl", "session_id": "s"},
        {"filename": "../secret.jsonl", "session_id": "s"},
        {"filename": 7},
        "x",
        {"filename": "y"},
    ]
    (tmp_path / "secret.jsonl").write_text(line(1))
    record = {"schema_version": 2, "timestamp_ns": 10**9, "event_type": "sample"}
    directory = sink(tmp_path / "sink", json.dumps(record) + "\n")
    (directory / "manifest.json").write_text(json.dumps({"sessions": entries, "segments": segments}))
    loaded = load_recording(directory)
    session, pruned = loaded.sessions
    assert session.summary == SessionSummary("s", "completed", started_at_ns=5)
    assert [event.session_id for event in session.events()] == ["s"]
    assert (pruned.summary.status, pruned.stats["total_events"], list(pruned.events())) == (
        "interrupted",
        0,
        [],
    )
    assert loaded.notes == ("6 entries of the manifest of sink make no sense",)


def test_without_a_manifest_a_session_is_what_its_events_tell(tmp_path: Path) -> None:
    ended = line(3, host="h", pid=4, job_id="j", rank=1, local_rank=1, world_size=2) + line(
        9, event_type="stop"
    )
    loaded = load_recording(sink(tmp_path, ended + line(1, "t")))
    found = {one.summary.session_id: [event.timestamp for event in one.events()] for one in loaded.sessions}
    assert found == {"s": [3.0, 9.0], "t": [1.0]}
    assert [session.summary for session in loaded.sessions] == [
        SessionSummary("t", "incomplete", started_at_ns=10**9, source="events"),
        SessionSummary("s", "completed", 3 * 10**9, 9 * 10**9, "h", 4, "j", 1, 1, 2, "events"),
    ]


def test_the_ranks_of_a_job_lie_in_directories_of_their_own(tmp_path: Path) -> None:
    sink(tmp_path / "job" / "rank-0", line(1, "a"))
    sink(tmp_path / "job" / "rank-1", line(2, "b", rank=1))
    loaded = load_recording(tmp_path)
    found = [(one.summary.session_id, one.summary.rank, list(one.profile.ranks)) for one in loaded.sessions]
    assert found == [("a", 0, [0]), ("b", 1, [1])]
    assert times(tmp_path / "job") == [1.0, 2.0]
    sink(tmp_path / "1" / "2" / "3", line(3))
    sink(tmp_path / "1" / "2" / "3" / "4", line(4))
    assert times(tmp_path) == [1.0, 2.0, 3.0]
    assert times(sink(tmp_path, line(9))) == [9.0]  # below a sink no other is looked for


def test_sessions_and_ranks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetgauge.gpu_memory.recording.MAX_SESSIONS", 2)
    monkeypatch.setattr("fleetgauge.gpu_memory.profiles.MAX_RANKS", 1)
    loaded = load_recording(sink(tmp_path, line(1, "a") + line(2, "b") + line(3, "c") + line(4, "a", rank=1)))
    assert [session.summary.session_id for session in loaded.sessions] == ["a", "b"]
    assert loaded.losses == {"too_many_sessions": 1}
    found = [(session.stats["total_events"], list(session.profile.ranks)) for session in loaded.sessions]
    assert found == [(2, [0, None]), (1, [0])]


def test_track_file_is_an_array_an_object_or_one_event(tmp_path: Path) -> None:
    path = tmp_path / "track.json"
    record = json.loads(line(1, context="a, b", device_total_bytes=None, metadata={"backend": "cuda"}))
    path.write_text(json.dumps([record, 7, record | {"timestamp_ns": 2 * 10**9}], indent=2))
    loaded = load_recording(path)
    found = [
        (event.timestamp, event.memory_allocated, event.context) for event in loaded.sessions[0].events()
    ]
    assert found == [(1.0, 1, "a, b"), (2.0, 1, "a, b")]
    assert loaded.losses == {"not_an_object": 1}
    assert "final_retained_files" not in loaded.sessions[0].stats
    session = {"session_id": "s", "status": "interrupted"}
    event = {"timestamp": 1.5, "type": "peak", "memory_allocated": 4}
    path.write_text(json.dumps({"telemetry_events": [event], "session_summary": session}))
    [one] = load_recording(path).sessions
    assert (one.summary.status, [event.session_id for event in one.events()]) == ("interrupted", ["s"])
    path.write_text(json.dumps(event))
    [one] = load_recording(path).sessions
    assert (one.summary.session_id, one.stats["peak_memory"]) == ("legacy-track", 4)


def oom_dump(directory: Path, name: str = "oom_dump_20261116T011500Z_554_cuda_1") -> Path:
    dump = directory / name
    dump.mkdir(parents=True)
    (dump / "events.json").write_text(json.dumps([json.loads(line(1)), json.loads(line(2))]))
    (dump / "metadata.json").write_text(json.dumps({"reason": "r", "exception_message": "out of memory"}))
    session = {"session_id": "s", "status": "running"}
    manifest = {
        "created_at_utc": "2026-11-16T01:15:02Z",
        "reason": "torch",
        "backend": "cuda",
        "session": session,
    }
    (dump / "manifest.json").write_text(json.dumps(manifest))
    return dump


def test_an_oom_dump_tells_when_why_and_whose(tmp_path: Path) -> None:
    dump = read_oom_dump(oom_dump(tmp_path))
    assert dump.created_at == datetime(2026, 11, 16, 1, 15, 2, tzinfo=UTC)
    assert (dump.reason, dump.message, dump.complete) == ("torch", "out of memory", True)
    assert dump.session == SessionSummary("s", "running")
    assert times(dump.path) == [1.0, 2.0]
    for path in (dump.path, tmp_path):
        loaded = load_recording(path)
        assert (loaded.oom_dumps, loaded.notes) == ((dump,), ())
        [session] = loaded.sessions
        assert (session.summary.status, session.stats["pruned_segment_count"]) == ("running", 0)
    assert times(tmp_path) == [1.0, 2.0]


def test_a_dump_that_was_cut_short_is_known_by_its_name(tmp_path: Path) -> None:
    path = oom_dump(tmp_path)
    (path / "manifest.json").write_text("{")
    dump = read_oom_dump(path)
    assert dump.created_at == datetime(2026, 11, 16, 1, 15, 0, tzinfo=UTC)
    assert (dump.reason, dump.complete, dump.session) == ("r", False, None)
    assert load_recording(path).notes == (f"the OOM dump {path.name} was cut short",)
    (path / "events.json").unlink()
    without_events = load_recording(path)
    assert without_events.notes == (f"the OOM dump {path.name} was cut short",)
    assert (without_events.sessions, without_events.oom_dumps) == ((), (dump,))
    assert read_oom_dump(tmp_path / "oom_dump_x").created_at is None


def test_dumps_beside_a_sink_are_found_and_their_events_not_read_twice(tmp_path: Path) -> None:
    sink(tmp_path, line(1) + line(2))
    first, second = oom_dump(tmp_path), oom_dump(tmp_path / "oom_dumps", "oom_dump_20261117T000000Z_1_cuda_1")
    loaded = load_recording(tmp_path)
    assert [dump.path for dump in loaded.oom_dumps] == [first, second]
    assert len(list(loaded.sessions[0].events())) == 2
    assert list(find_oom_dumps(first)) == [first]
    assert list(find_oom_dumps(tmp_path / "none")) == []
    # Under another name it is known by what it has.
    copied = oom_dump(tmp_path, "copied")
    assert list(find_oom_dumps(copied)) == [copied]
    (copied / "metadata.json").unlink()
    assert list(find_oom_dumps(copied)) == []
