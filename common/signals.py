"""Stopping when asked, without cutting a delivery in half.

SIGTERM and SIGINT raise `Interrupted` in the main thread at once, except inside `shielded()`, where they
wait for its end: a request in flight and the checkpoint behind it are finished first.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from common.errors import Interrupted

_depth = 0
_pending: int | None = None


def install() -> None:
    """Make SIGTERM and SIGINT raise `Interrupted`, the first one only: later ones change nothing."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)


def ignore() -> None:
    """From now on nothing interrupts: what is left to do is short."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    global _pending
    ignore()
    if _depth:
        _pending = number
    else:
        raise Interrupted(number)


@contextmanager
def shielded() -> Iterator[None]:
    """Let the block finish before an interruption is raised."""
    global _depth, _pending
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0 and _pending is not None:
            number, _pending = _pending, None
            raise Interrupted(number)
