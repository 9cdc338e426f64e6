"""Request bodies for `POST /api/v2/series`: series packed to the intake's limits, encoded and compressed.

Pure: `intake.py` sends them, and halves those that are too large.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import orjson

from common.metric import Kind, Series

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Limits of the intake: bytes compressed and uncompressed. The number of points per payload is that of the
# Datadog Agent. Plain JSON through orjson: building the official client's models costs many times the CPU.
WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = 10_000

# The numbers of the v2 API.
ENCODED_AT_ONCE = 64  # points
_TYPES = {Kind.COUNT: 1, Kind.GAUGE: 3}
_GZIP = zlib.MAX_WBITS | 16
_GZIP_LEVEL = 5  # level 6 takes half as long again for bodies that are 2 % smaller
_ZSTD_LEVEL = 1  # level 3 takes a quarter longer for bodies that are 2 % larger


class Encoding(StrEnum):
    """A content encoding, by the name Datadog knows it under; HTTP's own name of zstd is another."""

    GZIP = "gzip"
    ZSTD = "zstd1"

    def compress(self, raw: bytes) -> bytes:
        """Return the compressed body."""
        if self is Encoding.ZSTD:
            return zstd.compress(raw, _ZSTD_LEVEL)
        stream = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
        return stream.compress(raw) + stream.flush()


def pack(every: Iterable[Series]) -> Iterator[list[Series]]:
    """Yield the series of each payload, at most POINT_LIMIT points, in order.

    A single series that has more is alone: `encode` refuses it, and `halves` splits it.
    """
    packed: list[Series] = []
    points = 0
    for series in every:
        size = len(series.times)
        if packed and points + size > POINT_LIMIT:
            yield packed
            packed, points = [], 0
        packed.append(series)
        points += size
    if packed:
        yield packed


def encode(every: Sequence[Series], common_tags: tuple[str, ...], encoding: Encoding) -> bytes | None:
    """Return series as compressed JSON; None where it exceeds a limit of the intake, and must be halved.

    `common_tags` are added to those of each series. The compressed size is only known by compressing: about
    the series themselves nothing is assumed.
    """
    if len(every[0].times) > POINT_LIMIT:  # which is alone then
        return None
    parts, documents, size = list[bytes](), list[dict[str, Any]](), 0  # Any: JSON
    for metric, tags, host, times, values in every:
        if len(times) == 1:  # as nearly all of a live run
            points = [{"timestamp": times[0], "value": values[0]}]
        else:
            points = [{"timestamp": at, "value": value} for at, value in zip(times, values, strict=True)]
        document: dict[str, Any] = {
            "metric": metric.name,
            "type": _TYPES[metric.kind],
            "tags": tags + common_tags,
            "points": points,
        }
        if metric.unit:
            document["unit"] = metric.unit
        if host is not None:
            document["resources"] = [{"type": "host", "name": host}]
        documents.append(document)
        size += len(times)
        # Some at a time: the objects of all would leave the CPU's cache, and a call for each would cost more.
        if size >= ENCODED_AT_ONCE:
            parts.append(orjson.dumps(documents)[1:-1])
            documents, size = [], 0
    if documents:
        parts.append(orjson.dumps(documents)[1:-1])
    raw = b'{"series":[%b]}' % b",".join(parts)
    if len(raw) > RAW_LIMIT:
        return None
    body = encoding.compress(raw)
    return body if len(body) <= WIRE_LIMIT else None


def halves(every: Sequence[Series]) -> tuple[Sequence[Series], Sequence[Series]]:
    """Return two halves of the series, or of the points of a single one, which must have at least two."""
    if len(every) > 1:
        middle = len(every) // 2
        return every[:middle], every[middle:]
    [series], middle = every, len(every[0].times) // 2
    first = series._replace(times=series.times[:middle], values=series.values[:middle])
    second = series._replace(times=series.times[middle:], values=series.values[middle:])
    return [first], [second]
