"""Who measured, and what was measured in one second: of each measurement the last value stands."""

from __future__ import annotations

import json
from typing import NamedTuple

from fleetgauge.gpu_memory import MemoryEvent

MEASURED = ("allocated", "reserved", "used", "total", "utilization")


class Source(NamedTuple):
    """One session on one device. What is not known is empty; `name` tells it from all others."""

    name: str
    session: str
    host: str
    rank: str
    gpu: str
    tags: tuple[str, ...]

    @classmethod
    def of(cls, event: MemoryEvent, device: int) -> Source:
        """Who wrote an event. A CPU calls its device -1, and has no tag for it."""
        session, host, job = event.session_id or "", (event.host or "")[:200], (event.job_id or "")[:200]
        rank = "" if event.rank is None else str(event.rank)
        gpu = str(device)[:20] if device >= 0 else ""
        named = (("gpu", gpu), ("job_id", job), ("rank", rank))
        tags = tuple(f"{key}:{value}" for key, value in named if value)
        return cls(json.dumps([session, host, rank, job, gpu]), session, host, rank, gpu, tags)


class Measurement(NamedTuple):
    """One event as the engine takes it. Sessions with the same host and tags would share a series."""

    writer: str
    timestamp: float
    group: tuple[str, ...]
    source: Source
    event: MemoryEvent


class Second:
    """One second of one source; what no event told is absent. There may be a great many of them."""

    __slots__ = ("_last", "highest")

    def __init__(self) -> None:
        self._last: list[float | None] = [None] * (2 * len(MEASURED))  # of each when, and what
        self.highest: int | None = None

    def take(self, event: MemoryEvent) -> None:
        """Let an event's values stand, unless later ones do already."""
        allocated, utilization = event.memory_allocated, event.utilization_percent
        if allocated is not None:
            self.highest = allocated if self.highest is None else max(self.highest, allocated)
        # A device without capacity is one that does not tell it.
        total = None if utilization is None else event.device_total
        measured = (allocated, event.memory_reserved, event.device_used_or_held, total, utilization)
        at, last = event.timestamp or 0.0, self._last
        for place, value in enumerate(measured):
            if value is not None and at >= (last[2 * place] or at):
                last[2 * place], last[2 * place + 1] = at, value

    def values(self) -> dict[str, float]:
        """The values that stand, by measurement."""
        stand = zip(MEASURED, self._last[1::2], strict=True)
        return {name: value for name, value in stand if value is not None}
