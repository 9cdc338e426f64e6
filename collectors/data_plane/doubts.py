"""From when on what a job holds cannot be known from its clients.

A client knows which of its own keys it has cleared. Where one clears keys that another put, the other goes on
counting them; where one has given up keys, its figure is without them. Either makes every figure of the whole
job worth nothing, for as long as the job goes on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import orjson

from collectors.data_plane.record import Held
from common.records.buckets import dumps
from common.records.saved import SavedState, text, time

DOUBTED = "doubted"  # of the state: since when each job has been


class Doubts:
    """Since when the figures of a job are in doubt, and of which times they may be."""

    def __init__(self, saved: SavedState, jobs: Iterable[str]) -> None:
        known = saved.part(DOUBTED, _since) or {}
        self._since = {job: known[job] for job in jobs if job in known}  # others have been silent for long
        self._spans: dict[str, list[tuple[float, float]]] = {}

    def hear(self, word: Held) -> None:
        if word.foreign_clears or word.keys_overflowed:
            (job, _) = word.group
            self._since[job] = min(word.timestamp, self._since.get(job, inf))

    def weigh(self, sources: Mapping[str, list[Held]]) -> None:
        """Look for clients that put and never clear in a job where another clears.

        They may well write to keys that the other has put too, and clears: neither can tell.
        """
        self._spans = {job: [(since, inf)] for job, since in self._since.items()}
        first_clear: dict[str, float] = {}
        unclear: list[tuple[str, float, float]] = []
        for words in sources.values():
            job, _ = words[0].group
            place = bisect_left(words, True, key=_has_cleared)  # once it has, it has
            cleared = words[place].timestamp if place < len(words) else inf
            first_clear[job] = min(cleared, first_clear.get(job, inf))
            unclear_words = words[:place] if place and words[place - 1].clears == 0 else []
            holds = next((word.timestamp for word in unclear_words if word.keys), inf)
            if holds < cleared:
                unclear.append((job, holds, cleared))
        for job, holds, cleared in unclear:
            if first_clear[job] < cleared:
                self._spans.setdefault(job, []).append((max(holds, first_clear[job]), cleared))

    def concern(self, words: Iterable[Held], end: float) -> bool:
        """Whether figures of any of these words' jobs are in doubt just before a time."""
        spans = (span for job in {word.group[0] for word in words} for span in self._spans.get(job, ()))
        return any(start < end <= until for start, until in spans)

    def changes(self) -> dict[str, object]:
        return {DOUBTED: dumps(self._since) if self._since else None}


def _has_cleared(word: Held) -> bool:
    return bool(word.clears)


def _since(saved: Any) -> dict[str, float]:  # Any: parsed JSON
    return {text(job): time(since) for job, since in orjson.loads(saved).items()}
