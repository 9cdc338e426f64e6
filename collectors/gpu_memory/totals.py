"""Memory of several sessions as one series, where the job is not a tag.

Time is cut into buckets. In each, a session counts once, with its last values there; what sessions that have
moved on left behind is kept as sums, so that a file read late adds to its bucket instead of replacing it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from collectors.gpu_memory.metrics import GAUGES
from collectors.gpu_memory.sessions import Source, names
from common.metric import Sample

BUCKET = "bucket:"
OPEN = "open:"
# What a device says of itself: sessions on one device say the same. `measured` is what is in use on devices
# whose capacity is known, which is what utilisation is of.
OF_THE_DEVICE = ("used", "total", "measured")

Place = tuple[str, ...]  # host, rank and gpu
Values = dict[str, float]


class Totals:
    """The buckets that can still be sent, and each session's latest one."""

    def __init__(self, state: Mapping[str, object], interval: int, oldest: int) -> None:
        self._interval = interval
        self._oldest = oldest
        self._closed: dict[int, dict[Place, Values]] = {}
        self._open: dict[Source, tuple[int, Values]] = {}
        self._touched: set[int] = set()
        self._left: set[int] = set()  # by a session, which changes what is kept of them and not their sums
        self._heard: set[Source] = set()
        for key, saved in state.items():
            if not isinstance(saved, dict):
                continue
            if key.startswith(BUCKET) and key.removeprefix(BUCKET).isdecimal():
                places = {names(place): _values(values) for place, values in saved.items()}
                self._closed[int(key.removeprefix(BUCKET))] = {
                    place: values for place, values in places.items() if len(place) == 3
                }
            elif key.startswith(OPEN) and type(saved.get("start")) is int:
                fields = names(key.removeprefix(OPEN))
                if len(fields) == len(Source._fields):
                    self._open[Source(*fields)] = (saved["start"], _values(saved.get("values")))

    def add(self, source: Source, second: int, values: Mapping[str, float]) -> bool:
        """Let a session's values stand for it in their bucket; False where it is in a later one already."""
        start = second // self._interval * self._interval
        before, known = self._open.get(source, (start, {}))
        if start < before:
            return False
        if start > before:
            _add(self._closed.setdefault(before, {}), source, known)
            self._left.add(before)
            known = {}
        measured = {"measured": values["used"]} if "total" in values else {}
        self._open[source] = (start, {**known, **values, **measured})
        self._touched.add(start)
        self._heard.add(source)
        return True

    def samples(self) -> Iterator[Sample]:
        """Every bucket that changed, whole, at its start."""
        buckets = {
            start: {place: dict(values) for place, values in self._closed.get(start, {}).items()}
            for start in self._touched
        }
        for source, (start, values) in self._open.items():
            if start in buckets:
                _add(buckets[start], source, values)
        for start, places in sorted(buckets.items()):
            ranks: dict[tuple[str, str], Values] = {}
            for (host, rank, _), values in places.items():
                total = ranks.setdefault((host, rank), {})
                for name, value in values.items():
                    total[name] = total.get(name, 0) + value
            for (host, rank), total in sorted(ranks.items()):
                yield from _samples(start, host, rank, total)

    def changes(self) -> dict[str, object]:
        """What to save, and what is too old to be sent again and is forgotten."""
        saved: dict[str, object] = {
            f"{BUCKET}{start}": {json.dumps(place): values for place, values in self._closed[start].items()}
            for start in self._left
        }
        for source in self._heard:
            start, values = self._open[source]
            saved[OPEN + json.dumps(source)] = {"start": start, "values": values}
        old = [f"{BUCKET}{start}" for start in self._closed if start + self._interval < self._oldest]
        old += [
            OPEN + json.dumps(source)
            for source, (start, _) in self._open.items()
            if start + self._interval < self._oldest
        ]
        return {**saved, **dict.fromkeys(old)}


def _add(places: dict[Place, Values], source: Source, values: Mapping[str, float]) -> None:
    """Put one session's values to those of its device: its own are added, the device's are the same ones."""
    known = places.setdefault((source.host, source.rank, source.gpu), {})
    for name, value in values.items():
        if name == "utilization":
            continue
        if source.gpu and name in OF_THE_DEVICE:
            known[name] = max(known.get(name, 0), value)
        else:
            known[name] = known.get(name, 0) + value


def _samples(start: int, host: str, rank: str, total: Values) -> Iterator[Sample]:
    tags = {"rank": rank} if rank else {}
    if "total" in total:
        total = {**total, "utilization": total["measured"] / total["total"] * 100.0}
    for name, metric in GAUGES.items():
        if name in total:
            yield metric(total[name], start, on_host=host or None, **tags)


def _values(saved: object) -> Values:
    found = saved.items() if isinstance(saved, dict) else ()
    return {name: value for name, value in found if type(value) in (int, float)}
