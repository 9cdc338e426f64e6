"""Compressed files as streams of what they contain; imported only where there is one."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

MAX_WINDOW_LOG = 23  # zstd may need 8 MB of history; its own tools need more only at the highest levels


def decompress(path: str, content: io.RawIOBase, size: int) -> Iterator[bytes | str]:
    """Yield what a compressed file contains, in chunks of about `size` bytes.

    A file that is still being written ends where it ends. Where one is corrupt, the kind of damage follows
    what could be decompressed.
    """
    raw: Any = io.BufferedReader(content, size)  # Any: the streams disagree on its type
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
