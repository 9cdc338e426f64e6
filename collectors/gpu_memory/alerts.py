"""Alerts, counted per second over all sessions of a series.

What was counted in the last hour is saved, so that a file read late, or a second that two segments share,
adds to its second instead of replacing it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from collectors.gpu_memory.metrics import ALERTS
from collectors.gpu_memory.sessions import Source, names
from common.metric import Sample

PREFIX = "alerts:"

Series = tuple[str, ...]  # host, type, then the tags as `key:value`


class Alerts:
    """The counts of every second that can still be sent."""

    def __init__(self, state: Mapping[str, object], oldest: int) -> None:
        self._oldest = oldest
        self._counts: dict[Series, Counter[int]] = {}
        self._touched: dict[Series, set[int]] = {}
        self._stale: set[str] = set()
        for key, saved in state.items():
            if key.startswith(PREFIX):
                series = names(key.removeprefix(PREFIX))
                counts = dict(_saved(saved, oldest)) if len(series) > 1 else {}
                if counts:
                    self._counts[series] = Counter(counts)
                if not isinstance(saved, dict) or len(counts) < len(saved):
                    self._stale.add(key)

    def add(self, source: Source, kind: str, second: int, *, tag_job_id: bool) -> None:
        """Count one alert."""
        tags = source.tags() if tag_job_id else {"rank": source.rank} if source.rank else {}
        series = (source.host, kind, *(f"{key}:{tags[key]}" for key in sorted(tags)))
        self._counts.setdefault(series, Counter())[second] += 1
        self._touched.setdefault(series, set()).add(second)

    def samples(self) -> Iterator[Sample]:
        """Every second that changed, whole."""
        for series, seconds in sorted(self._touched.items()):
            host, kind, *tags = series
            named = dict(tag.split(":", 1) for tag in tags)
            for second in sorted(seconds):
                yield ALERTS(self._counts[series][second], second, on_host=host or None, type=kind, **named)

    def changes(self) -> dict[str, object]:
        """What to save; counts that are too old to be sent again are left out."""
        keys = {PREFIX + json.dumps(series) for series in self._touched} | self._stale
        return {key: self._to_save(key) for key in sorted(keys)}

    def _to_save(self, key: str) -> dict[str, int] | None:
        counts = self._counts.get(names(key.removeprefix(PREFIX)), Counter[int]())
        return {str(second): number for second, number in sorted(counts.items())} or None


def _saved(saved: object, oldest: int) -> Iterator[tuple[int, int]]:
    for second, number in saved.items() if isinstance(saved, dict) else ():
        if second.isdecimal() and int(second) >= oldest and type(number) is int:
            yield int(second), number
