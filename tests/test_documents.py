"""The written documents hold: what they show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
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


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading of the page on architecture, without its head."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@pytest.mark.parametrize(
    ("question", "file", "answer"),
    [
        ("What does `wandb.runs.active` mean?", "collectors/wandb/metrics.py", "runs.active"),
        ("Why was a point dropped?", "common/datadog/series.py", "not_finite"),
        ("How is a secret found?", "common/config/sources.py", "AWS Secrets Manager"),
        ("When is a child started, and when is it killed?", "common/cli/supervise.py", "SIGKILL"),
        ("How is a missed run healed?", "common/window.py", "def due"),
        ("Where is a page's axis drawn?", "fleetgauge/pages/charts.py", "def _x_axis"),
    ],
)
def test_a_newcomer_finds_the_file_that_holds_the_answer(question: str, file: str, answer: str) -> None:
    files = dict(table("Where to look"))
    assert re.findall(r"`([^`]+)`", files[question])[0] == file
    assert answer in (ROOT / file).read_text()


def test_the_glossary_is_short_and_its_words_are_those_of_the_code() -> None:
    rows = table("Words")
    words = [word for word, _, _ in rows]
    assert len(words) <= 25
    assert words == sorted(words)
    for word, _, place in rows:
        path = ROOT / place.strip("`")
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        assert any(re.search(rf"\b{word}", file.read_text(), re.IGNORECASE) for file in files), word


def test_words_that_nobody_else_uses_are_gone() -> None:
    old = r"MOST_\w|LONGEST_\w|DEEPEST_\w|\bFURTHEST|Unkept\b|nobody foresaw|[Cc]losed doors|[Aa]nother pace"
    command = [
        "git",
        "grep",
        "-nIE",
        old,
        "--",
        ".",
        f":!tests/{Path(__file__).name}",
        ":!locks",
        ":!CHANGELOG.md",
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout == ""


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


def test_generated_documents_are_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_locks_name_no_host() -> None:
    locks = sorted(ROOT.glob("locks/*.txt"))
    assert len(locks) > 5
    for lock in locks:
        assert "://" not in lock.read_text()
        assert "--hash=sha256:" in lock.read_text()
