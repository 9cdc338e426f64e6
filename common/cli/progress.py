"""What is shown of work that takes long: a line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from shutil import get_terminal_size
from typing import TextIO

from common.cli.console import Console
from common.logs import ERASE, can_erase
from common.show.layout import columns
from common.text import visible

EVERY = 10.0  # seconds between two lines of the log; what is quicker has none
REDRAW = 0.2  # seconds between two changes of a line on a terminal

log = logging.getLogger(__name__)


class Lines:
    """Logs now and then how far a collector is, and asks where a person can be."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + EVERY

    def progress(self, collector: str, doing: str, done: int, total: int | None) -> None:
        """Log it where the last line is long ago."""
        now = self._clock()
        if self._due <= now:
            self._due = now + EVERY
            log.info("%s: %s", collector, _text(doing, done, total))

    def ask(self, collector: str, text: str, console: Console | None) -> bool:
        """Show what will be sent; return whether a person agrees. Where nobody can be asked, it is a no."""
        self.close()
        if console is None:
            log.error("%s: %s: nobody can be asked; --yes sends it", collector, text)
            return False
        console.questions.write(f"{collector}: {text}\nSend it? [y/N] ")
        console.questions.flush()
        return console.answers.readline().strip().lower() in {"y", "yes"}

    def close(self) -> None:
        """Remove what is shown."""


class Terminal(Lines):
    """Keeps one line on a terminal instead."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._is_shown = False
        self._drawn = -REDRAW

    def progress(self, collector: str, doing: str, done: int, total: int | None) -> None:
        """Show it in place of the line before."""
        if self._clock() - self._drawn < REDRAW and done != total:
            return
        self._drawn = self._clock()
        self._draw(visible(f"{collector}: {_text(doing, done, total)}"))

    def close(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._draw("")

    def _draw(self, text: str) -> None:
        room = get_terminal_size().columns - 1  # in the last column some terminals begin a new line
        while columns(text) > room:
            text = text[:-1]
        self._is_shown = bool(text)
        self._stream.write(ERASE + text)
        self._stream.flush()


def watcher(stream: TextIO) -> Lines:
    """Return what shows progress on a stream."""
    return Terminal(stream) if can_erase(stream) else Lines()


def _text(doing: str, done: int, total: int | None) -> str:
    if total:
        return f"{doing}, {done:,} of {total:,}"
    return f"{doing}, {done:,} so far" if done else doing
