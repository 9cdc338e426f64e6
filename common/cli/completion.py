"""Completion scripts for bash and zsh, generated from the grammar of the command line.

Standard library only. The grammar is in `arguments.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

# Where neither a collector nor an option fits, both complete the names of files.
SCRIPTS = {
    "bash": 'complete -o default -W "{words}" run_collector.py',
    "zsh": "_run_collector() {{ compadd -- {words} || _files }}\ncompdef _run_collector run_collector.py",
}


def script(shell: str, parser: argparse.ArgumentParser, names: Iterable[str]) -> str:
    """Return the script that a shell sources to complete collectors and options.

    `shell` is one of SCRIPTS, `names` are what a positional argument may be.
    """
    # argparse has no public way to list its options.
    options = (option for action in parser._actions for option in action.option_strings)
    return SCRIPTS[shell].format(words=" ".join([*names, *options]))
