"""What a person sees of work that takes long: bars on a terminal, a line per tenth elsewhere.

Standard library only, but for rich, imported once there is something to draw; without it the lines do.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, TextIO

from common.process.console import Console
from common.process.protocol import Progress, Question

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

log = logging.getLogger(__name__)


class Lines:
    """Says how far each collector is, once per tenth, and asks where a person can be."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._said: dict[str, tuple[str, int]] = {}

    def progress(self, collector: str, progress: Progress) -> None:
        """Log it where a tenth more is done; where nobody knows the whole, there are no tenths."""
        if not progress.total:
            return
        tenth = 10 * progress.done // progress.total
        if self._said.get(collector) != (progress.doing, tenth):
            self._said[collector] = progress.doing, tenth
            log.info("%s: %s, %d of %d", collector, progress.doing, progress.done, progress.total)

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
    """Draws a bar per collector instead."""

    def __init__(self, stream: TextIO, console: Console | None = None) -> None:
        super().__init__(console)
        self._stream = stream
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._doing: dict[str, str] = {}

    def progress(self, collector: str, progress: Progress) -> None:
        """Move the collector's bar."""
        bars = self._bars = self._bars or _bars(self._stream)
        if bars is None:  # this Python is not the service's own
            super().progress(collector, progress)
            return
        bars.start()
        doing = f"{collector}: {progress.doing}"
        if self._doing.get(collector) != doing:
            # A bar of its own for each thing done: rich takes a total of None for one that did not change.
            if collector in self._tasks:
                bars.remove_task(self._tasks[collector])
            self._tasks[collector] = bars.add_task(doing, total=progress.total)
            self._doing[collector] = doing
        bars.update(self._tasks[collector], completed=progress.done, total=progress.total)

    def close(self) -> None:
        """Take the bars away."""
        if self._bars:
            self._bars.stop()


def watcher(stream: TextIO, console: Console | None = None) -> Lines:
    """Bars where a person looks on, lines otherwise."""
    return Terminal(stream, console) if stream.isatty() else Lines(console)


def _bars(stream: TextIO) -> Bars | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(file=stream), transient=True)
