"""A JSON array is read an element at a time and says the same as reading it whole."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.gpu_memory import elements
from fleetgauge.gpu_memory.elements import Broken, array_elements

NAMES = ("events",)


def read(text: str, rest: dict[str, object] | None = None) -> list[object]:
    found = array_elements(io.StringIO(text), NAMES, {} if rest is None else rest)
    return ["broken" if isinstance(element, Broken) else element for element in found]


@pytest.fixture(autouse=True)
def _small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "CHUNK_BYTES", 7)
    monkeypatch.setattr(elements, "MAX_ELEMENT_BYTES", 300)


leaves = st.none() | st.booleans() | st.integers(-99999, 99999) | st.text(max_size=4)
objects = st.dictionaries(st.text(max_size=3), leaves | st.lists(leaves, max_size=2), max_size=2)


@given(st.lists(objects), st.sampled_from([None, 2]))
def test_an_array_is_read_as_it_is(expected: list[dict[str, object]], indent: int | None) -> None:
    assert read(json.dumps(expected, indent=indent)) == expected


@given(st.lists(objects), st.dictionaries(st.text(max_size=2), leaves, max_size=3), st.booleans())
def test_an_array_within_an_object_is_read_and_the_rest_remembered(
    expected: list[dict[str, object]], others: dict[str, object], first: bool
) -> None:
    document = {"events": expected} | others if first else others | {"events": expected}
    rest: dict[str, object] = {}
    assert read(json.dumps(document), rest) == expected
    assert rest == others


def test_only_an_array_under_its_name_is_read_by_elements() -> None:
    rest: dict[str, object] = {}
    assert read('{"other": [1, 2], "events": [3], "last": {"a": 4}}', rest) == [3]
    assert rest == {"other": [1, 2], "last": {"a": 4}}
    assert read('{"events": {"a": 5}}', rest) == []
    assert rest["events"] == {"a": 5}


def test_no_more_members_are_remembered_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "MAX_MEMBERS", 2)
    rest: dict[str, object] = {}
    assert read('{"a": 1, "b": 2, "c": 3, "events": [4]}', rest) == [4]
    assert rest == {"a": 1, "b": 2}


@given(st.lists(st.fixed_dictionaries({"n": st.integers(0, 9999)}), min_size=1), st.data())
def test_a_file_cut_anywhere_keeps_everything_before_the_cut(
    expected: list[dict[str, int]], data: st.DataObject
) -> None:
    text = json.dumps(expected)
    cut = data.draw(st.integers(0, len(text) - 1))
    found = read(text[:cut])
    assert found[-1:] == ["broken"]
    assert found[:-1] == expected[: text[:cut].count("}")]


def test_a_broken_element_costs_itself() -> None:
    assert read('[{"n": 1}, {"n": nonsense}, {"n": 3}, {"n": 4}]') == [{"n": 1}, "broken", {"n": 3}, {"n": 4}]
    for length in range(2000, 2007):  # so that the end of a window falls on each character
        long = '{"n": "' + "x" * length + " unended }, " + '{"n": 3}]'
        assert read('[{"n": 1}, ' + long) == [{"n": 1}, "broken", {"n": 3}]


def test_no_more_is_read_than_the_next_element_needs() -> None:
    file = io.StringIO(json.dumps([{"n": 1}] * 100))
    found = array_elements(file, NAMES, {})
    for number in range(1, 4):
        assert next(found) == {"n": 1}
        assert file.tell() < 10 * number + 7


def test_an_element_longer_than_the_window_is_read_up_to_the_limit() -> None:
    assert read(json.dumps([{"n": "x" * 40}, {"n": 2}])) == [{"n": "x" * 40}, {"n": 2}]
    assert read(json.dumps([{"n": "x" * 4000}, {"n": 2}])) == ["broken", {"n": 2}]
    longest = [{"n": "x" * 298}, {"n": 2}]  # a window of 300 is not over the limit: once more is read
    assert read(json.dumps(longest)) == longest
    assert read(json.dumps([{"n": "x" * 299}, {"n": 2}])) == ["broken", {"n": 2}]


@pytest.mark.parametrize("text", ["", "   ", "nonsense", "7", '{"a": 1', '{"a" 1}', "{7: 1}", '{"events": ['])
def test_what_is_no_document_is_one_broken_element(text: str) -> None:
    assert read(text) == ["broken"]


def test_nesting_deeper_than_the_stack_is_broken_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "MAX_ELEMENT_BYTES", 2**20)
    monkeypatch.setattr(elements, "CHUNK_BYTES", 2**20)
    assert read("[" + "[" * 100_000) == ["broken"]


def test_a_number_at_the_edge_of_the_window_is_read_whole() -> None:
    for width in range(1, 12):
        rest: dict[str, object] = {}
        read('{"a": ' + "1" * width + ', "b": 2}', rest)
        assert rest == {"a": int("1" * width), "b": 2}
