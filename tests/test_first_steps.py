"""The first steps that README and CONTRIBUTING promise, followed to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.checkout import Checkout
from support.project import ROOT
from support.servers.wandb import KEY, Wandb

README = (ROOT / "README.md").read_text()
COMMIT = "git init -q && git add -A && git -c user.name=x -c user.email=x@x commit -qm x"
pytestmark = pytest.mark.slow


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


def test_the_first_hour_goes_as_contributing_tells_it(tmp_path: Path) -> None:
    copy = Checkout(tmp_path)
    assert copy.run(COMMIT).returncode == 0
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


def test_four_commands_lead_from_a_clone_to_a_table_of_ones_own_project(tmp_path: Path, wandb: Wandb) -> None:
    section = README.partition("**Your own W&B project**")[2]
    steps = commands(section.partition("```console\n")[2].partition("```")[0])
    assert len(steps) <= 4
    origin = Checkout(tmp_path / "origin")
    assert origin.run(COMMIT).returncode == 0
    script = "\n".join(["set -e", f"export WANDB_BASE_URL={wandb.url}", *steps])
    script = script.replace("<the address of this repository>", str(origin.root))
    script = script.replace("=...", f"={KEY}").replace("entity/project", "acme/ants")
    # What the second command installs is there already: it finds the environment of the copy.
    ran = origin.run(script.replace("./scripts/setup", "ln -s ../.venv .venv\n./scripts/setup"))
    assert ran.returncode == 0, ran.stderr
    assert "Installing" not in ran.stderr
    assert re.search(r"^  wandb.runs.active +\d+  run +entity:acme project:ants$", ran.stdout, re.MULTILINE)
    assert len(re.findall(r"^  wandb.push_to_main.config.*ref:main", ran.stdout, re.MULTILINE)) == 2
    assert "nothing sent (dry run)" in ran.stdout
