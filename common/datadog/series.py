"""From samples to series: grouped, merged by second, and what must not leave dropped and counted.

Knows what makes two points one to Datadog; knows no socket, no clock and no payload.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain

from common.metric import Kind, Metric, Sample
from common.names import is_host, is_stored_as_it_is, normalise_tag

log = logging.getLogger(__name__)

MAX_PLAIN = 2**16
_EXACT = 2**53  # an int beyond this is sent as the float it would become anyway

_Key = tuple[str, str | None, tuple[str, ...]]  # name, host, tags
_Points = dict[int, float]  # by second
_NOBODY: _Key = ("", None, ())  # owns the wires of a live run that were in dispute

# A series as Datadog will store it: metric, host, tags, and values by second, in order. A plain tuple,
# because a tick can make a hundred thousand of them.
Series = tuple[Metric, str | None, tuple[str, ...], list[tuple[int, float]]]


class SeriesTable:
    """Turns samples into series; it lives as long as one run of one collector.

    Two of our series can be one to Datadog: `run:A` and `run:a` are both stored as `run:a`. Each series of
    ours (its key) therefore claims a series on the wire, and a wire that two keys claim is in dispute:
    - in a live run neither is sent, now or later: the value of either is wrong for the other;
    - in a backfill (`many_ticks`) a name may have been respelt along the way, so the claims are joined, and
      only the seconds that several of them have a point of are refused.
    The first key of a wire is remembered as its owner, so that both hold over several sends.
    """

    def __init__(self, common_tags: Iterable[str], cap: int, *, many_ticks: bool = False) -> None:
        self._common = tuple(sorted({*map(normalise_tag, common_tags)} - {""}))
        self._plain: set[str] = set()  # tags that Datadog stores as they are
        self._room = cap
        self._many_ticks = many_ticks
        self._owners: dict[_Key, _Key] = {}
        self._metrics: dict[str, Metric] = {}
        self.dropped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # by reason, the first that was dropped

    def take(self, samples: Iterable[Sample], oldest: int, newest: int) -> Iterator[Series]:
        """Group samples by series; of one second the last gauge stands and counts add up."""
        for (name, host, tags), points in self._claims(self._groups(samples, oldest, newest)).items():
            in_order = [*points.items()] if len(points) == 1 else sorted(points.items())
            yield self._metrics[name], host, tags + self._common, in_order

    def _groups(self, samples: Iterable[Sample], oldest: int, newest: int) -> dict[_Key, _Points]:
        """The points of each of our series that can be sent."""
        groups: dict[_Key, _Points] = {}
        overflowed: set[tuple[_Key, int]] = set()
        least, most = -_EXACT, _EXACT
        for metric, value, second, tags, host in samples:
            if not least <= value <= most:
                value = _as_float(value)
                if not math.isfinite(value):
                    self._drop("not_finite", 1, (metric.name, host, tags), second)
                    continue
            if not oldest <= second <= newest:
                self._drop(
                    "too_old" if second < oldest else "in_future", 1, (metric.name, host, tags), second
                )
                continue
            key = (metric.name, host, tags)
            points = groups.get(key)
            if points is None:
                points = groups[key] = {}
                self._metrics[metric.name] = metric
            elif second in points and metric.kind is Kind.COUNT:
                value += points[second]
                if not least <= value <= most:
                    value = _as_float(value)
                    if not math.isfinite(value):
                        overflowed.add((key, second))
            points[second] = value
        for key, second in overflowed:
            self._drop("not_finite", 1, key, second)
            del groups[key][second]
        return groups

    def _drop(self, reason: str, count: int, key: _Key, second: int) -> None:
        """Count points, and remember the first."""
        self.dropped[reason] += count
        if reason not in self.examples:
            name, host, tags = key
            labels = [*tags, *([f"host:{host}"] if host else [])]
            self.examples[reason] = " ".join([name, *labels, "at", str(second)])

    def _claims(self, groups: dict[_Key, _Points]) -> dict[_Key, _Points]:
        """The points of each series on the wire, without those that are refused."""
        self._learn(groups)
        claims: dict[_Key, _Points] = {}
        disputes: dict[_Key, list[_Points]] = {}
        new: dict[_Key, _Key] = {}
        is_plain, owner_of = self._plain.issuperset, self._owners.get
        for key, points in groups.items():
            if not points:
                continue
            _, host, tags = key
            as_it_is = host is None and is_plain(tags) and sorted({*tags}) == [*tags]
            wire = key if as_it_is else self._wire(key, points)
            first = claims.setdefault(wire, points)
            owner = owner_of(wire)
            if first is not points:
                disputes.setdefault(wire, [first]).append(points)
            elif owner is None:
                new[wire] = key
            elif owner != key:
                disputes[wire] = [points]
        for wire, claimants in disputes.items():
            claims[wire] = self._judged(wire, claimants)
            if not claims[wire]:
                del claims[wire]
                new.pop(wire, None)
        self._refuse_above_cap(claims, new)
        return claims

    def _learn(self, groups: Iterable[_Key]) -> None:
        """Remember which of the tags are plain: most stand on many series, and few are not."""
        if len(self._plain) > MAX_PLAIN:
            self._plain.clear()
        tags = set(chain.from_iterable(key[2] for key in groups)) - self._plain
        self._plain.update(filter(is_stored_as_it_is, tags - {*self._common}))

    def _wire(self, key: _Key, points: _Points) -> _Key:
        """The series on the wire: tags as they are stored, each once, in order, without the common ones."""
        name, host, tags = key
        if host is not None and not is_host(host):
            self._drop("bad_host", len(points), key, next(iter(points)))  # the points go on without it
            host = None
        return name, host, tuple(sorted({*map(normalise_tag, tags)} - {"", *self._common}))

    def _judged(self, wire: _Key, claimants: list[_Points]) -> _Points:
        """What is left of a wire in dispute."""
        if not self._many_ticks:
            self._owners[wire] = _NOBODY
            self._drop("tag_collision", sum(map(len, claimants)), wire, next(iter(claimants[0])))
            return {}
        seconds = Counter(second for points in claimants for second in points)
        if contested := [second for second, number in seconds.items() if number > 1]:
            self._drop("tag_collision", sum(seconds[second] for second in contested), wire, contested[0])
        return {
            second: value for points in claimants for second, value in points.items() if seconds[second] == 1
        }

    def _refuse_above_cap(self, claims: dict[_Key, _Points], new: dict[_Key, _Key]) -> None:
        """Remove new series beyond the cap. A stable hash chooses, so that every tick keeps the same ones."""
        if len(new) > self._room:
            log.debug("%d new series, and room for %d under the cap: a hash chooses", len(new), self._room)
            for wire in sorted(new, key=_stable_hash)[self._room :]:
                points = claims.pop(wire)
                self._drop("series_cap", len(points), wire, next(iter(points)))
                del new[wire]
        self._room -= len(new)
        self._owners |= new


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int too large for a float
        return math.inf


def _stable_hash(key: _Key) -> bytes:
    return blake2b(repr(key).encode(errors="surrogatepass"), digest_size=16).digest()
