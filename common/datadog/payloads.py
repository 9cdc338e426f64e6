"""From series to bodies that the intake takes: packed to its limits, made JSON once, compressed once.

Knows the limits of `POST /api/v2/series`; knows no socket and no clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import orjson

from common.datadog.series import StoredSeries
from common.metric import Kind

WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = 10_000

_TYPES = {Kind.COUNT: 1, Kind.GAUGE: 3}
_GZIP = zlib.MAX_WBITS | 16
_LEVEL = 5  # level 6 takes half as long again for bodies that are 2 % smaller

T = TypeVar("T")


def payloads(every: Iterable[StoredSeries]) -> Iterator[Payload]:
    """Pack series into payloads with as many points as one takes; a longer series is cut."""
    packed: list[StoredSeries] = []
    points = 0
    for series in chain.from_iterable(map(_cut, every)):
        size = len(series[3])
        if points + size > POINT_LIMIT:
            yield Payload(packed)
            packed, points = [], 0
        packed.append(series)
        points += size
    if packed:
        yield Payload(packed)


def _cut(series: StoredSeries) -> Iterator[StoredSeries]:
    """Yield a series in parts that a payload can take."""
    metric, tags, host, times, values = series
    if len(times) <= POINT_LIMIT:
        yield series
        return
    for start in range(0, len(times), POINT_LIMIT):
        end = start + POINT_LIMIT
        yield metric, tags, host, times[start:end], values[start:end]


class Payload:
    """Series to send in one request."""

    def __init__(self, series: list[StoredSeries]) -> None:
        self.series = series
        self.points = sum(len(times) for _, _, _, times, _ in series)

    def body(self) -> bytes | None:
        """Return what goes over the wire; None where it is more than the intake takes, and goes in halves."""
        starts: dict[int, list[bytes]] = {}  # of points, by the identity of their times, which series share
        documents = []
        for metric, tags, host, times, values in self.series:
            if id(times) not in starts:
                starts[id(times)] = [b'},{"timestamp":%d,"value":' % at for at in times]
            document: dict[str, Any] = {"metric": metric.name, "type": _TYPES[metric.kind]}  # Any: JSON
            if metric.unit:
                document["unit"] = metric.unit
            document |= {"tags": tags, "points": _points(starts[id(times)], values)}
            if host is not None:
                document["resources"] = [{"type": "host", "name": host}]
            documents.append(document)
        raw = orjson.dumps({"series": documents})
        if len(raw) > RAW_LIMIT:
            return None
        stream = zlib.compressobj(_LEVEL, wbits=_GZIP)
        body = stream.compress(raw) + stream.flush()
        return body if len(body) <= WIRE_LIMIT else None

    def outside(self, oldest: float, newest: float) -> tuple[int, int]:
        """Return how many points are older and newer than that; nearly always none."""
        old = new = 0
        for _, _, _, times, _ in self.series:  # in order of time
            if times[0] < oldest or times[-1] > newest:
                old += sum(at < oldest for at in times)
                new += sum(at > newest for at in times)
        return old, new

    def halves(self) -> list[Payload]:
        """Return two payloads of half the series, or half the points of the only one; none of one point."""
        series = self.series
        if len(series) == 1:
            [(metric, tags, host, times, values)] = series
            parts = zip(_halves(times), _halves(values), strict=True)
            series = [(metric, tags, host, *part) for part in parts if part[0]]
        return [Payload([*half]) for half in _halves(series)] if len(series) > 1 else []


def _points(starts: Sequence[bytes], values: Iterable[float]) -> orjson.Fragment:
    """Return the JSON of points out of all that precedes each value: a third of what dictionaries take."""
    numbers = orjson.dumps([*values])[1:-1].split(b",")
    return orjson.Fragment(
        b"[" + b"".join(chain.from_iterable(zip(starts, numbers, strict=True)))[2:] + b"}]"
    )


def _halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]
