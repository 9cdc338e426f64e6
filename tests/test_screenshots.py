"""The pictures of the documents are shown and small."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from scripts import screenshots
from support.browser import CHROMIUM
from support.project import ROOT
from support.requirements import needs

pytestmark = pytest.mark.slow

PICTURES = sorted((ROOT / "docs" / "images").glob("*.png"))


def test_every_picture_is_shown_and_small() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    shown = re.findall(r"!\[[^\]]+\]\((?:docs/)?images/([\w-]+\.png)\)", pages)
    assert [path.name for path in PICTURES] == sorted(shown)
    assert len(PICTURES) == 2
    for path in PICTURES:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert len(content) <= 300_000
        assert struct.unpack(">I", content[16:20]) == (1280,)


@needs("chromium", CHROMIUM)
def test_a_page_is_photographed(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<h1>A page</h1>")
    screenshots.photograph(str(CHROMIUM), tmp_path / "page.html", tmp_path / "page.png", 400)
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="10 are the most"):
        screenshots.photograph(str(CHROMIUM), tmp_path / "page.html", tmp_path / "page.png", 400, 10)
