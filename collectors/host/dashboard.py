"""How nodes and their GPUs are looked at, and when somebody is told of one."""

from __future__ import annotations

from collectors.host import metrics as m
from common.dashboard import Dashboard, Monitor, Section, Views, bars, heat_map, line, table, toplist, value
from common.metric import Metric

_GPU = ("host", "gpu")
_README = "collectors/host/README.md"

HOSTS = Dashboard(
    "hosts",
    "Hosts",
    "Nodes and their GPUs, each measured by itself. What is 0 or 1 of a board adds up to how many boards it "
    "holds for. Counters of errors run since the driver was loaded, those called aggregate since the board "
    "was made.",
    (
        Section(
            "Overview",
            (
                value("Nodes", m.INFO),
                value("GPUs that answer", m.GPU_COUNT),
                value("Lost GPUs", m.GPU_LOST),
                value("GPU utilisation", m.GPU_UTILIZATION),
                value("Power", m.GPU_POWER),
                value("Fullest file system", m.DISK_USED),
            ),
        ),
        Section(
            "Nodes",
            (
                line("CPU by host", m.CPU_UTILIZATION, by=("host",)),
                line("Load by host", m.LOAD_1M, by=("host",)),
                line("Memory used by host", m.MEMORY_USED, by=("host",)),
                line("Memory", m.MEMORY, m.MEMORY_AVAILABLE),
                toplist("Fullest file systems", m.DISK_USED, by=("host", "path")),
                line("Space left by host", m.DISK_FREE, by=("host",)),
                table(
                    "What the nodes are", m.INFO, by=("host", "kernel", "os", "gpu_type", "slurm_partition")
                ),
                table("CPUs and GPUs", m.CPU_COUNT, m.GPU_COUNT, m.GPU_COUNT_LISTED, by=("host",)),
            ),
        ),
        Section(
            "GPUs",
            (
                heat_map("Utilisation of all boards", m.GPU_UTILIZATION, by=_GPU),
                line("Utilisation by host", m.GPU_UTILIZATION, by=("host",)),
                line("Memory traffic by host", m.GPU_MEMORY_UTILIZATION, by=("host",)),
                line("Video engines by host", m.GPU_ENCODER, m.GPU_DECODER, by=("host",)),
                line("Memory in use by host", m.GPU_MEMORY_USED, by=("host",)),
                line("Memory of all boards", m.GPU_MEMORY, m.GPU_MEMORY_FREE, m.GPU_MEMORY_RESERVED),
                toplist("Memory by job", m.GPU_JOB_MEMORY, by=("slurm_job", "pod_uid")),
            ),
        ),
        Section(
            "Heat, power and clocks",
            (
                line("Temperature by host", m.GPU_TEMPERATURE, by=("host",)),
                line("Temperature of the memory by host", m.GPU_MEMORY_TEMPERATURE, by=("host",)),
                line("Power by host", m.GPU_POWER, by=("host",)),
                line("Power limit by host", m.GPU_POWER_LIMIT, by=("host",)),
                bars("Energy by host", m.GPU_ENERGY, by=("host",)),
                line("Clocks by host", m.GPU_SM_CLOCK, m.GPU_MEMORY_CLOCK, by=("host",)),
                line("Boards held down by reason", m.GPU_THROTTLED, by=("reason",)),
                line("Boards slowed by host", m.GPU_SLOWED, by=("host",)),
            ),
        ),
        Section(
            "Errors",
            (
                line("Lost boards by host", m.GPU_LOST, by=("host",)),
                bars("XID errors by number", m.GPU_XID_ERRORS, by=("host", "xid")),
                line("ECC errors by kind", m.GPU_ECC_ERRORS, by=("kind",)),
                line("ECC errors in the boards' lives", m.GPU_ECC_ERRORS_AGGREGATE, by=("kind",)),
                line("Remapped rows by kind", m.GPU_REMAPPED_ROWS, by=("kind",)),
                line("Remapping pending or failed", m.GPU_REMAPPING_PENDING, m.GPU_REMAPPING_FAILED),
                line("PCIe replays by host", m.GPU_PCIE_REPLAYS, by=("host",)),
                line("NVLink errors by kind", m.GPU_NVLINK_ERRORS, by=("kind",)),
                line("NVLink connections by host", m.GPU_NVLINKS_ACTIVE, by=("host",)),
            ),
        ),
    ),
    (_README, "docs/metrics.md"),
)


def _board(
    key: str, title: str, metric: Metric, reason: str, what: str, why: str, todo: str, *where: str
) -> Monitor:
    """Told as soon as it holds for one board."""
    by = (*_GPU, "xid") if "xid" in metric.tags else _GPU
    reduce = "sum" if metric.kind == "count" else "max"
    return Monitor(
        *(key, f"{title} on {{{{host.name}}}}", metric, reduce, "1h", ">", 0.0),
        *(reason, what, why, todo, _README),
        by=by,
        where=where,
        priority=2,
    )


_DRAIN = "Drain the node, reset the board (nvidia-smi -r), and send it in for repair where it comes back."
MONITORS = (
    _board(
        "gpu-lost",
        "A GPU is lost",
        m.GPU_LOST,
        "a board that fell off the bus does not come back by itself",
        "GPU {{gpu.name}} of {{host.name}} does not answer any more.",
        "The job on it has died or hangs, and the scheduler may still give the board out.",
        "Drain the node and reboot it; send the board in for repair where it is lost again.",
    ),
    _board(
        "gpu-ecc",
        "An uncorrectable ECC error",
        m.GPU_ECC_ERRORS,
        "one such error is wrong data in somebody's job",
        "GPU {{gpu.name}} of {{host.name}} met {{value}} memory errors that could not be corrected.",
        "What the job on it computed cannot be trusted, and further ones may follow.",
        _DRAIN,
        "kind:uncorrected",
    ),
    _board(
        "gpu-remap",
        "A row could not be remapped",
        m.GPU_REMAPPING_FAILED,
        "the board has no spare rows left, which no reset mends",
        "GPU {{gpu.name}} of {{host.name}} could not replace a row of its memory.",
        "The next error in that row ends a job.",
        "Drain the node and have the board exchanged.",
    ),
    _board(
        "gpu-xid",
        "XID {{xid.name}}",
        m.GPU_XID_ERRORS,
        "the driver reports an XID only where something went wrong",
        "The driver of {{host.name}} reported XID {{xid.name}} of GPU {{gpu.name}} {{value}} times in an "
        "hour.",
        "XIDs 13, 31, 43 and 45 are usually the job's own fault; 48, 63, 64, 74, 79, 94 and 95 are the "
        "hardware's.",
        "Look the number up in NVIDIA's list; for the hardware's, drain the node and reset the board.",
    ),
    Monitor(
        "disk-full",
        "{{path.name}} of {{host.name}} fills up",
        m.DISK_USED,
        *("min", "1h", ">", 95.0),
        "of a large file system 5 % are hours of checkpoints; an hour above it is no temporary file",
        "The file system {{path.name}} of {{host.name}} is {{value}} % full.",
        "Jobs that write to it fail, and so do checkpoints.",
        "Remove old checkpoints and caches, or move jobs elsewhere.",
        _README,
        by=("host", "path"),
        warning=85.0,
    ),
)

VIEWS = Views((HOSTS,), monitors=MONITORS)
