"""What the shells complete, as they do it themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT
from support.requirements import needs


def run(shell: str, *arguments: str, folder: Path = ROOT) -> list[str]:
    ran = subprocess.run([shell, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def made(shell: str) -> str:
    # -S leaves site-packages out altogether.
    script = str(ROOT / "scripts" / "run_collector.py")
    return "\n".join(run(sys.executable, "-S", script, "--completion", shell))


@pytest.mark.parametrize(
    ("typed", "completed"), [("wa", ["wandb"]), ("xe", ["xenna"]), ("--pri", ["--print-config"]), ("R", [])]
)
def test_bash_completes_collectors_and_options(typed: str, completed: list[str]) -> None:
    words = "compgen" + made("bash").removeprefix("complete -o default").removesuffix("run_collector.py")
    assert run("bash", "-c", f"{words} -- {typed}; true") == completed


@needs("zsh", shutil.which("zsh"))
def test_zsh_accepts_the_script_and_its_words() -> None:
    # `compadd` works only while a line is edited; what it would be given is what matters here.
    script = 'compdef() { print -r -- "$@" }; compadd() { print -rl -- "$@" }\n'
    registered, _, *words = run("zsh", "-fc", f"{script}{made('zsh')}\n_run_collector")
    assert registered == "_run_collector run_collector.py"
    assert {"wandb", "all", "--push", "--config", "-h"} <= {*words}
