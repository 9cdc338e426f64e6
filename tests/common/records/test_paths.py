"""Which files paths, directories and globs stand for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from common.records import local
from common.records.local import LocalStorage
from common.records.paths import MAX_DEPTH, filter_of, first_name, former_names, shown, stem
from common.records.storages import Files, days


def found(*patterns: object) -> list[str]:
    return sorted(Files().find([str(pattern) for pattern in patterns]).files)


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_a_directory_stands_for_all_its_json_lines(tmp_path: Path) -> None:
    make(
        tmp_path,
        "a.jsonl",
        "sub/deep/b.jsonl",
        "sub/c.jsonl.3.gz",
        "d.json",
        ".hidden.jsonl",
        ".h/e.jsonl",
        "f.jsonl.bak",
    )
    expected = [f"{tmp_path}/a.jsonl", f"{tmp_path}/sub/c.jsonl.3.gz", f"{tmp_path}/sub/deep/b.jsonl"]
    assert found(tmp_path) == expected
    assert found(f"{tmp_path}/", tmp_path / "a.jsonl") == expected


def test_globs_match_in_every_part_and_across_directories(tmp_path: Path) -> None:
    make(tmp_path, "x1/a.jsonl", "x2/a.jsonl", "y/a.jsonl", "x1/z/a.jsonl", "x1/b.log")
    assert found(tmp_path / "x?" / "*.jsonl") == [f"{tmp_path}/x1/a.jsonl", f"{tmp_path}/x2/a.jsonl"]
    assert found(tmp_path / "**" / "z" / "*") == [f"{tmp_path}/x1/z/a.jsonl"]
    assert found(tmp_path / "x1" / "**") == [
        f"{tmp_path}/x1/a.jsonl",
        f"{tmp_path}/x1/b.log",
        f"{tmp_path}/x1/z/a.jsonl",
    ]


def test_a_name_with_brackets_is_found_as_it_is_written(tmp_path: Path) -> None:
    make(tmp_path, "[a].jsonl")
    assert found(tmp_path / "[a].jsonl") == [f"{tmp_path}/[a].jsonl"]


@pytest.mark.parametrize(
    ("name", "former"),
    [
        ("run.jsonl", ["run.jsonl"]),
        ("run.jsonl.2", ["run.jsonl.2", "run.jsonl"]),
        ("run.jsonl.2.gz", ["run.jsonl.2.gz", "run.jsonl.2", "run.jsonl"]),
        ("run.jsonl.gz", ["run.jsonl.gz", "run.jsonl"]),
        ("run.000002.jsonl", ["run.000002.jsonl", "run.jsonl", "run.jsonl"]),
        ("run.r-1.000002.jsonl", ["run.r-1.000002.jsonl", "run.jsonl", "run.r-1.jsonl"]),
    ],
)
def test_rotated_and_compressed_names_lead_back_to_the_first_one(name: str, former: list[str]) -> None:
    assert list(former_names(name)) == former
    assert first_name(f"/shared/{name}") == "/shared/run.jsonl"
    assert stem(f"/shared/{name}") == "/shared/run"


def test_one_file_under_two_names_is_read_once(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    os.link(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "a.jsonl")
    assert found(tmp_path) == [f"{tmp_path}/a.jsonl"]


def test_a_link_to_a_directory_is_not_followed_into_the_deep(tmp_path: Path) -> None:
    make(tmp_path, "here/sub/a.jsonl", "elsewhere/b.jsonl")
    (tmp_path / "here" / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "here" / "dangling.jsonl").symlink_to(tmp_path / "nothing")
    assert found(tmp_path / "here") == [f"{tmp_path}/here/sub/a.jsonl"]


def test_a_path_must_exist_up_to_its_first_wildcard(tmp_path: Path) -> None:
    make(tmp_path, "rotated.000001.jsonl", "there.jsonl")
    plain = [f"{tmp_path}/gone/", f"{tmp_path}/gone", f"{tmp_path}/gone.jsonl"]
    patterns = [f"{tmp_path}/gone/*.jsonl", f"{tmp_path}/x*/y.jsonl", f"{tmp_path}/*.txt"]
    result = Files().find([*plain, *patterns, f"{tmp_path}/there.jsonl", f"{tmp_path}/rotated.jsonl"])
    assert result.missing == {
        f"{tmp_path}/gone/": f"{tmp_path}/gone",
        f"{tmp_path}/gone": f"{tmp_path}/gone",
        f"{tmp_path}/gone.jsonl": f"{tmp_path}/gone.jsonl",
        f"{tmp_path}/gone/*.jsonl": f"{tmp_path}/gone",
    }
    assert result.unreadable == []
    assert sorted(result.pattern_of.values()) == [f"{tmp_path}/rotated.jsonl", f"{tmp_path}/there.jsonl"]


@pytest.mark.parametrize(
    ("pattern", "path", "stands"),
    [
        ("a", "a", True),
        ("a", "a/b", False),
        ("a/b", "a", False),
        ("a/*", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/*", "b/b", False),
        ("*", ".a", False),
        (".*", ".a", True),
        ("**", "a/b/c", True),
        ("**", ".a/b", False),
        ("**/.a/b", "c/.a/b", True),
        ("**/c", "c", True),
        ("**/c", "a/b", False),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/b/c", True),
        ("a/**/c", "b/c", False),
        ("**/c", "x/" * MAX_DEPTH + "c", True),
        ("**/c", "x/" * (MAX_DEPTH + 1) + "c", False),
        ("a/**/c", "a/" + "x/" * MAX_DEPTH + "c", True),
        ("a/**/c", "a/" + "x/" * (MAX_DEPTH + 1) + "c", False),
        ("*.jsonl", "a.jsonl.7.zst", True),
        ("*.jsonl/b", "a.jsonl.7/b", False),
    ],
)
def test_a_pattern_stands_for_a_path(pattern: str, path: str, stands: bool) -> None:
    assert filter_of("s3://b/", pattern.split("/"))(f"s3://b/{path}") is stands


def test_a_path_is_shown_so_that_it_can_be_written_anywhere() -> None:
    assert shown(os.fsdecode(b"/a/\xff\x1b[2J\n.jsonl")) == "/a/\\xff\\x1b[2J\\n.jsonl"
    assert shown("/a/\u00e9 b.jsonl") == "/a/\u00e9 b.jsonl"


def test_a_name_that_is_not_text_is_told_and_left(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    name = os.fsencode(tmp_path) + b"/\xff.jsonl"
    os.close(os.open(name, os.O_CREAT))
    result = Files().find([str(tmp_path)])
    assert list(result.files) == [f"{tmp_path}/a.jsonl"]
    assert result.unreadable == [(f"{tmp_path}/\\xff.jsonl", "its name is not UTF-8")]


def test_more_files_than_can_be_kept_in_mind_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl")
    monkeypatch.setattr(local, "MAX_FILES", 2)
    result = Files().find([str(tmp_path)])
    assert len(result.files) == 2
    assert result.unreadable == [(str(tmp_path), "more than 2 files")]
    more = tmp_path / "more"
    make(more, "d.jsonl")
    assert Files().find([str(tmp_path), str(more)]).unreadable == [(str(tmp_path), "more than 2 files")]


def test_directories_are_entered_so_deep_and_no_deeper(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["x"] * MAX_DEPTH)
    make(deep, "a.jsonl", "x/b.jsonl", "x/x/c.jsonl")
    assert found(tmp_path) == [f"{deep}/a.jsonl"]
    assert found(tmp_path / "x" / "**" / "*.jsonl") == [f"{deep}/a.jsonl", f"{deep}/x/b.jsonl"]
    assert [name for name, _, _ in LocalStorage().tree(str(tmp_path))] == [
        str(tmp_path.joinpath(*["x"] * depth)) for depth in range(MAX_DEPTH + 1)
    ]


def test_what_cannot_be_looked_into_is_told_and_not_missing(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    why = os.strerror(errno.ELOOP)
    result = Files().find([str(tmp_path), f"{tmp_path}/loop.jsonl/*/b.jsonl"])
    assert list(result.files) == [f"{tmp_path}/a.jsonl"]
    assert result.unreadable == [(f"{tmp_path}/loop.jsonl", why)] * 2
    assert (result.missing, result.blind) == ({}, {f"{tmp_path}/loop.jsonl/*/b.jsonl"})


def test_of_a_document_one_byte_more_is_read_than_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "document.json")
    monkeypatch.setattr(local, "MAX_DOCUMENT", 4)
    assert LocalStorage().read(f"{tmp_path}/document.json") == b"docum"


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (0, 0, ["1970-01-01"]),
        (0, 86_399, ["1970-01-01"]),
        (86_399, 2 * 86_400, ["1970-01-01", "1970-01-02", "1970-01-03"]),
        (86_400, 0, ["1970-01-02"]),
    ],
)
def test_days_are_those_of_both_times_and_between_them(since: int, until: int, expected: list[str]) -> None:
    assert days(since, until) == expected
