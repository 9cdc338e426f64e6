"""The dashboard and the monitors of nodes and their GPUs.

Declarations only: `common.dashboard` has the vocabulary, and the JSON in docs/datadog is generated from here.
"""

from __future__ import annotations

from collectors.host import metrics as m
from common import dashboard as d
from common.metric import Metric

_GPU = ("host", "gpu")
_README = "collectors/host/README.md"

HOSTS = d.Dashboard(
    "hosts",
    "Hosts",
    "Nodes and their GPUs, each measured by itself. Flags (0 or 1 per GPU) add up to the number of GPUs. "
    "Error counters start when the driver is loaded, aggregate ones with the GPU's lifetime.",
    {
        "Overview": (
            d.value("Nodes", m.INFO),
            d.value("GPUs", m.GPU_COUNT),
            d.value("Lost GPUs", m.GPU_LOST, colours=d.bad_above(0)),
            d.value("GPU utilization", m.GPU_UTILIZATION),
            d.value("GPU power", m.GPU_POWER),
            d.value("Disk usage max", m.DISK_USED, colours=d.bad_above(95)),
        ),
        "Nodes": (
            d.line("CPU utilization by host", m.CPU_UTILIZATION, by=("host",)),
            d.line("Load (1 min) by host", m.LOAD_1M, by=("host",)),
            d.line("Memory used by host", m.MEMORY_USED, by=("host",)),
            d.line("Memory total and available", m.MEMORY, m.MEMORY_AVAILABLE),
            d.toplist("Disk usage by file system", m.DISK_USED, by=("host", "path")),
            d.line("Disk space free by host", m.DISK_FREE, by=("host",)),
            d.table("Node inventory", m.INFO, by=("host", "kernel", "os", "gpu_type", "slurm_partition")),
            d.table("CPUs and GPUs by host", m.CPU_COUNT, m.GPU_COUNT, m.GPU_COUNT_LISTED, by=("host",)),
        ),
        "GPUs": (
            d.heat_map("GPU utilization by GPU", m.GPU_UTILIZATION, by=_GPU),
            d.line("GPU utilization by host", m.GPU_UTILIZATION, by=("host",)),
            d.line("GPU memory bandwidth utilization by host", m.GPU_MEMORY_UTILIZATION, by=("host",)),
            d.line("Encoder and decoder utilization by host", m.GPU_ENCODER, m.GPU_DECODER, by=("host",)),
            d.line("GPU memory used by host", m.GPU_MEMORY_USED, by=("host",)),
            d.line(
                "GPU memory total, free and reserved",
                m.GPU_MEMORY,
                m.GPU_MEMORY_FREE,
                m.GPU_MEMORY_RESERVED,
            ),
            d.toplist("GPU memory by job", m.GPU_JOB_MEMORY, by=("slurm_job", "pod_uid")),
        ),
        "Temperature, power and clocks": (
            d.line("GPU temperature by host", m.GPU_TEMPERATURE, by=("host",)),
            d.line("GPU memory temperature by host", m.GPU_MEMORY_TEMPERATURE, by=("host",)),
            d.line("GPU power by host", m.GPU_POWER, by=("host",)),
            d.line("GPU power limit by host", m.GPU_POWER_LIMIT, by=("host",)),
            d.bars("GPU energy by host", m.GPU_ENERGY, by=("host",)),
            d.line("GPU clocks by host", m.GPU_SM_CLOCK, m.GPU_MEMORY_CLOCK, by=("host",)),
            d.line("Throttled GPUs by reason", m.GPU_THROTTLED, by=("reason",)),
            d.line("Slowed GPUs by host", m.GPU_SLOWED, by=("host",)),
        ),
        "Errors": (
            d.line("Lost GPUs by host", m.GPU_LOST, by=("host",)),
            d.bars("XID errors by host", m.GPU_XID_ERRORS, by=("host", "xid")),
            d.line("ECC errors by type", m.GPU_ECC_ERRORS, by=("kind",)),
            d.line("ECC errors by type (aggregate)", m.GPU_ECC_ERRORS_AGGREGATE, by=("kind",)),
            d.line("Remapped rows by type", m.GPU_REMAPPED_ROWS, by=("kind",)),
            d.line("Row remapping pending or failed", m.GPU_REMAPPING_PENDING, m.GPU_REMAPPING_FAILED),
            d.line("PCIe replays by host", m.GPU_PCIE_REPLAYS, by=("host",)),
            d.line("NVLink errors by type", m.GPU_NVLINK_ERRORS, by=("kind",)),
            d.line("Active NVLinks by host", m.GPU_NVLINKS_ACTIVE, by=("host",)),
        ),
    },
    (_README, "docs/metrics.md"),
)


def _gpu_monitor(key: str, title: str, metric: Metric, *texts: str, where: tuple[str, ...] = ()) -> d.Monitor:
    """Return a monitor that alerts as soon as the metric is above 0 for one GPU.

    `texts` are the reason of the threshold, what happened, why it matters and what to do.
    """
    by = (*_GPU, "xid") if "xid" in metric.tags else _GPU
    reduce = "sum" if metric.kind == "count" else "max"
    condition = d.Condition((metric,), reduce, "1h", ">", 0.0, by=by, where=where)
    reason, what, why, action = texts
    title = f"{title} on {{{{host.name}}}}"
    return d.Monitor(key, title, condition, reason, what, why, action, _README, priority=2)


_DRAIN = "Drain the node and reset the GPU (nvidia-smi -r); have it repaired if the error recurs."
MONITORS = (
    _gpu_monitor(
        "gpu-lost",
        "A GPU is lost",
        m.GPU_LOST,
        "a GPU that fell off the bus does not recover by itself",
        "GPU {{gpu.name}} of {{host.name}} no longer responds.",
        "The job on it has died or hangs, and the scheduler may still assign the GPU.",
        "Drain the node and reboot it; have the GPU repaired if it is lost again.",
    ),
    _gpu_monitor(
        "gpu-ecc",
        "An uncorrectable ECC error",
        m.GPU_ECC_ERRORS,
        "one such error is wrong data in a job",
        "GPU {{gpu.name}} of {{host.name}} has {{value}} memory errors that could not be corrected.",
        "The results of the job on it cannot be trusted, and further errors may follow.",
        _DRAIN,
        where=("kind:uncorrected",),
    ),
    _gpu_monitor(
        "gpu-remap",
        "A row could not be remapped",
        m.GPU_REMAPPING_FAILED,
        "the GPU has no spare rows left, which no reset repairs",
        "GPU {{gpu.name}} of {{host.name}} could not replace a row of its memory.",
        "The next error in that row ends a job.",
        "Drain the node and have the GPU replaced.",
    ),
    _gpu_monitor(
        "gpu-xid",
        "XID {{xid.name}}",
        m.GPU_XID_ERRORS,
        "the driver reports an XID only for errors",
        "The driver of {{host.name}} reported XID {{xid.name}} of GPU {{gpu.name}} {{value}} times.",
        "XIDs 13, 31, 43 and 45 are usually the job's fault; 48, 63, 64, 74, 79, 94 and 95 hardware's.",
        "Look the number up in NVIDIA's list; for the hardware's, drain the node and reset the GPU.",
    ),
    d.Monitor(
        "disk-full",
        "{{path.name}} of {{host.name}} fills up",
        d.Condition((m.DISK_USED,), *("min", "1h", ">", 95.0), warning=85.0, by=("host", "path")),
        "of a large file system 5 % are hours of checkpoints; an hour above it is no temporary file",
        "The file system {{path.name}} of {{host.name}} is {{value}} % full.",
        "Jobs that write to it fail, and so do checkpoints.",
        "Remove old checkpoints and caches, or move jobs elsewhere.",
        _README,
    ),
)

VIEWS = d.Views((HOSTS,), MONITORS)
