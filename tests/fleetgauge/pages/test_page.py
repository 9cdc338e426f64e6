"""What pages are made of, as text."""

from __future__ import annotations

from pathlib import Path

from fleetgauge.pages.page import file_of, name_span


def test_page_is_named_by_its_title_and_a_day_of_both_ends_is_written_once(tmp_path: Path) -> None:
    assert file_of(tmp_path, "GPU memory of a/b: all.") == tmp_path / "GPU-memory-of-a-b-all.html"
    assert file_of(tmp_path, "x" * 200) == tmp_path / f"{'x' * 150}.html"
    assert file_of(tmp_path / "page", "title") == tmp_path / "page"
    since = "2026-11-14 00:00"
    assert name_span(since, "2026-11-14 06:00") == "2026-11-14 00:00 to 06:00 UTC"
    assert name_span(since, "2026-11-15 00:00") == "2026-11-14 00:00 to 2026-11-15 00:00 UTC"
