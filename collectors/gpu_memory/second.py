"""One second of one session: of each measurement the last value stands."""

from __future__ import annotations

from fleetgauge.gpu_memory import MemoryEvent


class Second:
    """What was measured in it; what no event told is absent."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}  # when, and what
        self.highest: int | None = None

    def take(self, event: MemoryEvent) -> None:
        """Let an event's values stand, unless later ones do already."""
        allocated = event.memory_allocated
        if allocated is not None:
            self.highest = allocated if self.highest is None else max(self.highest, allocated)
        measured = {
            "allocated": allocated,
            "reserved": event.memory_reserved,
            "used": event.device_used_or_held,
            "total": event.device_total,
            "utilization": event.utilization_percent,
        }
        if measured["utilization"] is None:
            measured["total"] = None  # a device without capacity is one that does not tell it
        at = event.timestamp or 0.0
        for name, value in measured.items():
            if value is not None and at >= self._last.get(name, (at, 0))[0]:
                self._last[name] = (at, value)

    def values(self) -> dict[str, float]:
        """The values that stand, by measurement."""
        return {name: value for name, (_, value) in self._last.items()}
