"""The events of a JSON document are its own, and of a broken one those that can be read."""

from __future__ import annotations

import io
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.gpu_memory import elements
from fleetgauge.gpu_memory.elements import read_elements

NAMES = ("events",)


def read(text: str, rest: dict[str, object] | None = None) -> list[object]:
    """The elements, and at the end how many could not be read."""
    losses: Counter[str] = Counter()
    found, others = read_elements(io.BytesIO(text.encode()), NAMES, losses)
    if rest is not None:
        rest |= others
    return [*found, *(f"{count} {reason}" for reason, count in losses.items() if count)]


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


@given(
    st.lists(st.fixed_dictionaries({"n": st.integers(0, 9999)}), min_size=1),
    st.sampled_from(["", '{"session": 1, "events": ']),
    st.data(),
)
def test_a_file_cut_anywhere_keeps_everything_before_the_cut(
    expected: list[dict[str, int]], before: str, data: st.DataObject
) -> None:
    text = json.dumps(expected)
    cut = before + text[: data.draw(st.integers(0, len(text) - 1))]
    assert read(cut) == [*expected[: cut.count("}")], "1 not_json"]


def test_a_broken_element_costs_itself() -> None:
    kept = [{"n": 1}, {"n": 3}, {"n": 4}, "1 not_json"]
    assert read('[{"n": 1}, {"n": nonsense}, {"n": 3}, {"n": 4}]') == kept
    long = '{"n": "' + "x" * 2000 + " unended }, " + '{"n": 3}]'
    assert read('[{"n": 1}, ' + long) == [{"n": 1}, {"n": 3}, "1 not_json"]
    assert read('[{"n": ?}, {"n": ?}, {"n": 3}') == [{"n": 3}, "2 not_json"]


def test_a_document_larger_than_the_limit_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "MAX_DOCUMENT_BYTES", 20)
    assert read('[{"n": "xxxxxxxxx"}]') == [{"n": "xxxxxxxxx"}]
    assert read('[{"n": "xxxxxxxxxx"}]') == ["1 file_too_large"]


@pytest.mark.parametrize("text", ["", "   ", "nonsense", "7", '{"a": 1', '{"a" 1}', "{7: 1}", '{"events": ['])
def test_what_is_no_document_is_one_loss(text: str) -> None:
    assert read(text) == ["1 not_json"]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_deeper_than_the_stack_is_broken_and_no_crash(opening: str) -> None:
    assert read("[" + opening * 100_000)[-1:] == ["1 not_json"]


@given(st.text(alphabet='[]{}",:n1 \\x', max_size=60))
def test_no_text_makes_it_raise(text: str) -> None:
    read(text)
