"""Compressed files as streams of what they contain; imported only where there is one."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

MAX_WINDOW_LOG = 23  # zstd may need 8 MB of history; its own tools need more only at the highest levels


class _Raw(io.RawIOBase):
    """The bytes of a file as a stream of the standard library."""

    def __init__(self, at: Callable[[int, int], bytes]) -> None:
        self._at = at
        self._offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]  # any writable buffer
        found = self._at(self._offset, len(buffer))
        buffer[: len(found)] = found
        self._offset += len(found)
        return len(found)


def decompress(path: str, at: Callable[[int, int], bytes], size: int) -> Iterator[bytes | str]:
    """Yield what a compressed file contains, in chunks of about `size` bytes.

    `at` returns bytes of the file: from an offset on, and at most so many. A file that is still being written
    ends where it ends. Where one is corrupt, the kind of damage follows what could be decompressed.
    """
    raw: Any = io.BufferedReader(_Raw(at), size)  # Any: the streams disagree on its type
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    is_gzip = path.endswith(".gz")
    stream = gzip.GzipFile(fileobj=raw) if is_gzip else zstd.ZstdFile(raw, options=options)
    chunk, damage, at_end = bytearray(), "", False
    while not at_end:
        try:
            more = stream.read1(size)  # `read` would drop what precedes an error
            at_end = not more
            chunk += more
        except EOFError:
            at_end = True
        except (zlib.error, gzip.BadGzipFile, zstd.ZstdError):
            damage, at_end = "corrupt_gzip" if is_gzip else "corrupt_zstd", True
        if chunk and (at_end or len(chunk) >= size):
            yield bytes(chunk)
            chunk.clear()
    if damage:
        yield damage
