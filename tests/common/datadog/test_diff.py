"""The diff between a document in Datadog and the one it should be."""

from __future__ import annotations

from typing import Any

from common.datadog.diff import MAX_CHANGES, Change, changes, show


def widget(title: str, query: str, x: int = 0, **more: object) -> dict[str, Any]:
    return {"definition": {"title": title, "type": "timeseries", "query": query, **more}, "layout": {"x": x}}


def group(title: str, *widgets: dict[str, Any]) -> dict[str, Any]:
    return {"definition": {"title": title, "type": "group", "widgets": [*widgets]}, "layout": {"x": 0}}


def test_fields_are_compared_as_datadog_stores_them() -> None:
    wanted = {"name": "Ants", "tags": ["b:1", "a:1"], "message": "", "options": {"critical": 95.0}}
    stored = {"id": 7, "name": "Ants", "tags": ["a:1", "b:1"], "options": {"critical": 95, "silenced": {}}}
    assert changes(stored, wanted) == []
    assert changes({**stored, "tags": ["a:1"]}, wanted) == [Change("tags[1]", None, "b:1")]
    assert changes({**stored, "options": {}}, wanted) == [Change("options.critical", None, 95.0)]
    assert changes({"rows": [{"x": 1}]}, {"rows": [{"x": 1}, {"x": 2}]}) == [
        Change("rows[1]", None, {"x": 2})
    ]


def test_widgets_are_matched_by_title_and_an_added_one_is_one_change() -> None:
    stored = {"widgets": [group("Overview", widget("Runs", "a"), widget("Old", "o", 6)), group("Cost")]}
    wanted = {"widgets": [group("Overview", widget("New", "n"), widget("Runs", "b", 6)), group("Cost")]}
    assert changes(stored, wanted) == [
        Change("Overview / Old", "widget", None),
        Change("Overview / New", None, "widget"),
        Change("Overview / Runs.query", "a", "b"),
        Change("layout", None, "1 widgets moved"),
    ]
    assert changes(wanted, wanted) == []


def test_lines_show_field_old_and_new_and_are_bounded() -> None:
    assert [*show([Change("limit", 95, 97)])] == ["limit: 95 -> 97"]
    long = "x" * 300
    assert [*show([Change("query", long, None)])] == [
        "query:",
        f'  - "{long[:159]}...',
        "  + (not set)",
    ]
    assert [*show([Change("a", 1, 2)] * (MAX_CHANGES + 3))][MAX_CHANGES:] == ["and 3 more fields"]
