"""What writers hold: at any time, the sum of the last words of all that share a series.

A word stands for three intervals of its source, so that writers need not speak in the same second; one that
has ended, or is silent for longer, leaves the sum. The words of the last hour are saved, so that one that is
read late counts, and the sums it changes are sent again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import orjson

from collectors.data_plane import metrics
from collectors.data_plane.record import Held, by_partition
from common.metric import Sample
from common.records.buckets import dumps, number
from common.records.envelope import UnusableRecordError

PREFIX = "source:"
UNSENT = "unsent"  # the key that tells from when on sums have not been sent
MAX_INTERVAL = 600  # seconds: words further apart are of a source that was silent
STANDS_FOR = 3  # intervals
MAX_STANDING = STANDS_FOR * MAX_INTERVAL
SAVED = 7  # fields of a word

Writer = tuple[str, str]  # job and rank; empty where not known, or not a tag


class Tagging(NamedTuple):
    """Which tags are on; what differs only in one that is off is added up."""

    job: bool = True
    rank: bool = True
    partition_id: bool = True

    def tags(self, group: tuple[str, ...], op: str, partition_id: str) -> tuple[str, ...]:
        """The tags that are on, of what is known; the group is a job and a rank."""
        job, rank = group
        on = (self.job, True, self.partition_id, self.rank)
        named = zip(metrics.OPERATION_TAGS, (job, op, partition_id, rank), on, strict=True)
        return tuple(f"{name}:{value}" for name, value, is_on in named if value and is_on)


class Holdings:
    """The words that still matter, and which sums they change."""

    def __init__(self, state: Mapping[str, object], tagging: Tagging, width: int, oldest: float) -> None:
        self._tagging = tagging
        self._width = width
        self._oldest = oldest
        self._words: dict[str, list[Held]] = {}
        self._sources: dict[Writer, set[str]] = {}
        self._touched: set[str] = set()
        self._foreign: set[str] = set()
        self._dirty: dict[Writer, int] = {}  # since when sums have changed
        for key, saved in state.items():
            if key.startswith(PREFIX):
                self._load(key, saved)
        unsent = state.get(UNSENT)
        if type(unsent) is int:
            self._dirty = dict.fromkeys(self._sources, unsent)

    def _load(self, key: str, saved: object) -> None:
        source = key.removeprefix(PREFIX)
        try:
            words = [_saved(one) for one in orjson.loads(saved)]  # type: ignore[arg-type]
        except (AttributeError, TypeError, ValueError, KeyError, UnusableRecordError):
            words = []
        horizon = self._oldest - MAX_STANDING
        # Three more tell how often the first one spoke.
        first = max(0, bisect_right(words, (horizon,)) - STANDS_FOR - 1)
        if not words or words[-1].timestamp < horizon:
            self._foreign.add(key)
            return
        self._words[source] = words[first:]
        for word in words:
            self._sources.setdefault(self._writer(word), set()).add(source)

    def _writer(self, word: Held) -> Writer:
        job, rank = word.group
        return (job if self._tagging.job else "", rank if self._tagging.rank else "")

    def hear(self, word: Held) -> None:
        """Let a source's word stand."""
        words = self._words.setdefault(word.source, [])
        place = len(words)
        while place and words[place - 1].timestamp > word.timestamp:
            place -= 1
        words.insert(place, word)
        self._touched.add(word.source)
        self._sources.setdefault(self._writer(word), set()).add(word.source)
        start = int(word.timestamp) // self._width * self._width
        for one in words[max(0, place - 1) : place + 1]:  # what it said before may be another's sum
            writer = self._writer(one)
            self._dirty[writer] = min(start, self._dirty.get(writer, start))

    def samples(self, until: float) -> Iterator[Sample]:
        """Every sum that changed, at the buckets in which somebody spoke, up to where all files were read."""
        for writer, since in sorted(self._dirty.items()):
            spoken = [self._words[source] for source in sorted(self._sources.get(writer, ()))]
            starts = {
                int(word.timestamp) // self._width * self._width
                for words in spoken
                for word in words
                if word.timestamp >= since and self._writer(word) == writer
            }
            places = [0] * len(spoken)
            for start in sorted(starts):
                if start < self._oldest or start + self._width > until:
                    continue
                standing = []
                for index, words in enumerate(spoken):
                    place = places[index]
                    while place < len(words) and words[place].timestamp < start + self._width:
                        place += 1
                    places[index] = place
                    if (
                        place
                        and self._writer(words[place - 1]) == writer
                        and _stands(words, place - 1, start)
                    ):
                        standing.append(words[place - 1])
                if standing:
                    yield from self._sums(writer, start, standing)

    def _sums(self, writer: Writer, at: int, standing: list[Held]) -> Iterator[Sample]:
        job, rank = (f"{name}:{value}" for name, value in zip(("job", "rank"), writer, strict=True))
        before, after = (job,) * bool(writer[0]), (rank,) * bool(writer[1])
        tags = (*before, *after)
        yield Sample(metrics.PEAK_BYTES_OUTSTANDING, sum(one.peak_bytes for one in standing), at, tags, None)
        yield Sample(metrics.KEYS_OUTSTANDING, sum(one.keys for one in standing), at, tags, None)
        held: Counter[str] = Counter()
        for one in standing:
            for partition_id, n_bytes in one.bytes_by_partition.items():
                held[partition_id if self._tagging.partition_id else ""] += n_bytes
            if not self._tagging.partition_id:
                held[""] += 0
        for partition_id, n_bytes in sorted(held.items()):
            named = (f"partition_id:{partition_id}",) if partition_id else ()
            yield Sample(metrics.BYTES_OUTSTANDING, n_bytes, at, (*before, *named, *after), None)

    def changes(self, sent_until: float | None = None) -> dict[str, object]:
        """What to save, once sums were sent up to a time; None where none were."""
        changes: dict[str, object] = {
            PREFIX + source: dumps([word[:SAVED] for word in self._words[source]])
            for source in sorted(self._touched)
        }
        self._touched = set()
        since = min(self._dirty.values(), default=None)
        if sent_until is not None:
            since = None if since is None else max(since, int(sent_until) // self._width * self._width)
            spoken = max((words[-1].timestamp for words in self._words.values() if words), default=0.0)
            since = since if since is not None and spoken >= since else None
            self._dirty = {}
        foreign, self._foreign = dict.fromkeys(self._foreign), set()
        return {**foreign, **changes, UNSENT: since}


def _stands(words: list[Held], place: int, start: int) -> bool:
    """Whether a word stands at some time of a bucket that did not end before it was said."""
    word = words[place]
    if word.timestamp >= start:
        return True
    interval = word.interval
    if interval is None:
        times = [one.timestamp for one in words[max(0, place - STANDS_FOR) : place + 1]]
        gaps = [after - before for before, after in pairwise(times)]
        # What it said before it was silent for long tells nothing.
        interval = max(takewhile(lambda gap: gap <= MAX_INTERVAL, reversed(gaps)), default=0.0)
    return not word.ended and word.timestamp + STANDS_FOR * min(interval, MAX_INTERVAL) > start


def _saved(value: Any) -> Held:  # Any: parsed JSON
    timestamp, (job, rank), interval, ended, peak_bytes, keys, held = value
    interval = None if interval is None else number(interval)
    numbers = (int(number(peak_bytes)), int(number(keys)))
    return Held(number(timestamp), (str(job), str(rank)), interval, bool(ended), *numbers, by_partition(held))
