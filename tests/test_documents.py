"""The written documents hold: what they show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from project import ROOT

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "collectors/*/README.md", "charts/*/README.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / target).exists(), target


def test_the_readme_names_every_collector_and_every_document() -> None:
    readme = (ROOT / "README.md").read_text()
    indexes = ROOT.glob("docs/*/README.md")
    for path in [*ROOT.glob("collectors/*/README.md"), *ROOT.glob("docs/*.md"), *indexes]:
        assert f"({path.relative_to(ROOT)})" in readme


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
    groups = {"build", "checkov", "demo", "dev", "service", "xenna-311", "xenna-312"}
    assert {lock.stem for lock in locks} == groups
    for lock in locks:
        assert "://" not in lock.read_text()
        assert "--hash=sha256:" in lock.read_text()
