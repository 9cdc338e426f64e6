"""Which files patterns match, on disk: directories, globs, rotated names, and what is unreadable."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from common.config.aws import ChangedFileError
from common.config.settings import CoreSettings
from common.records.files import (
    MAX_DOCUMENT,
    NOT_THERE,
    TOO_MANY,
    Disk,
    File,
    Files,
    Found,
    former_names,
    shown,
    unit,
)
from support.record_runs import unreadable

NOW = 2_000_000_000


def files(since: float = NOW, until: float = NOW) -> Files:
    return Files(CoreSettings(), since, until)


def found(*patterns: object) -> list[str]:
    result = files().find([str(pattern) for pattern in patterns])
    assert result.unreadable == []
    return sorted(result.files)


def patterns(result: Found) -> dict[str, str]:
    return {path: file.pattern for path, file in result.files.items()}


def make(root: Path, *names: str, content: bytes = b"") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "former"),
    [
        ("run.jsonl", ["run.jsonl"]),
        ("run.jsonl.2", ["run.jsonl.2", "run.jsonl"]),
        ("run.jsonl.2.gz", ["run.jsonl.2.gz", "run.jsonl.2", "run.jsonl"]),
        ("run.jsonl.20261119", ["run.jsonl.20261119", "run.jsonl"]),
        ("run.jsonl-20261119.gz", ["run.jsonl-20261119.gz", "run.jsonl-20261119", "run.jsonl"]),
        ("run.jsonl.2026-11-19_14", ["run.jsonl.2026-11-19_14", "run.jsonl"]),
        ("run.jsonl.zst", ["run.jsonl.zst", "run.jsonl"]),
        ("run.000002.jsonl", ["run.000002.jsonl", "run.jsonl", "run.jsonl"]),
        ("run.r-1.000002.jsonl", ["run.r-1.000002.jsonl", "run.r-1.jsonl", "run.jsonl"]),
    ],
)
def test_rotated_and_compressed_names_lead_to_one_unit(name: str, former: list[str]) -> None:
    assert list(former_names(name)) == former
    assert unit(f"/shared/{name}") == "/shared/run.jsonl"


@pytest.mark.parametrize("name", ["run.812345.jsonl", "run.jsonl.71234"])
def test_file_that_is_named_after_its_job_or_process_is_its_own_unit(name: str) -> None:
    assert unit(f"/shared/{name}.gz") == unit(f"/shared/{name}") == f"/shared/{name}"


# Patterns


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("x?/*.jsonl", {"x1/a.jsonl", "x2/a.jsonl"}),
        ("**/z/*", {"x1/z/a.jsonl"}),
        ("x?/", {"x1/a.jsonl", "x1/z/a.jsonl", "x2/a.jsonl"}),
        ("x1/**", {"x1/a.jsonl", "x1/b.log", "x1/z/a.jsonl"}),
        (".x/*", {".x/a.jsonl"}),
        ("[y].jsonl", {"[y].jsonl"}),
        ("[y]", {"[y]/a.jsonl"}),
        ("l*/*", {"link/b.jsonl"}),
        ("here", {"here/sub/a.jsonl"}),
    ],
)
def test_glob_matches_in_every_part(tmp_path: Path, pattern: str, expected: set[str]) -> None:
    """Links to directories are followed where they are named, not below `**`."""
    make(tmp_path, "x1/a.jsonl", "x2/a.jsonl", "x1/z/a.jsonl", "x1/b.log", ".x/a.jsonl")
    make(tmp_path, "[y].jsonl", "[y]/a.jsonl", "here/sub/a.jsonl", "elsewhere/b.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "here" / "dangling.jsonl").symlink_to(tmp_path / "nothing")
    assert found(f"{tmp_path}/{pattern}") == sorted(f"{tmp_path}/{name}" for name in expected)


def test_relative_pattern_gives_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.jsonl")
    monkeypatch.chdir(tmp_path)
    assert found("a.jsonl") == found("*.jsonl") == found(".") == [f"{tmp_path}/a.jsonl"]


def test_fixed_part_of_a_pattern_must_exist(tmp_path: Path) -> None:
    make(tmp_path, "rotated.000001.jsonl", "there.jsonl")
    gone = {"gone/": "gone", "gone.jsonl": "gone.jsonl", "gone/*/a": "gone"}
    empty = ["x*/y.jsonl", "*.txt", "{date}/*.jsonl", "there.jsonl", "rotated.jsonl"]
    result = files().find([f"{tmp_path}/{pattern}" for pattern in [*gone, *empty]])
    assert result.unreadable == [(f"{tmp_path}/{fixed}", NOT_THERE) for fixed in gone.values()][:2]
    assert sorted(patterns(result).values()) == [f"{tmp_path}/rotated.jsonl", f"{tmp_path}/there.jsonl"]


def test_file_with_two_names_is_found_once(tmp_path: Path) -> None:
    make(tmp_path, "b.jsonl")
    os.link(tmp_path / "b.jsonl", tmp_path / "a.jsonl")
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "b.jsonl")
    result = files().find([f"{tmp_path}/[bc].jsonl", str(tmp_path)])
    assert patterns(result) == {f"{tmp_path}/a.jsonl": str(tmp_path)}


def test_document_is_read_to_a_byte_more_than_it_may_have(tmp_path: Path) -> None:
    make(tmp_path, "small.json", content=b"{}")
    make(tmp_path, "large.json", content=bytes(MAX_DOCUMENT + 1))
    assert files().read_document(f"{tmp_path}/small.json") == b"{}"
    with pytest.raises(OSError, match="more than"):
        files().read_document(f"{tmp_path}/large.json")
    with pytest.raises(FileNotFoundError):
        files().read_document(f"{tmp_path}/none.json")


# What is unreadable


def test_what_is_no_readable_file_is_reported_and_the_others_are_found(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", "directory.jsonl/b.log", "locked/b.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    os.mkfifo(tmp_path / "other pipe")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.jsonl", os.O_CREAT))
    with unreadable([f"{tmp_path}/locked"]):
        result = files().find([str(tmp_path), f"{tmp_path}/loop.jsonl/*/b.jsonl"])
    assert sorted(result.files) == [f"{tmp_path}/a.jsonl"]
    assert {(shown(path).removeprefix(f"{tmp_path}/"), why) for path, why in result.unreadable} == {
        ("pipe.jsonl", "it is not a regular file"),
        ("loop.jsonl", os.strerror(errno.ELOOP)),
        ("\\xff.jsonl", "its name is not UTF-8"),
        ("locked", "Permission denied"),
    }


def test_what_is_nested_too_deeply_is_lost_alone(tmp_path: Path) -> None:
    deep = Path("a.jsonl", *["d"] * 150)
    make(tmp_path, "b.jsonl")
    for parent in reversed(deep.parents):
        (tmp_path / parent).mkdir(exist_ok=True)
    result = files().find([str(tmp_path)])
    assert list(result.files) == [f"{tmp_path}/b.jsonl"]
    [(path, why)] = result.unreadable
    assert path.startswith(f"{tmp_path}/a.jsonl/d/d/")
    assert "directories" in why


def test_more_files_than_the_limit_are_reported_and_the_first_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.jsonl", "b/b.jsonl", "c/c.jsonl")
    monkeypatch.setattr("common.records.files.MAX_FILES", 3)
    assert len(found(tmp_path)) == 3
    monkeypatch.setattr("common.records.files.MAX_FILES", 2)
    result = files().find([str(tmp_path)])
    assert len(result.files) == 2
    assert result.unreadable == [(str(tmp_path), TOO_MANY)]


# Files that change


def test_file_that_is_rotated_while_it_is_listed_is_found_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.jsonl")
    path, stat_file = tmp_path / "a.jsonl", Disk.file

    def rotate_once(disk: Disk, name: str) -> File:
        if path.read_bytes() == b"":
            path.rename(tmp_path / "a.000001.jsonl")
            path.write_bytes(b"new")
        return stat_file(disk, name)

    monkeypatch.setattr(Disk, "file", rotate_once)
    sizes = {name: file.size for name, file in files().find([str(tmp_path)]).files.items()}
    assert sizes == {str(path): 3, f"{tmp_path}/a.000001.jsonl": 0}


def test_file_that_was_renamed_replaced_or_deleted_is_noticed(tmp_path: Path) -> None:
    make(tmp_path, *(f"{name}.jsonl" for name in "abcde"), content=b"line\n")
    storage = files().storage(str(tmp_path))
    first = {path[-7]: file for path, file in files().find([str(tmp_path)]).files.items()}
    (tmp_path / "a.jsonl").rename(tmp_path / "a.jsonl.1")
    make(tmp_path, "a.jsonl", "new")
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "new").rename(tmp_path / "c.jsonl")
    (tmp_path / "e.jsonl").unlink()
    make(tmp_path, "e.jsonl.gz")
    os.mkfifo(tmp_path / "pipe")  # made before the file is deleted, whose inode it could have otherwise
    (tmp_path / "pipe").rename(tmp_path / "d.jsonl")
    for name in "abce":
        with pytest.raises(ChangedFileError if name in "ac" else FileNotFoundError):
            storage.open(first[name])
    assert storage.current(first["a"]).path == f"{tmp_path}/a.jsonl.1"
    assert storage.current(first["e"]).path == f"{tmp_path}/e.jsonl.gz"
    with pytest.raises(FileNotFoundError):
        storage.current(first["b"])
    storage.open(storage.current(first["c"]))
    with pytest.raises(OSError):  # nothing waits for a writer of the pipe
        storage.open(first["d"])
    with pytest.raises(OSError, match="not a regular file"):
        storage.current(first["d"])
