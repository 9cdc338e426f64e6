"""Find the terminal of a person, whatever was redirected, and ask there.

That is the terminal in whose foreground this process is, or one that is its input or takes its messages.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

CONTROLLING = "/dev/tty"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Console:
    """A terminal to write a question to, and to read its answer from."""

    questions: TextIO
    answers: TextIO


def find() -> Console | None:
    """Return the terminal of a person; None where there is none."""
    for descriptor in (_controlling(), _terminal(sys.stdin), _terminal(sys.stderr)):
        if descriptor is not None:
            return Console(open(descriptor, "w"), open(os.dup(descriptor)))  # noqa: PTH123
    return None


def ask(text: str, console: Console | None) -> bool:
    """Show what will be sent; return whether a person agrees. Without a terminal nobody does."""
    if console is None:
        log.error("%s: there is no terminal to ask on; --yes sends it", text)
        return False
    from rich.console import Console as Rich

    screen = Rich(file=console.questions, highlight=False, markup=False, emoji=False, soft_wrap=True)
    screen.print(text)
    answer = screen.input("Send it? [y/N] ", markup=False, stream=console.answers)
    return answer.strip().lower() in {"y", "yes"}


def _controlling() -> int | None:
    """Return our terminal, where we are in its foreground: from the background a read would stop us."""
    with suppress(OSError):
        descriptor = os.open(CONTROLLING, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        with suppress(OSError):
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                return descriptor
        os.close(descriptor)
    return None


def _terminal(stream: TextIO | None) -> int | None:
    """Return a stream's descriptor, where it is a terminal that can be both read and written."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or no file at all
        descriptor = stream.fileno()  # type: ignore[union-attr]  # None has none
        both = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        if os.isatty(descriptor) and both:
            return os.dup(descriptor)
    return None
