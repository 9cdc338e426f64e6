"""What is seen of work that takes long: a line that changes on a terminal, a line now and then elsewhere.

Standard library only.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from shutil import get_terminal_size
from typing import TextIO

from common.logs import ERASE, can_erase
from common.process.console import Console
from common.process.protocol import Progress, Question
from common.show.layout import columns
from common.text import visible

EVERY = 10.0  # seconds between two lines on one collector; what is quicker says nothing

log = logging.getLogger(__name__)


class Lines:
    """Says now and then how far each collector is, and asks where a person can be."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._due: dict[str, float] = {}

    def progress(self, collector: str, progress: Progress) -> None:
        """Log it where the last line on the collector is long ago."""
        now = self._clock()
        if self._due.setdefault(collector, now + EVERY) <= now:
            self._due[collector] = now + EVERY
            log.info("%s: %s", collector, progress)

    def ended(self, collector: str) -> None:
        """A collector is done with its job."""
        self._due.pop(collector, None)

    @property
    def answers(self) -> TextIO:
        """Where the answer to a question comes."""
        return self._console.answers if self._console else sys.stdin

    def ask(self, collector: str, question: Question) -> bool | None:
        """Show what will happen; the answer is a line on `answers`. Where nobody can be asked, it is a no."""
        self.close()
        if self._console is None:
            log.error("%s: %s: nobody can be asked; --yes sends it", collector, question.text)
            return False
        self._console.questions.write(f"{collector}: {question.text}\nSend it? [y/N] ")
        self._console.questions.flush()
        return None

    def answer(self) -> bool:
        """Whether the line says yes; anything else is a no."""
        return self.answers.readline().strip().lower() in {"y", "yes"}

    def close(self) -> None:
        """There is nothing to take away."""


class Terminal(Lines):
    """Keeps one line on all collectors that are at work instead."""

    def __init__(self, stream: TextIO, console: Console | None = None) -> None:
        super().__init__(console)
        self._stream = stream
        self._doing: dict[str, str] = {}

    def progress(self, collector: str, progress: Progress) -> None:
        """Show it in place of what was said of the collector before."""
        self._doing[collector] = visible(f"{collector}: {progress}")
        self._draw()

    def ended(self, collector: str) -> None:
        """Say no more of a collector."""
        if self._doing.pop(collector, None):
            self._draw()

    def close(self) -> None:
        """Take the line away."""
        if self._doing:
            self._doing = {}
            self._draw()

    def _draw(self) -> None:
        room = get_terminal_size().columns - 1  # in the last column some terminals begin a new line
        text = " · ".join(self._doing.values())
        while columns(text) > room:
            text = text[:-1]
        self._stream.write(ERASE + text)
        self._stream.flush()


def watcher(stream: TextIO, console: Console | None = None) -> Lines:
    """A line that changes where a person looks on, lines otherwise."""
    return Terminal(stream, console) if can_erase(stream) else Lines(console)
