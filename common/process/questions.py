"""What children ask of a person: one question at a time, in the order in which they came.

Standard library only.
"""

from __future__ import annotations

from typing import Protocol, TextIO

from common.process.protocol import Progress, Question
from common.process.running_child import RunningChild


class Watcher(Protocol):
    """Whoever sees what children say on their way."""

    def progress(self, collector: str, progress: Progress) -> None:
        """A child is so far."""

    def ask(self, collector: str, question: Question) -> bool | None:
        """A child asks: the answer, or None where a person will give it, on `answers`."""

    @property
    def answers(self) -> TextIO:
        """Where a person answers."""

    def answer(self) -> bool:
        """What the person said, once something is there to read."""


class Questions:
    """The questions that wait for an answer; the first one is being asked."""

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher = watcher
        self._waiting: list[tuple[RunningChild, Question]] = []

    @property
    def answers(self) -> TextIO | None:
        """Where the answer to the first question will come; None where nothing is asked."""
        return self._watcher.answers if self._waiting and self._watcher else None

    def add(self, child: RunningChild, question: Question) -> None:
        """Ask, once those before it were answered."""
        self._waiting.append((child, question))
        if len(self._waiting) == 1:
            self._ask()

    def answered(self) -> None:
        """Pass on what the person said, and ask the next."""
        if self._watcher:
            self._reply(self._watcher.answer())
            self._ask()

    def forget(self, child: RunningChild) -> None:
        """A child that has ended waits for no answer."""
        was_first = bool(self._waiting) and self._waiting[0][0] is child
        self._waiting = [(one, question) for one, question in self._waiting if one is not child]
        if was_first:
            self._ask()

    def _ask(self) -> None:
        """Have the first question answered, at once where nobody has to think about it."""
        while self._waiting:
            child, question = self._waiting[0]
            agreed = self._watcher.ask(child.job.collector, question) if self._watcher else False
            if agreed is None:
                return
            self._reply(agreed)

    def _reply(self, agreed: bool) -> None:
        child, _ = self._waiting.pop(0)
        child.reply(agreed)
