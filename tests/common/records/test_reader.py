"""The lines of a window, on disk: where reading begins, damage, compressed files, last lines, backfills."""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.config.settings import CoreSettings
from common.records.compression import MAX_WINDOW_LOG, zstd
from common.records.files import File, Files
from common.records.reader import BackfillReader, RecordLine, read
from fleetgauge.records import Json


class Sizes(NamedTuple):
    """How many bytes are read at a time, and how long a line may be."""

    block: int = 200
    probe: int = 60
    chunk: int = 90
    line: int = 150

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have files be read in these sizes."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("common.records.files.DISK_CHUNK", self.chunk)
            for name, size in (("BLOCK", self.block), ("PROBE", self.probe), ("CHUNK", self.chunk)):
                patch.setattr(f"common.records.reader.{name}", size)
            patch.setattr("common.records.reader.MAX_LINE_BYTES", self.line)
            yield


SMALL = Sizes()

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}


def time_of(value: Json) -> float | None:
    time = value.get("t")
    return time if isinstance(time, int | float) else None


def record(time: float, **more: object) -> bytes:
    return json.dumps({"t": time, **more}).encode() + b"\n"


def listed(folder: Path) -> tuple[Files, list[File]]:
    files = Files(CoreSettings(), 0, 0)
    return files, list(files.find([str(folder)]).files.values())


def lines_of(path: Path, since: float = 0, sizes: Sizes | None = SMALL) -> list[RecordLine]:
    """Return the lines of a window; without sizes, as they are read in production."""
    files, [file] = listed(path)
    found = []
    with sizes.used() if sizes else nullcontext():
        for same, lines in read(files, [(file, since)], time_of):
            assert same == file
            found += list(lines)
    return found


def times(lines: Iterable[RecordLine]) -> list[Any]:
    return [value["t"] for _, value, _ in lines if value and "t" in value]


# Lines


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b'{"t":1}\n\n{"t":\n{"t":"\xff"}\n[1]\n \r\n\0\0{"t":2}\n\0\0\0\n{"t":3}\n',
            [
                (0, {"t": 1}, None),
                (9, None, "not_json"),
                (15, None, "not_utf8"),
                (25, None, "not_an_object"),
                (32, None, "nul_hole"),
                (32, {"t": 2}, None),
                (42, None, "nul_hole"),
                (46, {"t": 3}, None),
            ],
        ),
        # A byte-order mark is ignored at the start only.
        (b'\xef\xbb\xbf{"t":1}\n\xef\xbb\xbf{"t":2}\n', [(0, {"t": 1}, None), (11, None, "not_json")]),
        (b'{"t": -Infinity}\n', [(0, {"t": -math.inf}, None)]),
        (b'{"t": "\\ud800", "b": NaN}\n', [(0, None, "not_json")]),
        (b'{"t": 1' + b"0" * 5000 + b"}\n", [(0, None, "not_json")]),
        (b"[" * 100_000 + b"\n" + record(1), [(0, None, "not_json"), (100_001, {"t": 1}, None)]),
        (b"x" * 1_000_001 + b"\n" + record(1), [(0, None, "too_long"), (1_000_002, {"t": 1}, None)]),
    ],
)
def test_lines_have_offsets_and_values_or_damage(
    tmp_path: Path, content: bytes, expected: list[RecordLine]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    assert lines_of(tmp_path / "a.jsonl", sizes=None) == expected


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("filler", [b"x", b"\0"])
def test_endless_line_or_hole_is_passed_over_in_bounded_memory(
    tmp_path: Path, filler: bytes, suffix: str
) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](record(1) + filler * 20_000_000 + record(2) + record(3)))
    tracemalloc.start()
    found = lines_of(path, sizes=None)
    assert tracemalloc.get_traced_memory()[1] < 12_000_000
    tracemalloc.stop()
    assert found == [(0, {"t": 1}, None), (9, None, "too_long"), (20_000_018, {"t": 3}, None)]


def brute_force(content: bytes, longest: int) -> list[RecordLine]:
    """Return all complete lines, from the whole content at once."""
    found, start = list[RecordLine](), 0
    for text in content.split(b"\n")[:-1]:
        bare = text.lstrip(b"\0")
        value, damage = None, "nul_hole" if bare != text else None
        if len(text) > longest:
            damage = "too_long"
        elif bare.strip():
            try:
                value = json.loads(bare.decode())
            except UnicodeDecodeError:
                damage = "not_utf8"
            except ValueError:
                damage = "not_json"
        found += [(start, None, damage)] * bool(damage) + [(start, value, None)] * bool(value)
        start += len(text) + 1
    return found


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Return lines in order of time to within ten minutes, some of them damaged."""
    content, latest = bytearray(), 10_000
    for _ in range(draw(st.integers(0, 60))):
        latest += draw(st.sampled_from([0, 1, 60, 400, 2000]))
        time = latest - draw(st.sampled_from([0, 0, 0, 300, 600]))
        content += record(time, x="x" * draw(st.sampled_from([0, 10, 100])))
        content += draw(
            st.sampled_from(
                [b""] * 8 + [b"\n", b"{\n", b"\0" * 40, b"\xff\n", b"z" * 400 + b"\n", b'{"n":1}\n']
            )
        )
    return bytes(content) + draw(st.sampled_from([b"", b'{"t":', b"\0\0"]))


sizes = st.builds(
    Sizes,
    block=st.sampled_from([64, 200, 1000]),
    probe=st.sampled_from([20, 60, 200]),
    chunk=st.sampled_from([1, 50, 300, 5000]),
    line=st.just(150),
)


@given(
    content=contents(),
    since=st.integers(9000, 60_000) | st.just(math.inf),
    sizes=sizes,
    suffix=st.sampled_from([*COMPRESS]),
)
@settings(max_examples=200)
def test_window_has_all_lines_from_its_start_on_and_the_last_record(
    content: bytes, since: float, sizes: Sizes, suffix: str
) -> None:
    expected = brute_force(content, sizes.line)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.jsonl{suffix}")
        path.write_bytes(COMPRESS[suffix](content))
        found = lines_of(path, since, sizes)
    assert found == expected[len(expected) - len(found) :]
    assert all(time < since for time in times(expected[: len(expected) - len(found)]))
    assert times(found)[-1:] == times(expected)[-1:]
    if suffix:
        assert found == expected


@given(
    content=contents(),
    width=st.sampled_from([700, 3600, 20_000]),
    sizes=sizes,
    room=st.sampled_from([0, 150, 1 << 20]),
    suffix=st.sampled_from(["", ".gz"]),
)
@settings(max_examples=60)
def test_windows_of_a_backfill_have_what_one_pass_has(
    content: bytes, width: int, sizes: Sizes, room: int, suffix: str
) -> None:
    expected = [line for line in brute_force(content, sizes.line) if times([line])]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"a.jsonl{suffix}").write_bytes(gzip.compress(content) if suffix else content)
        files, [file] = listed(Path(folder))
        backfill, found = BackfillReader(room), list[RecordLine]()
        last = max(times(expected), default=9000)
        for since in range(9000, last + 1, width):
            with sizes.used():
                [(_, lines)] = read(files, [(file, since)], time_of, backfill, since + width)
                part = list(lines)
            starts = [start for start, _, _ in part]
            assert starts == sorted(starts)
            found += [line for line in part if any(since <= at < since + width for at in times([line]))]
    assert sorted(found, key=lambda line: line[0]) == expected


# Where reading begins


def write_seconds(path: Path, first: int, last: int, size: int = 100) -> None:
    """Write a record of `size` bytes for each second."""
    with path.open("wb") as file:
        for second in range(first, last):
            file.write(record(second, x="x" * (size - 17 - len(str(second)))))
    assert path.stat().st_size == (last - first) * size


@pytest.mark.parametrize("window", [300, 1000, 3000, 9000])
def test_end_of_a_large_file_costs_little_more_than_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    path, until = tmp_path / "large.jsonl", 1_100_000
    write_seconds(path, until - 100_000, until)
    pread, n_bytes = os.pread, 0

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal n_bytes
        found = pread(descriptor, size, offset)
        n_bytes += len(found)
        return found

    monkeypatch.setattr(os, "pread", counting)
    found = times(lines_of(path, until - window, Sizes(block=16_000, probe=1000, chunk=16_000)))
    assert found[-window:] == list(range(until - window, until))
    assert n_bytes < 2.5 * 100 * (window + 600)  # of the window


@pytest.mark.parametrize(
    ("content", "since", "first"),
    [
        (record(1000) + record(400) * 100, 1000, 1000),
        (record(1000) + record(400) * 100, 1000.5, 400),
        (record(5000) + b'{"no":"time"}\n' * 100, 5000, 5000),  # no time says nothing about where to begin
        (record(5000) + record(10**9) + record(5001) * 30, 5000, 5000),  # a late one ends nothing
    ],
)
def test_reading_begins_where_no_earlier_line_can_be_of_the_window(
    tmp_path: Path, content: bytes, since: float, first: int
) -> None:
    path, sizes = tmp_path / "a.jsonl", Sizes(block=20, probe=30, chunk=30, line=150)
    path.write_bytes(content)
    found = lines_of(path, since, sizes)
    assert times(found)[0] == first
    assert found[-1] == lines_of(path)[-1]


def test_lines_longer_than_a_probe_do_not_make_all_be_read(tmp_path: Path) -> None:
    path, sizes = tmp_path / "a.jsonl", Sizes(block=1000, probe=50, chunk=1000, line=500)
    write_seconds(path, 10_000, 20_000, 400)
    found = times(lines_of(path, 19_990, sizes))
    assert found[-10:] == list(range(19_990, 20_000))
    assert len(found) < 1500


# Compressed files


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_file_has_several_members_and_may_be_unfinished(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESS[suffix]
    path = tmp_path / f"a.jsonl.1{suffix}"
    path.write_bytes(compress(record(1) + b'{"t"') + compress(b":2}\n") + compress(record(3)))
    assert times(lines_of(path)) == [1, 2, 3]
    noise = Random(5)
    content = compress(b"".join(record(number, x=noise.randbytes(60).hex()) for number in range(5000)))
    path.write_bytes(content[: len(content) // 2])
    found = lines_of(path, sizes=None)
    assert times(found) == list(range(len(found)))
    assert 1000 < len(found) < 4000


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_corrupt_file_gives_what_precedes_the_damage(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](record(1) + record(2)) + b"no second member")
    files, [file] = listed(path)
    for _, lines in read(files, [(file, 0)], time_of):
        assert times(islice(lines, 2)) == [1, 2]
        with pytest.raises(OSError, match="corrupt"):
            next(lines)
    path.write_bytes(record(1))
    with pytest.raises(OSError, match="corrupt"):
        lines_of(path)


def test_file_that_needs_unusual_memory_is_corrupt(tmp_path: Path) -> None:
    for power in (MAX_WINDOW_LOG, MAX_WINDOW_LOG + 1):
        stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: power})
        (tmp_path / f"{power}.jsonl.zst").write_bytes(stream.compress(record(1)) + stream.flush())
    assert times(lines_of(tmp_path / f"{MAX_WINDOW_LOG}.jsonl.zst")) == [1]
    with pytest.raises(OSError, match="corrupt"):
        lines_of(tmp_path / f"{MAX_WINDOW_LOG + 1}.jsonl.zst")


# Files that change or fail


def test_text_appended_or_cut_off_while_reading_ends_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_seconds(path, 1000, 5000)
    files, [file] = listed(path)
    for _, lines in read(files, [(file, 0)], time_of):
        first = next(lines)
        with path.open("ab") as more:
            more.write(record(9))
        assert len(times([first, *lines])) == 4000
    files, [file] = listed(path)
    for _, lines in read(files, [(file, 0)], time_of):
        first = next(lines)
        os.truncate(path, 150)
        assert times([first, *lines]) == list(range(1000, 1655))


def test_many_files_are_read_with_one_open(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.jsonl").write_bytes(record(number))
    files, found = listed(tmp_path)
    descriptors, folder, count = set[int](), Path("/proc/self/fd"), 0
    for _, lines in read(files, [(file, 0) for file in found], time_of):
        descriptors.add(len([*folder.iterdir()]))
        count += len(times(lines))
    assert (count, len(descriptors)) == (200, 1)


# Backfills
