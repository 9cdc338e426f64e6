"""The series of one run as Datadog stores them; points it would not store are dropped and counted.

Pure: the window is passed in, nothing is sent. `intake.py` and, for a dry run, `common/show/points.py` use
the table; `common/names.py` has the spelling of tags and hosts.
"""

from __future__ import annotations

import math
from collections import Counter
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

    Two of our series can be one to Datadog: `run:A` and `run:a` are both stored as `run:a`. A name may have
    been respelt in between, so they are merged, and the seconds that both have a point for are dropped: the
    value of either is wrong for the other.

    A backfill (`many_ticks`) drains several times, and the cap applies to all of it; a live run drains once.
    Series are yielded without `common_tags`, which every series has. Points before `oldest` or after `newest`
    are dropped.

    `dropped` counts points by reason: `too_old`, `in_future`, `not_finite`, `tag_collision`, `series_cap` and
    `bad_host`, which alone are still sent, without their host.
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
        tags = set(chain.from_iterable(series.tags for series in added))
        respelt = {*filterfalse(is_stored_as_it_is, tags), *tags.intersection(self.common_tags)}
        hosts = {series.host for series in added} - {None}
        bad_hosts = {*filterfalse(is_host, hosts)}
        first, repeated = self._group(added, respelt, bad_hosts)
        self._drop_beyond_cap(first, repeated)
        # The normal case of a live run: nothing to merge, and no later call that must know what was sent.
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
        """Return the first series of ours by what Datadog makes of it, and all of those that have several.

        `respelt` are the tags that Datadog would change, `bad_hosts` the hosts it would not accept.
        """
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
        """Return the series that Datadog makes of ours: each tag once, in order, without common ones.

        A host that Datadog does not accept is removed and counted as `bad_host`.
        """
        name, host, tags = _key(series)
        if host is not None and not is_host(host):
            self._drop("bad_host", len(series.times), (name, host, tags), series.times[0])
            host = None  # the points are sent without it
        return name, host, tuple(sorted({*map(normalise_tag, tags)} - {"", *self.common_tags}))

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

    def _merge(self, key: _Key, parts: list[Series]) -> _Points:
        """Return the points of a stored series that is made of several, in order of time.

        In one second of one spelling counts add up and the last gauge wins. A second that two spellings have
        a point for is dropped for both.
        """
        spellings: dict[_Key, dict[int, float]] = {}
        for series in parts:
            points = spellings.setdefault(_key(series), {})
            for second, value in zip(series.times, series.values, strict=True):
                # Datadog adds nothing up: of two points of one second it stores the last, also of a count.
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
        """Return the points without seconds that were sent before for another spelling.

        Only a backfill has these: a second spelling that occurs in a later window.
        """
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
        """Drop new series beyond the cap, by removing them from `first`.

        A stable hash decides which, so that every tick sends the same ones: charts of the others are empty,
        instead of all being broken.
        """
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
