"""Which words about what a job holds can be sent.

A record proves by itself that its client knows what the job holds: that no other one can have written. Where
clients could not know of each other, because they were built apart and nobody told them, their records
contradict that proof once they are read. From then on no figure of the whole job is sent, until it has been
silent for long.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from math import inf

from pydantic import Json, TypeAdapter

from collectors.data_plane.record import Held
from common.records.buckets import dumps
from common.records.saved import SavedState, Time

PREFIX = "job:"  # of the state
MAX_SILENCE = 1800  # seconds after which a job begins anew
REMEMBERED = 86400  # seconds: a reader that was away for so long has other worries

# Of a job: from when on it is in doubt, its last word, and from when to when each source has said it writes.
_Known = tuple[Time | None, Time, dict[str, tuple[Time, Time]]]
_KNOWN: TypeAdapter[_Known] = TypeAdapter(Json[_Known])


class Jobs:
    """What earlier words told of each job."""

    def __init__(self, saved: SavedState, oldest: float) -> None:
        self._saved = saved
        self._before = dict(saved.parts(PREFIX, _KNOWN))
        self._known = {job: told for job, told in self._before.items() if told[1] >= oldest - REMEMBERED}

    def claim(self, job: str) -> None:
        """Note that the file under way tells of a job."""
        self._saved.claim(PREFIX + job)

    def believed(self, words: list[Held]) -> Iterator[Held]:
        """Those whose figures are true, as far as anything read until now tells; in the order of seconds."""
        ordered = sorted(words, key=lambda word: (word.group[0], int(word.timestamp)))
        for job, of_job in groupby(ordered, key=lambda word: word.group[0]):
            told = list(of_job)
            begins = [place for place, (one, next_) in enumerate(pairwise(told), 1) if _silent(one, next_)]
            for begin, end in pairwise([0, *begins, len(told)]):
                since = self._hear(job, told[begin:end])
                yield from (word for word in told[begin:end] if word.proves and word.timestamp < since)

    def _hear(self, job: str, words: list[Held]) -> float:
        """From when on a job is in doubt, with words that follow each other without a long silence."""
        since, last, sources = self._known.get(job, (None, 0.0, {}))
        if words[0].timestamp > last + MAX_SILENCE:
            since, sources = None, {}
        doubted = [inf if since is None else since]
        for word in words:
            last = max(last, word.timestamp)
            if word.foreign_clears or word.keys_overflowed or (word.writes and word.unknown):
                doubted.append(word.timestamp)
            if word.writes:
                first, final = sources.get(word.source, (word.timestamp, word.timestamp))
                sources[word.source] = (min(first, word.timestamp), max(final, word.timestamp))
        until = -inf
        for first, final in sorted(sources.values()):
            if first <= until:
                doubted.append(first)
            until = max(until, final)
        begins = min(doubted)
        self._known[job] = (None, last, sources) if begins == inf else (begins, last, {})
        return begins

    def changes(self) -> dict[str, object]:
        gone = dict.fromkeys(PREFIX + job for job in self._before if job not in self._known)
        self._before = {**self._known}
        return {**gone, **{PREFIX + job: dumps(told) for job, told in self._known.items()}}


def _silent(one: Held, other: Held) -> bool:
    return other.timestamp - one.timestamp > MAX_SILENCE
