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
from typing import NamedTuple, NotRequired, TypedDict

from common.metric import Kind, Sample

WIRE_LIMIT = 512_000
RAW_LIMIT = 5_242_880
POINT_LIMIT = 10_000
TAG_LENGTH = 200

_TYPES = {Kind.COUNT: 1, Kind.GAUGE: 3}
_UNTAGGABLE = re.compile(r"[^a-z0-9_\-:./]")
_NORMAL = re.compile(rf"[a-z][a-z0-9_\-:./]{{0,{TAG_LENGTH - 2}}}[a-z0-9_\-./]")
_BEFORE_FIRST_LETTER = re.compile(r"^[^a-z]+")
_EXACT = 2**53  # an int beyond this is sent as the float it would become anyway
_ENVELOPE = len('{"series": []}')
_SERIES_FRAME = len('{"metric": "", "type": 3, "points": [], "tags": []}, ')
_POINT_SIZE = len('{"timestamp": 4294967295, "value": -1.2345678901234567e-300}, ')
_RESOURCE_FRAME = len(', "resources": [{"type": "host", "name": }]')


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
    resources: NotRequired[list[dict[str, str]]]


_Key = tuple[str, str | None, tuple[str, ...]]  # name, host, tags


def normalise_tag(tag: str) -> str:
    """A tag as Datadog would store it: from its first letter, in lower case, odd characters as `_`, cut."""
    if _NORMAL.fullmatch(tag):
        return tag  # nearly every tag, and then no second string is made
    spelled = _UNTAGGABLE.sub("_", tag.lower())
    return _BEFORE_FIRST_LETTER.sub("", spelled)[:TAG_LENGTH].rstrip(":")


class SeriesTable:
    """Turns samples into series, dropping and counting what must not leave.

    It lives as long as one run of one collector, so that the cap on series and the refusal of tag sets
    that Datadog would merge hold across several sends. In a backfill, where a name may have been respelt
    along the way, such tag sets are refused only for the seconds that both have a point of.
    """

    def __init__(self, common_tags: Iterable[str], cap: int, *, many_ticks: bool = False) -> None:
        self._common = {normalise_tag(tag) for tag in common_tags}
        self._cap = cap
        self._many_ticks = many_ticks
        self._owners: dict[_Key, _Key] = {}  # series on the wire -> the one series of ours that it stands for
        self._ambiguous: set[_Key] = set()
        self.dropped: Counter[str] = Counter()

    def take(self, samples: Iterable[Sample], oldest: int, newest: int) -> Iterator[Series]:
        """Group samples by series; of one second the last gauge stands and counts add up.

        Series are made one by one as they are asked for: a hundred thousand of them at once are large.
        """
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
        if self._many_ticks:
            self._merge_respelt(groups)
        claims = self._claims(groups)
        self._refuse_above_cap(claims, groups)
        for wire, key in claims.items():
            yield _series(kinds[wire[0]], wire, groups.pop(key))

    def _claims(self, groups: dict[_Key, dict[int, float]]) -> dict[_Key, _Key]:
        """Each series as it will stand on the wire, and the one of ours that it stands for.

        Those that two of our series would share are refused: the value of either is wrong for the other.
        """
        wires = self._wires(groups)
        claims: dict[_Key, _Key] = {}
        for key, wire in wires.items():
            owner = key if self._many_ticks else self._owners.get(wire, key)
            if owner != key or claims.setdefault(wire, key) != key:
                self._ambiguous.add(wire)
        if self._ambiguous:
            for key, wire in wires.items():
                if wire in self._ambiguous:
                    self.dropped["tag_collision"] += len(groups[key])
                    claims.pop(wire, None)
        return claims

    def _merge_respelt(self, groups: dict[_Key, dict[int, float]]) -> None:
        """Make one series of those that Datadog would merge, without the seconds that several have."""
        sharing: dict[_Key, list[_Key]] = {}
        for key, wire in self._wires(groups).items():
            sharing.setdefault(wire, []).append(key)
        for keys in sharing.values():
            if len(keys) > 1:
                counts = Counter(second for key in keys for second in groups[key])
                if contested := sum(number for number in counts.values() if number > 1):
                    self.dropped["tag_collision"] += contested
                merged = {
                    second: value
                    for key in keys
                    for second, value in groups.pop(key).items()
                    if counts[second] == 1
                }
                groups[keys[0]] = merged

    def _wires(self, groups: dict[_Key, dict[int, float]]) -> dict[_Key, _Key]:
        """Our series and their names on the wire: tags normalised, the common ones added."""
        normal: dict[tuple[str, ...], tuple[str, ...]] = {}
        wires: dict[_Key, _Key] = {}
        for key, points in groups.items():
            if not points:
                continue
            name, host, tags = key
            if tags not in normal:
                normal[tags] = tuple(sorted({*map(normalise_tag, tags), *self._common}))
            wires[key] = (name, host, normal[tags])
        return wires

    def _refuse_above_cap(self, claims: dict[_Key, _Key], groups: dict[_Key, dict[int, float]]) -> None:
        """Remove new series beyond the cap. A stable hash chooses, so that every tick keeps the same ones."""
        new = [wire for wire in claims if wire not in self._owners]
        room = max(0, self._cap - len(self._owners))
        if len(new) > room:
            new.sort(key=_stable_hash)
            for wire in new[room:]:
                self.dropped["series_cap"] += len(groups[claims.pop(wire)])
        for wire in new[:room]:
            self._owners[wire] = claims[wire]


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def _stable_hash(key: _Key) -> bytes:
    return blake2b(repr(key).encode(), digest_size=16).digest()


def _series(kind: Kind, wire: _Key, points: dict[int, float]) -> Series:
    name, host, tags = wire
    series: Series = {
        "metric": name,
        "type": _TYPES[kind],
        "points": [{"timestamp": second, "value": points[second]} for second in sorted(points)],
        "tags": list(tags),
    }
    if host is not None:
        series["resources"] = [{"type": "host", "name": host}]
    return series


def raw_size(series: Series) -> int:
    """At least as many bytes as the series takes in the client's JSON, tags being ASCII by now."""
    size = _SERIES_FRAME + len(series["metric"]) + len(series["points"]) * _POINT_SIZE
    size += len('", "'.join(series["tags"])) + len('""')
    for resource in series.get("resources", ()):
        size += _RESOURCE_FRAME + len(json.dumps(resource["name"]))
    return size


class Payload(NamedTuple):
    """Series to send together, and at least as many bytes as their JSON takes."""

    series: list[Series]
    size: int

    @classmethod
    def of(cls, series: list[Series]) -> Payload:
        """The payload of these series."""
        return cls(series, _ENVELOPE + sum(map(raw_size, series)))

    def fits_the_wire(self) -> bool:
        """Whether it stays within the limit once compressed.

        The client compresses where we cannot see it. Only a body that could be too large is compressed
        here as well, at the fastest level, which makes it no smaller than the client's will be; should it
        ever, the intake says 413.
        """
        if self.size <= WIRE_LIMIT:
            return True
        import orjson

        return len(zlib.compress(orjson.dumps({"series": self.series}), level=1)) <= WIRE_LIMIT

    def halves(self) -> tuple[Payload, Payload] | None:
        """Two payloads of about half the size, or None where there is only one point."""
        if len(self.series) > 1:
            middle = len(self.series) // 2
            return Payload.of(self.series[:middle]), Payload.of(self.series[middle:])
        [only] = self.series
        middle = len(only["points"]) // 2
        if middle == 0:
            return None
        first, second = only["points"][:middle], only["points"][middle:]
        return Payload.of([{**only, "points": first}]), Payload.of([{**only, "points": second}])


def payloads(series: Iterable[Series]) -> Iterator[Payload]:
    """Pack series, in order, into payloads within the limits on points and raw bytes."""
    packed: list[Series] = []
    points, size = 0, _ENVELOPE
    for part in _parts(series):
        part_size = raw_size(part)
        if packed and (points + len(part["points"]) > POINT_LIMIT or size + part_size > RAW_LIMIT):
            yield Payload(packed, size)
            packed, points, size = [], 0, _ENVELOPE
        packed.append(part)
        points += len(part["points"])
        size += part_size
    if packed:
        yield Payload(packed, size)


def _parts(series: Iterable[Series]) -> Iterator[Series]:
    """Each series, in parts where its points alone are more than one payload takes."""
    for one in series:
        every = one["points"]
        if len(every) <= POINT_LIMIT:
            yield one
            continue
        for start in range(0, len(every), POINT_LIMIT):
            yield {**one, "points": every[start : start + POINT_LIMIT]}
