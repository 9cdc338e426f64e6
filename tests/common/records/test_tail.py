"""The tail: growth, rotation, damage and limits, each by its name."""

from __future__ import annotations

import gzip
import json
import os
import random
import stat
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from common.records.entry import loads
from common.records.file import NotDue
from common.records.saved import SavedState
from common.records.tail import LINES_PER_LOOK, Tail
from fleetgauge.records import identity

NOW = 2_000_000_000


class Reader:
    """Runs ticks over a directory, each from what the one before saved."""

    def __init__(self, *patterns: object, **options: Any) -> None:
        self.patterns = [str(pattern) for pattern in patterns]
        self.options = options
        self.state: dict[str, object] = {}
        self.now = NOW
        self.tail: Tail

    def tick(self, **options: Any) -> list[Any]:
        """The field `n` of every object of one tick."""
        self.tail = Tail(self.patterns, SavedState(self.state), now=self.now, **{**self.options, **options})
        taken = []
        for file in self.tail.files():
            taken += [entry.value["n"] for entry in file.entries()]
            self.save(file.changes())
        self.save(self.tail.expired())
        return taken

    def save(self, changes: Any) -> None:
        merged = {**self.state, **json.loads(json.dumps(changes))}
        self.state = {key: value for key, value in merged.items() if value is not None}


def open_files(folder: Path) -> int:
    """How many files of a folder this process has open; what other tests left open does not count."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += str(descriptor.readlink()).startswith(f"{folder}/")
    return count


def write(path: Path, *numbers: int, at: float = NOW - 100, mode: str = "ab", end: bytes = b"") -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open(mode) as file:
        file.write(b"".join(b'{"n":%d}\n' % number for number in numbers) + end)
    os.utime(path, (at, at))


def write_records(path: Path, run: str, seqs: Sequence[int], at: float = NOW - 100, mode: str = "ab") -> None:
    with path.open(mode) as file:
        for seq in seqs:
            file.write(json.dumps({"run_id": run, "seq": seq, "n": seq}).encode() + b"\n")
    os.utime(path, (at, at))


def test_growth_is_read_once_and_an_unfinished_last_line_is_left_for_later(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    write(path, 1, 2, end=b'{"n":')
    assert reader.tick() == [1, 2]
    assert reader.tick() == []
    write(path, end=b"3}\n", at=NOW - 50)
    assert reader.tick() == [3]
    assert reader.tail.bytes == 8


def test_an_entry_tells_where_it_stands_and_leaving_the_loop_leaves_it(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 1, 2, 3)
    reader = Reader(tmp_path)
    tail = Tail(reader.patterns, SavedState({}), now=NOW)
    for file in tail.files():
        assert file.path == str(tmp_path / "a.jsonl")
        for entry in file.entries():
            if entry.value["n"] == 2:
                assert entry == ({"n": 2}, 8, None, 2)
                break
        reader.save(file.changes())
    assert tail.taken == 1
    later = Tail(reader.patterns, SavedState(reader.state), now=NOW)
    numbers = [(entry.start, entry.number) for file in later.files() for entry in file.entries()]
    assert numbers == [(8, 0), (16, 0)]
    assert reader.tick() == [2, 3]


def test_what_is_only_looked_at_does_not_count_as_read(tmp_path: Path) -> None:
    write_records(tmp_path / "a.jsonl", "r", [0, 1, 2, 3])
    reader = Reader(tmp_path, identity=identity)
    tail = Tail(reader.patterns, SavedState({}), now=NOW, identity=identity)
    for file in tail.files():
        for entry in file.entries():
            if entry.value["n"] == 2:
                assert [(one.value["n"], one.start) for one in file.peek()] == [(2, entry.start), (3, 102)]
                break
        reader.save(file.changes())
    assert (tail.taken, tail.bytes) == (2, entry.start)
    assert reader.state["seen:r"] == {"edges": [0, 2], "at": NOW}
    assert reader.tick() == [2, 3]
    assert reader.state["seen:r"] == {"edges": [0, 4], "at": NOW}


@pytest.mark.parametrize("target", ["a.000001.jsonl", "a.r1.000001.jsonl", "a.jsonl.1"])
@pytest.mark.parametrize("pattern", ["a.jsonl", "*.jsonl", ""])
def test_what_a_rotated_file_still_held_is_read_under_its_new_name(
    tmp_path: Path, target: str, pattern: str
) -> None:
    reader = Reader(tmp_path / pattern)
    write(tmp_path / "a.jsonl", 1, 2)
    assert reader.tick() == [1, 2]
    write(tmp_path / "a.jsonl", 3)
    (tmp_path / "a.jsonl").rename(tmp_path / target)
    write(tmp_path / "a.jsonl", 4, at=NOW - 50)
    assert reader.tick() == [3, 4]
    assert reader.tick() == []


def test_a_closed_file_that_was_compressed_goes_on_where_the_plain_one_stopped(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl.1", tmp_path / "a.jsonl.1.gz"
    write(plain, 1, 2)
    reader = Reader(tmp_path)
    assert reader.tick() == [1, 2]
    write(plain, 3)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    os.utime(packed, (NOW - 50, NOW - 50))
    assert reader.tick() == [3]  # while both are there, only the plain one is read
    assert reader.tail.files_found == 1
    plain.unlink()
    assert reader.tick() == []
    assert reader.tail.bytes == 0
    assert reader.tick() == []


def test_a_compressed_file_that_is_renamed_is_not_read_again(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl.1.gz", Reader(tmp_path)
    path.write_bytes(gzip.compress(b'{"n":1}\n{"n":2}\n'))
    os.utime(path, (NOW - 100, NOW - 100))
    assert reader.tick() == [1, 2]
    path.rename(tmp_path / "a.jsonl.2.gz")
    assert reader.tick() == []


def test_two_files_with_one_first_line_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"n":1}\n{"n":2}\n'))
    os.utime(tmp_path / "a.jsonl.gz", (NOW - 100, NOW - 100))
    write(tmp_path / "b.jsonl", 1, 3, 4, at=NOW - 90)
    write(tmp_path / "c.jsonl", 1, 5, 6, 7, at=NOW - 80)
    assert Reader(tmp_path).tick() == [1, 2, 1, 3, 4, 1, 5, 6, 7]


def test_a_compressed_file_still_being_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl.gz", Reader(tmp_path)
    noise = random.Random(5)
    content = "".join(f'{{"n":{n},"x":"{noise.randbytes(60).hex()}"}}\n' for n in range(5000)).encode()
    whole = gzip.compress(content)
    path.write_bytes(whole[: len(whole) // 2])
    os.utime(path, (NOW - 100, NOW - 100))
    first = reader.tick()
    unpacked = zlib.decompressobj(wbits=31).decompress(whole[: len(whole) // 2])
    assert len(first) == unpacked.count(b"\n")
    path.write_bytes(whole)
    os.utime(path, (NOW - 50, NOW - 50))
    assert first + reader.tick() == list(range(5000))
    assert reader.tail.damage == {}


def test_a_corrupt_compressed_file_yields_what_comes_before_and_is_told_once(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl.gz", Reader(tmp_path)
    path.write_bytes(gzip.compress(b'{"n":1}\n{"n":2}\n') + b"no second member")
    os.utime(path, (NOW - 100, NOW - 100))
    assert reader.tick() == [1, 2]
    assert reader.tail.damage == {"corrupt_gzip": 1}
    assert reader.tick() == []
    assert reader.tail.damage == {}


def test_what_only_claims_to_be_compressed_is_passed_over_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl.gz", 1)
    reader = Reader(tmp_path)
    assert reader.tick() == []
    assert reader.tail.damage == {"corrupt_gzip": 1}
    assert reader.tail.lost == []


def test_a_truncated_file_is_read_from_its_start_without_repeating_records(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path, identity=identity)
    write_records(path, "r", range(10))
    assert reader.tick() == list(range(10))
    write_records(path, "r", [0, 1, 10], mode="wb", at=NOW - 50)
    assert reader.tick() == [10]
    assert reader.tail.taken == 1


def test_a_file_truncated_and_grown_past_where_reading_stopped_is_noticed(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path, identity=identity)
    write_records(path, "r", range(5))
    assert reader.tick() == list(range(5))
    write_records(path, "r", [0, 11, 12, 13, 14, 15, 16, 17], mode="wb", at=NOW - 50)
    assert reader.tick() == [11, 12, 13, 14, 15, 16, 17]


def test_a_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    write(path, 1, 2)
    assert reader.tick() == [1, 2]
    write(tmp_path / "new", 8, 9)
    (tmp_path / "new").rename(path)
    assert reader.tick() == [8, 9]


def test_a_file_that_comes_back_is_known_by_its_first_line(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    write(path, 1, 2)
    assert reader.tick() == [1, 2]
    path.unlink()
    assert reader.tick() == []
    write(path, 1, 2, 3, at=NOW - 20)
    assert reader.tick() == [3]


def test_a_file_seen_from_another_node_is_verified_and_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    write(path, 1, 2)
    assert reader.tick() == [1, 2]
    (key,) = reader.state
    place = reader.state[key]
    assert isinstance(place, dict)
    here = path.stat()
    assert place["whole"] == [16, (NOW - 100) * 10**9, here.st_dev, here.st_ino]
    reader.state[key] = {**place, "whole": [16, (NOW - 100) * 10**9, 1, 2]}
    assert reader.tick() == []
    assert reader.tail.bytes == 0


def test_an_unchanged_file_is_not_opened(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    write(path, 1, end=b'{"n":')
    assert reader.tick() == [1]
    assert [file.path for file in Tail(reader.patterns, SavedState(reader.state), now=NOW).files()] == []
    assert reader.tail.files_found == 1


def test_a_file_of_which_nothing_is_due_is_not_opened_until_its_time_or_a_change(tmp_path: Path) -> None:
    path, not_due = tmp_path / "a.jsonl", NotDue()

    def taken(due: int, wanted: int) -> list[int]:
        """What is read when all numbers up to `wanted` are."""
        found = []
        for file in Tail([str(tmp_path)], SavedState({}), now=NOW, due=due, not_due=not_due).files():
            for entry in file.entries():
                found.append(entry.value["n"])
                if entry.value["n"] >= wanted:
                    file.wait_until(entry.value["n"])
                    break
        return found

    write(path, 1, 5)
    assert taken(due=2, wanted=2) == [1, 5]
    assert taken(due=4, wanted=4) == []
    assert taken(due=5, wanted=9) == [1, 5]
    assert taken(due=4, wanted=4) == []
    write(path, 9)
    assert taken(due=2, wanted=9) == [1, 5, 9]


def test_a_file_changed_a_moment_ago_is_looked_into_again(tmp_path: Path) -> None:
    """Within the resolution of a file's time it can change and look the same."""
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    write(path, 1, at=NOW - 2)
    assert reader.tick() == [1]
    assert [file.path for file in Tail(reader.patterns, SavedState(reader.state), now=NOW).files()] == [
        str(path)
    ]
    write(path, at=NOW - 3)
    assert reader.tick() == []
    assert list(Tail(reader.patterns, SavedState(reader.state), now=NOW).files()) == []


def test_damaged_lines_cost_themselves_and_are_counted_by_kind(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"n":1}\n{"n":\n{"n":"\xff"}\n[1]\n\0\0{"n":2}\n{"n":3,"x":"' + b"x" * 100 + b'"}\n{"n":4}\n'
    )
    os.utime(tmp_path / "a.jsonl", (NOW - 100, NOW - 100))
    reader = Reader(tmp_path, max_line_bytes=100)
    assert reader.tick() == [1, 2, 4]
    assert reader.tail.damage == {
        "not_json": 1,
        "not_utf8": 1,
        "not_an_object": 1,
        "nul_hole": 1,
        "too_long": 1,
    }
    assert reader.tail.lost == []
    assert reader.tick() == []


def test_an_endless_line_is_passed_over_across_ticks_and_told_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    reader = Reader(tmp_path, max_line_bytes=5000)
    write(path, 1, end=b"x" * 6000)
    assert reader.tick() == [1]
    assert reader.tail.damage == {"too_long": 1}
    write(path, end=b"x" * 6000, at=NOW - 90)
    assert reader.tick() == []
    assert reader.tail.bytes == 6000
    write(path, 7, end=b"", at=NOW - 80, mode="ab")
    path.write_bytes(path.read_bytes().replace(b'x{"n":7}', b'x\n{"n":7}'))
    os.utime(path, (NOW - 70, NOW - 70))
    assert reader.tick() == [7]
    assert reader.tail.damage == {}


def test_numbers_that_are_not_finite_do_not_cost_the_line() -> None:
    assert str(loads(b'{"a": NaN, "b": -Infinity}')) == "{'a': nan, 'b': -inf}"
    with pytest.raises(ValueError):
        loads(b'{"a": "\\ud800", "b": NaN}')
    with pytest.raises(ValueError):
        loads(b"{")


def test_an_unreadable_directory_or_file_is_lost_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "good" / "a.jsonl", 1)
    write(tmp_path / "locked" / "b.jsonl", 2)
    write(tmp_path / "good" / "c.jsonl", 3)
    scandir, opener = os.scandir, open

    def no_scandir(path: str) -> Any:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    def no_open(path: str, *arguments: Any, **options: Any) -> Any:
        if path.endswith("c.jsonl"):
            raise OSError(116, "Stale file handle", path)
        return opener(path, *arguments, **options)

    monkeypatch.setattr(os, "scandir", no_scandir)  # the tests may run as root, whom no mode keeps out
    monkeypatch.setattr("common.records.local.open", no_open, raising=False)
    reader = Reader(tmp_path)
    assert reader.tick() == [1]
    assert reader.tail.lost == [
        (f"{tmp_path}/locked", "Permission denied"),
        (f"{tmp_path}/good/c.jsonl", "Stale file handle"),
    ]


def test_a_file_that_fails_while_being_read_is_lost_and_goes_on_where_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.jsonl", 1, 2)
    write(tmp_path / "b.jsonl", 3, at=NOW - 50)
    reader = Reader(tmp_path)
    from common.records.file import OpenFile

    read = OpenFile.read
    failures = iter([False, False, True])

    def failing(self: OpenFile, size: int) -> bytes:
        if next(failures, False):
            raise OSError(5, "Input/output error")
        return read(self, size)

    with monkeypatch.context() as patched:
        patched.setattr(OpenFile, "read", failing)
        assert reader.tick() == [3]
    assert reader.tail.lost == [(f"{tmp_path}/a.jsonl", "Input/output error")]
    assert reader.tick() == [1, 2]
    assert reader.tail.lost == []


def test_a_file_that_vanishes_after_it_was_listed_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.jsonl", 1)
    write(tmp_path / "b.jsonl", 2, at=NOW - 50)
    tail = Tail([str(tmp_path)], SavedState({}), now=NOW)
    seen = []
    for file in tail.files():
        seen.append(file.path)
        (tmp_path / "b.jsonl").unlink()
    assert seen == [str(tmp_path / "a.jsonl")]
    assert tail.lost == []


def test_more_bytes_than_a_tick_may_take_are_read_oldest_first_and_the_rest_next_time(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 7, 8, at=NOW - 10)
    write(tmp_path / "b.jsonl", 1, 2, 3, at=NOW - 30)
    write(tmp_path / "c.jsonl", 4, 5, 6, at=NOW - 20)
    reader = Reader(tmp_path, bytes_per_tick=32)
    assert reader.tick() == [1, 2, 3, 4]
    assert (reader.tail.bytes, reader.tail.backlog_bytes, reader.tail.waiting_since) == (32, 32, NOW - 20)
    assert reader.tick() == [5, 6, 7, 8]
    assert (reader.tail.backlog_bytes, reader.tail.waiting_since) == (0, None)
    assert reader.tick() == []


def test_files_written_at_once_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 1, 2, 3)
    write(tmp_path / "b.jsonl", 4)
    assert Reader(tmp_path).tick() == [1, 2, 3, 4]


def test_what_is_left_of_a_file_that_was_begun_is_what_was_not_read(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", 1, 2)
    reader = Reader(tmp_path)
    assert reader.tick() == [1, 2]
    write(tmp_path / "a.jsonl", 3, 4, at=NOW - 60)
    write(tmp_path / "b.jsonl", 5, 6, 7, at=NOW - 50)
    assert reader.tick(bytes_per_tick=16) == [3, 4]
    assert (reader.tail.backlog_bytes, reader.tail.waiting_since) == (24, NOW - 50)
    assert reader.tick() == [5, 6, 7]


def test_a_file_cut_and_written_anew_is_read_from_its_start_once(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    write(path, 1, 2, 3)
    assert reader.tick() == [1, 2, 3]
    write(path, 1, 9, mode="wb", at=NOW - 50)
    assert reader.tick() == [1, 9]
    write(path, 10, at=NOW - 40)
    assert reader.tick() == [10]


@pytest.mark.parametrize("length", [64, 65, 66])
def test_a_compressed_file_goes_on_at_any_byte(tmp_path: Path, length: int) -> None:
    path, reader = tmp_path / "a.jsonl.gz", Reader(tmp_path)
    first = b'{"n":1,"x":"' + b"x" * (length - 15) + b'"}\n'
    assert len(first) == length
    for number, more in enumerate((b"", b'{"n":2}\n')):
        path.write_bytes(gzip.compress(first + more))
        os.utime(path, (NOW - 100 + number,) * 2)
        assert reader.tick() == [number + 1]


def test_damage_is_told_with_the_byte_and_with_the_line_where_that_is_known(tmp_path: Path) -> None:
    path, told = tmp_path / "a.jsonl", list[tuple[str, str, int, int]]()
    reader = Reader(tmp_path, damaged=lambda *damage: told.append(damage))
    write(path, 1, end=b"[1]\n")
    assert reader.tick() == [1]
    write(path, 2, end=b"[2]\n", at=NOW - 50)
    assert reader.tick() == [2]
    assert told == [("not_an_object", str(path), 8, 2), ("not_an_object", str(path), 20, 0)]
    path.unlink()
    told.clear()
    broken, none = tmp_path / "b.jsonl.gz", tmp_path / "c.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"n":1}\n') + b"no second member")
    none.write_bytes(b"none")
    for place, file in enumerate((broken, none)):
        os.utime(file, (NOW - 100 + place,) * 2)
    assert reader.tick() == [1]
    assert told == [("corrupt_gzip", str(broken), 8, 0), ("corrupt_gzip", str(none), 0, 0)]


def test_every_tick_makes_progress_however_small_its_share(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 1, 2, 3)
    reader = Reader(tmp_path, bytes_per_tick=1)
    assert [reader.tick() for _ in range(4)] == [[1], [2], [3], []]


def test_a_tick_whose_time_is_over_leaves_the_rest(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", *[1] * 2 * LINES_PER_LOOK, 3, 4)
    write(tmp_path / "b.jsonl", 5, at=NOW - 50)
    reader = Reader(tmp_path)
    spent = iter([False, False, True, True])
    assert reader.tick(enough=lambda: next(spent)) == [1] * 2 * LINES_PER_LOOK
    assert reader.tail.backlog_bytes == 24
    assert reader.tick() == [3, 4, 5]


def test_thousands_of_files_are_read_with_one_open_at_a_time(tmp_path: Path) -> None:
    for number in range(2000):
        write(tmp_path / f"{number:04d}.jsonl", number)
    reader = Reader(tmp_path)
    tail = Tail(reader.patterns, SavedState({}), now=NOW)
    most = 0
    for file in tail.files():
        assert len(list(file.entries())) == 1
        most = max(most, open_files(tmp_path))
    assert most == 1
    assert (tail.taken, tail.files_found) == (2000, 2000)


def test_checkpoints_of_files_and_runs_that_nobody_needs_expire(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    reader = Reader(tmp_path, identity=identity, expire_after=1000)
    write_records(path, "r", [0, 1])
    assert reader.tick() == [0, 1]
    path.unlink()
    reader.now += 1000
    assert reader.tick() == []
    assert len(reader.state) == 2
    reader.now += 1
    reader.tick()
    assert reader.state == {}


def test_a_file_too_old_to_be_news_is_read_with_its_family(tmp_path: Path) -> None:
    old = NOW - 7 * 86400 - 1
    write(tmp_path / "a" / "1.jsonl", 1, at=old)
    write(tmp_path / "a" / "2.jsonl", 2)
    write(tmp_path / "b" / "1.jsonl", 3, at=old)
    assert Reader(tmp_path).tick() == [2]
    assert Reader(tmp_path, family=lambda path: path.rpartition("/")[0]).tick() == [1, 2]


def test_a_file_too_old_to_be_news_is_not_opened_and_needs_no_checkpoint(tmp_path: Path) -> None:
    reader = Reader(tmp_path, expire_after=1000)
    write(tmp_path / "a.jsonl", 1, at=NOW - 1001)
    write(tmp_path / "b.jsonl", 2, at=NOW - 1000)
    assert reader.tick() == [2]
    reader.now += 1001
    assert reader.tick() == []
    assert reader.state == {}
    assert reader.tick() == []


def test_a_backlog_older_than_the_expiry_keeps_its_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 1, 2)
    write(tmp_path / "b.jsonl", 3, 4, at=NOW - 50)
    reader = Reader(tmp_path, bytes_per_tick=24, expire_after=1000)
    assert reader.tick() == [1, 2, 3]
    reader.now += 5000
    assert reader.tick(enough=lambda: True) == []
    assert reader.tick() == [4]


def test_clock_jumps_lose_and_repeat_no_record(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path, identity=identity)
    write_records(path, "r", [0])
    assert reader.tick() == [0]
    reader.now = NOW - 86400  # behind the files
    write_records(path, "r", [1], at=NOW - 50)
    assert reader.tick() == [1]
    reader.now = NOW + 86400
    write_records(path, "r", [2], at=NOW - 3000)  # the writer's clock went back
    assert reader.tick() == [2]


@pytest.mark.parametrize(
    "saved",
    [
        None,
        5,
        [],
        {},
        {"offset": "8"},
        {"other": 1},
        {"offset": -1, "tail": "", "at": 1},
        {"offset": 8, "tail": 5, "at": 1},
        {"offset": 8, "tail": "", "at": "x"},
        {"offset": 8, "tail": "", "at": 1, "whole": 5},
    ],
)
def test_a_saved_state_that_is_not_ours_is_as_good_as_none(tmp_path: Path, saved: object) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path, identity=identity)
    write_records(path, "r", [0, 1])
    reader.tick()
    reader.state = dict.fromkeys(reader.state, saved)
    assert reader.tick() == [0, 1]


@pytest.mark.parametrize(
    "edges", [5, [1], ["a", 2], [2, 1], [0, 1, 1, 3], [5, 6, 1, 2], [0, True], [[0, 1]], {"0": 2}]
)
def test_saved_ranges_that_are_not_ours_are_as_good_as_none(tmp_path: Path, edges: object) -> None:
    write_records(tmp_path / "a.jsonl", "r", [0, 1])
    reader = Reader(tmp_path, identity=identity)
    reader.state = {"seen:r": {"edges": edges, "at": NOW}}
    assert reader.tick() == [0, 1]


def test_an_empty_or_unfinished_file_and_a_pipe_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    write(tmp_path / "begun.jsonl", end=b'{"n":')
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert stat.S_ISFIFO((tmp_path / "pipe.jsonl").stat().st_mode)
    reader = Reader(tmp_path)
    os.utime(tmp_path / "empty.jsonl", (NOW, NOW))
    assert reader.tick() == []
    assert (reader.tail.files_found, reader.tail.lost, reader.state) == (2, [], {})
    assert reader.tail.damage == {}


def test_a_first_line_longer_than_what_identifies_it_is_known_before_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    reader = Reader(tmp_path)
    write(path, end=b'{"n":1,"x":"' + b"x" * 9000 + b'"}\n')
    write(path, 2)
    assert reader.tick() == [1, 2]
    write(path, 3, at=NOW - 20)
    assert reader.tick() == [3]
