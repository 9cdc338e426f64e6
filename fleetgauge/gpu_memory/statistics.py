"""The statistics of a session, computed from its events under the names the tracker itself gives them.

A tracker that ended well hands its statistics over; for a directory that a crashed job left behind they are
computed here. What events cannot tell (how much was pruned, say) is absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from .documents import words
from .events import MemoryEvent
from .profiles import Extent

# A peak is no alert to the tracker's own count, so that ours agrees with it.
COUNTED_ALERTS = ("critical", "error", "warning")


class Statistics(Extent):
    """What one session came to."""

    def __init__(self) -> None:
        super().__init__()
        self.first: MemoryEvent | None = None
        self._allocated_bytes = 0
        self._deallocated_bytes = 0
        self._latest_at = -math.inf
        self._latest: dict[str, object] = {}

    def add(self, event: MemoryEvent) -> None:
        """Take an event into account."""
        super().add(event)
        if self.first is None:
            self.first = event
        if event.event_type == "allocation":
            self._allocated_bytes += abs(event.memory_change or 0)
        elif event.event_type == "deallocation":
            self._deallocated_bytes += abs(event.memory_change or 0)
        if event.timestamp is not None and event.timestamp >= self._latest_at:
            self._latest_at = event.timestamp
            self._latest |= {name: value for name, value in _present(event).items() if value is not None}
            if event.metadata.get("collector_last_error", "") is None:
                self._latest.pop("collector_last_error", None)  # it says that it recovered

    def as_mapping(self) -> dict[str, object]:
        """The statistics by the tracker's names."""
        allocations, deallocations = self.counts["allocation"], self.counts["deallocation"]
        found: dict[str, object] = {
            "total_events": self.events,
            "alert_count": sum(self.counts[kind] for kind in COUNTED_ALERTS),
            "total_allocations": allocations,
            "total_deallocations": deallocations,
            "total_allocation_bytes": self._allocated_bytes,
            "total_deallocation_bytes": self._deallocated_bytes,
            "peak_memory": self.peak_allocated,
            "peak_device_used": self.peak_used,
            "device_total": self.capacity,
            "tracking_duration_seconds": self.duration,
        }
        if self.duration:
            found["allocations_per_second"] = allocations / self.duration
            found["bytes_allocated_per_second"] = self._allocated_bytes / self.duration
        return {name: value for name, value in found.items() if value is not None} | self._latest


def _present(event: MemoryEvent) -> dict[str, object]:
    """What holds as of an event, until another one says otherwise."""
    capabilities = event.metadata.get("memory_capabilities")
    backend = event.metadata.get("backend")
    if backend is None and isinstance(capabilities, Mapping):
        backend = capabilities.get("backend")
    return {
        "current_memory_allocated": event.memory_allocated,
        "current_memory_reserved": event.memory_reserved,
        "current_device_used": event.device_used_or_held,
        "memory_utilization_percent": event.utilization_percent,
        "backend": words(backend),
        "collector_health_status": words(event.metadata.get("collector_health_status")),
        "collector_last_error": words(event.metadata.get("collector_last_error")),
    }
