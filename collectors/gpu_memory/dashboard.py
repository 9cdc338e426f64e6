"""The dashboard and the monitors of GPU memory."""

from __future__ import annotations

from collectors.gpu_memory import metrics as m
from common.dashboard import (
    Condition,
    Dashboard,
    Monitor,
    Section,
    Views,
    bad_above,
    bars,
    heat_map,
    line,
    table,
    toplist,
    value,
)
from common.records.ingest import ingest_monitors, ingest_section

_ALLOCATED, _RESERVED, _USED, _TOTAL, _UTILIZATION = m.GAUGES.values()
_RANK = ("job_id", "rank", "gpu")

GPU_MEMORY = Dashboard(
    "gpu-memory",
    "GPU memory",
    "What jobs hold of the memory of their GPUs, how near they come to its end, and where they ran out of "
    "it. Allocated is what tensors hold, reserved what the allocator took from the device, used what all "
    "jobs on it hold together.",
    (
        Section(
            "Overview",
            (
                value("Device memory utilization max", _UTILIZATION, colours=bad_above(95)),
                value("Out-of-memory dumps", m.OOM_DUMPS, colours=bad_above(0)),
                value("Interrupted sessions", m.INTERRUPTED, colours=bad_above(0)),
            ),
        ),
        Section(
            "Memory",
            (
                line("Allocated by job", _ALLOCATED, by=("job_id",)),
                line("Reserved by job", _RESERVED, by=("job_id",)),
                line("Utilization by job", _UTILIZATION, by=("job_id",)),
                heat_map("Utilization by device", _UTILIZATION, by=_RANK),
                table("Memory by rank", _ALLOCATED, _USED, _TOTAL, by=_RANK),
                toplist("Allocated by rank", _ALLOCATED, by=("job_id", "rank")),
            ),
        ),
        Section(
            "Alerts",
            (
                bars("Alerts by type", m.ALERTS, by=("type",)),
                toplist("Alerts by job", m.ALERTS, by=("job_id",)),
                line("Sessions by status", m.SESSIONS, by=("status",)),
                bars("Out-of-memory dumps and interrupted sessions", m.OOM_DUMPS, m.INTERRUPTED),
            ),
        ),
    ),
    ("docs/gpu-memory.md", "docs/metrics.md"),
)

MONITORS = (
    Monitor(
        "oom-dump",
        "A job ran out of GPU memory",
        Condition((m.OOM_DUMPS,), *("sum", "1h", ">", 0.0)),
        "each dump is a job that died",
        "{{value}} out-of-memory dumps were written in the last hour.",
        "The job ended at once, and what it did since its last checkpoint is lost.",
        "Open the dump with `python -m fleetgauge.gpu_memory`: its page shows the last allocations.",
        "docs/gpu-memory.md",
    ),
    *ingest_monitors("gpu_memory", m.INGEST),
)

VIEWS = Views((GPU_MEMORY,), (ingest_section("Reading of GPU memory", m.INGEST),), MONITORS)
