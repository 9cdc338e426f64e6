"""Who measured, and what was measured in one second: of each measurement the last value stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from fleetgauge.gpu_memory import MemoryEvent

MEASURED = ("allocated", "reserved", "used", "total", "utilization")
Told = tuple[float, int | None, int | None, int | None, int | None, float | None]  # when, and those


class Source(NamedTuple):
    """One session on one device. What is not known is empty; `name` tells it from all others."""

    name: str
    session: str
    host: str
    rank: str
    gpu: str
    tags: tuple[str, ...]
    group: tuple[str, ...]  # the host and the tags: sessions that have the same would share a series

    @classmethod
    def of(cls, event: MemoryEvent, device: int) -> Source:
        """Who wrote an event. A CPU calls its device -1, and has no tag for it."""
        session, host, job = event.session_id or "", (event.host or "")[:200], (event.job_id or "")[:200]
        rank = "" if event.rank is None else str(event.rank)
        gpu = str(device)[:20] if device >= 0 else ""
        named = (("gpu", gpu), ("job_id", job), ("rank", rank))
        tags = tuple(f"{key}:{value}" for key, value in named if value)
        return cls(json.dumps([session, host, rank, job, gpu]), session, host, rank, gpu, tags, (host, *tags))


class Measurement(NamedTuple):
    """One event as the engine takes it."""

    writer: str
    timestamp: float
    group: tuple[str, ...]
    source: Source
    event: MemoryEvent


def told_by(event: MemoryEvent) -> Told:
    """What an event tells. A device without capacity is one that does not tell it."""
    utilization = event.utilization_percent
    total = None if utilization is None else event.device_total
    held = (event.memory_allocated, event.memory_reserved, event.device_used_or_held)
    return (event.timestamp or 0.0, *held, total, utilization)


def standing(second: list[Told]) -> Sequence[float | None]:
    """The last values of a second, in the order of `MEASURED`."""
    if len(second) == 1:
        return second[0][1:]
    values: list[float | None] = [None] * len(MEASURED)
    for _, *told in sorted(second, key=itemgetter(0)):
        values = [old if new is None else new for old, new in zip(values, told, strict=True)]
    return values
