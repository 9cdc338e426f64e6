"""The series of one run as Datadog stores them; points it would not store are dropped and counted.

Pure: the window is passed in, nothing is sent. `intake.py` and, for a dry run, `common/show/points.py` use
the table; `common/names.py` has the spelling of tags and hosts.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, filterfalse

from common.metric import Kind, Series
from common.names import is_host, is_stored_as_it_is, normalise_tag

# Floats represent every integer up to here. A larger int is sent as the float it would become anyway.
_EXACT = 2**53

_Key = tuple[str, str | None, tuple[str, ...]]  # name, host, tags
_Points = tuple[Sequence[int], Sequence[float]]


class SeriesTable:
    """Collects the series of one run of one collector, and yields them as Datadog stores them.

    Two of our series can be one to Datadog: `run:A` and `run:a` are both stored as `run:a`. The values of
    either would be wrong for the other, so that both are dropped. Once one was yielded, a later drain drops
    the other, and both where it has both.

    A backfill drains several times, and the cap applies to all of it. Series are yielded without
    `common_tags`, which every series has. Points before `oldest` or after `newest` are dropped.

    `dropped` counts points by reason: `too_old`, `in_future`, `not_finite`, `tag_collision`, `series_cap` and
    `bad_host`, which alone are still sent, without their host.
    """

    def __init__(self, common_tags: Iterable[str], cap: int, oldest: int, newest: int) -> None:
        self.common_tags = tuple(sorted({*map(normalise_tag, common_tags)} - {""}))
        self.dropped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # by reason, the first point that was dropped
        # By `series_cap` and `tag_collision`, and by metric: the series that were dropped.
        self.lost: defaultdict[str, defaultdict[str, set[_Key]]] = defaultdict(lambda: defaultdict(set))
        self._cap = cap
        self._oldest, self._newest = oldest, newest
        self._added: list[Series] = []
        self._spellings: dict[_Key, _Key] = {}  # ours, by Datadog's, of the series that were seen first

    def add(self, series: Series) -> None:
        """Add a series whose points are in order of time; points that cannot be sent are dropped."""
        _, _, _, times, values = series
        # The fast path: no value exceeds the norm, so one comparison proves that all are finite and exact. A
        # NaN makes it false. Only series that fail are checked point by point.
        try:
            is_valid = times[0] >= self._oldest and times[-1] <= self._newest and math.hypot(*values) < _EXACT
        except (IndexError, OverflowError):
            is_valid = False
        if is_valid:
            self._added.append(series)
            return
        times, values = self._valid_points(series)
        if times:
            self._added.append(series._replace(times=times, values=values))

    def drain(self) -> Iterator[Series]:
        """Yield the series added since the last call, each once and with at least one point."""
        # Find the few names that Datadog spells differently: distinct tags and hosts are far fewer than
        # series.
        added, self._added = self._added, []
        every_tag = set(chain.from_iterable(series.tags for series in added))
        respelt = {*filterfalse(is_stored_as_it_is, every_tag), *every_tag.intersection(self.common_tags)}
        bad_hosts = {*filterfalse(is_host, {series.host for series in added} - {None})}
        every: dict[_Key, Series] = {}  # by what Datadog makes of them, the first of each
        # A list for each series would cost as much as all else here.
        repeated: dict[_Key, list[Series]] = {}
        collided: set[_Key] = set()
        known = len(self._spellings)
        for series in added:
            metric, tags, host, _, _ = series
            spelling = key = (metric.name, host, tags)
            if (respelt and not respelt.isdisjoint(tags)) or host in bad_hosts:
                key = self._stored_key(series)
            if self._spellings.setdefault(key, spelling) != spelling:
                collided.add(key)
            if key in every:
                repeated.setdefault(key, [every[key]]).append(series)
            else:
                every[key] = series
        for key in self._beyond_cap(known):
            del self._spellings[key]
            first = every.pop(key)
            self._lose("series_cap", key, repeated.get(key, [first]))
        for key, (metric, _, _, times, values) in every.items():
            if key in collided:
                self._lose("tag_collision", key, repeated.get(key, [every[key]]))
                continue
            if key in repeated:
                times, values = self._merged(repeated[key])
            if times:
                yield Series(metric, key[2], key[1], times, values)

    def _stored_key(self, series: Series) -> _Key:
        """Return the series that Datadog makes of ours: each tag once, in order, without common ones.

        A host that Datadog does not accept is removed and counted as `bad_host`.
        """
        name, host, tags = _key(series)
        if host is not None and not is_host(host):
            self._drop("bad_host", len(series.times), (name, host, tags), series.times[0])
            host = None  # the points are sent without it
        return name, host, tuple(sorted({*map(normalise_tag, tags)} - {"", *self.common_tags}))

    def _lose(self, reason: str, key: _Key, parts: Sequence[Series]) -> None:
        """Drop all points of a series that was added in parts, and name it as lost."""
        self.lost[reason][key[0]].add(key)
        for part in parts:
            self._drop(reason, len(part.times), key, part.times[0])

    def _drop(self, reason: str, count: int, key: _Key, second: int) -> None:
        """Count dropped points by reason; the first of a reason is its example, with its time in seconds."""
        self.dropped[reason] += count
        if reason not in self.examples:
            name, host, tags = key
            labels = [*tags, *([f"host:{host}"] if host else [])]
            self.examples[reason] = " ".join([name, *labels, "at", str(second)])

    def _valid_points(self, series: Series) -> _Points:
        """Return the points that are in the window and finite; the others are dropped and counted."""
        times, values = [], []
        for second, value in zip(series.times, series.values, strict=True):
            number = _as_number(value)
            reason = "too_old" if second < self._oldest else "in_future" if second > self._newest else ""
            # JSON has neither NaN nor infinity: a single one would spoil the complete payload.
            if not math.isfinite(number):
                reason = "not_finite"
            if reason:
                self._drop(reason, 1, _key(series), second)
            else:
                times.append(second)
                values.append(number)
        return times, values

    def _merged(self, parts: Sequence[Series]) -> _Points:
        """Return the points of a series that was added in parts, in order of time.

        In one second counts add up and the last gauge wins: Datadog adds nothing up, and stores the last of
        two points of a second, also of a count.
        """
        points: dict[int, float] = {}
        for series in parts:
            adds = series.metric.kind is Kind.COUNT
            for second, value in zip(series.times, series.values, strict=True):
                points[second] = points.get(second, 0) + value if adds else value
        times = sorted(points)
        # A sum may have become infinite.
        return self._valid_points(series._replace(times=times, values=[points[second] for second in times]))

    def _beyond_cap(self, known: int) -> list[_Key]:
        """Return the series that are too many, of those after the first `known` ones.

        A stable hash decides which, so that every tick sends the same ones: charts of the others are empty,
        instead of all being broken.
        """
        if len(self._spellings) <= self._cap:
            return []
        return sorted([*self._spellings][known:], key=_stable_hash)[self._cap - known :]


def _key(series: Series) -> _Key:
    return series.metric.name, series.host, series.tags


def _as_number(value: float) -> float:
    """Return an int that is exact as a float, or a float, which may be infinite or NaN."""
    if -_EXACT <= value <= _EXACT:
        return value
    # Both comparisons are false for NaN, which float() returns as it is.
    try:
        return float(value)
    except OverflowError:  # an int too large for a float
        return math.inf


def _stable_hash(key: _Key) -> bytes:
    """Return a hash that is the same in every process: that of Python is randomised for str."""
    return blake2b(repr(key).encode(errors="surrogatepass"), digest_size=16).digest()
