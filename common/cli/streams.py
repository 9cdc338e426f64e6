"""The parent's own input, output and messages, whatever their state: closed, full, ASCII only.

Standard library only.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from common.text import visible


def prepare() -> None:
    """Have all three open, and able to write any character.

    What was closed is opened on nothing: otherwise the next pipe would take its number. Writing to an output
    that was closed fails, as it should; messages to a closed standard error are dropped.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free is this one, and children are to have it too.
            os.set_inheritable(os.open(os.devnull, flags), True)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a test's own stream
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper


def say(text: str) -> None:
    """Print a message on standard error; where that fails, only the exit code reports the error."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"run_collector.py: {visible(text)}\n")
        sys.stderr.flush()


class Messages(io.TextIOBase):
    """Standard error, for what libraries print: where it cannot be written, it is lost."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)


def trouble(error: OSError) -> str:
    """Return the message for an error of the operating system; without a file it is about standard output."""
    return f"{error.filename or 'standard output cannot be written'}: {error.strerror or error}"


def give_up_unwritten() -> None:
    """Discard unwritten output: Python would flush it again at exit, and change the exit code."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, descriptor)
            os.close(nothing)
