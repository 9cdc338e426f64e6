"""Which files patterns match, on disk: directories, globs, rotated names, copies, and what is unreadable."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from common.collector import Network
from common.records.compression import zstd
from common.records.files import (
    MAX_DIRECTORY_DEPTH,
    MAX_DOCUMENT,
    File,
    Files,
    former_names,
    reason,
    shown,
    unit,
)

NOW = 2_000_000_000


def files(since: float = NOW, until: float = NOW, **limits: int) -> Files:
    return Files(Network(), since, until, **limits)


def found(*patterns: object) -> list[str]:
    result = files().find([str(pattern) for pattern in patterns])
    assert result.unreadable == []
    return sorted(result.files)


def make(root: Path, *names: str, content: bytes = b"") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def listed(path: Path) -> File:
    return files().find([str(path)]).files[str(path)]


# Names


@pytest.mark.parametrize(
    ("name", "former"),
    [
        ("run.jsonl", ["run.jsonl"]),
        ("run.jsonl.2", ["run.jsonl.2", "run.jsonl"]),
        ("run.jsonl.2.gz", ["run.jsonl.2.gz", "run.jsonl.2", "run.jsonl"]),
        ("run.jsonl.zst", ["run.jsonl.zst", "run.jsonl"]),
        ("run.000002.jsonl", ["run.000002.jsonl", "run.jsonl", "run.jsonl"]),
        ("run.r-1.000002.jsonl", ["run.r-1.000002.jsonl", "run.jsonl", "run.r-1.jsonl"]),
    ],
)
def test_rotated_and_compressed_names_lead_to_one_unit(name: str, former: list[str]) -> None:
    assert list(former_names(name)) == former
    assert unit(f"/shared/{name}") == "/shared/run.jsonl"


def test_path_is_shown_with_escapes_for_what_is_not_printable() -> None:
    assert shown(os.fsdecode(b"/a/\xff\x1b[2J\n.jsonl")) == "/a/\\xff\\x1b[2J\\n.jsonl"
    assert shown("/a/\u00e9 b.jsonl") == "/a/\u00e9 b.jsonl"


def test_reason_of_an_error_has_neither_number_nor_path() -> None:
    assert reason(PermissionError(errno.EACCES, "Permission denied", "/a")) == "Permission denied"
    assert reason(OSError("there is no such bucket")) == "there is no such bucket"


# Patterns


def test_directory_matches_all_json_lines_below_it(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", "sub/deep/b.jsonl", "sub/c.jsonl.3.gz", "d.json")
    make(tmp_path, ".hidden.jsonl", ".h/e.jsonl", "f.jsonl.bak")
    expected = [f"{tmp_path}/a.jsonl", f"{tmp_path}/sub/c.jsonl.3.gz", f"{tmp_path}/sub/deep/b.jsonl"]
    assert found(tmp_path) == expected
    assert found(f"{tmp_path}/", tmp_path / "a.jsonl") == expected


def test_glob_matches_in_every_part_and_across_directories(tmp_path: Path) -> None:
    make(tmp_path, "x1/a.jsonl", "x2/a.jsonl", "y/a.jsonl", "x1/z/a.jsonl", "x1/b.log", ".x/a.jsonl")
    assert found(tmp_path / "x?" / "*.jsonl") == [f"{tmp_path}/x1/a.jsonl", f"{tmp_path}/x2/a.jsonl"]
    assert found(tmp_path / "**" / "z" / "*") == [f"{tmp_path}/x1/z/a.jsonl"]
    assert found(f"{tmp_path}/x?/") == [f"{tmp_path}/x{name}/a.jsonl" for name in ("1", "1/z", "2")]
    assert found(tmp_path / "x1" / "**") == [
        f"{tmp_path}/x1/{name}" for name in ("a.jsonl", "b.log", "z/a.jsonl")
    ]
    assert found(tmp_path / ".x" / "*") == [f"{tmp_path}/.x/a.jsonl"]


def test_name_with_brackets_is_found_as_it_is_written(tmp_path: Path) -> None:
    make(tmp_path, "[a].jsonl", "[b]/c.jsonl")
    assert found(tmp_path / "[a].jsonl", tmp_path / "[b]") == [
        f"{tmp_path}/[a].jsonl",
        f"{tmp_path}/[b]/c.jsonl",
    ]


def test_relative_pattern_gives_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.jsonl")
    monkeypatch.chdir(tmp_path)
    assert found("a.jsonl") == found("*.jsonl") == found(".") == [f"{tmp_path}/a.jsonl"]


def test_directories_are_entered_to_a_limited_depth(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["x"] * MAX_DIRECTORY_DEPTH)
    make(deep, "a.jsonl", "x/b.jsonl", "x/x/c.jsonl")
    result = files().find([str(tmp_path)])
    assert (sorted(result.files), [path for path, _ in result.unreadable]) == (
        [f"{deep}/a.jsonl"],
        [f"{deep}/x"],
    )
    expected = [str(tmp_path.joinpath(*["x"] * depth)) for depth in range(MAX_DIRECTORY_DEPTH + 1)]
    assert [directory for directory, _, _ in files().tree(str(tmp_path))] == expected


@pytest.mark.parametrize(
    ("since", "until", "days"),
    [
        (0, 0, ["1970-01-01"]),
        (0, 86_399, ["1970-01-01"]),
        (86_399, 2 * 86_400, ["1970-01-01", "1970-01-02", "1970-01-03"]),
        (86_400, 0, ["1970-01-02"]),
    ],
)
def test_date_in_a_pattern_is_each_day_of_the_span(since: float, until: float, days: list[str]) -> None:
    assert files(since, until).expand("/a/{date}/b") == [f"/a/{day}/b" for day in days]
    assert files(since, until).expand("/a/b") == ["/a/b"]


def test_dated_files_are_found_by_the_pattern_as_written(tmp_path: Path) -> None:
    make(tmp_path, "1970-01-01/a.jsonl", "1970-01-02/b.jsonl", "1970-01-03/c.jsonl")
    pattern = f"{tmp_path}/{{date}}"
    result = files(0, 86_400).find([pattern])
    assert result.pattern_of == {f"{tmp_path}/1970-01-0{name}.jsonl": pattern for name in ("1/a", "2/b")}
    assert files(0, 0).is_directory(pattern)
    assert not files(5 * 86_400, 5 * 86_400).is_directory(pattern)
    later = files(5 * 86_400, 5 * 86_400).find([pattern])
    assert (later.files, later.unreadable, later.missing) == ({}, [], {})


def test_fixed_part_of_a_pattern_must_exist(tmp_path: Path) -> None:
    make(tmp_path, "rotated.000001.jsonl", "there.jsonl")
    gone = [f"{tmp_path}/gone/", f"{tmp_path}/gone", f"{tmp_path}/gone.jsonl", f"{tmp_path}/gone/*.jsonl"]
    empty = [f"{tmp_path}/x*/y.jsonl", f"{tmp_path}/*.txt", f"{tmp_path}/{{date}}/*.jsonl"]
    result = files().find([*gone, *empty, f"{tmp_path}/there.jsonl", f"{tmp_path}/rotated.jsonl"])
    fixed = ["gone", "gone", "gone.jsonl", "gone"]
    assert result.missing == {
        pattern: f"{tmp_path}/{part}" for pattern, part in zip(gone, fixed, strict=True)
    }
    assert result.unreadable == []
    assert sorted(result.pattern_of.values()) == [f"{tmp_path}/rotated.jsonl", f"{tmp_path}/there.jsonl"]
    assert files().find([str(tmp_path), f"{tmp_path}/rotated.jsonl"]).missing == {}


def test_tree_has_names_of_directories_and_regular_files(tmp_path: Path) -> None:
    make(tmp_path, "b/2.jsonl", "a/1.jsonl", "manifest.json", ".h/3.jsonl", content=b"12345")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    os.utime(tmp_path / "manifest.json", (NOW, NOW))
    tree = [
        (directory, below, [file.path for file in inside])
        for directory, below, inside in files().tree(str(tmp_path))
    ]
    assert tree == [
        (str(tmp_path), ["a", "b"], [f"{tmp_path}/manifest.json"]),
        (f"{tmp_path}/a", [], [f"{tmp_path}/a/1.jsonl"]),
        (f"{tmp_path}/b", [], [f"{tmp_path}/b/2.jsonl"]),
    ]
    (_, _, [manifest]) = next(files().tree(str(tmp_path)))
    assert (manifest.size, manifest.modified, manifest.version) == (5, NOW, "")


def test_document_is_read_to_a_byte_more_than_it_may_have(tmp_path: Path) -> None:
    make(tmp_path, "small.json", content=b"{}")
    make(tmp_path, "large.json", content=bytes(MAX_DOCUMENT + 9))
    assert files().read_document(f"{tmp_path}/small.json") == b"{}"
    assert len(files().read_document(f"{tmp_path}/large.json")) == MAX_DOCUMENT + 1
    with pytest.raises(FileNotFoundError):
        files().read_document(f"{tmp_path}/none.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        files().read_document(f"{tmp_path}/pipe")


# Copies


def test_file_with_two_names_is_found_once(tmp_path: Path) -> None:
    make(tmp_path, "b.jsonl")
    os.link(tmp_path / "b.jsonl", tmp_path / "a.jsonl")
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "b.jsonl")
    result = files().find([f"{tmp_path}/[bc].jsonl", str(tmp_path)])
    assert result.pattern_of == {f"{tmp_path}/a.jsonl": str(tmp_path)}
    assert list(result.files) == [f"{tmp_path}/a.jsonl"]


@pytest.mark.parametrize("long", [10, 5000])
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_copy_of_a_plain_file_is_left_out(tmp_path: Path, suffix: str, long: int) -> None:
    compress = gzip.compress if suffix == ".gz" else zstd.compress
    lines = [b"x" * long + b"%d\n" % number for number in range(3)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    (tmp_path / f"a.jsonl{suffix}").write_bytes(compress(b"".join(lines[:2])))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines))
    (tmp_path / f"b.jsonl{suffix}").write_bytes(compress(b"before" + b"".join(lines)))
    for path in tmp_path.iterdir():
        os.utime(path, (NOW, NOW))
    assert found(tmp_path) == [f"{tmp_path}/{name}" for name in ("a.jsonl", "b.jsonl", f"b.jsonl{suffix}")]


def test_compressed_file_is_kept_where_a_first_line_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"unfinished")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"unfinished\n"))
    (tmp_path / "b.jsonl").write_bytes(b"line\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"line\n")[:12])
    (tmp_path / "c.jsonl").write_bytes(b"line\n")
    (tmp_path / "c.jsonl.gz").write_bytes(b"line\n")
    for path in tmp_path.iterdir():
        os.utime(path, (NOW, NOW))
    assert len(found(tmp_path)) == 6


def test_files_that_no_run_will_read_are_not_opened_to_compare(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"line\n")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"other\n"))
    os.utime(tmp_path / "a.jsonl.gz", (NOW - 601, NOW - 601))
    assert found(tmp_path) == [f"{tmp_path}/a.jsonl"]
    os.utime(tmp_path / "a.jsonl.gz", (NOW - 600, NOW - 600))
    assert found(tmp_path) == [f"{tmp_path}/a.jsonl", f"{tmp_path}/a.jsonl.gz"]


# What is unreadable


def test_link_to_a_directory_is_not_followed_below_a_directory(tmp_path: Path) -> None:
    make(tmp_path, "here/sub/a.jsonl", "elsewhere/b.jsonl")
    (tmp_path / "here" / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "dangling.jsonl").symlink_to(tmp_path / "nothing")
    assert found(tmp_path / "here") == [f"{tmp_path}/here/sub/a.jsonl"]
    assert found(tmp_path / "here" / "l*" / "*") == [f"{tmp_path}/here/link/b.jsonl"]


def test_pipe_is_unreadable_and_a_directory_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", "directory.jsonl/b.log")
    os.mkfifo(tmp_path / "pipe.jsonl")
    result = files().find([str(tmp_path)])
    assert list(result.files) == [f"{tmp_path}/a.jsonl"]
    assert result.unreadable == [(f"{tmp_path}/pipe.jsonl", "it is not a regular file")]


def test_link_that_leads_to_itself_is_unreadable_and_not_missing(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    result = files().find([str(tmp_path), f"{tmp_path}/loop.jsonl/*/b.jsonl"])
    assert list(result.files) == [f"{tmp_path}/a.jsonl"]
    assert result.unreadable == [(f"{tmp_path}/loop.jsonl", os.strerror(errno.ELOOP))]
    assert result.missing == {}


def test_unreadable_directory_is_reported_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "good/a.jsonl", "locked/b.jsonl")
    scandir = os.scandir

    def denied(path: str) -> object:
        if path.endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)  # the tests may run as root, who may read everything
    result = files().find([str(tmp_path)])
    assert list(result.files) == [f"{tmp_path}/good/a.jsonl"]
    assert result.unreadable == [(f"{tmp_path}/locked", "Permission denied")]


def test_name_that_is_not_text_is_unreadable(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.jsonl", os.O_CREAT))
    result = files().find([str(tmp_path)])
    assert list(result.files) == [f"{tmp_path}/a.jsonl"]
    assert result.unreadable == [(f"{tmp_path}/\\xff.jsonl", "its name is not UTF-8")]


def test_more_files_than_the_limit_are_reported_and_the_first_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.jsonl", "b/b.jsonl", "c/c.jsonl")
    monkeypatch.setattr("common.records.files.MAX_FILES", 3)
    assert files().find([str(tmp_path)]).unreadable == []
    monkeypatch.setattr("common.records.files.MAX_FILES", 2)
    result = files().find([str(tmp_path)])
    assert len(result.files) == len(result.pattern_of) == 2
    assert result.unreadable == [(str(tmp_path), "more than 2 files; narrow the pattern")]


# Renamed files


def test_renamed_file_is_found_again_by_its_identity(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl", content=b"line\n")
    storage = files()
    first = storage.find([str(tmp_path)]).files
    (tmp_path / "a.jsonl").rename(tmp_path / "a.jsonl.1")
    make(tmp_path, "a.jsonl")
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "new").write_bytes(b"replaced\n")
    (tmp_path / "new").rename(tmp_path / "c.jsonl")
    for name in ("a", "b", "c"):
        with pytest.raises(FileNotFoundError):
            storage.open(first[f"{tmp_path}/{name}.jsonl"])
    assert storage.find_again(first[f"{tmp_path}/a.jsonl"]) == listed(tmp_path / "a.jsonl.1")
    assert storage.find_again(first[f"{tmp_path}/b.jsonl"]) is None
    assert storage.find_again(first[f"{tmp_path}/c.jsonl"]) == listed(tmp_path / "c.jsonl")
    assert files().find_again(first[f"{tmp_path}/a.jsonl"]) is None


def test_file_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    storage = files()
    [file] = storage.find([str(tmp_path)]).files.values()
    (tmp_path / "a.jsonl").unlink()
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        storage.open(file)
