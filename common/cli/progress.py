"""The progress of work that takes long: a bar on a terminal, a line of the log now and then elsewhere.

A run reports progress through `Report.progress`; `main.py` connects it to the display.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from common.logs import can_erase
from common.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress

EVERY = 10.0  # seconds between two lines of the log; what is quicker has none
REDRAW = 0.2  # seconds between two drawings of a bar

log = logging.getLogger(__name__)


class ProgressDisplay:
    """Shows on a stream how far a collector is, and limits how often.

    The bar is one line of a terminal; a line of the log erases it until the next drawing. `clock` is
    monotonic.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._draws = can_erase(stream)
        self._due = clock() + (0 if self._draws else EVERY)
        self._bar: Progress | None = None

    def progress(self, collector: str, doing: str, done: int, total: int | None) -> None:
        """Show how much was done, of how much where that is known; not more often than is useful.

        `total` is None where it is not known. Calls that are too early cost one reading of the clock.
        """
        now = self._clock()
        if now < self._due:
            return
        self._due = now + (REDRAW if self._draws else EVERY)
        text = f"{collector}: {doing}"
        if done or total:
            text += f", {done:,} of {total:,}" if total else f", {done:,} so far"
        if not self._draws:
            log.info("%s", text)
            return
        if self._bar is None:
            self._bar = _bar(self._stream)
            self._bar.add_task("")
            self._bar.start()
        [task] = self._bar.task_ids
        self._bar.update(task, description=visible(text), completed=done, total=total, refresh=True)

    def close(self) -> None:
        """Erase the bar; lines of the log stay. A later call of `progress` draws it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


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
