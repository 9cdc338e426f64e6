"""Which shard a file is for, and which series no other shard feeds, by what first lines say."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from collectors.data_plane.collector import DataPlaneIngest
from collectors.gpu_memory.collector import GpuMemoryIngest
from collectors.xenna.collector import XennaIngest
from common.records.saved import SavedState
from common.records.storage import Raw, Wanted
from common.records.storages import Files
from common.records.units import PREFIX, Units
from common.shards import Shard, slot
from fleetgauge.records import Json
from support.xenna_ticks import NOW


class Counted(Files):
    """Files of which is counted what is opened; what is `broken` cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.broken: set[str] = set()

    def opened(self, files: Iterable[Wanted]) -> Iterator[tuple[str, Raw | OSError]]:
        for path, raw in super().opened(files):
            self.asked.append(Path(path).name)
            yield path, OSError(5, "Input/output error") if Path(path).name in self.broken else raw


def by_hash(_: str, first: Json) -> str:
    return str(first.get("run_hash", "none"))


def units(state: dict[str, object] | None = None, shard: Shard | None = None, since: float = 0) -> Units:
    return Units(
        *(by_hash, shard or Shard(0, 2), SavedState(state or {}), NOW),
        looks=True,
        layered=True,
        since=since,
        feeds=lambda first: str(first.get("run_hash", "")),
    )


OURS, THEIRS = (next(name for name in "abcdefgh" if Shard(index, 2).owns(name)) for index in range(2))


def write(folder: Path, name: str, content: bytes, at: int = NOW) -> str:
    (folder / name).write_bytes(content)
    os.utime(folder / name, (at, at))
    return str(folder / name)


@pytest.mark.parametrize(
    "before",
    [b"", b"\xef\xbb\xbf", b"\n\n", b" \r\n", b"\0" * 5000, b"\0" * 60_000 + b"\n"],
    ids=["nothing", "mark", "lines", "blank", "hole", "long hole"],
)
def test_a_first_line_says_whose_a_file_is_whatever_emptiness_comes_before_it(
    tmp_path: Path, before: bytes
) -> None:
    long = b'{"padding": "' + b"x" * 5000 + b'", "run_hash": "%s"}\n'
    ours = write(tmp_path, "ours.jsonl", before + long % OURS.encode())
    theirs = write(tmp_path, "theirs.jsonl", before + long % THEIRS.encode())
    files, found = Files(), units()
    assert [*found.owned(files.find([str(tmp_path)]).files, files)] == [ours]
    assert [found.known[path][1] for path in (ours, theirs)] == [slot(OURS), slot(THEIRS)]
    assert found.sole == frozenset({OURS})


@pytest.mark.parametrize(
    "content", [b'{"run_hash": "', b"[1]\n", b"{}" + b" " * 70_000 + b"\n", b"junk\n", b""]
)
def test_a_first_line_that_says_nothing_makes_no_series_its_own(tmp_path: Path, content: bytes) -> None:
    path, files, found = write(tmp_path, "a.jsonl", content), Files(), units()
    found.owned(files.find([str(tmp_path)]).files, files)
    assert found.known[path][1:] == (slot("none"), NOW, "")
    assert found.sole == frozenset()


def test_what_files_of_two_units_feed_is_nobodys_own(tmp_path: Path) -> None:
    for name in ("left", "right"):
        write(tmp_path, f"{name}.jsonl", b'{"run_hash": "%s"}\n' % OURS.encode())
    files = Files()
    both = Units(
        lambda path, _: path,
        Shard(0, 64),
        None,
        NOW,
        looks=True,
        layered=True,
        feeds=lambda one: one["run_hash"],
    )
    both.owned(files.find([str(tmp_path)]).files, files)
    assert both.sole == frozenset()


def test_a_file_that_cannot_be_looked_into_stays_with_its_shard_and_is_looked_into_again(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "a.jsonl", b'{"run_hash": "%s"}\n' % OURS.encode())
    first, files = units(), Counted()
    first.owned(files.find([str(tmp_path)]).files, files)
    state = {**first.changes([path], 0)}
    assert [*state] == [PREFIX + path]
    write(tmp_path, "a.jsonl", b'{"run_hash": "%s"}\n{}\n' % OURS.encode())
    files.broken = {"a.jsonl"}
    later = units(state)
    assert [*later.owned(files.find([str(tmp_path)]).files, files)] == [
        path
    ]  # for whoever says that it is lost
    assert later.changes([path], 0) == {}
    new = units()
    new.owned(files.find([str(tmp_path)]).files, files)
    assert new.changes([path], 0) == {}
    files.broken, files.asked = set(), []
    new.owned(files.find([str(tmp_path)]).files, files)
    new = units()
    new.owned(files.find([str(tmp_path)]).files, files)
    assert (new.known[path][3], files.asked) == (OURS, ["a.jsonl"])


def test_files_that_are_too_old_to_be_read_are_not_looked_into(tmp_path: Path) -> None:
    for age in range(5):
        write(tmp_path, f"{age}.jsonl", b'{"run_hash": "%s"}\n' % OURS.encode(), NOW - age)
    files, found = Counted(), units(since=NOW - 2)
    found.owned(files.find([str(tmp_path)]).files, files)
    assert sorted(files.asked) == ["0.jsonl", "1.jsonl", "2.jsonl"]
    again = units({**found.changes([], -1)}, since=NOW - 2)
    again.owned(files.find([str(tmp_path)]).files, files)
    assert len(files.asked) == 3


def test_names_that_datadog_stores_alike_are_of_one_unit() -> None:
    for ingest, key in ((XennaIngest, "run_hash"), (DataPlaneIngest, "job")):
        one, other = (ingest.unit("/data/A0-a0.jsonl", {key: name}) for name in ("A0", "a0"))
        assert one == other == f"{key}:a0"
    assert XennaIngest.fed_by({"run_hash": "A b"}) == XennaIngest.series_of(("run_hash:a_b",), None)
    told = {
        "schema_version": 4,
        "event_type": "sample",
        "timestamp_ns": NOW * 10**9,
        "rank": 3,
        "host": "node",
    }
    names = [GpuMemoryIngest.fed_by({**told, "job_id": name}) for name in ("A0", "a0")]
    assert names == ['["node", "a0", "3"]'] * 2
    assert GpuMemoryIngest.fed_by(told) == GpuMemoryIngest.fed_by({"rank": 3}) == ""
    assert GpuMemoryIngest.series_of(("gpu:1", "job_id:A0"), None) == '["", "a0", null]'


def test_a_single_shard_owns_all_and_remembers_nothing(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", b'{"run_hash": "a"}\n')
    files = Counted()
    found = files.find([str(tmp_path)]).files
    alone = Units(by_hash, now=NOW, looks=True)
    assert (alone.owned(found, files), alone.changes(found, NOW), alone.sole) == (found, {}, None)
    assert files.asked == []


def test_every_shard_owns_its_own_files_and_all_are_owned_once(tmp_path: Path) -> None:
    for name in "abcdefgh":
        write(tmp_path, f"{name}.jsonl", b'{"run_hash": "%s"}\n' % name.encode())
    files = Files()
    found = files.find([str(tmp_path)]).files
    shares = [units(shard=Shard(index, 3)).owned(found, files) for index in range(3)]
    assert sorted(path for share in shares for path in share) == sorted(found)
    for index, share in enumerate(shares):
        assert all(Shard(index, 3).owns(Path(path).stem) for path in share)


def test_what_a_first_line_said_is_remembered_until_the_file_looks_otherwise(tmp_path: Path) -> None:
    paths = [write(tmp_path, f"{name}.jsonl", b'{"run_hash": "%s"}\n' % name.encode()) for name in "ab"]
    files, first = Counted(), units()
    found = files.find([str(tmp_path)]).files
    first.owned(found, files)
    changes = first.changes(found, 0)
    told = zip(paths, "ab", strict=True)
    assert changes == {PREFIX + path: [found[path].looks, slot(name), NOW, name] for path, name in told}
    assert first.changes(found, 0) == {}
    files.asked.clear()
    write(tmp_path, "b.jsonl", b'{"run_hash": "other"}\n')
    later, found = units(changes), files.find([str(tmp_path)]).files
    later.owned(found, files)
    assert later.changes(found, 0) == {
        PREFIX + paths[1]: [found[paths[1]].looks, slot("other"), NOW, "other"]
    }
    assert files.asked == ["b.jsonl"]


@pytest.mark.parametrize(("before", "gone"), [(NOW, set()), (NOW + 1, {"unit:/ants/a"})])
def test_a_file_that_is_gone_for_long_is_forgotten(before: int, gone: set[str]) -> None:
    saved: dict[str, object] = {f"unit:/ants/{name}": [[1, 2], "07", NOW, ""] for name in "ab"}
    assert units(saved).changes(["/ants/b"], before) == dict.fromkeys(gone)
