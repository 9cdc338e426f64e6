"""One file, plain or compressed: what identifies it, and the bytes from a place on.

A file is known by its first line, because names change in a rotation and device and inode on another node.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePath
from typing import IO, Annotated, Protocol, cast

from pydantic import Field, TypeAdapter

from common.records.saved import Whole
from common.records.storage import Raw

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

HEAD = 4096  # bytes of the first line that count: enough to tell files apart, cheap to read again
LOOK = 1 << 16  # bytes that are read for the first line where it matters what that says
PORTION = 4096  # bytes of the first read; each one after it takes up to twice as many as the last
MAX_READ_BYTES = 1 << 20  # bytes of any read
MAX_WINDOW = 23  # so that zstd looks back 8 MB; its own tools need more only for the highest levels
TAIL = 64  # bytes before the resume point that must still be the same


class CorruptFileError(Exception):  # it is handled, never reported
    """A compressed file that cannot be decompressed from some byte on."""


@dataclass(frozen=True)
class Place:
    """Where reading goes on: as saved, so every field is JSON.

    `whole` is how the file looked when it was last read to its end, or None: one that still looks like that
    is not even opened.
    """

    offset: Annotated[Whole, Field(ge=0)]
    tail: str
    at: Whole
    skipping: bool = False
    whole: list[Whole | str] | None = None


PLACE = TypeAdapter(Place)


# How files looked of which nothing is due before some time, so that not every tick of a process opens them.
NotDue = dict[str, tuple[list[int | str], float]]


class Stream(Protocol):
    """What is in a compressed file."""

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes; nothing at the end."""


def _gzip(raw: Raw) -> Stream:
    return gzip.GzipFile(fileobj=cast("IO[bytes]", raw))


def _zstd(raw: Raw) -> Stream:
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW}
    return zstd.ZstdFile(cast("IO[bytes]", raw), options=options)


_COMPRESSED: dict[str, tuple[str, Callable[[Raw], Stream]]] = {
    ".gz": ("corrupt_gzip", _gzip),
    ".zst": ("corrupt_zstd", _zstd),
}


class OpenFile:
    """A file open for reading. `head` is empty while its first line is not finished.

    `corrupt` is set where a compressed file breaks off before what identifies it was read.
    """

    def __init__(self, path: str, raw: Raw) -> None:
        self.status, self.version = raw.status, raw.version
        self._raw = raw
        self._decompress: Callable[[Raw], Stream] | None
        self.damage, self._decompress = _COMPRESSED.get(PurePath(path).suffix, ("", None))
        self._stream = self._decompress(raw) if self._decompress else None
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
        self._first = first

    def first_line(self) -> bytes:
        """The first line, if short enough to be read for this; whoever goes on reading must `resume`."""
        first, blank = self._first, BOM_UTF8 + b"\0 \r\n"
        with suppress(CorruptFileError):
            while b"\n" not in first.lstrip(blank) and len(first) < LOOK and (more := self.read(LOOK)):
                first += more
        line, newline, _ = first.lstrip(blank).partition(b"\n")
        return line if newline else b""

    def resume(self, place: Place) -> bool:
        """Go to a place; False, and to the start, where the file no longer has what was read before it.

        A compressed file is the same while its version is, as far as that is known.
        """
        start = max(0, place.offset - TAIL)
        with suppress(CorruptFileError):
            if self._stream or place.offset <= self.status.size:
                self.seek(start)
                before = self._read_fully(place.offset - start)
                same = ("", _digest(before), self.version if self._stream else "")
                if len(before) == place.offset - start and place.tail in same:
                    return True
        self.seek(0)
        return False

    def may_be(self, place: Place) -> bool:
        """Whether a place of another name can be told to be one of this file too."""
        return bool(place.tail) or (place.whole is not None and place.whole[:1] == [self.status.size])

    def read(self, size: int) -> bytes:
        """At most `size` bytes. The end of a compressed file that is still being written is an end.

        The first bytes come in small portions: often only a few lines of a large file are wanted.
        """
        size, self._portion = min(size, self._portion), min(2 * self._portion, MAX_READ_BYTES)
        if self._stream is None:
            return self._raw.read(size) or b""
        try:
            return self._stream.read1(size)  # read() would keep what came before an error
        except EOFError:
            return b""
        except (zlib.error, gzip.BadGzipFile, zstd.ZstdError) as error:
            raise CorruptFileError(str(error)) from error

    def tail(self, offset: int) -> str:
        """What tells whether a file still has what stands before an offset."""
        if self._stream is not None:
            return self.version
        start = max(0, offset - TAIL)
        return _digest(self._raw.at(start, offset - start))

    def seek(self, offset: int) -> None:
        """Go to a byte, of a compressed file that is still being written as far as it goes."""
        self._raw.seek(0 if self._decompress else offset)
        if self._decompress:
            self._stream = self._decompress(self._raw)
            while offset > 0 and (passed := len(self.read(offset))):
                offset -= passed

    def _read_fully(self, size: int) -> bytes:
        got = b""
        while len(got) < size and (more := self.read(size - len(got))):
            got += more
        return got


def _digest(text: bytes) -> str:
    return blake2b(text, digest_size=8).hexdigest()
