"""End at once on SIGTERM and SIGINT: kill the children, print one line, exit with 128 + the signal.

Nothing is flushed, because nothing needs to be: the next run computes the same points again. This module
imports nothing that the interpreter has not loaded by itself, so that it can be installed first.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed lacks it
import os
import sys

NAMES = {_signal.SIGTERM: "SIGTERM", _signal.SIGINT: "SIGINT"}
SHOW_CURSOR = b"\x1b[?25h"  # which a progress bar hides

children: set[int] = set()  # process groups to end with this process
advice = ""  # what to do next, such as the command that continues a backfill


def install() -> None:
    """Handle the signals. What may have been inherited is undone: blocked signals, and an ignored SIGCHLD.

    It is called before slow imports: process 1 of a container has no default handlers, and a SIGTERM that
    arrives earlier is lost.
    """
    for number in NAMES:
        _signal.signal(number, _end)
    # With an inherited SIG_IGN the kernel reaps children itself, and their exit codes are unknown.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {*NAMES, _signal.SIGCHLD})


def end_children() -> None:
    """Kill all children; they have process groups of their own, which Ctrl-C at a terminal does not reach.

    They are removed from `children`: one that ended otherwise is still there.
    """
    while children:
        try:
            os.killpg(children.pop(), _signal.SIGKILL)
        except (OSError, KeyError):  # it has ended, or a thread has removed it
            pass


def _end(number: int, _frame: object) -> None:
    """Kill the children, print the line with the advice, and exit; nothing can be raised into other code."""
    end_children()
    program = os.path.basename(sys.argv[0])  # noqa: PTH119  # pathlib is not loaded yet
    line = f"{program}: interrupted by {NAMES[number]}{advice and f'; {advice}'}\n"
    try:
        if os.isatty(2):
            os.write(2, SHOW_CURSOR)
        os.write(2, line.encode(errors="backslashreplace"))
    except OSError:  # standard error is closed
        pass
    # Not sys.exit: a handler runs between any two instructions, and the exception could be caught there.
    os._exit(128 + number)
