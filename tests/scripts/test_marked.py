"""What is made replaces what stood between two markers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.marked import renewed


@pytest.mark.parametrize("old", ["", "an old line\n", "two\n\nlines\n"])
def test_only_what_is_between_the_markers_changes(tmp_path: Path, old: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n<!-- part:begin -->\n{old}<!-- part:end -->\nafter, without a newline")
    made = renewed(file, "part", r"\1 is only text" + "\n")
    assert made == (
        "before\n<!-- part:begin -->\n\\1 is only text\n<!-- part:end -->\nafter, without a newline"
    )
    file.write_text(made)
    assert renewed(file, "part", r"\1 is only text" + "\n") == made


@pytest.mark.parametrize(
    "text",
    [
        None,
        "<!-- part:begin -->\n",
        "<!-- part:end -->\n<!-- part:begin -->\n",
        "<!-- other:begin -->\n<!-- other:end -->\n",
        "# part:begin\n# part:end\n# part:begin\n# part:end\n",
    ],
)
def test_a_file_without_one_place_for_it_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "page.md"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit, match=r"page\.md: .*part:begin.*part:end"):
        renewed(file, "part", "made\n")
