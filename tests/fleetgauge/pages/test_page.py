"""What pages are made of, as text."""

from __future__ import annotations

from pathlib import Path

from fleetgauge.pages.page import file_of, name_span, render_document, render_table


def test_only_a_page_with_a_script_forbids_every_other() -> None:
    plain, file = (render_document("a < b", "p{}", "<p>c</p>", script=script) for script in (False, True))
    assert plain == (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<title>a &lt; b</title><style>p{}</style></head><body><main><p>c</p></main></body></html>\n"
    )
    assert render_document("a < b", "p{}", "<p>c</p>") == plain
    assert file.count('<meta http-equiv="Content-Security-Policy" content="default-src') == 1
    assert file.count("<script>") == 1


def test_a_table_has_the_class_it_is_given_and_else_none() -> None:
    rows = [[("Name", "a", "wide")], [("Name", "b", "wide")]]
    body = (
        '<thead><tr><th scope="col">Name</th></tr></thead><tbody>'
        '<tr><td data-label="Name" class="wide"><span>a</span></td></tr>'
        '<tr><td data-label="Name" class="wide"><span>b</span></td></tr></tbody></table>'
    )
    assert render_table(rows, "listed") == f'<table class="listed">{body}'
    assert render_table(rows) == f"<table>{body}"


def test_page_is_named_by_its_title_and_a_day_of_both_ends_is_written_once(tmp_path: Path) -> None:
    assert file_of(tmp_path, "GPU memory of a/b: all.") == tmp_path / "GPU-memory-of-a-b-all.html"
    assert file_of(tmp_path, "x" * 200) == tmp_path / f"{'x' * 150}.html"
    assert file_of(tmp_path / "page", "title") == tmp_path / "page"
    since = "2026-11-14 00:00"
    assert name_span(since, "2026-11-14 06:00") == "2026-11-14 00:00 to 06:00 UTC"
    assert name_span(since, "2026-11-15 00:00") == "2026-11-14 00:00 to 2026-11-15 00:00 UTC"
