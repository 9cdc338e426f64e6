"""How rows are laid out for whoever looks: in columns, in any width, and nothing of them ever cut.

A terminal has a width, and may show colour. Anything else gets every row on one line: what is searched for
in it stands beside what it is about.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import NamedTuple, TextIO

GREEN, YELLOW, RED, FAINT = "32", "33", "31", "2"
_INDENT = 6  # of what stands under its row


@dataclass(frozen=True)
class Look:
    """Who looks: a terminal so many columns wide, or None for a file or a pipe; and whether in colour."""

    width: int | None = None
    colour: bool = False

    @classmethod
    def at(cls, stream: TextIO, environ: Mapping[str, str]) -> Look:
        """Who looks at a stream."""
        if not stream.isatty():
            return cls()
        return cls(get_terminal_size().columns, not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")

    def paint(self, text: str, style: str | None) -> str:
        """The text in a colour, where colours are shown."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and style else text


class Row(NamedTuple):
    """Cells that stand in columns, the first of them a name, and words that follow."""

    cells: Sequence[str]
    words: Sequence[str] = ()


def lay_out(
    heads: Sequence[str], rows: Iterable[Row], right: Collection[int], width: int | None
) -> Iterator[str]:
    """Rows in columns; `rows` is gone through twice. Without heads there is no line of them.

    Words that do not fit beside their row wrap under it. Where the columns themselves do not fit, what stands
    in them does so too, with its head before it.
    """
    widths = [columns(head) for head in heads]
    for row in rows:
        widths = [max(known, columns(cell)) for known, cell in zip(widths, row.cells, strict=True)]
    stacked = width is not None and sum(2 + column for column in widths) > width
    if any(heads) and not stacked:
        yield _line(Row(heads), widths, right)
    for row in rows:
        line = _line(row, widths, right)
        if stacked:
            yield from wrap([row.cells[0], *row.words], width, indent=2)
            named = zip(heads[1:], row.cells[1:], strict=True)
            yield from wrap([f"{head} {cell}".strip() for head, cell in named if cell.strip()], width, "  ")
        elif not row.words:
            yield line
        else:
            whole = f"{line}{' ' * (2 + sum(2 + one for one in widths) - columns(line))}{' '.join(row.words)}"
            if width is None or columns(whole) <= width:
                yield whole
            else:
                yield line
                yield from wrap(row.words, width)


def wrap(words: Iterable[str], width: int | None, between: str = " ", indent: int = _INDENT) -> Iterator[str]:
    """Lines of whole words, the first of them indented; one longer than a line has a line of its own."""
    line = ""
    for word in words:
        longer = f"{line}{between}{word}" if line else " " * indent + word
        if line and width is not None and columns(longer) > width:
            yield line
            longer = " " * _INDENT + word
        line = longer
    if line:
        yield line


def columns(text: str) -> int:
    """How many columns of a terminal a text takes; East Asian characters take two."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.category(character) in {"Mn", "Me"} for character in text)


def _line(row: Row, widths: Sequence[int], right: Collection[int]) -> str:
    parts = []
    for place, (cell, width) in enumerate(zip(row.cells, widths, strict=True)):
        padding = " " * (width - columns(cell))
        parts.append(f"  {padding}{cell}" if place in right else f"  {cell}{padding}")
    return "".join(parts).rstrip()
