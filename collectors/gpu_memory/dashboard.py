"""The dashboard and the monitors of GPU memory."""

from __future__ import annotations

from collectors.gpu_memory import metrics as m
from common import dashboard as d
from common.records.ingest import record_views

_ALLOCATED, _RESERVED, _USED, _TOTAL, _UTILIZATION = m.GAUGES.values()
_RANK = ("job_id", "rank", "gpu")

GPU_MEMORY = d.Dashboard(
    "gpu-memory",
    "GPU memory",
    "What jobs hold of the memory of their GPUs, how near they come to its end, and where they ran out of "
    "it. Allocated is what tensors hold, reserved what the allocator took from the device, used what all "
    "jobs on it hold together.",
    {
        "Overview": (
            d.value("Device memory utilization max", _UTILIZATION, colours=d.bad_above(95)),
            d.value("Out-of-memory dumps", m.OOM_DUMPS, colours=d.bad_above(0)),
            d.value("Interrupted sessions", m.INTERRUPTED, colours=d.bad_above(0)),
        ),
        "Memory": (
            d.line("Allocated by job", _ALLOCATED, by=("job_id",)),
            d.line("Reserved by job", _RESERVED, by=("job_id",)),
            d.line("Utilization by job", _UTILIZATION, by=("job_id",)),
            d.heat_map("Utilization by device", _UTILIZATION, by=_RANK),
            d.table("Memory by rank", _ALLOCATED, _USED, _TOTAL, by=_RANK),
            d.toplist("Allocated by rank", _ALLOCATED, by=("job_id", "rank")),
        ),
        "Alerts": (
            d.bars("Alerts by type", m.ALERTS, by=("type",)),
            d.toplist("Alerts by job", m.ALERTS, by=("job_id",)),
            d.line("Sessions by status", m.SESSIONS, by=("status",)),
            d.bars("Out-of-memory dumps and interrupted sessions", m.OOM_DUMPS, m.INTERRUPTED),
        ),
    },
    ("docs/gpu-memory.md", "docs/metrics.md"),
)

OOM_DUMP = d.Monitor(
    "oom-dump",
    "A job ran out of GPU memory",
    d.Condition((m.OOM_DUMPS,), *("sum", "1h", ">", 0.0)),
    "each dump is a job that died",
    "{{value}} out-of-memory dumps were written in the last hour.",
    "The job ended at once, and what it did since its last checkpoint is lost.",
    "Open the dump with `python -m fleetgauge.gpu_memory`: its page shows the last allocations.",
    "docs/gpu-memory.md",
)

VIEWS = record_views("gpu_memory", GPU_MEMORY, OOM_DUMP)
