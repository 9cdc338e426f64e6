"""The reader of record files, and the names of files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetgauge import records
from fleetgauge.records import MAX_LINE_BYTES, resolve_path

LONGEST = b'{"x":"' + b"x" * (MAX_LINE_BYTES - 8) + b'"}'


@pytest.mark.parametrize(
    ("content", "expected"),
    {
        "objects": (b'{"a":1}\n{"b":2}\r\n', ["a", "b"]),
        "empty": (b"", []),
        "unfinished last line": (b'{"a":1}\n{"b":2}', ["a"]),
        "damaged lines": (b'{"a":"\xff"}\n{"a":\n{"a":1}{"b":2}\n[1]\nnull\n{"c":3}\n', ["c"]),
        "deep nesting": (b"[" * 100_000 + b'\n{"a":1}\n', ["a"]),
        "blank lines": (b'\n  \n{"a":1}\n', ["a"]),
        "byte-order mark": (b'\xef\xbb\xbf{"a":1}\n\xef\xbb\xbf{"b":2}\n', ["a"]),
        "NUL bytes": (b'\0\0\0{"a":1}\n\0\n{"b":1}\n', ["a", "b"]),
        "hole longer than a line": (b"\0" * 1_500_000 + b'{"a":1}\n{"b":2}\n', ["a", "b"]),
        "longest line": (LONGEST + b'\n{"a":1}\n', ["x", "a"]),
        "line over the cap": (b" " + LONGEST + b'\n{"a":1}\n', ["a"]),
        "line far over the cap": (b'{"a":1}' * 500_000 + b'\n{"b":1}\n', ["b"]),
    }.values(),
)
def test_read_yields_the_objects_of_a_file(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    assert [next(iter(value)) for value in records.read(path)] == expected


def test_a_path_may_be_a_file_a_directory_or_a_pattern(tmp_path: Path) -> None:
    known = {"kind": "xenna", "run_id": "r1", "run_hash": "h/../1"}
    assert resolve_path(tmp_path / "a.jsonl", **known) == tmp_path / "a.jsonl"
    assert resolve_path(tmp_path, **known) == tmp_path / "xenna-r1.jsonl"
    assert resolve_path(f"{tmp_path}/new/", **known) == tmp_path / "new" / "xenna-r1.jsonl"
    assert resolve_path(f"{tmp_path}/{{run_hash}}/{{run_id}}.jsonl", **known) == tmp_path / "h_.._1/r1.jsonl"
    assert resolve_path("{run_id}.jsonl", kind="k", run_id="../up") == Path("_up.jsonl")
    assert resolve_path("{run_id}.jsonl", kind="k", run_id="..") == Path("_.jsonl")
    assert resolve_path("{run_id}", kind="k", run_id="r" * 101) == Path("r" * 100)
    assert resolve_path("x" * 300, **known) == Path("x" * 300)  # which no disk takes


def test_path_that_can_never_work_is_refused_with_the_reason() -> None:
    for path, reason in {
        "s3://bucket/x": "upload closed files instead",
        "x/{run_hash}.jsonl": "{run_hash} is not known here",
        "x/{host}.jsonl": "{host} is not one of {run_hash}, {run_id}",
        "x/{}.jsonl": "{} is not one of",
        "": "is not a path",
        "a\0b": "is not a path",
    }.items():
        with pytest.raises(ValueError, match=re.escape(reason)):
            resolve_path(path, kind="xenna", run_id="r1")
