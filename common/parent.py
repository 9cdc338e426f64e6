"""The one who started a run, as the run sees it: somebody to tell how far it is, and to ask."""

from __future__ import annotations


class Parent:
    """One that does not listen, and agrees to nothing."""

    def progress(self, doing: str, done: int, total: int | None) -> None:
        """Tell how far it is."""

    def agrees(self, text: str) -> bool:  # noqa: ARG002  # nobody is there to read it
        """Ask the person at the terminal."""
        return False
