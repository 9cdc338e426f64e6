"""The written documents hold: what they show is what happens."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from support.documents import PAGES, anchors, name_of, prose
from support.project import ROOT


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, place = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not place or place in anchors(file), target


def test_the_index_names_every_page_and_the_readme_names_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    found = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index.read_text())}
    indexes = ROOT.glob("docs/*/README.md")
    pages = {*ROOT.glob("collectors/*/README.md"), *ROOT.glob("docs/*.md"), *indexes} - {index}
    assert pages - found == set()
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()


def test_the_readme_names_every_collector() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in ROOT.glob("collectors/*/README.md"):
        assert f"({path.relative_to(ROOT)})" in readme


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    folders = "benchmarks|charts|collectors|common|docs|fleetgauge|locks|scripts|tests"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", page.read_text())
    missing = [name for name in named if not (ROOT / name).exists()]
    added = re.compile("collectors/(queue|steps)/")  # by a page
    assert [name for name in missing if not added.search(name)] == []


def test_words_of_the_glossary_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| *([^|]+?) *\|[^|]+\| *`([^|]+)` *\|$", section, re.MULTILINE)
    assert 10 < len(rows) <= 25
    for word, place in rows:
        files = [ROOT / place, *(ROOT / place).rglob("*.py")]
        text = "".join(file.read_text() for file in files if file.is_file())
        assert re.search(rf"\b{word}", text, re.IGNORECASE), word


def test_the_changelog_names_metrics_and_settings_that_exist() -> None:
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    said = re.sub(r"^### Upgrading.*?(?=^### )", "", newest, flags=re.DOTALL | re.MULTILINE)
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("metrics.md", "settings.md"))
    families = {path.parent.name for path in ROOT.glob("collectors/*/README.md")} | {"collector"}
    named = re.findall(r"`([a-z_]+)(\.[a-z_0-9.]+)`", said)
    named = [family + rest for family, rest in named if family in families]
    named += re.findall(r"`(FLEETGAUGE_\w+)", said)
    assert len(named) > 20
    assert [name for name in named if f"`{name}`" not in pages] == []


def test_every_picture_is_shown_and_small() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    shown = re.findall(r"!\[[^\]]+\]\((?:docs/)?images/([\w-]+\.png)\)", pages)
    pictures = sorted((ROOT / "docs" / "images").glob("*.png"))
    assert [path.name for path in pictures] == sorted(shown) != []
    for path in pictures:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert len(content) <= 300_000
        assert struct.unpack(">I", content[16:20]) == (1280,)


def test_every_file_has_unix_lines_and_no_trailing_space() -> None:
    command = ["git", "ls-files", "-z", "--", ".", ":!tests/data", ":!locks", ":!docs/images"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for path in (ROOT / name for name in names if name and (ROOT / name).is_file()):
        text = path.read_bytes().decode()
        assert not text or text.endswith("\n"), path
        assert not re.search(r"\r|[ \t]+$|^\t", text, re.MULTILINE), path


def test_scripts_that_forms_and_policies_name_are_there() -> None:
    pages = [*ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"), *ROOT.glob(".github/*.md"), *ROOT.glob("*.md")]
    text = "".join(page.read_text() for page in pages if page.name != "CHANGELOG.md")
    named = {*re.findall(r"\b(?:scripts|docs)/[\w./-]*\w", text)}
    assert {"scripts/test", "scripts/generate", "scripts/run_collector.py"} <= named
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_index_lists_every_decision_by_its_title_and_in_order() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| \[(.*?)\]\((.*?)\)", (folder / "README.md").read_text(), re.MULTILINE)
    pages = sorted(folder.glob("[0-9]*.md"))
    assert (
        listed == [(page.read_text().splitlines()[0].removeprefix("# "), page.name) for page in pages] != []
    )
