"""Stage values of several runs as one series, where the run is not a tag.

Time is cut into buckets. In each, a run counts once, with its last values there; what runs that have moved
on left behind is kept as sums, so that a file read late adds to its bucket instead of replacing it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from collectors.xenna.metrics import STAGE, Combine
from common.metric import Sample

BUCKET = "bucket:"
OPEN = "open:"

Series = tuple[str, str, str]  # pipeline kind, stage, key
Sums = dict[Series, list[float]]  # sum, and how many runs are in it


class Totals:
    """The buckets that can still be sent, and each run's latest one."""

    def __init__(self, state: Mapping[str, object], interval: int, oldest: int) -> None:
        self._interval = interval
        self._oldest = oldest
        self._closed: dict[int, Sums] = {}
        self._open: dict[str, tuple[int, dict[Series, float]]] = {}
        self._touched: set[int] = set()
        self._left: set[int] = set()  # by a run, which changes what is kept of the bucket and not its sums
        self._heard: set[str] = set()
        for key, saved in state.items():
            if key.startswith(BUCKET) and key.removeprefix(BUCKET).isdecimal():
                self._closed[int(key.removeprefix(BUCKET))] = dict(_sums(saved))
            elif key.startswith(OPEN) and isinstance(saved, dict) and type(saved.get("start")) is int:
                self._open[key.removeprefix(OPEN)] = (saved["start"], dict(_values(saved.get("values"))))

    def add(self, run: str, timestamp: float, values: dict[Series, float]) -> bool:
        """Let a run's values stand for it in their bucket; False where it is in a later one already."""
        start = int(timestamp) // self._interval * self._interval
        before = self._open.get(run, (start, {}))
        if start < before[0]:
            return False
        if start > before[0]:
            _add(self._closed.setdefault(before[0], {}), before[1])
            self._left.add(before[0])
            before = (start, {})
        self._open[run] = (start, {**before[1], **values})
        self._touched.add(start)
        self._heard.add(run)
        return True

    def samples(self) -> Iterator[Sample]:
        """Every bucket that changed, whole, at its start."""
        totals = {
            start: {series: list(sums) for series, sums in self._closed.get(start, {}).items()}
            for start in self._touched
        }
        for start, values in self._open.values():
            if start in totals:
                _add(totals[start], values)
        for start in sorted(totals):
            for (kind, stage, key), (total, runs) in totals[start].items():
                keyed = STAGE[key]
                value = total / runs if keyed.combine is Combine.MEAN else total
                tags = {"pipeline_kind": kind, "stage": stage} if kind else {"stage": stage}
                # Rounded, because the order in which files are read must not show in the last digit.
                yield keyed.metric(round(value, 9), start, **tags)

    def changes(self) -> dict[str, object]:
        """What to save, and what is too old to be sent again and is forgotten."""
        saved: dict[str, object] = {
            f"{BUCKET}{start}": {json.dumps(series): sums for series, sums in self._closed[start].items()}
            for start in self._left
        }
        for run in self._heard:
            start, values = self._open[run]
            saved[OPEN + run] = {
                "start": start,
                "values": {json.dumps(series): value for series, value in values.items()},
            }
        old = [f"{BUCKET}{start}" for start in self._closed if start + self._interval < self._oldest]
        old += [OPEN + run for run, (start, _) in self._open.items() if start + self._interval < self._oldest]
        return {**saved, **dict.fromkeys(old)}


def _add(sums: Sums, values: Mapping[Series, float]) -> None:
    """Put one run's values into the sums."""
    for series, value in values.items():
        known = sums.setdefault(series, [0, 0])
        known[0] += value
        known[1] += 1


def _saved_series(saved: object) -> Iterator[tuple[Series, object]]:
    """What was saved under the name of a series; what is not ours, or no longer declared, is left out."""
    for name, value in saved.items() if isinstance(saved, dict) else ():
        try:
            kind, stage, key = json.loads(name)
        except (ValueError, TypeError):
            continue
        if isinstance(kind, str) and isinstance(stage, str) and key in STAGE:
            yield (kind, stage, key), value


def _sums(saved: object) -> Iterator[tuple[Series, list[float]]]:
    for series, value in _saved_series(saved):
        if isinstance(value, list) and [type(one) in (int, float) for one in value] == [True, True]:
            yield series, [*value]  # a copy: what is saved must not change before the next save


def _values(saved: object) -> Iterator[tuple[Series, float]]:
    for series, value in _saved_series(saved):
        if isinstance(value, int | float):
            yield series, value
