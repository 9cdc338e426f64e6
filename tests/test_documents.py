"""The written documents hold: what they show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from project import ROOT, Project

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "collectors/*/README.md", "charts/*/README.md")
    for path in ROOT.glob(pattern)
)


def test_following_the_page_on_adding_a_collector_adds_one(project: Project, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "adding-a-collector.md").read_text()
    files = re.findall(r"`(collectors/queue/\w+\.py)`.*?```python\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == [
        "collectors/queue/__init__.py",
        "collectors/queue/metrics.py",
        "collectors/queue/collector.py",
    ]
    for name, code in files:
        (project.root / name).parent.mkdir(exist_ok=True)
        (project.root / name).write_text(code)
    (tmp_path / "jobs.txt").write_text("ants train\nbees sort\n\nants train again\n")
    ran = project.run("queue", FLEETGAUGE_QUEUE_PATH=str(tmp_path / "jobs.txt"))
    [shown] = re.findall(r"```console\n\$ FLEETGAUGE_QUEUE_PATH.*?\n(.*?)```", page, re.DOTALL)
    assert re.sub(r"\d\.\d s", "0.0 s", ran.stdout) == shown
    assert ran.returncode == 0
    ran = project.run("queue", FLEETGAUGE_QUEUE_PATH=str(tmp_path / "none"))
    assert ran.returncode == 1
    assert "cannot read the queue" in ran.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / target).exists(), target


def test_the_readme_names_every_collector_and_every_document() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in [*ROOT.glob("collectors/*/README.md"), *ROOT.glob("docs/*.md")]:
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
