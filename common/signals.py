"""Stopping when asked, without cutting a delivery in half.

SIGTERM and SIGINT ask a process to stop; SIGALRM is how the parent tells a child that its time is over.
Within `interruptible()` they raise `Interrupted` in the main thread at once, except inside `shielded()`,
where they wait for its end: a request in flight is finished first. So is an import: a module left half
imported would break whatever is still to be done.
"""

from __future__ import annotations

import signal
import sys
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from common.errors import DeadlinePassed, Interrupted

TIME_IS_OVER = signal.SIGALRM
STOPPING = (signal.SIGTERM, signal.SIGINT, TIME_IS_OVER)
OURS = ("collectors.", "common.", "fleetgauge.")
IMPORTER = "<frozen importlib._bootstrap>"
AGAIN = 0.01  # seconds until an interruption that could not be raised is tried once more

_depth = 0
_pending: Interrupted | None = None
_later: Interrupted | None = None  # one that could not be raised yet
_deadline = 0.0
_doing: dict[int, str] = {}  # by thread
_others = sys.unraisablehook  # for what is no interruption


@contextmanager
def interruptible(deadline: float = 0.0) -> Iterator[None]:
    """Raise `Interrupted` in the block, once; behind it nothing interrupts: what is left to do is short.

    What may have been inherited is undone: blocked signals, and a SIGCHLD that hides how children ended.
    """
    global _deadline, _later, _others
    _deadline = deadline
    before = _others = sys.unraisablehook
    sys.unraisablehook = _unraisable
    try:
        for number in STOPPING:
            signal.signal(number, _interrupt)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOPPING, signal.SIGCHLD))
        yield
        if _later is not None:  # an import was the last thing to be done
            error, _later = _later, None
            raise error
    finally:
        ignore()
        sys.unraisablehook = before


def ignore() -> None:
    """From now on nothing interrupts."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    ignore()
    _raise(_interruption(number, frame), frame)


def _raise(error: Interrupted, frame: FrameType | None) -> None:
    global _later, _pending
    _later = None
    if _depth:
        _pending = error
    elif _imports(frame):
        _raise_later(error)
    else:
        raise error


def _raise_later(error: Interrupted) -> None:
    def again(_number: int, frame: FrameType | None) -> None:
        ignore()
        _raise(error, frame)

    global _later
    _later = error
    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, AGAIN)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTER:
            return True
        frame = frame.f_back
    return False


def _interruption(number: int, frame: FrameType | None) -> Interrupted:
    if number != TIME_IS_OVER:
        return Interrupted(number)
    waits = next(iter(list(_doing.values())), None)  # other threads may be adding to it
    return DeadlinePassed(_deadline, f"while {waits}" if waits else _place(frame))


def _place(frame: FrameType | None) -> str:
    """Where our own code is."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(OURS):
            return f"in {name}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


def _unraisable(told: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised while an object is being finalised: an interruption is raised again."""
    if isinstance(told.exc_value, Interrupted):
        _raise_later(told.exc_value)
    else:
        _others(told)


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
            error, _pending = _pending, None
            raise error


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Say what the block waits for, such as `waiting for an answer from <address>`, in case time runs out."""
    thread = get_ident()
    before = _doing.get(thread)
    _doing[thread] = what
    try:
        yield
    finally:
        if before is None:
            _doing.pop(thread, None)
        else:
            _doing[thread] = before
