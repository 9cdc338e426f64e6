"""What CONTRIBUTING promises: the first hour, isolated tests, files as the editor settings say."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.checkout import Checkout
from support.project import ROOT

DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


def first_hour() -> list[tuple[str, str]]:
    """The blocks of the section, each with its language."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    [section] = re.findall(r"^## The first hour\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    return re.findall(r"^```(\w+)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def edit(copy: Checkout, block: str) -> None:
    """Make the change that a block shows: a file, a line as it is, the line as it shall be."""
    for name, old, new in re.findall(r"^# (\S+)\n-(.*\n)\+(.*\n)", block, re.MULTILINE):
        copy.replace(name, old, new)


def commands(block: str) -> list[str]:
    return re.findall(r"^\$ (.*)", block, re.MULTILINE)


@pytest.mark.slow
def test_the_first_hour_goes_as_contributing_tells_it(tmp_path: Path) -> None:
    copy = Checkout(tmp_path)
    began = "git init -q && git add -A && git -c user.name=x -c user.email=x@x commit -qm x"
    assert copy.run(began).returncode == 0
    kinds, blocks = zip(*first_hour(), strict=True)
    assert kinds == ("console", "diff", "console", "console", "diff", "console")
    begin, change, demo, run_test, change_test, page = blocks
    [_, *scripts] = commands(begin)
    assert scripts == ["./scripts/demo", "./scripts/lint"]
    edit(copy, change)

    [command] = commands(demo)
    shown = [re.sub(r"\s+", " ", re.sub(r"\d[\d,]*\d", "N", line)) for line in demo.splitlines()[1:]]
    seen = copy.run(command).stdout.splitlines()
    assert [re.sub(r"\s+", " ", re.sub(r"\d[\d,]*\d", "N", line)) for line in seen] == shown

    [command] = commands(run_test)
    assert "1 failed" in copy.run(command).stdout
    edit(copy, change_test)
    assert copy.run(command).returncode == 0

    generate, overview, metrics = commands(page)
    assert copy.run(generate).returncode == 0
    changed = copy.run(overview).stdout
    for name in ("docs/metrics.md", "docs/datadog/host/metadata.csv"):
        assert name in changed
    assert "+| `host.memory_bytes` | gauge | byte |" in copy.run(metrics).stdout
    assert copy.run("git restore . && git status --short").stdout == ""


LEAVES_THINGS_BEHIND = """
import logging, signal
import pytest
from common import logs, signals

def leave():
    logs.set_up("leaving", verbose=True)
    signals.install()

@pytest.fixture(scope="module")
def left():
    leave()

def test_one(left):
    leave()

def test_other(left):
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert logging.getLogger("common").level == logging.NOTSET
    formatters = [type(one.formatter).__module__ for one in logging.getLogger().handlers]
    assert not [name for name in formatters if name.startswith("common")]
"""


@pytest.mark.slow
def test_no_test_meets_the_signals_or_the_logging_of_another(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(LEAVES_THINGS_BEHIND)
    arguments = ["-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-pconftest", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_every_file_is_as_the_editors_settings_say() -> None:
    settings = configparser.ConfigParser()
    settings.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    assert dict(settings["*"]) == {
        "charset": "utf-8",
        "end_of_line": "lf",
        "insert_final_newline": "true",
        "trim_trailing_whitespace": "true",
        "indent_style": "space",
        "indent_size": "2",
    }
    assert "{tests/data,locks,docs/images}/**" in settings
    command = ["git", "ls-files", "-z", "--", ".", ":!tests/data", ":!locks", ":!docs/images"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for path in (ROOT / name for name in names if name and (ROOT / name).is_file()):
        text = path.read_bytes().decode()
        assert "\r" not in text, path
        assert not text or text.endswith("\n"), path
        assert not re.search(r"[ \t]+$", text, re.MULTILINE), path
        assert not re.search(r"^\t", text, re.MULTILINE), path


def test_what_templates_and_policies_tell_to_run_is_there() -> None:
    pages = [
        *FORMS,
        ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md",
        ROOT / "SECURITY.md",
        ROOT / "CONTRIBUTING.md",
    ]
    named = {
        name for page in pages for name in re.findall(r"\b(?:scripts|docs)/[\w./-]*\w", page.read_text())
    }
    assert {"scripts/test", "scripts/generate", "scripts/run_collector.py"} <= named
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_index_lists_every_decision_by_its_title_and_in_order() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    listed = re.findall(r"^\| \[(.*?)\]\((.*?)\)", index, re.MULTILINE)
    assert len(DECISIONS) >= 10
    assert listed == [(page.read_text().splitlines()[0].removeprefix("# "), page.name) for page in DECISIONS]
