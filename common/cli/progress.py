"""The progress of work that takes long: a line of a terminal, a line of the log now and then elsewhere.

A run reports progress through `Report.progress`; `main.py` connects it to the display.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from typing import TextIO

from common.logs import ERASE, can_erase
from common.text import visible

EVERY = 10.0  # seconds between two lines of the log; what is quicker has none
REDRAW = 0.2  # seconds between two drawings on a terminal

log = logging.getLogger(__name__)


class ProgressDisplay:
    """Shows on a stream how far a collector is, and limits how often.

    On a terminal it is one line, which a line of the log erases until the next drawing. `clock` is monotonic.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._draws = can_erase(stream)
        self._due = clock() + (0 if self._draws else EVERY)

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
        if self._draws:
            columns = shutil.get_terminal_size().columns
            self._stream.write(ERASE + visible(text)[: columns - 1])
            self._stream.flush()
        else:
            log.info("%s", text)

    def close(self) -> None:
        """Erase the line of a terminal; lines of the log stay. A later call of `progress` draws it again."""
        if self._draws:
            self._stream.write(ERASE)
            self._stream.flush()
