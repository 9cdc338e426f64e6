"""What the README promises a new user."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.checkout import Checkout
from support.project import ROOT
from support.servers.wandb import KEY, Wandb

pytestmark = pytest.mark.slow

README = (ROOT / "README.md").read_text()


def block_after(text: str) -> str:
    """Return the first block of commands behind a text."""
    return README.partition(text)[2].partition("```console\n")[2].partition("```")[0]


def test_four_commands_lead_from_a_clone_to_a_table_of_ones_own_project(tmp_path: Path, wandb: Wandb) -> None:
    commands = re.findall(r"^\$ (.+)$", block_after("**Your own W&B project**"), re.MULTILINE)
    assert len(commands) <= 4
    Checkout(tmp_path / "origin")
    git = "git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm all"
    subprocess.run(["bash", "-c", git], cwd=tmp_path / "origin", check=True)  # noqa: S607
    script = "\n".join(commands).replace("<the address of this repository>", str(tmp_path / "origin"))
    script = script.replace("WANDB_API_KEY=...", f"WANDB_API_KEY={KEY}").replace(
        "entity/project", "acme/ants"
    )
    # What the second command installs is there already: it finds the environment of the copy.
    script = script.replace("./scripts/setup", "ln -s ../origin/.venv .venv\n./scripts/setup")
    ran = subprocess.run(
        ["bash", "-e", "-c", script],  # noqa: S607
        cwd=tmp_path,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "WANDB_BASE_URL": wandb.url},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Installing" not in ran.stderr
    assert re.search(r"^  wandb.runs.active +\d+  run +entity:acme project:ants$", ran.stdout, re.MULTILINE)
    assert len(re.findall(r"^  wandb.push_to_main.config.*ref:main", ran.stdout, re.MULTILINE)) == 2
    assert "nothing sent (dry run)" in ran.stdout
