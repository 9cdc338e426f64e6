"""What the host collector emits. All of it belongs to the node, not to the pod that measures."""

from __future__ import annotations

from common.metric import Kind, Metric, gauge

CPU_COUNT = gauge("host.cpu_count", "core", "Logical CPUs of the node.")
CPU_UTILIZATION = gauge(
    "host.cpu_utilization_pct",
    "percent",
    "Share of the node's CPU time in use since the last tick; in a single run, over half a second.",
)
LOAD_1M = gauge("host.load_1m", "process", "Processes running or waiting to run, averaged over one minute.")
MEMORY = gauge("host.memory_gb", "gibibyte", "Memory of the node, in GiB.")
MEMORY_AVAILABLE = gauge(
    "host.memory_available_gb", "gibibyte", "Memory that can be given out without swapping, in GiB."
)
MEMORY_USED = gauge("host.memory_used_pct", "percent", "Share of the node's memory that is not available.")
DISK_FREE = gauge(
    "host.disk.free_gb", "gibibyte", "Space left for unprivileged users on a file system, in GiB.", "path"
)
DISK_USED = gauge("host.disk.used_pct", "percent", "Share of a file system in use, as df reckons it.", "path")
INFO = gauge(
    "host.info",
    "",
    "Always 1; the tags describe the node. The OS is known where FLEETGAUGE_HOST_ROOT is set.",
    *("kernel", "os", "arch", "gpu_type", "slurm_partition"),
)
GPU_COUNT = gauge("host.gpu_count", "device", "GPU boards that answer; absent where no driver can be asked.")
GPU_COUNT_LISTED = gauge(
    "host.gpu_count_listed", "device", "GPU boards that the driver lists, those that are lost among them."
)


def _per_gpu(name: str, unit: str, text: str, *tags: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(f"host.gpu.{name}", kind, unit, text, ("gpu", "gpu_type", "gpu_uuid", *tags))


GPU_LOST = _per_gpu(
    "lost", "", "1 for a board that fell off the bus or needs a reset, 0 for one that answers."
)
GPU_UTILIZATION = _per_gpu(
    "utilization_pct",
    "percent",
    "Share of the last sampling period it was busy; absent for a board that MIG divides.",
)
GPU_MEMORY_UTILIZATION = _per_gpu(
    "memory_utilization_pct",
    "percent",
    "Share of the last sampling period its memory was read or written; absent for a board that MIG divides.",
)
GPU_ENCODER = _per_gpu("encoder_pct", "percent", "Use of the video encoder, where it is asked for.")
GPU_DECODER = _per_gpu("decoder_pct", "percent", "Use of the video decoder, where it is asked for.")
_OF = "of the GPU or of a MIG instance, in GiB."
GPU_MEMORY = _per_gpu("memory_total_gb", "gibibyte", f"Memory {_OF}")
GPU_MEMORY_USED = _per_gpu("memory_used_gb", "gibibyte", f"Memory in use {_OF} Reserved memory is not in it.")
GPU_MEMORY_FREE = _per_gpu("memory_free_gb", "gibibyte", f"Free memory {_OF}")
GPU_MEMORY_RESERVED = _per_gpu(
    "memory_reserved_gb", "gibibyte", f"Memory that driver and firmware keep to themselves {_OF}"
)
GPU_JOB_MEMORY = _per_gpu(
    "job_memory_gb",
    "gibibyte",
    "Memory that the processes of one Slurm job or Kubernetes pod use, in GiB, where it is asked for.",
    *("slurm_job", "pod_uid"),
)
GPU_TEMPERATURE = _per_gpu("temperature_c", "degree celsius", "Temperature of the GPU.")
GPU_MEMORY_TEMPERATURE = _per_gpu("memory_temperature_c", "degree celsius", "Temperature of its memory.")
GPU_POWER = _per_gpu("power_watts", "watt", "Power the board draws.")
GPU_POWER_LIMIT = _per_gpu("power_limit_watts", "watt", "Power the board may draw.")
GPU_ENERGY = _per_gpu(
    "energy_joules", "", "Energy in joules since the tick before, in a process that stays.", kind=Kind.COUNT
)
GPU_SM_CLOCK = _per_gpu("sm_clock_mhz", "megahertz", "Clock of the multiprocessors.")
GPU_MEMORY_CLOCK = _per_gpu("memory_clock_mhz", "megahertz", "Clock of the memory.")
GPU_THROTTLED = _per_gpu(
    "throttled",
    "",
    "1 while this reason holds the clocks down, 0 otherwise. A busy board at its power cap is healthy.",
    "reason",
)
GPU_SLOWED = _per_gpu(
    "slowed", "", "1 while heat, a power brake or the hardware's own protection slows the board, 0 otherwise."
)
GPU_PCIE_REPLAYS = _per_gpu("pcie_replays", "error", "Replays on the PCIe bus since the driver was loaded.")
GPU_ECC_ERRORS = _per_gpu(
    "ecc_errors", "error", "Memory errors since the driver was loaded, corrected or uncorrected.", "kind"
)
GPU_ECC_ERRORS_AGGREGATE = _per_gpu(
    "ecc_errors_aggregate", "error", "Memory errors in the board's life, corrected or uncorrected.", "kind"
)
GPU_REMAPPED_ROWS = _per_gpu(
    "remapped_rows", "row", "Rows of memory replaced after errors, correctable or uncorrectable.", "kind"
)
GPU_REMAPPING_PENDING = _per_gpu(
    "remapping_pending", "", "1 where a row is to be replaced at the next reset, 0 otherwise."
)
GPU_REMAPPING_FAILED = _per_gpu(
    "remapping_failed", "", "1 where a row could not be replaced: the board is to be exchanged; 0 otherwise."
)
GPU_NVLINKS_ACTIVE = _per_gpu("nvlinks_active", "", "NVLink connections that are up.")
GPU_NVLINK_ERRORS = _per_gpu(
    "nvlink_errors", "error", "Errors of its active NVLink connections since the driver was loaded.", "kind"
)
GPU_XID_ERRORS = _per_gpu(
    "xid_errors",
    "error",
    "XID errors that the driver reported, by number, at the second it did, in a process that stays.",
    "xid",
    kind=Kind.COUNT,
)

METRICS = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric))
