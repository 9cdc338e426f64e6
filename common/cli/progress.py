"""The progress of work that takes long: a bar on a terminal, a line of the log now and then elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TextIO

from common.logs import can_erase
from common.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY = 10.0  # seconds between two lines of the log; what is quicker has none
REDRAW = 0.2  # seconds between two drawings of a bar

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Shows how far a collector is."""

    def progress(self, collector: str, doing: str, done: int, total: int | None) -> None:
        """Show how much was done, of how much where that is known."""

    def close(self) -> None:
        """Remove what is shown."""


def watcher(stream: TextIO) -> Watcher:
    """Return what shows progress on a stream."""
    return Bar(stream) if can_erase(stream) else Lines()


class Lines:
    """Logs it, unless the last line was logged a short time ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + EVERY

    def progress(self, collector: str, doing: str, done: int, total: int | None) -> None:
        now = self._clock()
        if self._due <= now:
            self._due = now + EVERY
            log.info("%s: %s", collector, _text(doing, done, total))

    def close(self) -> None:
        """Do nothing: lines stay."""


class Bar:
    """Draws a bar in one line of a terminal; a line of the log erases it until the next drawing."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._shown: Progress | None = None
        self._drawn = -REDRAW

    def progress(self, collector: str, doing: str, done: int, total: int | None) -> None:
        if self._clock() - self._drawn < REDRAW and done != total:
            return
        self._drawn = self._clock()
        if self._shown is None:
            self._shown = _bar(self._stream)
            self._shown.add_task("")
            self._shown.start()
        [task] = self._shown.task_ids
        text = visible(f"{collector}: {_text(doing, done, total)}")
        self._shown.update(task, description=text, completed=done, total=total, refresh=True)

    def close(self) -> None:
        """Erase the bar."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None


def _bar(stream: TextIO) -> Progress:
    """Return a bar that only we draw: from a thread of its own it would write into lines of the log."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    column = Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=column),
        BarColumn(bar_width=20),
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _text(doing: str, done: int, total: int | None) -> str:
    if total:
        return f"{doing}, {done:,} of {total:,}"
    return f"{doing}, {done:,} so far" if done else doing
