"""Compressed files as streams of what they contain; imported only where there is one."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

MAX_WINDOW_LOG = 23  # zstd may need 8 MB of history; its own tools need more only at the highest levels


def decompress(path: str, content: Any, size: int) -> Iterator[bytes]:  # Any: a stream has only `read`
    """Yield what a compressed file contains, in chunks of at most `size` bytes.

    A file that is still being written ends where it ends. Where one is corrupt, OSError follows what could be
    decompressed.
    """
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    is_gzip = path.endswith(".gz")
    stream = gzip.GzipFile(fileobj=content) if is_gzip else zstd.ZstdFile(content, options=options)
    with suppress(EOFError):
        try:
            while chunk := stream.read1(size):  # `read` would drop what precedes an error
                yield chunk
        except (zlib.error, gzip.BadGzipFile, zstd.ZstdError):
            raise OSError("its compressed content is corrupt after what was read") from None
