"""The writer: records reach the disk whole, and no trouble of the disk reaches the host."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge import records
from fleetgauge.records import Event, RecordWriter
from fleetgauge.records import writer as writer_module
from fleetgauge.records.background import AppendFile, json_ready


def read(path: Path) -> list[dict[str, Any]]:
    return list(records.read(path))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Closed, it makes every write to disk hang, as a dead network mount does."""
    opened = threading.Event()
    write = os.write

    def hang(descriptor: int, text: bytes) -> int:
        opened.wait()
        return write(descriptor, text)

    monkeypatch.setattr(os, "write", hang)
    yield opened
    opened.set()


def test_a_record_has_the_envelope_and_the_body_of_its_kind(tmp_path: Path) -> None:
    rank: Any = np.int64(0)
    clock = iter([10.5, 20.0]).__next__
    with RecordWriter(tmp_path, "xenna", run_id="r1", job="47\udcff", rank=rank, clock=clock) as writer:
        assert writer.write(Event.START, {"run_hash": "h", "seq": 99, "timestamp": "no"})
        assert writer.write("end", {"status": "ok"})
    common = {
        "schema_version": 1,
        "kind": "xenna",
        "run_id": "r1",
        "pid": os.getpid(),
        "job": "47?",
        "rank": 0,
    }
    common["host"] = os.uname().nodename
    assert read(tmp_path / "xenna-r1.jsonl") == [
        {**common, "event": "start", "seq": 0, "timestamp": 10.5, "run_hash": "h"},
        {**common, "event": "end", "seq": 1, "timestamp": 20.0, "status": "ok"},
    ]
    assert writer.dropped == 0
    with RecordWriter(tmp_path / "a.jsonl", "k") as writer:
        writer.write("stats", {})
    (record,) = read(tmp_path / "a.jsonl")
    assert list(record) == ["schema_version", "kind", "event", "run_id", "seq", "timestamp", "host", "pid"]
    assert (record["run_id"], len(writer.run_id)) == (writer.run_id, 32)


def test_configuration_that_cannot_work_is_refused_when_built(tmp_path: Path) -> None:
    refused: list[dict[str, Any]] = [
        {"run_id": ""},
        {"run_id": "x" * 201},
        {"run_id": "a\nb"},
        {"queue_size": 0},
    ]
    refused += [{"rotate_bytes": 0}, {"rotate_after": 0}, {"rotate_after": math.nan}, {"kind": ""}]
    for options in refused:
        with pytest.raises(ValueError):
            RecordWriter(tmp_path, **({"kind": "k"} | options))


class Scalar:
    """As one of numpy or torch."""

    def __init__(self, value: object) -> None:
        self.value = value

    def item(self) -> object:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    ("value", "ready"),
    [
        (None, None),
        (True, True),
        ({1}, [1]),
        (Scalar(2.5), 2.5),
        (Scalar(RuntimeError()), None),
        (object(), None),
        (2**63, None),
        (-(2**63) - 1, None),
        (-(2**63), -(2**63)),
        ("a\ud800b", "a?b"),
        ([1.5, math.nan, (2,)], [1.5, None, [2]]),
        ({3: "key", "nan": math.nan, "inf": -math.inf, "none": None}, {"3": "key", "none": None}),
    ],
)
def test_value_that_json_cannot_represent_costs_itself(value: object, ready: object) -> None:
    assert json_ready(value) == ready
    assert type(json_ready(value)) is type(ready)


def test_nesting_is_cut_off_at_twenty_levels() -> None:
    endless: list[Any] = []
    endless.append(endless)
    mapping: dict[str, Any] = {}
    mapping["again"] = mapping
    assert str(json_ready(endless)) == "[" * 20 + "None" + "]" * 20
    assert str(json_ready(mapping)).count("again") == 19  # the innermost entry became None


def test_a_record_as_long_as_readers_take_is_written_and_no_longer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "MAX_LINE_BYTES", 500)

    def written(text: str) -> tuple[int, int]:
        """The bytes of the only record's line, and how many were dropped."""
        path = tmp_path / f"{len(text)}.jsonl"
        smallest = RecordWriter(path, "k", run_id="r1", clock=lambda: 1.0, queue_size=1, rotate_bytes=1)
        with smallest as writer:
            writer.write("progress", {"text": text})
        return path.stat().st_size if path.exists() else 0, writer.dropped

    short, _ = written("")
    room = 501 - short  # a line ends in a newline, which is not counted
    assert written("x" * room) == (501, 0)
    assert written("x" * (room + 1)) == (0, 1)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object())
bodies = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)
)


@given(bodies)
def test_whatever_a_host_hands_over_becomes_strict_json(body: object) -> None:
    text = json.dumps(json_ready(body), allow_nan=False, ensure_ascii=False).encode()
    assert json.loads(text) == json_ready(body)


def test_record_is_one_write_and_the_end_record_and_closing_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    write, sync = os.write, os.fsync

    def note(descriptor: int, text: bytes) -> int:
        written.append(text)
        return write(descriptor, text)

    def note_sync(descriptor: int) -> None:
        written.append(b"sync")
        sync(descriptor)

    monkeypatch.setattr(os, "write", note)
    monkeypatch.setattr(os, "fsync", note_sync)
    with RecordWriter(tmp_path / "a.jsonl", "k") as writer:
        writer.write("stats", {"n": 0, "text": "line\nbreak"})
        writer.write("end", {"n": 1})
    first, second, *synced = written
    assert synced == [b"sync", b"sync"]
    for number, text in enumerate((first, second)):
        assert (json.loads(text)["n"], text.count(b"\n"), text[-1:]) == (number, 1, b"\n")


def test_a_disk_that_cannot_sync_is_one_warning_and_no_lost_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with RecordWriter(tmp_path / "a.jsonl", "k", rotate_bytes=1) as writer:
        writer.write("end", {})
        writer.write("end", {})
    assert writer.dropped == 0
    assert len([*tmp_path.glob("*.jsonl")]) == 2  # renamed, although it may not be on the disk
    (warning,) = caplog.records
    assert warning.getMessage().endswith("may be incomplete on disk: [Errno 5] Input/output error")


def test_file_that_would_grow_too_large_or_is_old_is_renamed_first(tmp_path: Path) -> None:
    (tmp_path / "a.000002.jsonl").write_bytes(b"someone else's\n")
    file = AppendFile(tmp_path / "a.jsonl", "a", rotate_bytes=20, rotate_after=60)
    lines = (b"first....\n", b"second...\n", b"third....\n", b"longer than the limit itself\n", b"4\n")
    for line in lines:
        file.append(line, 100)
    for at, line in ((159.9, b"5\n"), (160, b"6\n"), (219, b"7\n"), (500, b"8\n"), (440, b"9\n")):
        file.append(line, at)
    file.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.000001.jsonl": b"first....\nsecond...\n",
        "a.000002.jsonl": b"someone else's\n",
        "a.000003.jsonl": b"third....\n",
        "a.000004.jsonl": b"longer than the limit itself\n",
        "a.000005.jsonl": b"4\n5\n",
        "a.000006.jsonl": b"6\n7\n",
        "a.000007.jsonl": b"8\n",
        "a.jsonl": b"9\n",  # of a clock that was set back
    }


def test_writers_that_share_a_file_rotate_to_names_of_their_own(tmp_path: Path) -> None:
    for name, run_id in (("a", "r1"), ("x-r2", "r2")):
        with RecordWriter(tmp_path / f"{name}.jsonl", "k", run_id=run_id, rotate_bytes=10) as writer:
            writer.write("stats", {})
            writer.write("stats", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.jsonl",
        "a.r1.000001.jsonl",
        "x-r2.000001.jsonl",
        "x-r2.jsonl",
    ]


def test_a_file_renamed_or_deleted_under_the_writer_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deeper" / "a.jsonl"
    file = AppendFile(path, "a", 1000)
    file.append(b"one\n")
    path.rename(tmp_path / "moved.jsonl")
    file.append(b"two\n")
    path.unlink()
    path.parent.rmdir()
    file.append(b"three\n")
    file.close()
    assert (tmp_path / "moved.jsonl").read_bytes() == b"one\n"
    assert path.read_bytes() == b"three\n"


def test_a_host_that_changes_its_directory_has_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with RecordWriter("a.jsonl", "k") as writer:
        monkeypatch.chdir("/")
        writer.write("stats", {})
    assert len(read(tmp_path / "a.jsonl")) == 1


def test_a_descriptor_that_the_host_closed_is_left_to_its_next_owner(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a.jsonl", "a", 1000)
    number = os.dup(0)
    os.close(number)  # the next file gets it
    file.append(b"1\n")
    os.close(number)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append(b"lost\n")
    file.append(b"2\n")
    os.close(number)
    theirs = os.open(tmp_path / "theirs", os.O_CREAT | os.O_WRONLY)
    file.append(b"3\n")
    file.close()
    assert (theirs, os.write(theirs, b"their own")) == (number, 9)
    os.close(theirs)
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [b"1\n2\n3\n", b"their own"]


def test_a_torn_line_found_or_left_is_ended_before_the_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"torn by another": ')
    file = AppendFile(path, "a", 1000)
    file.append(b'{"n":1}\n')
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, text: write(descriptor, text[:4]))
        with pytest.raises(OSError, match="only 4 of 8 bytes"):
            file.append(b'{"n":2}\n')
    file.append(b'{"n":3}\n')
    file.append(b'{"n":4}\n')
    file.close()
    assert path.read_bytes() == b'{"torn by another": \n{"n":1}\n{"n"\n{"n":3}\n{"n":4}\n'


def test_disk_that_hangs_drops_what_finds_no_room_and_is_given_up(
    tmp_path: Path, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    with RecordWriter(tmp_path / "a.jsonl", "k", queue_size=3) as writer:
        accepted = [writer.write("stats", {}) for _ in range(20)]
        kept = sum(accepted)
        assert kept in (3, 4)  # the thread may have taken one out before it hung
        assert writer.dropped == 20 - kept
        assert writer.close(timeout=0.01) is False
        gate.set()
        assert writer.close(math.inf) is True
    assert [record["seq"] for record in read(tmp_path / "a.jsonl")] == [
        seq for seq, taken in enumerate(accepted) if taken
    ]
    gave_up, lost = sorted(record.getMessage() for record in caplog.records)
    assert gave_up == f"gave up waiting for {tmp_path}/a.jsonl; records may be missing"
    assert lost == (
        f"lost a record for {tmp_path}/a.jsonl because 3 records are waiting already; "
        "further losses are only counted"
    )


class Odd(Exception):  # noqa: N818
    """A mapping that cannot be read, and an error that cannot be printed."""

    def __str__(self) -> Any:
        raise self

    __iter__ = items = __str__


Mapping.register(Odd)


def test_record_that_cannot_be_taken_or_written_costs_itself(tmp_path: Path) -> None:
    def times() -> Iterator[float]:
        yield math.nan
        yield 2.0
        raise Odd

    odd: list[Any] = [5, "soon"]
    with RecordWriter(tmp_path / "a.jsonl", "k", clock=times().__next__) as writer:
        assert [writer.write("stats", {}) for _ in range(3)] == [True, True, False]
        assert [writer.write("stats", odd[0], 3.0), writer.write("stats", {}, odd[1])] == [False, False]
        assert [writer.write("stats", {"odd": Odd()}, 4.0), writer.write("stats", {}, 5.0)] == [True, True]
    assert ([one["timestamp"] for one in read(tmp_path / "a.jsonl")], writer.dropped) == ([2.0, 5.0], 5)


def test_many_threads_number_their_records_without_a_gap_and_count_losses(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "a.jsonl", "k") as writer, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [writer.write("stats", {}) for _ in range(50)], range(8)))
        pool.submit(writer.close).result()
        list(pool.map(lambda _: [writer.write("stats", {}) for _ in range(200)], range(8)))
    assert sorted(record["seq"] for record in read(tmp_path / "a.jsonl")) == list(range(400))
    assert writer.dropped == 1600
