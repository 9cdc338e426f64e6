"""The process's own input, output and messages, whatever their state: closed, full, ASCII only.

Standard library only, except for the prompt. `common/logs.py` redacts what is written to these streams.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from common.text import visible


def prepare() -> None:
    """Have all three open, and able to write any character. What was closed is opened on nothing.

    Python sets a stream to None where its descriptor was closed at start. A character that the encoding
    lacks, such as an accent in ASCII, would raise UnicodeEncodeError.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free is its own: otherwise the next pipe would take it.
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a test's own stream
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper


def say(text: str) -> None:
    """Print a message on standard error; where that fails, only the exit code reports the error."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"run_collector.py: {visible(text)}\n")
        sys.stderr.flush()


def can_ask() -> bool:
    """Return whether a person can confirm: input and messages are a terminal's.

    Standard output may be a file: the prompt is on standard error.
    """
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(text: str) -> bool:
    """Show what will be sent; return whether a person agrees. Anything but y or yes is a no."""
    from rich.console import Console

    # Markup is off, because names of projects and metrics may contain brackets.
    screen = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    screen.print("\n".join(map(visible, text.split("\n"))))
    answer = screen.input("Send it? [y/N] ", markup=False, stream=sys.stdin)
    return answer.strip().lower() in {"y", "yes"}


def trouble(error: OSError) -> str:
    """Return the message for an error of the operating system; without a file it is about standard output."""
    return f"{error.filename or 'standard output cannot be written'}: {error.strerror or error}"


def discard_unwritten() -> None:
    """Discard unwritten output: Python would flush it again at exit, and change the exit code.

    The descriptor then refers to the null device, so that the flush at exit succeeds.
    """
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
