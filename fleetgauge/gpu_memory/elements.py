"""The elements of a JSON array, one at a time, however long the file.

`json.load` holds a whole document; a tracking session may be larger than the memory of the machine that looks
at it. This reads a window of the file, and where one element is broken goes on with the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from typing import IO

MAX_ELEMENT_BYTES = 4 * 2**20
CHUNK_BYTES = 64 * 1024  # read at a time
MAX_MEMBERS = 1000
_SPACE = re.compile(r"[\s,]*")
_NEXT_OBJECT = re.compile(r"\}\s*,\s*(?=\{)")
_DECODER = json.JSONDecoder()


class Broken:
    """Stands where an element could not be read."""


class _Window:
    """The part of a text that is being looked at."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._text = ""
        self._at = 0

    def peek(self) -> str:
        """The next character that is neither space nor comma; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def skip(self) -> None:
        """Leave the character that was peeked at."""
        self._at += 1

    def decode(self) -> object:
        """The value that starts here. Raises ValueError where there is none within reach."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > MAX_ELEMENT_BYTES or not self._more():
                    raise ValueError("not JSON") from error
            else:
                if end == len(self._text) and self._more():
                    continue  # a number may go on
                self._at = end
                return value

    def recover(self) -> bool:
        """Go to the object after the one that could not be read; False if none is in sight."""
        while (found := _NEXT_OBJECT.search(self._text, self._at)) is None:
            self._at = max(self._at, len(self._text) - CHUNK_BYTES)
            if not self._more():
                return False
        self._at = found.end()
        return True

    def _more(self) -> bool:
        chunk = self._file.read(CHUNK_BYTES)
        if chunk:
            self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)


def array_elements(file: IO[str], arrays: tuple[str, ...], rest: dict[str, object]) -> Iterator[object]:
    """The elements of a document that is an array, or an object that holds one under one of these names.

    The other members of such an object are put into `rest`. An element that cannot be read comes as `Broken`.
    """
    window = _Window(file)
    opening = window.peek()
    if opening == "[":
        yield from _elements(window)
    elif opening == "{":
        window.skip()
        yield from _members(window, arrays, rest)
    else:
        yield Broken()


def _elements(window: _Window) -> Generator[object, None, bool]:
    """The elements of the array that starts here, and in the end whether it was complete."""
    window.skip()
    while window.peek() != "]":
        try:
            yield window.decode()
        except ValueError:
            yield Broken()  # also where it was never closed, as whoever wrote it was stopped
            if not window.recover():
                return False
    window.skip()
    return True


def _members(window: _Window, arrays: tuple[str, ...], rest: dict[str, object]) -> Iterator[object]:
    complete = True
    while complete and window.peek() != "}":
        try:
            name = window.decode()
            if not isinstance(name, str) or window.peek() != ":":
                raise ValueError("not a member")
            window.skip()
            if window.peek() == "[" and name in arrays:
                complete = yield from _elements(window)
            else:
                value = window.decode()
                if len(rest) < MAX_MEMBERS:
                    rest[name] = value
        except ValueError:
            yield Broken()
            return
