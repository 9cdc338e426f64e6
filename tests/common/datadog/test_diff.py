"""The diff between a document in Datadog and the one it should be."""

from __future__ import annotations

from typing import Any

from common.datadog.diff import MAX_CHANGES, Change, changes, show


def widget(title: str, query: str, **more: object) -> dict[str, Any]:
    return {"definition": {"title": title, "type": "timeseries", "query": query, **more}}


def group(title: str, *widgets: dict[str, Any]) -> dict[str, Any]:
    return {"definition": {"title": title, "type": "group", "widgets": [*widgets]}}


def test_fields_are_compared_as_datadog_stores_them() -> None:
    wanted = {"name": "Ants", "tags": ["b:1", "a:1"], "message": "", "options": {"critical": 95.0}}
    stored = {"id": 7, "name": "Ants", "tags": ["a:1", "b:1"], "options": {"critical": 95, "silenced": {}}}
    for found, expected in (
        (stored, []),
        (stored | {"tags": ["a:1"]}, [Change("tags[1]", None, "b:1")]),
        (stored | {"tags": ["a:1", "b:1", "c:1"]}, [Change("tags[2]", "c:1", None)]),
        (stored | {"options": {}}, [Change("options.critical", None, 95.0)]),
        (stored | {"name": "Bees"}, [Change("name", "Bees", "Ants")]),
    ):
        assert [*changes(found, wanted)] == expected


def test_widgets_are_matched_by_title_and_an_added_one_is_one_change() -> None:
    old, new = widget("Old", "o"), widget("New", "n")
    stored = {"widgets": [group("Overview", widget("Runs", "a", id=3), old), group("Cost")]}
    wanted = {"widgets": [group("Overview", new, widget("Runs", "b")), group("Cost")]}
    path = "widgets[Overview].definition.widgets"
    assert [*changes(stored, wanted)] == [
        Change(f"{path}[Runs].definition.query", "a", "b"),
        Change(f"{path}[Old]", old, None),
        Change(f"{path}[New]", None, new),
    ]
    assert [*changes(wanted, wanted)] == []
    copied = {"widgets": [widget("Runs", "edited"), widget("Runs", "a")]}
    assert [*changes(copied, {"widgets": [widget("Runs", "a")]})] == [
        Change("widgets[Runs].definition.query", "edited", "a"),
        Change("widgets[Runs 1]", widget("Runs", "a"), None),
    ]
    moved = {"widgets": wanted["widgets"][::-1]}
    assert [*changes(moved, wanted)] == [Change("widgets order", ["Cost", "Overview"], ["Overview", "Cost"])]


def test_lines_show_field_old_and_new_and_are_bounded() -> None:
    assert [*show([Change("a.definition.limit", 95, 97)])] == ["a.limit:", "  - 95", "  + 97"]
    long = "x" * 300
    assert [*show([Change("query", long, None)])] == ["query:", f'  - "{long[:159]}...', "  + null"]
    message = ["a" * 300 + " see the runbook" + more for more in ("", " @slack-ants")]
    assert [*show([Change("message", *message)])] == [
        "message:",
        '  - ...aaaa see the runbook"',
        '  + ...aaaa see the runbook @slack-ants"',
    ]
    assert [*show([Change("a", 1, 2)] * (MAX_CHANGES + 3))][3 * MAX_CHANGES :] == ["and 3 more fields"]
