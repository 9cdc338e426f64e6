"""What the gpu_memory collector emits."""

from __future__ import annotations

from common.metric import Combine, count, gauge

TAGS = ("gpu", "job_id", "rank")

# Every job on a device reports the use of the complete device: a sum would count it twice.
GAUGES = {
    name: gauge(f"gpu_memory.{name}", unit, text, *TAGS, combines=combines, on_node=True)
    for name, unit, combines, text in (
        ("allocated_bytes", "byte", Combine.SUM, "Memory that the job's tensors hold; on a CPU its RSS."),
        ("reserved_bytes", "byte", Combine.SUM, "Memory that the job's allocator has taken from the device."),
        (
            *("device_used_bytes", "byte", Combine.MAX),
            "Memory in use on the device; where that is not known, what the job's allocator has of it.",
        ),
        ("device_total_bytes", "byte", Combine.MAX, "Memory that the device has."),
        ("utilization_pct", "percent", Combine.MAX, "Memory in use, of what the device has."),
    )
}

ALERTS = count(
    "gpu_memory.alerts",
    "event",
    "Events of type warning, critical, error or peak.",
    *TAGS,
    "type",
    on_node=True,
)
SESSIONS = gauge(
    "gpu_memory.sessions",
    "",
    "Sessions that the manifests of sinks list which were written to in the last day.",
    "status",
    combines=Combine.SUM,
)
INTERRUPTED = count(
    "gpu_memory.sessions.interrupted", "", "Sessions that were interrupted, at the time they ended."
)
OOM_DUMPS = count("gpu_memory.oom_dumps", "", "Out-of-memory dumps, at the time they were written.")

METRICS = (*GAUGES.values(), ALERTS, INTERRUPTED, OOM_DUMPS)
CURRENT = (SESSIONS,)  # manifests show how sessions are now
