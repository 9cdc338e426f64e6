"""Request bodies for `POST /api/v2/series`: series packed to the intake's limits, encoded and compressed.

Pure: `intake.py` sends them, and halves those that are too large.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

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


def payloads(every: Iterable[Series], common_tags: tuple[str, ...] = ()) -> Iterator[Payload]:
    """Yield series packed into payloads of at most POINT_LIMIT points, in order.

    A single series that has more is a payload of its own, which `Payload.body` refuses and `halves` splits.
    """
    packed: list[Series] = []
    points = 0
    for series in every:
        size = len(series.times)
        if packed and points + size > POINT_LIMIT:
            yield Payload(packed, points, common_tags)
            packed, points = [], 0
        packed.append(series)
        points += size
    if packed:
        yield Payload(packed, points, common_tags)


class Payload(NamedTuple):
    """The series of one request, the number of their points, and the tags that all series have."""

    series: Sequence[Series]
    points: int
    common_tags: tuple[str, ...]

    def body(self, encoding: Encoding) -> bytes | None:
        """Return the compressed JSON; None where it exceeds a limit of the intake, and must be halved.

        The compressed size is only known by compressing: about the series themselves nothing is assumed.
        """
        if self.points > POINT_LIMIT:
            return None
        documents = []
        for metric, tags, host, times, values in self.series:
            if len(times) == 1:  # as nearly all of a live run
                points = [{"timestamp": times[0], "value": values[0]}]
            else:
                points = [{"timestamp": at, "value": value} for at, value in zip(times, values, strict=True)]
            document: dict[str, Any] = {  # Any: JSON
                "metric": metric.name,
                "type": _TYPES[metric.kind],
                "tags": tags + self.common_tags,
                "points": points,
            }
            if metric.unit:
                document["unit"] = metric.unit
            if host is not None:
                document["resources"] = [{"type": "host", "name": host}]
            documents.append(document)
        raw = orjson.dumps({"series": documents})
        if len(raw) > RAW_LIMIT:
            return None
        body = encoding.compress(raw)
        return body if len(body) <= WIRE_LIMIT else None

    def exceeds(self, oldest: float, newest: float) -> bool:
        """Return whether a point is older or newer than that; the points of a series are in order."""
        return any(series.times[0] < oldest or series.times[-1] > newest for series in self.series)

    def halves(self) -> list[Payload]:
        """Return two payloads of half the series, or half the points of a single one; none for one point."""
        if self.points == 1:
            return []
        series = self.series
        if len(series) == 1:
            [whole], middle = series, self.points // 2
            first = whole._replace(times=whole.times[:middle], values=whole.values[:middle])
            second = whole._replace(times=whole.times[middle:], values=whole.values[middle:])
            series = [first, second]
        middle = len(series) // 2
        return [
            Payload(half, sum(len(each.times) for each in half), self.common_tags)
            for half in (series[:middle], series[middle:])
        ]
