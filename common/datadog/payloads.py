"""From series to bodies the intake takes: packed to its limits, made JSON once, compressed once.

Knows the limits of `POST /api/v2/series`; knows no socket and no clock.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import orjson

from common.datadog.series import Series
from common.intake import BATCH_SIZE
from common.metric import Kind

WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = BATCH_SIZE

_TYPES = {Kind.COUNT: 1, Kind.GAUGE: 3}
_GZIP = zlib.MAX_WBITS | 16
_LEVEL = 6

Document = dict[str, Any]  # Any: a series as the intake wants it
T = TypeVar("T")


def documents(series: Iterable[Series]) -> Iterator[Document]:
    """Each series as the intake wants it, in parts where its points are more than one payload takes."""
    frames: dict[str, Document] = {}
    for metric, host, tags, every in series:
        frame = frames.get(metric.name)
        if frame is None:
            frame = frames[metric.name] = {"metric": metric.name, "type": _TYPES[metric.kind]}
            frame |= {"unit": metric.unit} if metric.unit else {}
        for start in range(0, len(every), POINT_LIMIT):
            part = every[start : start + POINT_LIMIT]
            points = [{"timestamp": second, "value": value} for second, value in part]
            document = {**frame, "tags": tags, "points": points}
            if host is not None:
                document["resources"] = [{"type": "host", "name": host}]
            yield document


class Payload:
    """Series to send together, how many points they have, and between which seconds."""

    def __init__(self, every: Iterable[Document] = ()) -> None:
        self._documents: list[Document] = []
        self._json: bytes | None = None
        self.points = 0
        self._first, self._last = math.inf, -math.inf
        for document in every:
            self.add(document)

    def add(self, document: Document) -> None:
        """Add a series."""
        self._documents.append(document)
        points = document["points"]
        self.points += len(points)
        first, last = points[0]["timestamp"], points[-1]["timestamp"]
        if first < self._first:
            self._first = first
        if last > self._last:
            self._last = last

    def close(self) -> None:
        """Add no more: what waits long should be small, and JSON is a tenth of the dictionaries."""
        self._json, self._documents = self.json(), []

    def json(self) -> bytes:
        """The series as the intake reads them."""
        return self._json or orjson.dumps({"series": self._documents})

    def body(self) -> bytes | None:
        """What goes over the wire; None where it is more than the intake takes, and goes in halves."""
        raw = self.json()
        if len(raw) > RAW_LIMIT:
            return None
        stream = zlib.compressobj(_LEVEL, wbits=_GZIP)
        body = stream.compress(raw) + stream.flush()
        return body if len(body) <= WIRE_LIMIT else None

    def series(self) -> list[Document]:
        """The series, for the rare cases that look at them again."""
        every: list[Document] = orjson.loads(self.json())["series"]
        return every

    def outside(self, oldest: float, newest: float) -> tuple[int, int]:
        """How many points lie before and behind a window; nearly always none, which costs nothing."""
        if oldest <= self._first and self._last <= newest:
            return 0, 0
        seconds = [point["timestamp"] for one in self.series() for point in one["points"]]
        return sum(second < oldest for second in seconds), sum(second > newest for second in seconds)

    def halves(self) -> list[Payload]:
        """Two payloads of about half the series, or of the points of the only one; none of a single point."""
        every = self.series()
        if len(every) == 1:
            [only] = every
            every = [{**only, "points": half} for half in _halves(only["points"]) if half]
        return [Payload(half) for half in _halves(every)] if len(every) > 1 else []


def _halves(items: list[T]) -> tuple[list[T], list[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


class Queue:
    """Payloads that wait to be sent, in order; the last one is still being filled.

    A payload leaves once it is full, so that no request is small but the last. `taken` and `settled` count
    the points that came in and that were accepted, from the beginning.
    """

    def __init__(self) -> None:
        self._payloads: deque[Payload] = deque([Payload()])
        self.taken = 0
        self.settled = 0

    def extend(self, every: Iterable[Document]) -> None:
        """Add series at the end."""
        last = self._payloads[-1]
        for document in every:
            points = len(document["points"])
            if last.points + points > POINT_LIMIT and last.points:
                last.close()
                last = Payload()
                self._payloads.append(last)
            last.add(document)
            self.taken += points

    def next_payload(self, *, everything: bool) -> Payload | None:
        """The first payload: a full one or, where `everything` is to go, what there is."""
        first = self._payloads[0]
        full = len(self._payloads) > 1 or first.points == POINT_LIMIT
        return first if full or (everything and first.points) else None

    def settle(self) -> None:
        """Forget the first payload: it was accepted. There is always one to fill, wherever a signal comes."""
        if len(self._payloads) == 1:
            self._payloads.append(Payload())
        self.settled += self._payloads.popleft().points
