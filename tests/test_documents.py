"""The written documents hold: what they show is what happens."""

from __future__ import annotations

import re
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
