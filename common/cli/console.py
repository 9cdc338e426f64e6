"""Where a person can be asked, whatever was redirected.

That is the terminal in whose foreground this process is, or one that is its input or takes its messages.

Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

CONTROLLING = "/dev/tty"


@dataclass(frozen=True)
class Console:
    """A terminal to write a question to, and to read its answer from."""

    questions: TextIO
    answers: TextIO


def find() -> Console | None:
    """The terminal of the person who sits there; None where nobody does."""
    for descriptor in (_controlling(), _terminal(sys.stdin), _terminal(sys.stderr)):
        if descriptor is not None:
            return Console(open(descriptor, "w"), open(os.dup(descriptor)))  # noqa: PTH123
    return None


def _controlling() -> int | None:
    """Our terminal, where we are in its foreground: from the background a read would stop us."""
    with suppress(OSError):
        descriptor = os.open(CONTROLLING, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        with suppress(OSError):
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                return descriptor
        os.close(descriptor)
    return None


def _terminal(stream: TextIO | None) -> int | None:
    """A stream's descriptor, where it is a terminal that can be both read and written."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or no file at all
        descriptor = stream.fileno()  # type: ignore[union-attr]  # None has none
        both = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        if os.isatty(descriptor) and both:
            return os.dup(descriptor)
    return None
