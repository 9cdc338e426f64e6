"""Request bodies for `POST /api/v2/series`: series packed to the intake's limits, encoded and compressed."""

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

WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = 10_000

_TYPES = {Kind.COUNT: 1, Kind.GAUGE: 3}
_GZIP = zlib.MAX_WBITS | 16
_GZIP_LEVEL = 5  # level 6 takes half as long again for bodies that are 2 % smaller
_ZSTD_LEVEL = 1  # level 3 takes a quarter longer for bodies that are 2 % larger


class Encoding(StrEnum):
    """A content encoding, by the name Datadog knows it under."""

    GZIP = "gzip"
    ZSTD = "zstd1"

    def compress(self, raw: bytes) -> bytes:
        """Return the compressed body."""
        if self is Encoding.ZSTD:
            return zstd.compress(raw, _ZSTD_LEVEL)
        stream = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
        return stream.compress(raw) + stream.flush()


def payloads(every: Iterable[Series], common_tags: tuple[str, ...] = ()) -> Iterator[Payload]:
    """Pack series into payloads of at most POINT_LIMIT points; a longer series is split."""
    packed: list[Series] = []
    points = 0
    for series in every:
        size = len(series.times)
        if points + size > POINT_LIMIT:
            if packed:
                yield Payload(packed, points, common_tags)
            packed, points = [], 0
            while size > POINT_LIMIT:
                first, series = _split(series, POINT_LIMIT)
                yield Payload([first], POINT_LIMIT, common_tags)
                size -= POINT_LIMIT
        packed.append(series)
        points += size
    if packed:
        yield Payload(packed, points, common_tags)


class Payload:
    """The series of one request; `common_tags` are those of all series."""

    def __init__(self, series: list[Series], points: int, common_tags: tuple[str, ...]) -> None:
        self.series = series
        self.points = points
        self._common_tags = common_tags

    def body(self, encoding: Encoding) -> bytes | None:
        """Return the compressed JSON; None where it exceeds a limit of the intake, and must be halved."""
        documents = []
        for metric, tags, host, times, values in self.series:
            if len(times) == 1:  # as nearly all of a live run
                points = [{"timestamp": times[0], "value": values[0]}]
            else:
                points = [{"timestamp": at, "value": value} for at, value in zip(times, values, strict=True)]
            document: dict[str, Any] = {  # Any: JSON
                "metric": metric.name,
                "type": _TYPES[metric.kind],
                "tags": tags + self._common_tags,
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

    def count_outside(self, oldest: float, newest: float) -> tuple[int, int]:
        """Return how many points are older and how many are newer than that."""
        old = new = 0
        for series in self.series:  # in order of time
            if series.times[0] < oldest or series.times[-1] > newest:
                old += sum(at < oldest for at in series.times)
                new += sum(at > newest for at in series.times)
        return old, new

    def halves(self) -> list[Payload]:
        """Return two payloads of half the series, or half the points of a single one; none for one point."""
        if self.points == 1:
            return []
        series: Sequence[Series] = self.series
        if len(series) == 1:
            series = _split(series[0], self.points // 2)
        middle = len(series) // 2
        return [
            Payload([*half], sum(len(each.times) for each in half), self._common_tags)
            for half in (series[:middle], series[middle:])
        ]


def _split(series: Series, at: int) -> tuple[Series, Series]:
    """Return the first `at` points of a series, and the others."""
    times, values = series.times, series.values
    return (
        series._replace(times=times[:at], values=values[:at]),
        series._replace(times=times[at:], values=values[at:]),
    )
