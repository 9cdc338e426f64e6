"""From series to bodies the intake takes: JSON made once per series, packed to the limits, compressed once.

Knows the limits of `POST /api/v2/series`; knows no socket and no clock.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import orjson

from common.datadog.series import Series
from common.intake import BATCH_SIZE
from common.metric import Kind

WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = BATCH_SIZE

_TYPES = {Kind.COUNT: 1, Kind.GAUGE: 3}
_ENVELOPE = (b'{"series":[', b"]}")
_GZIP = zlib.MAX_WBITS | 16
_LEVEL = 6


class Part(NamedTuple):
    """A series as JSON, or as many of its points as one payload takes, with its first and last second."""

    json: bytes
    points: int
    first: int
    last: int

    @classmethod
    def of(cls, document: dict[str, Any]) -> Part:  # Any: a series as the intake wants it
        """The part that a document is."""
        points = document["points"]
        return cls(orjson.dumps(document), len(points), points[0]["timestamp"], points[-1]["timestamp"])

    @property
    def metric(self) -> str:
        """The name of its metric."""
        return str(orjson.loads(self.json)["metric"])

    def outside(self, oldest: float, newest: float) -> tuple[int, int]:
        """How many points lie before and behind a window; nearly always none, which costs nothing."""
        if oldest <= self.first and self.last <= newest:
            return 0, 0
        seconds = [point["timestamp"] for point in orjson.loads(self.json)["points"]]
        return sum(second < oldest for second in seconds), sum(second > newest for second in seconds)

    def halves(self) -> list[Part]:
        """Two parts of about half the points; none where there is only one point."""
        document = orjson.loads(self.json)
        points, middle = document["points"], self.points // 2
        halves = (points[:middle], points[middle:]) if middle else ()
        return [Part.of({**document, "points": half}) for half in halves]


def parts(series: Iterable[Series]) -> Iterator[Part]:
    """Each series as JSON, in several parts where its points alone are more than one payload takes."""
    for metric, host, tags, every in series:
        document: dict[str, Any] = {"metric": metric.name, "type": _TYPES[metric.kind], "tags": tags}
        if metric.unit:
            document["unit"] = metric.unit
        if host is not None:
            document["resources"] = [{"type": "host", "name": host}]
        for start in range(0, len(every), POINT_LIMIT):
            some = every[start : start + POINT_LIMIT]
            document["points"] = [{"timestamp": second, "value": value} for second, value in some]
            yield Part(orjson.dumps(document), len(some), some[0][0], some[-1][0])


class Payload(NamedTuple):
    """Parts to send together."""

    parts: list[Part]

    @property
    def points(self) -> int:
        """How many points it holds."""
        return sum(part.points for part in self.parts)

    def body(self) -> bytes:
        """What goes over the wire."""
        before, behind = _ENVELOPE
        stream = zlib.compressobj(_LEVEL, wbits=_GZIP)
        raw = before + b",".join([part.json for part in self.parts]) + behind
        return stream.compress(raw) + stream.flush()

    def halves(self) -> list[Payload]:
        """Two payloads of about half the size; none where there is only one point."""
        if len(self.parts) == 1:
            return [Payload([half]) for half in self.parts[0].halves()]
        middle = len(self.parts) // 2
        return [Payload(self.parts[:middle]), Payload(self.parts[middle:])]


class Queue:
    """Parts that wait to be sent, in order.

    A payload is cut from the front once as much waits as it takes, so that no request is small but the
    last. `taken` and `settled` count the points that came in and that were accepted, from the beginning.
    """

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._size = 0
        self.taken = 0
        self.settled = 0

    def extend(self, parts: Iterable[Part]) -> None:
        """Add parts at the end."""
        for part in parts:
            self._parts.append(part)
            self._size += len(part.json) + 1
            self.taken += part.points

    def next_payload(self, *, everything: bool) -> Payload | None:
        """The first payload: a full one or, where `everything` is to go, what there is."""
        full = self.taken - self.settled >= POINT_LIMIT or self._size >= RAW_LIMIT
        if not self._parts or not (full or everything):
            return None
        points = number = 0
        size = sum(map(len, _ENVELOPE))
        for part in self._parts:
            points += part.points
            size += len(part.json) + 1
            if number and (points > POINT_LIMIT or size > RAW_LIMIT):
                break
            number += 1
        return Payload(list(islice(self._parts, number)))

    def settle(self, payload: Payload) -> None:
        """Forget the first payload: it was accepted."""
        for part in payload.parts:
            self._parts.popleft()
            self._size -= len(part.json) + 1
            self.settled += part.points
