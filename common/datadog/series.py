"""From samples to series: grouped, merged by second, and what must not leave dropped and counted.

Knows what makes two points one to Datadog; knows no socket, no clock and no payload.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from common.datadog.names import is_host, normalise_tag
from common.metric import Kind, Metric, Sample

_EXACT = 2**53  # an int beyond this is sent as the float it would become anyway

_Key = tuple[str, str | None, tuple[str, ...]]  # name, host, tags
_Points = dict[int, float]  # by second


class Series(NamedTuple):
    """Points of one series as Datadog will store it, by second and in order."""

    metric: Metric
    host: str | None
    tags: tuple[str, ...]
    points: list[tuple[int, float]]


class SeriesTable:
    """Turns samples into series; it lives as long as one run of one collector.

    Two of our series can be one to Datadog: `run:A` and `run:a` are both stored as `run:a`. Each series of
    ours (its key) therefore claims a series on the wire, and a wire that two keys claim is in dispute:
    - in a live run neither is sent, now or later: the value of either is wrong for the other;
    - in a backfill (`many_ticks`) a name may have been respelt along the way, so the claims are joined, and
      only the seconds that several of them have a point of are refused.
    The first key of a wire is remembered as its owner, and the cap counts wires: so both hold across sends.
    """

    def __init__(self, common_tags: Iterable[str], cap: int, *, many_ticks: bool = False) -> None:
        self._common = {normalise_tag(tag) for tag in common_tags}
        self._cap = cap
        self._many_ticks = many_ticks
        self._owners: dict[_Key, _Key] = {}
        self._disputed: set[_Key] = set()
        self._metrics: dict[str, Metric] = {}
        self.dropped: Counter[str] = Counter()

    def take(self, samples: Iterable[Sample], oldest: int, newest: int) -> Iterator[Series]:
        """Group samples by series; of one second the last gauge stands and counts add up."""
        groups = self._groups(samples, oldest, newest)
        wires: dict[_Key, _Points] = {}
        owners: dict[_Key, _Key] = {}
        for wire, keys in self._claims(groups).items():
            owners[wire] = keys[0]
            if keys == [self._owners.get(wire, keys[0])] and wire not in self._disputed:
                wires[wire] = groups[keys[0]]
            elif joined := self._judge(wire, [groups[key] for key in keys]):
                wires[wire] = joined
        self._refuse_above_cap(wires, owners)
        for (name, host, tags), points in wires.items():
            yield Series(self._metrics[name], host, tags, sorted(points.items()))

    def _groups(self, samples: Iterable[Sample], oldest: int, newest: int) -> dict[_Key, _Points]:
        """The points of each of our series that can be sent."""
        groups: dict[_Key, _Points] = {}
        overflowed: set[tuple[_Key, int]] = set()
        for metric, value, second, tags, host in samples:
            if not -_EXACT <= value <= _EXACT:
                value = _as_float(value)
                if not math.isfinite(value):
                    self.dropped["not_finite"] += 1
                    continue
            if not oldest <= second <= newest:
                self.dropped["too_old" if second < oldest else "in_future"] += 1
                continue
            key = (metric.name, host, tags)
            points = groups.get(key)
            if points is None:
                points = groups[key] = {}
                self._metrics[metric.name] = metric
            elif second in points and metric.kind is Kind.COUNT:
                value += points[second]
                if not -_EXACT <= value <= _EXACT:
                    value = _as_float(value)
                    if not math.isfinite(value):
                        overflowed.add((key, second))
            points[second] = value
        for key, second in overflowed:
            self.dropped["not_finite"] += 1
            del groups[key][second]
        return groups

    def _claims(self, groups: dict[_Key, _Points]) -> dict[_Key, list[_Key]]:
        """Each series on the wire (tags normalised, common ones added), and those of ours that claim it."""
        spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
        claims: dict[_Key, list[_Key]] = {}
        for key, points in groups.items():
            if not points:
                continue
            name, host, tags = key
            if host is not None and not is_host(host):
                self.dropped["bad_host"] += len(points)  # the points go on without it
                host = None
            normal = spelled.get(tags)
            if normal is None:
                normal = spelled[tags] = tuple(sorted({*map(normalise_tag, tags), *self._common} - {""}))
            claims.setdefault((name, host, normal), []).append(key)
        return claims

    def _judge(self, wire: _Key, claims: list[_Points]) -> _Points:
        """What is left of a wire in dispute."""
        if not self._many_ticks:
            self._disputed.add(wire)
            self.dropped["tag_collision"] += sum(map(len, claims))
            return {}
        claimants = Counter(second for points in claims for second in points)
        if contested := sum(number for number in claimants.values() if number > 1):
            self.dropped["tag_collision"] += contested
        return {
            second: value for points in claims for second, value in points.items() if claimants[second] == 1
        }

    def _refuse_above_cap(self, wires: dict[_Key, _Points], owners: dict[_Key, _Key]) -> None:
        """Remove new series beyond the cap. A stable hash chooses, so that every tick keeps the same ones."""
        new = [wire for wire in wires if wire not in self._owners]
        room = max(0, self._cap - len(self._owners))
        if len(new) > room:
            new.sort(key=_stable_hash)
            for wire in new[room:]:
                self.dropped["series_cap"] += len(wires.pop(wire))
        for wire in new[:room]:
            self._owners[wire] = owners[wire]


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int too large for a float
        return math.inf


def _stable_hash(key: _Key) -> bytes:
    return blake2b(repr(key).encode(errors="surrogatepass"), digest_size=16).digest()
