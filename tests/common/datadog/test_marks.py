"""What counts as a change by hand, and how a difference reads."""

from __future__ import annotations

from typing import Any

import pytest

from common.datadog.marks import MONITOR, OPEN, Mark, difference

ASKED: dict[str, Any] = {
    "name": "Ants",
    "tags": ["b:1", "a:1"],
    "options": {"thresholds": {"critical": 95.0}, "include_tags": True},
}
SAME: list[dict[str, Any]] = [
    {**ASKED, "tags": ["a:1", "b:1"]},
    {**ASKED, "options": {**ASKED["options"], "thresholds": {"critical": 95}}},
    {**ASKED, "options": {"include_tags": True, **ASKED["options"]}},
    {**ASKED, "priority": None, "message": "", "id": 7, "overall_state": "Alert", "multi": True},
    {**ASKED, "tags": ["a:1", "b:1", str(Mark("gap", "0" * 12, OPEN, "1" * 12, OPEN))]},
]
OTHERS: list[dict[str, Any]] = [
    {**ASKED, "tags": ["a:1"]},
    {**ASKED, "options": {**ASKED["options"], "thresholds": {"critical": 96}}},
    {**ASKED, "options": {**ASKED["options"], "thresholds": {"critical": 95, "warning": 0}}},
    {**ASKED, "priority": 1},
    {**ASKED, "restricted_roles": ["ants"]},
]


@pytest.mark.parametrize("found", SAME)
def test_order_ids_states_the_mark_and_what_is_not_set_are_no_change(found: dict[str, Any]) -> None:
    assert MONITOR.digest(found) == MONITOR.digest(ASKED)


@pytest.mark.parametrize("found", OTHERS)
def test_whatever_a_person_decides_is_one(found: dict[str, Any]) -> None:
    assert MONITOR.digest(found) != MONITOR.digest(ASKED)


def test_a_difference_names_what_we_set_and_what_was_added_to_our_lists() -> None:
    found = {
        "title": "Ants",
        "author": "Ann",
        "text": "one\ntwo\nthree",
        "less": "a\nb",
        "rows": [{"x": 1, "id": 3}, {"y": [2], "z": "c\nd"}],
    }
    wanted = {
        "title": "Bees",
        "text": "one\nthree\n\n4",
        "less": "a",
        "rows": [{"x": 1}],
        "more": {"a": [True], "b": "e\nf"},
    }
    assert difference(found, wanted) == [
        '- title: "Ants"',
        '+ title: "Bees"',
        "- text: two",
        "+ text: 4",
        "- less: b",
        "- rows[1].y[0]: 2",
        "- rows[1].z: c",
        "- rows[1].z: d",
        "+ more.a[0]: true",
        "+ more.b: e",
        "+ more.b: f",
    ]


def test_a_long_difference_ends_with_how_much_more_there_is() -> None:
    assert len(difference({"rows": []}, {"rows": [*range(30)]})) == 30
    assert difference({"rows": []}, {"rows": [*range(31)]})[-1] == "  and 1 lines more"
    shown = difference({"rows": []}, {"rows": [*range(1234)]})
    assert len(shown) == 31
    assert shown[-1] == "  and 1,204 lines more"
