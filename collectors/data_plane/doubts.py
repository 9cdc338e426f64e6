"""From when on what a job holds cannot be known from its clients.

A client knows its own puts and clears. Where another one writes too, it may have put the same keys or have
cleared them, and neither can tell; where keys were given up, the figure is without them. Either makes every
figure of the whole job worth nothing, for as long as the job goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

from pydantic import Json, TypeAdapter

from collectors.data_plane.record import MAX_STANDING, Held, stands_until
from common.records.buckets import dumps
from common.records.saved import SavedState, Time

DOUBTED = "doubted:"  # of the state: of each job since when it has been, and its last word
_KNOWN: TypeAdapter[tuple[float, float]] = TypeAdapter(Json[tuple[Time, Time]])
MAX_SILENCE = MAX_STANDING  # seconds after which a job begins anew
REMEMBERED = 86400  # seconds: a reader that was away for so long has other worries


class Doubts:
    """In which stretches of time the figures of a job are in doubt."""

    def __init__(self, saved: SavedState, oldest: float) -> None:
        self._saved = saved
        self._before = dict(saved.parts(DOUBTED, _KNOWN))
        self._known = {job: times for job, times in self._before.items() if times[1] >= oldest - REMEMBERED}
        self._spans: dict[str, list[tuple[float, float]]] = {}

    def hear(self, job: str) -> None:
        """Note that the file under way tells of a job."""
        self._saved.claim(DOUBTED + job)

    def weigh(self, sources: Mapping[str, list[Held]]) -> None:
        """Look at all the words that are known of each job."""
        clients: dict[str, list[list[Held]]] = {}
        for words in sources.values():
            clients.setdefault(words[0].group[0], []).append(words)
        for job, words_of_job in clients.items():
            since, last = self._known.pop(job, (inf, -inf))
            times = sorted({last, *(word.timestamp for words in words_of_job for word in words)})
            doubted = [since, *_doubted(words_of_job)]
            begins = [after for before, after in pairwise(times) if after - before > MAX_SILENCE]
            spans = self._spans[job] = [
                (min(known), end)
                for begin, end in pairwise([-inf, *begins, inf])
                if (known := [one for one in doubted if begin <= one < end])
            ]
            if spans and spans[-1][1] == inf:
                self._known[job] = (spans[-1][0], times[-1])

    def concern(self, words: Iterable[Held], end: float) -> bool:
        """Whether figures of any of these words' jobs are in doubt just before a time."""
        spans = (span for job in {word.group[0] for word in words} for span in self._spans.get(job, ()))
        return any(start < end <= until for start, until in spans)

    def changes(self) -> dict[str, object]:
        gone = dict.fromkeys(DOUBTED + job for job in self._before if job not in self._known)
        self._before = {**self._known}
        return {**gone, **{DOUBTED + job: dumps(times) for job, times in self._known.items()}}


def _doubted(clients: Sequence[Sequence[Held]]) -> Iterator[float]:
    """The times of words that tell that nobody can know."""
    writing: list[tuple[float, float, float]] = []  # since, perhaps since, and until when
    for words in clients:
        for word in words:
            if word.foreign_clears or word.keys_overflowed or (word.writers or 0) > 1:
                yield word.timestamp
        place = next((place for place, word in enumerate(words) if word.writers), None)
        if place is not None:
            before = words[max(0, place - 1)].timestamp
            writing.append((words[place].timestamp, before, stands_until(words, len(words) - 1)))
    others_until = -inf
    for since, perhaps_since, until in sorted(writing):
        if perhaps_since <= others_until:
            yield since
        others_until = max(others_until, until)
