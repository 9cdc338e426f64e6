"""What pages are made of, as text."""

from __future__ import annotations

from pathlib import Path

from fleetgauge.pages.page import file_of, name_span, render_document


def test_only_a_page_with_a_script_has_one_and_its_policy() -> None:
    plain, interactive = (render_document("a < b", "", "<p>c</p>", script=script) for script in (False, True))
    assert "<title>a &lt; b</title>" in plain
    assert ("<script" in plain, "Content-Security-Policy" in plain) == (False, False)
    assert (interactive.count("<script>"), interactive.count("Content-Security-Policy")) == (1, 1)


def test_page_is_named_by_its_title_and_a_day_of_both_ends_is_written_once(tmp_path: Path) -> None:
    assert file_of(tmp_path, "GPU memory of a/b: all.") == tmp_path / "GPU-memory-of-a-b-all.html"
    assert file_of(tmp_path, "x" * 200) == tmp_path / f"{'x' * 150}.html"
    assert file_of(tmp_path / "page", "title") == tmp_path / "page"
    since = "2026-11-14 00:00"
    assert name_span(since, "2026-11-14 06:00") == "2026-11-14 00:00 to 06:00 UTC"
    assert name_span(since, "2026-11-15 00:00") == "2026-11-14 00:00 to 2026-11-15 00:00 UTC"
