"""Who measured: the sessions heard of, with what their later events cannot tell. Saved from tick to tick."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fleetgauge.gpu_memory import MemoryEvent
from fleetgauge.records import Json

PREFIX = "session:"


class Source(NamedTuple):
    """One session on one device. What is not known is empty."""

    session: str
    host: str
    rank: str
    job: str
    gpu: str

    def tags(self) -> dict[str, str]:
        """The tags that tell this source's series from others'."""
        named = {"rank": self.rank, "job_id": self.job, "gpu": self.gpu}
        return {key: value for key, value in named.items() if value}


def source_of(event: MemoryEvent, value: Json) -> Source:
    """Who wrote an event. A CPU calls its device -1, and has no tag for it."""
    device = value.get("device_id")
    known = isinstance(device, int) and not isinstance(device, bool) and device >= 0
    return Source(
        session=event.session_id or "",
        host=(event.host or "")[:200],
        rank="" if event.rank is None else str(event.rank),
        job=(event.job_id or "")[:200],
        gpu=str(device)[:20] if known else "",
    )


class Heard(NamedTuple):
    """When a source was first and last heard of, and the most it had allocated."""

    started: float
    last: float
    peak: int | None


class Sessions:
    """All sources heard of since they would be forgotten."""

    def __init__(self, state: Mapping[str, object], forget_before: int) -> None:
        self._before = forget_before
        self._heard: dict[Source, Heard] = {}
        self._sharing: dict[tuple[str, ...], set[Source]] = {}
        self._touched: set[Source] = set()
        self._foreign: set[str] = set()
        for key, saved in state.items():
            if key.startswith(PREFIX):
                if found := _saved(key, saved):
                    self._know(*found)
                else:
                    self._foreign.add(key)

    def _know(self, source: Source, heard: Heard) -> None:
        self._heard[source] = heard
        self._sharing.setdefault(source[1:], set()).add(source)

    def hear(self, source: Source, timestamp: float) -> None:
        """Take note that a source spoke."""
        known = self._heard.get(source)
        if known is None:
            self._know(source, Heard(timestamp, timestamp, None))
        else:
            started, last = min(known.started, timestamp), max(known.last, timestamp)
            self._heard[source] = Heard(started, last, known.peak)
        self._touched.add(source)

    def peak(self, source: Source, allocated: int | None) -> int | None:
        """The most a source that was heard has allocated, now that it has allocated this much."""
        known = self._heard[source]
        amounts = [amount for amount in (known.peak, allocated) if amount is not None]
        highest = max(amounts, default=None)
        self._heard[source] = known._replace(peak=highest)
        return highest

    def superseded(self, source: Source, second: int) -> bool:
        """Whether a session that began later was alive with the same tags then, and so owns the series.

        A job that starts again takes the series over at once; of two at the same time, one is shown.
        """
        began = (self._heard[source].started, source.session)
        return any(
            (heard.started, rival.session) > began and int(heard.started) <= second <= heard.last
            for rival in self._sharing[source[1:]]
            if (heard := self._heard[rival])
        )

    def changes(self) -> dict[str, object]:
        """What to save, and what was not heard of for long, or is not ours, and is forgotten."""
        saved: dict[str, object] = {
            PREFIX + json.dumps(one): self._heard[one] for one in sorted(self._touched)
        }
        old = {PREFIX + json.dumps(one) for one, heard in self._heard.items() if heard.last < self._before}
        return {**saved, **dict.fromkeys(sorted(old | self._foreign))}


def names(text: str) -> tuple[str, ...]:
    """The strings that were saved as a key; none where it is not one of ours."""
    try:
        fields = json.loads(text)
    except ValueError:
        return ()
    ours = isinstance(fields, list) and all(isinstance(field, str) for field in fields)
    return tuple(fields) if ours else ()


def _saved(key: str, saved: object) -> tuple[Source, Heard] | None:
    fields = names(key.removeprefix(PREFIX))
    if len(fields) != len(Source._fields) or not isinstance(saved, list) or len(saved) != 3:
        return None
    numbers = [type(number) in (int, float) for number in saved[:2]]
    if numbers != [True, True] or not (saved[2] is None or type(saved[2]) is int):
        return None
    return Source(*fields), Heard(*saved)


def seconds_in_order(cells: Mapping[tuple[Source, int], object]) -> Iterator[tuple[Source, int]]:
    """Every source's seconds, earliest first, whatever order their files were read in."""
    yield from sorted(cells, key=lambda cell: (cell[1], cell[0]))
