"""The series of one run as Datadog stores them; points it would not store are dropped and counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, filterfalse

from common.metric import Kind, Series
from common.names import is_host, is_stored_as_it_is, normalise_tag

_EXACT = 2**53  # an int beyond this is sent as the float it would become anyway

_Key = tuple[str, str | None, tuple[str, ...]]  # name, host, tags
_Points = tuple[Sequence[int], Sequence[float]]


class SeriesTable:
    """Takes the series of one run of one collector, and yields them as Datadog stores them.

    Two of our series can be one to Datadog: `run:A` and `run:a` are both stored as `run:a`. A name may have
    been respelt in between, so they are merged, and the seconds that both have a point for are dropped: the
    value of either is wrong for the other.
    A backfill (`many_ticks`) drains several times, and the cap holds for all of it; a live run drains once.

    Series are yielded without `common_tags`, which every series has.
    """

    def __init__(
        self, common_tags: Iterable[str], cap: int, oldest: int, newest: int, *, many_ticks: bool = False
    ) -> None:
        self.common_tags = tuple(sorted({*map(normalise_tag, common_tags)} - {""}))
        self.dropped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # by reason, the first point that was dropped
        self.beyond_cap: dict[str, set[_Key]] = {}  # by metric, the series that were dropped
        self._cap = cap
        self._oldest, self._newest = oldest, newest
        self._many_ticks = many_ticks
        self._added: list[Series] = []
        self._sent: dict[_Key, tuple[_Key, int]] = {}  # of a backfill: our series and its last second

    def add(self, series: Series) -> None:
        """Take a series whose points are in order of time; points that cannot be sent are dropped."""
        _, _, _, times, values = series
        try:  # no value exceeds the norm; one that is large or not finite needs a check of each
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
        """Yield the series added since the last call, each once."""
        added, self._added = self._added, []
        tags = set(chain.from_iterable(series.tags for series in added))
        respelt = {*filterfalse(is_stored_as_it_is, tags), *tags.intersection(self.common_tags)}
        hosts = {series.host for series in added} - {None}
        bad_hosts = {*filterfalse(is_host, hosts)}
        first, repeated = self._group(added, respelt, bad_hosts)
        self._drop_beyond_cap(first, repeated)
        if not (respelt or bad_hosts or repeated or self._many_ticks):
            yield from first.values()
            return
        for key, series in first.items():
            metric, _, _, times, values = series
            if key in repeated:
                times, values = self._merge(key, repeated[key])
            if self._many_ticks:
                times, values = self._drop_sent(key, series, times, values)
            if times:
                yield Series(metric, key[2], key[1], times, values)

    def _group(
        self, added: Iterable[Series], respelt: set[str], bad_hosts: set[str | None]
    ) -> tuple[dict[_Key, Series], dict[_Key, list[Series]]]:
        """Return the first series of ours by what Datadog makes of it, and all of those that have several."""
        first: dict[_Key, Series] = {}
        repeated: dict[_Key, list[Series]] = {}
        for series in added:
            metric, tags, host, _, _ = series
            key = (metric.name, host, tags)
            if (respelt and not respelt.isdisjoint(tags)) or host in bad_hosts:
                key = self._stored_key(series)
            if key in first:
                repeated.setdefault(key, [first[key]]).append(series)
            else:
                first[key] = series
        return first, repeated

    def _stored_key(self, series: Series) -> _Key:
        """Return the series that Datadog makes of ours: each tag once, in order, without common ones."""
        name, host, tags = _key(series)
        if host is not None and not is_host(host):
            self._drop("bad_host", len(series.times), (name, host, tags), series.times[0])
            host = None  # the points are sent without it
        return name, host, tuple(sorted({*map(normalise_tag, tags)} - {"", *self.common_tags}))

    def _drop(self, reason: str, count: int, key: _Key, second: int) -> None:
        """Count dropped points; the first of a reason is its example."""
        self.dropped[reason] += count
        if reason not in self.examples:
            name, host, tags = key
            labels = [*tags, *([f"host:{host}"] if host else [])]
            self.examples[reason] = " ".join([name, *labels, "at", str(second)])

    def _valid_points(self, series: Series) -> _Points:
        times, values = [], []
        for second, value in zip(series.times, series.values, strict=True):
            number = _as_number(value)
            reason = "too_old" if second < self._oldest else "in_future" if second > self._newest else ""
            if not math.isfinite(number):
                reason = "not_finite"
            if reason:
                self._drop(reason, 1, _key(series), second)
            else:
                times.append(second)
                values.append(number)
        return times, values

    def _merge(self, key: _Key, parts: list[Series]) -> _Points:
        """Return the points of a stored series that is made of several.

        Of one second of one series counts add up and the last gauge wins; one of two spellings is dropped.
        """
        spellings: dict[_Key, dict[int, float]] = {}
        for series in parts:
            points = spellings.setdefault(_key(series), {})
            for second, value in zip(series.times, series.values, strict=True):
                adds = series.metric.kind is Kind.COUNT and second in points
                points[second] = _as_number(points[second] + value) if adds else value
        seconds = Counter(chain.from_iterable(spellings.values()))
        if collided := [second for second, number in seconds.items() if number > 1]:
            self._drop("tag_collision", sum(seconds[second] for second in collided), key, collided[0])
        times = sorted(second for second, number in seconds.items() if number == 1)
        values = {second: value for points in spellings.values() for second, value in points.items()}
        merged = Series(parts[0].metric, key[2], key[1], times, [values[second] for second in times])
        return self._valid_points(merged)

    def _drop_sent(self, key: _Key, series: Series, times: Sequence[int], values: Sequence[float]) -> _Points:
        """Drop the seconds that were sent before for another spelling of a stored series."""
        ours = _key(series)
        other, last = self._sent.get(key, (ours, 0))
        if other != ours and times and times[0] <= last:
            first = next((at for at, second in enumerate(times) if second > last), len(times))
            self._drop("tag_collision", first, key, times[0])
            times, values = times[first:], values[first:]
        if times:
            self._sent[key] = (ours, max(last, times[-1]))
        return times, values

    def _drop_beyond_cap(self, first: dict[_Key, Series], repeated: dict[_Key, list[Series]]) -> None:
        """Drop new series beyond the cap. A stable hash chooses, so that every tick keeps the same ones."""
        room = self._cap - len(self._sent)
        if len(first) <= room:
            return
        new = [key for key in first if key not in self._sent]
        for key in sorted(new, key=_stable_hash)[room:]:
            series = first.pop(key)
            points = sum(len(part.times) for part in repeated.get(key, [series]))
            self._drop("series_cap", points, key, series.times[0])
            self.beyond_cap.setdefault(key[0], set()).add(key)


def _key(series: Series) -> _Key:
    return series.metric.name, series.host, series.tags


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
