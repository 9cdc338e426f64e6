"""What the shells complete, as they do it themselves."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.cli.completion import script
from support.project import ROOT
from support.requirements import needs

SCRIPT = ROOT / "scripts" / "run_collector.py"


def made(shell: str) -> str:
    # -S leaves site-packages out altogether.
    command = [sys.executable, "-S", str(SCRIPT), "--completion", shell]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def completed(script: str, folder: Path, typed: str) -> list[str]:
    """Return what bash offers for the last word typed."""
    words = ["run_collector.py", *typed.replace("\\ ", "\0").split(" ")]
    quoted = " ".join(f"'{word}'" for word in words).replace("\0", " ")
    line = f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _run_collector\n"
    line += "printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p run_collector.py"
    command = ["bash", "-c", line]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    *found, registered = ran.stdout.splitlines()
    assert registered == "complete -F _run_collector run_collector.py"
    return [word for word in found if word]


@pytest.mark.slow
def test_bash_completes_names_options_and_files(tmp_path: Path) -> None:
    for name in ("README.md", "a file", "other"):
        (tmp_path / name).touch()
    script = made("bash")
    for typed, expected in {
        "wa": ["wandb"],
        "host xe": ["xenna"],
        "wandb --pri": ["--print-config"],
        "wandb --since ": [],
        "wandb --config R": ["README.md"],
        "--html a\\ f": ["a file"],
    }.items():
        assert completed(script, tmp_path, typed) == expected


@pytest.mark.slow
@needs("zsh", shutil.which("zsh"))
def test_zsh_accepts_the_script_and_its_options() -> None:
    # `_arguments` works only while a line is edited; what it would be given is what matters here.
    script = 'compdef() { print -r -- "$@" }; _arguments() { print -rl -- "$@" }\n'
    script += made("zsh") + "\n_run_collector"
    ran = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, check=True)  # noqa: S607
    registered, *given = ran.stdout.splitlines()
    assert registered == "_run_collector run_collector.py"
    ends = {option.partition("[")[0]: option.rpartition("]")[2] for option in given}
    assert (ends["--config"], ends["--push"]) == (":FILE:_files", "")
    assert given[-1].startswith("*:collector:(data_plane gpu_memory host wandb xenna all")


def test_script_knows_which_options_take_a_file_a_value_or_nothing() -> None:
    grammar = argparse.ArgumentParser(add_help=False)
    grammar.add_argument("--push", action="store_true", help="deliver: now")
    grammar.add_argument("--config", metavar="FILE", help="a `file`")
    grammar.add_argument("--every", metavar="INTERVAL")
    grammar.add_argument("--completion", metavar="SHELL", choices=("bash", "zsh"), help="of a shell")
    bash = script("bash", grammar, ["host", "all"])
    assert "    --config) IFS=$'\\n'; COMPREPLY=($(compgen -f" in bash
    assert "    --every|--completion) COMPREPLY=() ;;" in bash
    assert '-W "host all --push --config --every --completion"' in bash
    assert script("zsh", grammar, ["host", "all"]).splitlines()[1] == (
        r"  _arguments '--push[deliver\: now]' '--config[a file]:FILE:_files' '--every[]:INTERVAL:' "
        "'--completion[of a shell]:SHELL:(bash zsh)' '*:collector:(host all)'"
    )
