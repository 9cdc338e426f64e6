"""The points of a send, by series as Datadog will store them; what must not leave is dropped and counted.

Knows what makes two series one to Datadog; knows no socket, no clock and no payload.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain

from common.metric import Kind, Metric, Series
from common.names import is_host, is_stored_as_it_is, normalise_tag

log = logging.getLogger(__name__)

MAX_PLAIN = 2**16
_EXACT = 2**53  # an int beyond this is sent as the float it would become anyway

_Key = tuple[str, str | None, tuple[str, ...]]  # name, host, tags
_Points = tuple[Sequence[int], Sequence[float]]

# The fields of a Series, with all tags as they are stored. A plain tuple, because a tick has many thousands.
StoredSeries = tuple[Metric, tuple[str, ...], str | None, Sequence[int], Sequence[float]]


class SeriesTable:
    """Takes series until they are drained; it lives as long as one run of one collector.

    Two of our series can be one to Datadog: `run:A` and `run:a` are both stored as `run:a`.
    - In a live run neither is sent: the value of either is wrong for the other.
    - In a backfill (`many_ticks`) a name may have been respelt along the way, so they are joined, and only
      the seconds that both have a point of are dropped.
    A backfill drains several times, and the cap holds for all of it; a live run drains once.
    """

    def __init__(
        self, common_tags: Iterable[str], cap: int, oldest: int, newest: int, *, many_ticks: bool = False
    ) -> None:
        self._common = tuple(sorted({*map(normalise_tag, common_tags)} - {""}))
        self._cap = cap
        self._oldest, self._newest = oldest, newest
        self._many_ticks = many_ticks
        self._plain: set[str] = set()  # tags that Datadog stores as they are
        self._waiting: dict[_Key, list[Series]] = {}
        self._sent: dict[_Key, tuple[_Key, int]] = {}  # of a backfill: which of ours, and its last second
        self.dropped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # by reason, the first that was dropped
        self.beyond_cap: dict[str, set[_Key]] = {}  # by metric, the series that were dropped

    def add(self, series: Series) -> None:
        """Take a series whose points are in order of time; those that cannot be sent are dropped."""
        metric, tags, host, times, values = series
        try:  # a sum that is not finite, or too large to tell, is looked at point by point
            good = times[0] >= self._oldest and times[-1] <= self._newest and sum(map(abs, values)) <= _EXACT
        except (IndexError, OverflowError):
            good = False
        key = (metric.name, host, tags)
        if not good:
            times, values = self._good_points(key, times, values)
            if not times:
                return
            series = series._replace(times=times, values=values)
        parts = self._waiting.get(key)
        if parts is None:
            self._waiting[key] = [series]
        else:
            parts.append(series)

    def _good_points(self, key: _Key, times: Sequence[int], values: Sequence[float]) -> _Points:
        kept: dict[int, float] = {}
        for second, value in zip(times, values, strict=True):
            number = _as_number(value)
            if not math.isfinite(number):
                self._drop("not_finite", 1, key, second)
            elif second < self._oldest:
                self._drop("too_old", 1, key, second)
            elif second > self._newest:
                self._drop("in_future", 1, key, second)
            else:
                kept[second] = number
        return [*kept], [*kept.values()]

    def _drop(self, reason: str, count: int, key: _Key, second: int) -> None:
        """Count points, and keep the first as an example."""
        self.dropped[reason] += count
        if reason not in self.examples:
            name, host, tags = key
            labels = [*tags, *([f"host:{host}"] if host else [])]
            self.examples[reason] = " ".join([name, *labels, "at", str(second)])

    def drain(self) -> Iterator[StoredSeries]:
        """Yield what was added since the last time, and forget it; of one second the last gauge stands."""
        waiting, self._waiting = self._waiting, {}
        self._learn(waiting)
        owners: dict[_Key, _Key] = {}  # by stored series, the first of ours
        shared: dict[_Key, list[_Key]] = {}  # and all of ours, where there are several
        is_plain = self._plain.issuperset
        for key in waiting:
            _, host, tags = key
            as_it_is = (host is None or is_host(host)) and is_plain(tags)
            stored = key if as_it_is else self._stored_as(key, waiting[key])
            first = owners.setdefault(stored, key)
            if first is not key:
                shared.setdefault(stored, [first]).append(key)
        self._drop_beyond_cap(owners, shared, waiting)
        for stored, key in owners.items():
            parts = waiting[key]
            metric, _, _, times, values = parts[0]
            if stored in shared:
                times, values = self._settled(stored, [waiting[one] for one in shared[stored]])
            elif len(parts) > 1:
                times, values = self._joined(key, parts)
            if self._many_ticks:
                times, values = self._after_others(stored, key, times, values)
            if times:
                yield metric, stored[2] + self._common, stored[1], times, values

    def _learn(self, keys: Iterable[_Key]) -> None:
        """Remember which tags are plain: most are on many series, and few are not."""
        if len(self._plain) > MAX_PLAIN:
            self._plain.clear()
        tags = set(chain.from_iterable(key[2] for key in keys)) - self._plain
        self._plain.update(filter(is_stored_as_it_is, tags - {*self._common}))

    def _stored_as(self, key: _Key, parts: list[Series]) -> _Key:
        """Return the series that Datadog makes of ours: its tags each once, in order, without common ones."""
        name, host, tags = key
        if host is not None and not is_host(host):
            points = sum(len(part.times) for part in parts)
            self._drop("bad_host", points, key, parts[0].times[0])  # they are sent without it
            host = None
        return name, host, tuple(sorted({*map(normalise_tag, tags)} - {"", *self._common}))

    def _joined(self, key: _Key, parts: list[Series]) -> _Points:
        """Join the parts of one series; the counts of one second add up."""
        points: dict[int, float] = {}
        for metric, _, _, times, values in parts:
            for second, value in zip(times, values, strict=True):
                adds = metric.kind is Kind.COUNT and second in points
                points[second] = _as_number(points[second] + value) if adds else value
        for second in [second for second, value in points.items() if not math.isfinite(value)]:
            self._drop("not_finite", 1, key, second)
            del points[second]
        in_order = sorted(points)
        return in_order, [points[second] for second in in_order]

    def _settled(self, stored: _Key, claims: list[list[Series]]) -> _Points:
        """Return what can be sent of a stored series that several of ours would be."""
        joined = [self._joined(stored, parts) for parts in claims]
        seconds = Counter(chain.from_iterable(times for times, _ in joined))
        contested = [second for second, number in seconds.items() if number > 1 or not self._many_ticks]
        if contested:
            self._drop("tag_collision", sum(seconds[second] for second in contested), stored, contested[0])
        dropped = {*contested}
        points = {
            second: value
            for times, values in joined
            for second, value in zip(times, values, strict=True)
            if second not in dropped
        }
        in_order = sorted(points)
        return in_order, [points[second] for second in in_order]

    def _after_others(
        self, stored: _Key, key: _Key, times: Sequence[int], values: Sequence[float]
    ) -> _Points:
        """Drop what another series of ours has a point of that was sent before."""
        other, last = self._sent.get(stored, (key, 0))
        if other != key and times and times[0] <= last:
            later = [(second, value) for second, value in zip(times, values, strict=True) if second > last]
            self._drop("tag_collision", len(times) - len(later), stored, times[0])
            times, values = [second for second, _ in later], [value for _, value in later]
        if times:
            self._sent[stored] = (key, max(last, times[-1]))
        return times, values

    def _drop_beyond_cap(
        self, owners: dict[_Key, _Key], shared: dict[_Key, list[_Key]], waiting: dict[_Key, list[Series]]
    ) -> None:
        """Drop new series beyond the cap. A stable hash chooses, so that every tick keeps the same ones."""
        room = self._cap - len(self._sent)
        if len(owners) <= room:
            return
        new = [stored for stored in owners if stored not in self._sent]
        if len(new) > room:
            log.debug("%d new series, and room for %d under the cap: a hash chooses", len(new), room)
        for stored in sorted(new, key=_stable_hash)[room:]:
            parts = [part for key in shared.get(stored, [owners[stored]]) for part in waiting[key]]
            self._drop("series_cap", sum(len(part.times) for part in parts), stored, parts[0].times[0])
            self.beyond_cap.setdefault(stored[0], set()).add(stored)
            del owners[stored]


def _as_number(value: float) -> float:
    """Return an int that is exact as a float, or a float, which may be infinite."""
    if -_EXACT <= value <= _EXACT:
        return value
    try:
        return float(value)
    except OverflowError:  # an int too large for a float
        return math.inf


def _stable_hash(key: _Key) -> bytes:
    return blake2b(repr(key).encode(errors="surrogatepass"), digest_size=16).digest()
