"""What the gpu_memory collector emits."""

from __future__ import annotations

from common.metric import Combine, count, gauge
from common.records.reading_metrics import IngestMetrics

TAGS = ("gpu", "job_id", "rank")

# Every job on a device tells how full the whole device is: adding those up would count it twice.
GAUGES = {
    name: gauge(f"gpu_memory.{suffix}", unit, text, *TAGS, "shard", combines=combines, on_node=True)
    for name, suffix, unit, combines, text in (
        (
            *("allocated", "allocated_bytes", "byte", Combine.SUM),
            "Memory that the job's tensors hold; on a CPU its RSS.",
        ),
        (
            *("reserved", "reserved_bytes", "byte", Combine.SUM),
            "Memory that the job's allocator has taken from the device.",
        ),
        (
            *("used", "device_used_bytes", "byte", Combine.MAX),
            "Memory in use on the device; where it does not tell, what the job's allocator holds of it.",
        ),
        ("total", "device_total_bytes", "byte", Combine.MAX, "Memory that the device has."),
        ("utilization", "utilization_pct", "percent", Combine.MAX, "Memory in use, of what the device has."),
        (
            *("peak", "peak_allocated_bytes", "byte", Combine.MAX),
            "Highest allocated_bytes of the session so far.",
        ),
    )
}

ALERTS = count(
    "gpu_memory.alerts",
    "event",
    "Events of type warning, critical, error or peak.",
    *TAGS,
    "shard",
    "type",
    on_node=True,
)
SESSIONS, INTERRUPTED, OOM_DUMPS = (
    gauge(f"gpu_memory.{name}", "", text, "shard", *tags, combines=Combine.SUM)
    for name, text, *tags in (
        ("sessions", "Sessions that the sinks' manifests list.", "status"),
        ("sessions.interrupted_24h", "Sessions that were interrupted in the last 24 hours."),
        ("oom_dumps_24h", "Out-of-memory dumps written in the last 24 hours."),
    )
)

READING = IngestMetrics("gpu_memory")

# What is true at the time of a tick itself: manifests tell only how sessions are now, and dumps are cleared
# away, so that those still there of an earlier day may be too few.
LIVE_ONLY = frozenset({SESSIONS, INTERRUPTED, OOM_DUMPS, *READING.metrics})

METRICS = (*GAUGES.values(), ALERTS, SESSIONS, INTERRUPTED, OOM_DUMPS, *READING.metrics)
