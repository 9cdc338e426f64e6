"""The line reader, the names of files, and what makes a record that record."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetgauge import records
from fleetgauge.records import Damage, Line, identity, lines, resolve_path


def read(content: bytes, **options: Any) -> list[Line]:
    return list(lines(io.BytesIO(content), **options))


def test_lines_have_their_offsets_and_cover_the_file() -> None:
    assert read(b'{"a":1}\n{"b":2}\r\n') == [Line(0, 8, {"a": 1}), Line(8, 17, {"b": 2})]


def test_an_unfinished_last_line_is_no_line_yet() -> None:
    assert read(b'{"a":1}\n{"b":2}') == [Line(0, 8, {"a": 1})]
    assert read(b'{"a":1}') == []
    assert read(b"") == []


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        (b'{"a": "\xff"}', Damage.NOT_UTF8),
        (b'{"a":', Damage.NOT_JSON),
        (b'{"a":1}{"b":2}', Damage.NOT_JSON),
        (b'{"a":\x00 1}', Damage.NOT_JSON),
        (b"[" * 100_000, Damage.NOT_JSON),
        (b"[1]", Damage.NOT_AN_OBJECT),
        (b"null", Damage.NOT_AN_OBJECT),
        (b"\0\0\0", Damage.NUL_HOLE),
        (b'{"a": 1' + b"0" * 5000 + b"}", Damage.NOT_JSON),
    ],
)
def test_a_damaged_line_costs_itself_and_is_named(text: bytes, damage: Damage) -> None:
    found = read(b'{"x":1}\n' + text + b'\n{"y":2}\n')
    assert [line.value for line in found] == [{"x": 1}, None, {"y": 2}]
    assert [line.damage for line in found] == [None, damage, None]


def test_a_blank_line_is_neither_value_nor_damage() -> None:
    assert read(b'\n  \n{"a":1}\n') == [Line(0, 1, None), Line(1, 4, None), Line(4, 12, {"a": 1})]


def test_a_byte_order_mark_is_passed_over_where_a_file_begins_and_nowhere_else() -> None:
    mark = b"\xef\xbb\xbf"
    assert read(mark + b'{"a":1}\n' + mark + b'{"b":2}\n') == [
        Line(0, 11, {"a": 1}),
        Line(11, 22, None, Damage.NOT_JSON),
    ]
    assert read(mark + b"{}\n", offset=1) == [Line(1, 7, None, Damage.NOT_JSON)]


def test_the_record_after_a_hole_of_nul_bytes_is_read_and_the_hole_is_told() -> None:
    assert read(b'\0\0\0{"a":1}\n') == [Line(0, 11, {"a": 1}, Damage.NUL_HOLE)]


def test_a_hole_longer_than_any_line_does_not_cost_the_record_after_it() -> None:
    hole = 1_500_000
    assert read(b"\0" * hole + b'{"a":1}\n{"b":2}\n') == [
        Line(0, hole + 8, {"a": 1}, Damage.NUL_HOLE),
        Line(hole + 8, hole + 16, {"b": 2}),
    ]


def test_a_hole_at_the_end_may_still_be_filled_and_is_left() -> None:
    assert read(b'{"a":1}\n' + b"\0" * 2_000_000) == [Line(0, 8, {"a": 1})]


def test_a_line_of_exactly_the_longest_length_is_read_and_one_byte_more_is_not() -> None:
    fits = json.dumps({"a": "x" * 90}).encode()
    assert [line.value for line in read(fits + b"\n", longest=len(fits))] == [{"a": "x" * 90}]
    assert read(fits, longest=len(fits)) == []  # its end may come yet
    assert read(fits + b"\n", longest=len(fits) - 1) == [Line(0, len(fits) + 1, None, Damage.TOO_LONG)]


def test_a_line_far_over_the_cap_is_passed_over_in_pieces_and_told_once() -> None:
    content = b"x" * 1_000_000 + b'\n{"a":1}\n'
    found = read(content, longest=1000)
    assert [line.damage for line in found].count(Damage.TOO_LONG) == 1
    assert found[-1] == Line(1_000_001, 1_000_009, {"a": 1})
    assert all(before.end == after.start for before, after in itertools.pairwise(found))
    assert [line.unfinished for line in found[-2:]] == [False, False]


def test_an_endless_line_moves_on_and_is_resumed_in_its_middle() -> None:
    (piece,) = read(b"x" * 5000, longest=1000)
    assert piece == Line(0, 5000, None, Damage.TOO_LONG, unfinished=True)
    assert read(b'xxx\n{"a":1}\n', offset=5000, skipping=True) == [
        Line(5000, 5004, None),
        Line(5004, 5012, {"a": 1}),
    ]
    assert read(b"xxx", offset=5000, skipping=True) == [Line(5000, 5003, None, unfinished=True)]


class Trickle:
    """Gives out a few bytes at a time."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self._content = content
        self._sizes = sizes

    def read(self, size: int, /) -> bytes:
        step = self._sizes.pop() if self._sizes else size
        given, self._content = self._content[:step], self._content[step:]
        return given


pieces = st.sampled_from(
    [b'{"a":1}', b"\n", b"\0", b"\0\0\0", b"\xff", b"[]", b"xxxxxxxxxxxxxxxxxxxxxxxxx", b" ", b'{"b":"\xc3']
)


@given(st.lists(pieces), st.lists(st.integers(1, 9)))
@example([b"\0", b"\n", b'{"a":1}', b"\n"], [1, 1, 1])
@example([b'{"a":1}', b" ", b"\n"], [])
def test_however_a_file_arrives_the_same_values_stand_at_the_same_ends(
    parts: list[bytes], sizes: list[int]
) -> None:
    content = b"".join(parts)
    whole = [line for line in lines(io.BytesIO(content), longest=20) if not line.unfinished]
    dripped = [line for line in lines(Trickle(content, sizes), longest=20) if not line.unfinished]
    assert [(line.end, line.value) for line in dripped] == [(line.end, line.value) for line in whole]
    texts = [text.lstrip(b"\0") for text in content.split(b"\n")[:-1]]
    expected = [json.loads(text) for text in texts if text.strip() == b'{"a":1}' and len(text) <= 20]
    assert [line.value for line in whole if line.value] == expected


def test_a_hole_of_one_byte_is_told_however_it_arrives() -> None:
    for first in (1, 4):
        found = list(lines(Trickle(b'\0{"a":1}\n', [first])))
        assert found == [Line(0, 9, {"a": 1}, Damage.NUL_HOLE)]
    assert list(lines(Trickle(b'{"a":1}\n', [1]))) == [Line(0, 8, {"a": 1})]


def test_a_straight_read_gives_the_values_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"a":1}\nrubbish\n{"b":2}\n{"c"')
    assert list(records.read(path)) == [{"a": 1}, {"b": 2}]


def test_a_record_is_known_by_run_rank_and_number() -> None:
    assert identity({"run_id": "r", "seq": 0}) == ("r", 0)
    assert identity({"run_id": "r", "seq": 7, "rank": None}) == ("r", 7)
    assert identity({"run_id": "r", "seq": 7, "rank": 3}) == ("r/3", 7)
    longest, last = "r" * 200, 2**63 - 1
    assert identity({"run_id": longest, "seq": last, "rank": -last}) == (f"{longest}/-{last}", last)
    for rank, told in (("node 7", "node 7"), ("n" * 30, "n" * 20), (1.5, "1.5"), (True, "True")):
        assert identity({"run_id": "r", "seq": 7, "rank": rank}) == (f"r/{told}", 7)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"run_id": "r"},
        {"seq": 1},
        {"run_id": 5, "seq": 1},
        {"run_id": "", "seq": 1},
        {"run_id": "r" * 201, "seq": 1},
        {"run_id": "r", "seq": True},
        {"run_id": "r", "seq": -1},
        {"run_id": "r", "seq": 1.0},
        {"run_id": "r", "seq": 2**63},
        {"run_id": "r", "seq": 1, "rank": 2**63},
        {"run_id": "r", "seq": 1, "rank": -(2**63)},
        {"run_id": "r", "seq": 1, "rank": [1]},
    ],
)
def test_what_lacks_a_proper_run_or_number_has_no_identity(value: dict[str, Any]) -> None:
    assert identity(value) is None


def test_a_path_may_be_a_file_a_directory_or_a_pattern(tmp_path: Path) -> None:
    known = {"kind": "xenna", "run_id": "r1", "run_hash": "h/../1"}
    assert resolve_path(tmp_path / "a.jsonl", **known) == tmp_path / "a.jsonl"
    assert resolve_path(tmp_path, **known) == tmp_path / "xenna-r1.jsonl"
    assert resolve_path(f"{tmp_path}/new/", **known) == tmp_path / "new" / "xenna-r1.jsonl"
    assert resolve_path(f"{tmp_path}/{{run_hash}}/{{run_id}}.jsonl", **known) == tmp_path / "h_.._1/r1.jsonl"
    assert resolve_path("{run_id}.jsonl", kind="k", run_id="../up") == Path("_up.jsonl")
    assert resolve_path("{run_id}.jsonl", kind="k", run_id="..") == Path("_.jsonl")
    assert resolve_path("{run_id}", kind="k", run_id="r" * 101) == Path("r" * 100)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("s3://bucket/x", "upload closed files instead"),
        ("x/{run_hash}.jsonl", "{run_hash} is not known here"),
        ("x/{host}.jsonl", "{host} is not one of {run_hash}, {run_id}"),
        ("x/{}.jsonl", "{} is not one of"),
        ("", "is not a path"),
        ("a\0b", "is not a path"),
    ],
)
def test_a_path_that_can_never_work_is_refused_with_the_reason(path: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        resolve_path(path, kind="xenna", run_id="r1")
    assert told in str(refused.value)
