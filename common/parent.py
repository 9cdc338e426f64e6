"""The one who started a run, as the run sees it: somebody to tell how far it is, and to ask."""

from __future__ import annotations

from typing import Protocol


class Parent(Protocol):
    """The one who started a run, as the run sees it."""

    def progress(self, doing: str, done: int, total: int | None) -> None:
        """Tell how far it is."""

    def agrees(self, text: str) -> bool:
        """Ask the person at the terminal."""


class NoParent:
    """A parent that does not listen, and agrees to nothing."""

    def progress(self, doing: str, done: int, total: int | None) -> None:
        """Say it to nobody."""

    def agrees(self, text: str) -> bool:  # noqa: ARG002  # a parent's signature
        """Nobody is there to."""
        return False
