"""A page of the documents is photographed, and no picture is too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import screenshots
from support.browser import CHROMIUM
from support.requirements import needs

pytestmark = [pytest.mark.slow, needs("chromium", CHROMIUM)]


def test_a_page_is_photographed(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<h1>A page</h1>")
    screenshots.photograph(str(CHROMIUM), tmp_path / "page.html", tmp_path / "page.png", 400)
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="10 are the most"):
        screenshots.photograph(str(CHROMIUM), tmp_path / "page.html", tmp_path / "page.png", 400, 10)
