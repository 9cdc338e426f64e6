"""What the shells complete, as they do it themselves."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.process import cli
from common.process.completion import script
from support.project import ROOT
from support.requirements import needs

SCRIPT = ROOT / "scripts" / "run_collector.py"


def made(shell: str) -> str:
    # -S leaves site-packages out altogether.
    command = [sys.executable, "-S", str(SCRIPT), "--completion", shell]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("wa", ["wandb"]),
        ("host xe", ["xenna"]),
        ("wandb --pri", ["--print-config"]),
        ("wandb --since ", []),
        ("wandb --config R", ["README.md"]),
        ("--html a\\ f", ["a file"]),
    ],
)
def test_bash_completes_names_options_and_files(typed: str, completed: list[str], tmp_path: Path) -> None:
    for name in ("README.md", "a file", "other"):
        (tmp_path / name).touch()
    words = ["run_collector.py", *typed.replace("\\ ", "\0").split(" ")]
    quoted = " ".join(f"'{word}'" for word in words).replace("\0", " ")
    script = f"{made('bash')}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _run_collector\n"
    script += "printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p run_collector.py"
    ran = subprocess.run(
        ["bash", "-c", script],  # noqa: S607
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    *found, registered = ran.stdout.splitlines()
    assert [word for word in found if word] == completed
    assert registered == "complete -F _run_collector run_collector.py"


def test_each_shell_gets_a_script_of_its_own_with_every_option() -> None:
    options = [
        action.option_strings[-1] for action in cli.parser(width=100)._actions if action.option_strings
    ]
    assert len(options) > 10
    for shell, last in (("bash", "complete "), ("zsh", "compdef ")):
        script = made(shell)
        assert script.splitlines()[-1].startswith(last)
        assert [option for option in options if option not in script] == []


@pytest.mark.slow
@needs("zsh", shutil.which("zsh"))
def test_zsh_takes_the_script_and_every_option_in_it() -> None:
    # `_arguments` works only while a line is edited; what it would be given is what matters here.
    script = 'compdef() { print -r -- "$@" }; _arguments() { print -rl -- "$@" }\n'
    script += made("zsh") + "\n_run_collector"
    ran = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, check=True)  # noqa: S607
    registered, *given = ran.stdout.splitlines()
    assert registered == "_run_collector run_collector.py"
    assert "--config[TOML file with a table per collector]:FILE:_files" in given
    assert "--push[deliver to Datadog]" in given
    assert given[-1].startswith("*:collector:(data_plane gpu_memory host wandb xenna all")


def test_a_script_knows_which_options_take_a_file_a_value_or_nothing() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--push", action="store_true", help="deliver: now")
    parser.add_argument("--config", metavar="FILE", help="a `file`")
    parser.add_argument("--every", metavar="INTERVAL")
    parser.add_argument("--completion", metavar="SHELL", choices=("bash", "zsh"), help="of a shell")
    bash = script("bash", parser, ["host", "all"])
    assert "    --config) IFS=$'\\n'; COMPREPLY=($(compgen -f" in bash
    assert "    --every|--completion) COMPREPLY=() ;;" in bash
    assert '-W "host all --push --config --every --completion"' in bash
    assert script("zsh", parser, ["host", "all"]).splitlines()[1] == (
        r"  _arguments '--push[deliver\: now]' '--config[a file]:FILE:_files' '--every[]:INTERVAL:' "
        "'--completion[of a shell]:SHELL:(bash zsh)' '*:collector:(host all)'"
    )
