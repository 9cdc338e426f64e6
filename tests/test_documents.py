"""The written documents lead somewhere: their links, and the files that they name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.documents import PAGES, anchors, name_of, prose
from support.project import ROOT

AUTOMATION = [ROOT / ".ci" / "run", *ROOT.glob(".github/**/*.yml")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, place = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not place or place in anchors(file), target


@pytest.mark.parametrize("page", [*PAGES, *AUTOMATION], ids=name_of)
def test_every_file_that_a_page_or_workflow_names_exists(page: Path) -> None:
    folders = "benchmarks|charts|collectors|common|docs|fleetgauge|locks|scripts|tests"
    before = "`" if page in PAGES else r"(?<![\w/.-])"
    named = re.findall(rf"{before}((?:{folders})/[\w./-]*\w)(?![\w*])", page.read_text())
    missing = [name for name in named if not (ROOT / name).exists()]
    added = re.compile(r"collectors/(queue|steps)\b")  # by a page
    assert [name for name in missing if not added.search(name)] == []


def test_every_file_has_unix_lines_and_no_trailing_space() -> None:
    command = ["git", "ls-files", "-z", "--", ".", ":!tests/data", ":!locks", ":!docs/images"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for path in (ROOT / name for name in names if name and (ROOT / name).is_file()):
        text = path.read_bytes().decode()
        assert not text or text.endswith("\n"), path
        assert not re.search(r"\r|[ \t]+$|^\t", text, re.MULTILINE), path
