"""What writers hold: at any time, the sum of the last words of all that share a series.

A word stands for three intervals of its source, so that writers need not speak in the same second; one that
has ended, or is silent for longer, leaves the sum. The words of the last hour are saved, so that one that is
read late counts, and the sums it changes are sent again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, NamedTuple

from pydantic import Field, Json, TypeAdapter

from collectors.data_plane import metrics
from collectors.data_plane.doubts import Doubts
from collectors.data_plane.record import MAX_STANDING, STANDS_FOR, Held, stands_until
from common.metric import Sample
from common.records.buckets import dumps
from common.records.saved import SavedState, Time
from common.shards import slotted

PREFIX = "source:"
UNSENT = "unsent"  # the key that tells from when on sums have not been sent
SAVED = 10  # fields of a word
_TIME = attrgetter("timestamp")
_WORDS: TypeAdapter[list[Held]] = TypeAdapter(Json[Annotated[list[Held], Field(min_length=1)]])
_UNSENT: TypeAdapter[float] = TypeAdapter(Time)

Writer = tuple[str, str]  # job and rank; empty where not known, or not a tag


class Tagging(NamedTuple):
    """Which tags are on; what differs only in one that is off is added up."""

    job: bool = True
    rank: bool = True
    partition_id: bool = True

    def writer(self, group: tuple[str, ...]) -> Writer:
        """Of a job and a rank, what tells series apart."""
        job, rank = group
        return (job if self.job else "", rank if self.rank else "")

    def tags(self, writer: Writer, partition_id: str = "", op: str = "") -> tuple[str, ...]:
        """The tags of what is known."""
        values = (writer[0], op, partition_id if self.partition_id else "", writer[1])
        named = zip(metrics.OPERATION_TAGS, values, strict=True)
        return tuple(f"{name}:{value}" for name, value in named if value)


class Holdings:
    """The words that still matter, and which sums they change."""

    def __init__(
        self, saved: SavedState, tagging: Tagging, width: int, oldest: float, *, whole: bool = True
    ) -> None:
        self._saved = saved
        self._whole = whole  # whether all clients of a job are seen
        self._tagging = tagging
        self._width = width
        self._oldest = oldest
        self._words: dict[str, list[Held]] = {}
        self._sources: dict[Writer, set[str]] = {}
        self._touched: set[str] = set()
        self._dirty: dict[Writer, int] = {}  # since when sums have changed
        for source, words in saved.parts(PREFIX, _WORDS):
            self._load(saved, source, words)
        self._doubts = Doubts(saved, oldest)
        self._unsent = dict(saved.everywhere(UNSENT, _UNSENT))  # by slot
        if self._unsent:
            self._dirty = dict.fromkeys(self._sources, int(min(self._unsent.values())))

    def _load(self, saved: SavedState, source: str, words: list[Held]) -> None:
        words.sort(key=_TIME)
        horizon = self._oldest - MAX_STANDING
        if words[-1].timestamp < horizon:
            saved.forgotten[PREFIX + source] = None
            return
        # Three more tell how often the first one spoke.
        self._words[source] = words[max(0, bisect_left(words, horizon, key=_TIME) - STANDS_FOR - 1) :]
        for word in words:
            self._sources.setdefault(self._tagging.writer(word.group), set()).add(source)

    def hear(self, word: Held) -> None:
        """Let a source's word stand."""
        self._saved.claim(PREFIX + word.source)
        self._doubts.hear(word.group[0])
        words = self._words.setdefault(word.source, [])
        place = bisect_right(words, word.timestamp, key=_TIME)
        words.insert(place, word)
        self._touched.add(word.source)
        self._sources.setdefault(self._tagging.writer(word.group), set()).add(word.source)
        start = int(word.timestamp) // self._width * self._width
        for one in words[max(0, place - 1) : place + 1]:  # what it said before may be another's sum
            writer = self._tagging.writer(one.group)
            self._dirty[writer] = min(start, self._dirty.get(writer, start))

    def samples(self, until: float) -> Iterator[Sample]:
        """Every sum that changed, at the buckets in which somebody spoke, up to where all files were read."""
        self._doubts.weigh(self._words)
        for writer, since in sorted(self._dirty.items()):
            spoken = [self._words[source] for source in sorted(self._sources.get(writer, ()))]
            starts = {
                int(word.timestamp) // self._width * self._width
                for words in spoken
                for word in words
                if word.timestamp >= since and self._tagging.writer(word.group) == writer
            }
            for start in sorted(starts):
                if start < self._oldest or start + self._width > until:
                    continue
                standing = [word for words in spoken if (word := self._standing(words, start))]
                standing = [word for word in standing if self._tagging.writer(word.group) == writer]
                yield from self._so_far(writer, start, standing)
                # Who only reads knows nothing of what is held.
                known = [
                    word for word in standing if word.bytes_by_partition is not None and word.writers != 0
                ]
                if self._whole and known and not self._doubts.concern(known, start + self._width):
                    yield from self._sums(writer, start, known)

    def _standing(self, words: list[Held], start: int) -> Held | None:
        """The last word of a source that was said before the end of a bucket and stood at some time of it."""
        place = bisect_left(words, start + self._width, key=_TIME) - 1
        if place < 0:
            return None
        word = words[place]
        return word if word.timestamp >= start or stands_until(words, place) > start else None

    def _so_far(self, writer: Writer, at: int, standing: list[Held]) -> Iterator[Sample]:
        for metric, counts in (
            (metrics.FOREIGN_CLEARS, [word.foreign_clears for word in standing]),
            (metrics.KEYS_OVERFLOWED, [word.keys_overflowed for word in standing]),
        ):
            told = [count for count in counts if count is not None]
            if told:
                yield Sample(metric, sum(told), at, self._tagging.tags(writer), None)

    def _sums(self, writer: Writer, at: int, standing: list[Held]) -> Iterator[Sample]:
        tags = self._tagging.tags(writer)
        yield Sample(metrics.PEAK_BYTES_OUTSTANDING, sum(one.peak_bytes for one in standing), at, tags, None)
        yield Sample(metrics.KEYS_OUTSTANDING, sum(one.keys for one in standing), at, tags, None)
        held: Counter[tuple[str, ...]] = Counter() if self._tagging.partition_id else Counter({tags: 0})
        for one in standing:
            for partition_id, n_bytes in (one.bytes_by_partition or {}).items():
                held[self._tagging.tags(writer, partition_id)] += n_bytes
        for tagged, n_bytes in sorted(held.items()):
            yield Sample(metrics.BYTES_OUTSTANDING, n_bytes, at, tagged, None)

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
            spoken = max((words[-1].timestamp for words in self._words.values()), default=0.0)
            since = since if since is not None and spoken >= since else None
            self._dirty = {}
        slots = {*self._unsent, *(self._saved.claim(PREFIX + source) for source in self._words)}
        self._unsent = {} if since is None else dict.fromkeys(slots, float(since))
        return {**changes, **self._doubts.changes(), **{slotted(slot, UNSENT): since for slot in slots}}
