"""One file on disk, plain or compressed: what identifies it, and the bytes from a place on.

A file is known by its first line, because names change in a rotation and device and inode on another node.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from io import FileIO
from typing import Any

from common.records.saved import text

HEAD = 4096  # bytes of the first line that count: enough to tell files apart, cheap to read again
PORTION = 4096  # bytes of the first read; each one after it takes up to twice as many as the last
MAX_READ_BYTES = 1 << 20  # bytes of any read
TAIL = 64  # bytes before the resume point that must still be the same


class CorruptFileError(Exception):  # it is handled, never reported
    """A compressed file that cannot be decompressed from some byte on."""


@dataclass(frozen=True)
class Place:
    """Where reading goes on: as saved, so every field is JSON.

    `whole` is the file's size, modification time, device and inode when it was last read to its end, or
    None: a file that still looks like that is not even opened.
    """

    offset: int
    tail: str
    at: int
    skipping: bool = False
    whole: list[int] | None = None

    @classmethod
    def from_state(cls, saved: Any) -> Place:  # Any: parsed JSON
        """The place that was saved; raises where it is not one of ours."""
        place = cls(**saved)
        whole = [] if place.whole is None else list(place.whole)
        if any(type(one) is not int for one in (place.offset, place.at, *whole)) or place.offset < 0:
            raise ValueError("not a place")
        return cls(place.offset, text(place.tail), place.at, bool(place.skipping), place.whole)


def fingerprint(status: os.stat_result) -> list[int]:
    """What an unchanged file shows without being opened."""
    return [status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino]


# How files looked of which nothing is due before some time, so that not every tick of a process opens them.
NotDue = dict[str, tuple[list[int], float]]


@contextmanager
def opened(path: str) -> Iterator[OpenFile]:
    """Open a file for as long as the block lasts; raises OSError."""
    with open(path, "rb", buffering=0) as raw:  # noqa: PTH123  # Path.open has a slower way to the same
        if path.endswith(".gz"):
            with gzip.GzipFile(fileobj=raw) as stream:
                yield OpenFile(raw, stream)
        else:
            yield OpenFile(raw, None)


class OpenFile:
    """A file open for reading. `head` is empty while its first line is not finished.

    `corrupt` is set where a compressed file breaks off before what identifies it was read.
    """

    def __init__(self, raw: FileIO, compressed: gzip.GzipFile | None) -> None:
        self.status = os.fstat(raw.fileno())
        self._raw = raw
        self._compressed = compressed
        self._portion = PORTION
        self.corrupt = False
        first = b""
        try:
            while len(first) < HEAD and (more := self.read(HEAD - len(first))):
                first += more
        except CorruptFileError:
            self.corrupt = True
        line, newline, _ = first.partition(b"\n")
        self.head = _digest(line) if newline or len(first) == HEAD else ""

    def resume(self, place: Place) -> bool:
        """Go to a place; False, and to the start, where the file no longer has what was read before it."""
        start = max(0, place.offset - TAIL)
        with suppress(CorruptFileError):
            if self._compressed or place.offset <= self.status.st_size:
                self.seek(start)
                before = self._read_fully(place.offset - start)
                if len(before) == place.offset - start and place.tail in ("", _digest(before)):
                    return True
        self.seek(0)
        return False

    def may_be(self, place: Place) -> bool:
        """Whether a place of another name can be told to be one of this file too."""
        return bool(place.tail) or (place.whole is not None and place.whole[:1] == [self.status.st_size])

    def read(self, size: int) -> bytes:
        """At most `size` bytes. The end of a compressed file that is still being written is an end.

        The first bytes come in small portions: often only a few lines of a large file are wanted.
        """
        size, self._portion = min(size, self._portion), min(2 * self._portion, MAX_READ_BYTES)
        if self._compressed is None:
            return self._raw.read(size) or b""
        try:
            return self._compressed.read1(size)  # read() would keep what came before an error
        except EOFError:
            return b""
        except (zlib.error, gzip.BadGzipFile) as error:
            raise CorruptFileError(str(error)) from error

    def tail(self, offset: int) -> str:
        """The digest of what stands before an offset; compressed files do not change, and have none."""
        if self._compressed is not None:
            return ""
        start = max(0, offset - TAIL)
        return _digest(os.pread(self._raw.fileno(), offset - start, start))

    def seek(self, offset: int) -> None:
        """Go to a byte, of a compressed file that is still being written as far as it goes."""
        try:
            (self._compressed or self._raw).seek(offset)
        except EOFError:
            return
        except (zlib.error, gzip.BadGzipFile) as error:
            raise CorruptFileError(str(error)) from error

    def _read_fully(self, size: int) -> bytes:
        got = b""
        while len(got) < size and (more := self.read(size - len(got))):
            got += more
        return got


def _digest(text: bytes) -> str:
    return blake2b(text, digest_size=8).hexdigest()
