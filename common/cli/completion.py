"""Completion scripts for bash and zsh, generated from the grammar of the command line.

Standard library only. The grammar is in `arguments.py`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

SHELLS = ("bash", "zsh")
_BASH = """\
_run_collector() {{
  local IFS=$' \\n' current=${{COMP_WORDS[COMP_CWORD]}}
  case ${{COMP_WORDS[COMP_CWORD-1]}} in
    {files}) IFS=$'\\n'; COMPREPLY=($(compgen -f -- "$current")) ;;
    {valued}) COMPREPLY=() ;;
    *) COMPREPLY=($(compgen -W "{candidates}" -- "$current")) ;;
  esac
}}
complete -F _run_collector run_collector.py"""
_ZSH = """\
_run_collector() {{
  _arguments {options} '*:collector:({names})'
}}
compdef _run_collector run_collector.py"""


def script(shell: str, parser: argparse.ArgumentParser, names: Iterable[str]) -> str:
    """Return the script that a shell sources to complete collectors and options.

    `shell` is one of SHELLS, `names` are what a positional argument may be.
    """
    # argparse has no public way to list its options.
    actions = [action for action in parser._actions if action.option_strings]
    if shell == "zsh":
        return _ZSH.format(options=" ".join(map(_zsh_option, actions)), names=" ".join(names))
    candidates = [*names, *(option for action in actions for option in action.option_strings)]
    files = [*_options(action for action in actions if action.metavar == "FILE")]
    valued = [*_options(action for action in actions if action.nargs != 0 and action.metavar != "FILE")]
    return _BASH.format(candidates=" ".join(candidates), files="|".join(files), valued="|".join(valued))


def _options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    """Return all spellings of the options."""
    return (option for action in actions for option in action.option_strings)


def _zsh_option(action: argparse.Action) -> str:
    """Return an option as `_arguments` takes it: its description, and the kind of its value."""
    # In `_arguments` brackets and quotes end the description, and a colon separates the fields.
    description = re.sub(r"[]['`]", "", action.help or "").replace(":", "\\:")
    follows = f":{action.metavar or ''}:{'_files' if action.metavar == 'FILE' else ''}"
    if action.choices:
        follows = f":{action.metavar}:({' '.join(action.choices)})"
    return f"'{action.option_strings[-1]}[{description}]{'' if action.nargs == 0 else follows}'"
