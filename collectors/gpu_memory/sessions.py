"""Who measured, and what was measured in one second: of each measurement the last value stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from fleetgauge.gpu_memory import MemoryEvent

# When it was, and in the order of the gauges: allocated, reserved, used, total, utilization, and the peak.
Told = tuple[Any, ...]  # Any: a number, or None where it is not known


@dataclass(frozen=True, slots=True)
class Source:
    """One session on one device. What is not known is empty; `name` tells it from all others."""

    name: str
    session: str
    host: str
    rank: str
    gpu: str
    tags: tuple[str, ...]
    group: tuple[str, ...]  # the host and the tags: sessions that have the same would share a series
    told: list[Told] = field(default_factory=list)  # in this tick, in the order of reading

    @classmethod
    def of(cls, event: MemoryEvent, device: int) -> Source:
        """Who wrote an event. A CPU calls its device -1, and has no tag for it."""
        session, host, job = event.session_id or "", (event.host or "")[:200], (event.job_id or "")[:200]
        rank = "" if event.rank is None else str(event.rank)
        gpu = str(device)[:20] if device >= 0 else ""
        named = (("gpu", gpu), ("job_id", job), ("rank", rank))
        tags = tuple(f"{key}:{value}" for key, value in named if value)
        return cls(json.dumps([session, host, rank, job, gpu]), session, host, rank, gpu, tags, (host, *tags))

    def seconds(self) -> Iterator[tuple[int, Told]]:
        """Each second that was told of: the last values of it, and its peak."""
        for second, (first, *later) in groupby(sorted(self.told, key=itemgetter(0)), lambda one: int(one[0])):
            told = first
            for one in later:
                *last, peak = (old if new is None else new for old, new in zip(told, one, strict=True))
                told = (*last, max(peak, told[-1] or peak) if peak is not None else None)
            yield second, told


class Measurement(NamedTuple):
    """One event as the engine takes it."""

    writer: str
    timestamp: float
    group: tuple[str, ...]
    source: Source
    event: MemoryEvent

    def told(self) -> Told:
        """What the event tells. A device without capacity is one that does not tell it."""
        event, allocated = self.event, self.event.memory_allocated
        utilization = event.utilization_percent
        total = None if utilization is None else event.device_total
        held = (allocated, event.memory_reserved, event.device_used_or_held)
        return (self.timestamp, *held, total, utilization, allocated)
