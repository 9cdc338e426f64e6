"""From samples to payloads the intake takes: pure functions, and the table of series of one run.

Knows the limits of `POST /api/v2/series` and Datadog's rules for tags; knows no socket and no clock.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TypedDict

from common.metric import Kind, Sample

WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = 10_000
TAG_LENGTH = 200

_TYPES = {Kind.COUNT: 1, Kind.GAUGE: 3}
_UNTAGGABLE = re.compile(r"[^a-z0-9_\-:./]")
_BEFORE_FIRST_LETTER = re.compile(r"^[^a-z]+")
_EXACT = 2**53  # an int beyond this is sent as the float it would become anyway
_ENVELOPE = len('{"series": []}')
_SERIES_FRAME = len('{"metric": "", "type": 3, "points": [], "tags": [], "resources": []}, ')
_POINT_SIZE = len('{"timestamp": 4294967295, "value": -1.2345678901234567e-300}, ')
_RESOURCE_FRAME = len('{"type": "host", "name": }')


class Point(TypedDict):
    """One value at one second."""

    timestamp: int
    value: float


class Series(TypedDict):
    """One series as the intake wants it."""

    metric: str
    type: int
    points: list[Point]
    tags: list[str]
    resources: list[dict[str, str]]


_Key = tuple[str, str | None, tuple[str, ...]]  # name, host, tags


def normalise_tag(tag: str) -> str:
    """A tag as Datadog would store it: from its first letter, in lower case, odd characters as `_`, cut."""
    spelled = _UNTAGGABLE.sub("_", tag.lower())
    return _BEFORE_FIRST_LETTER.sub("", spelled)[:TAG_LENGTH].rstrip(":")


class SeriesTable:
    """Turns samples into series, dropping and counting what must not leave.

    It lives as long as one run of one collector, so that the cap on series and the refusal of tag sets
    that Datadog would merge hold across several sends.
    """

    def __init__(self, common_tags: Iterable[str], cap: int) -> None:
        self._common = {normalise_tag(tag) for tag in common_tags}
        self._cap = cap
        self._owners: dict[_Key, _Key] = {}  # series on the wire -> the one series of ours that it stands for
        self._ambiguous: set[_Key] = set()
        self.dropped: Counter[str] = Counter()

    def take(self, samples: Iterable[Sample], oldest: int, newest: int) -> list[Series]:
        """Group samples by series; of one second the last gauge stands and counts add up."""
        groups: dict[_Key, dict[int, float]] = {}
        kinds: dict[str, Kind] = {}
        overflowed: set[tuple[_Key, int]] = set()
        for metric, value, timestamp, tags, host in samples:
            if not _finite(value):
                self.dropped["not_finite"] += 1
            elif timestamp < oldest:
                self.dropped["too_old"] += 1
            elif timestamp > newest:
                self.dropped["in_future"] += 1
            else:
                kinds[metric.name] = metric.kind
                key = (metric.name, host, tags)
                points = groups.setdefault(key, {})
                if metric.kind is Kind.COUNT and timestamp in points:
                    value += points[timestamp]
                    if not _finite(value):
                        overflowed.add((key, timestamp))
                points[timestamp] = float(value) if abs(value) > _EXACT else value
        for key, timestamp in overflowed:
            self.dropped["not_finite"] += 1
            del groups[key][timestamp]
        claims = self._claims(groups)
        self._refuse_ambiguous(claims, groups)
        self._refuse_above_cap(claims, groups)
        return [_series(kinds[wire[0]], wire, groups[keys[0]]) for wire, keys in claims.items()]

    def _claims(self, groups: dict[_Key, dict[int, float]]) -> dict[_Key, list[_Key]]:
        """Which of our series would be one on the wire, with tags normalised and the common ones added."""
        normal: dict[tuple[str, ...], tuple[str, ...]] = {}
        claims: dict[_Key, list[_Key]] = {}
        for key, points in groups.items():
            if not points:
                continue
            name, host, tags = key
            if tags not in normal:
                normal[tags] = tuple(sorted({normalise_tag(tag) for tag in tags} | self._common))
            claims.setdefault((name, host, normal[tags]), []).append(key)
        return claims

    def _refuse_ambiguous(self, claims: dict[_Key, list[_Key]], groups: dict[_Key, dict[int, float]]) -> None:
        """Remove series that two tag sets would share: the value of either is wrong for the other."""
        for wire, keys in list(claims.items()):
            if wire in self._ambiguous or keys != [self._owners.get(wire, keys[0])]:
                self._ambiguous.add(wire)
                self.dropped["tag_collision"] += sum(len(groups[key]) for key in keys)
                del claims[wire]

    def _refuse_above_cap(self, claims: dict[_Key, list[_Key]], groups: dict[_Key, dict[int, float]]) -> None:
        """Remove new series beyond the cap. A stable hash chooses, so that every tick keeps the same ones."""
        new = [wire for wire in claims if wire not in self._owners]
        room = max(0, self._cap - len(self._owners))
        if len(new) > room:
            new.sort(key=_stable_hash)
            for wire in new[room:]:
                self.dropped["series_cap"] += len(groups[claims.pop(wire)[0]])
        for wire in new[:room]:
            self._owners[wire] = claims[wire][0]


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def _stable_hash(key: _Key) -> bytes:
    return blake2b(repr(key).encode(), digest_size=16).digest()


def _series(kind: Kind, wire: _Key, points: dict[int, float]) -> Series:
    name, host, tags = wire
    return {
        "metric": name,
        "type": _TYPES[kind],
        "points": [{"timestamp": second, "value": points[second]} for second in sorted(points)],
        "tags": list(tags),
        "resources": [] if host is None else [{"type": "host", "name": host}],
    }


def raw_size(series: Series) -> int:
    """At least as many bytes as the series takes in the client's JSON, tags being ASCII by now."""
    resources = sum(_RESOURCE_FRAME + len(json.dumps(resource["name"])) for resource in series["resources"])
    tags = sum(len(tag) + len('"", ') for tag in series["tags"])
    return _SERIES_FRAME + len(series["metric"]) + tags + resources + len(series["points"]) * _POINT_SIZE


def payloads(series: Iterable[Series]) -> Iterator[list[Series]]:
    """Pack series, in order, into payloads within the limits on points and raw bytes."""
    payload: list[Series] = []
    points, size = 0, _ENVELOPE
    for piece in _pieces(series):
        piece_size = raw_size(piece)
        if payload and (points + len(piece["points"]) > POINT_LIMIT or size + piece_size > RAW_LIMIT):
            yield payload
            payload, points, size = [], 0, _ENVELOPE
        payload.append(piece)
        points += len(piece["points"])
        size += piece_size
    if payload:
        yield payload


def _pieces(series: Iterable[Series]) -> Iterator[Series]:
    """Each series, in pieces where its points alone are more than one payload takes."""
    for one in series:
        every = one["points"]
        for start in range(0, len(every), POINT_LIMIT):
            yield {**one, "points": every[start : start + POINT_LIMIT]}


def wire_fits(payload: list[Series]) -> bool:
    """Whether the payload stays within the limit once compressed.

    The client compresses where we cannot see it. Only a body that could be too large is compressed here
    as well, at the fastest level, which makes it no smaller than the client's will be; should it ever, the
    intake says 413.
    """
    if _ENVELOPE + sum(map(raw_size, payload)) <= WIRE_LIMIT:
        return True
    import orjson

    return len(zlib.compress(orjson.dumps({"series": payload}), level=1)) <= WIRE_LIMIT


def halve(payload: list[Series]) -> tuple[list[Series], list[Series]] | None:
    """Two payloads of about half the size, or None where there is only one point."""
    if len(payload) > 1:
        middle = len(payload) // 2
        return payload[:middle], payload[middle:]
    points = payload[0]["points"]
    if len(points) < 2:
        return None
    middle = len(points) // 2
    return [{**payload[0], "points": points[:middle]}], [{**payload[0], "points": points[middle:]}]
