"""What the host collector emits. All of it belongs to the node, not to the pod that measures."""

from __future__ import annotations

from functools import partial

from common.metric import Combine, Kind, Metric, gauge

_of_node = partial(gauge, on_node=True)

CPU_COUNT = _of_node("host.cpu_count", "core", "Logical CPUs of the node.", combines=Combine.SUM)
CPU_UTILIZATION = _of_node(
    "host.cpu_utilization_pct",
    "percent",
    "Share of the node's CPU time in use since the last tick; in a single run, over half a second.",
    combines=Combine.MEAN,
)
LOAD_1M = _of_node(
    "host.load_1m",
    "process",
    "Processes running or waiting to run, averaged over one minute.",
    combines=Combine.SUM,
)
MEMORY = _of_node("host.memory_gb", "gibibyte", "Memory of the node, in GiB.", combines=Combine.SUM)
MEMORY_AVAILABLE = _of_node(
    "host.memory_available_gb",
    "gibibyte",
    "Memory that can be given out without swapping, in GiB.",
    combines=Combine.SUM,
)
MEMORY_USED = _of_node(
    "host.memory_used_pct",
    "percent",
    "Share of the node's memory that is not available.",
    combines=Combine.MEAN,
)
DISK_FREE = _of_node(
    "host.disk.free_gb",
    "gibibyte",
    "Space left for unprivileged users on a file system, in GiB.",
    "path",
    combines=Combine.MIN,
)
DISK_USED = _of_node(
    "host.disk.used_pct",
    "percent",
    "Share of a file system in use, as df reckons it.",
    "path",
    combines=Combine.MAX,
)
INFO = _of_node(
    "host.info",
    "",
    "Always 1; the tags describe the node. The OS is known where FLEETGAUGE_HOST_ROOT is set.",
    *("kernel", "os", "arch", "gpu_type", "slurm_partition"),
    combines=Combine.SUM,
)
GPU_COUNT = _of_node(
    "host.gpu_count",
    "device",
    "GPU boards that answer; absent where no driver can be asked.",
    combines=Combine.SUM,
)
GPU_COUNT_LISTED = _of_node(
    "host.gpu_count_listed",
    "device",
    "GPU boards that the driver lists, those that are lost among them.",
    combines=Combine.SUM,
)


def _per_gpu(
    name: str,
    unit: str,
    text: str,
    *tags: str,
    kind: Kind = Kind.GAUGE,
    combines: Combine = Combine.SUM,
) -> Metric:
    """A metric of a board; of a 0 or 1, the sum over boards is how many of them it holds for."""
    tags = ("gpu", "gpu_type", "gpu_uuid", *tags)
    return Metric(f"host.gpu.{name}", kind, unit, text, tags, combines=combines, on_node=True)


GPU_LOST = _per_gpu(
    "lost", "", "1 for a board that fell off the bus or needs a reset, 0 for one that answers."
)
GPU_UTILIZATION = _per_gpu(
    "utilization_pct",
    "percent",
    "Share of the last sampling period it was busy; absent for a board that MIG divides.",
    combines=Combine.MEAN,
)
GPU_MEMORY_UTILIZATION = _per_gpu(
    "memory_utilization_pct",
    "percent",
    "Share of the last sampling period its memory was read or written; absent for a board that MIG divides.",
    combines=Combine.MEAN,
)
GPU_ENCODER = _per_gpu(
    "encoder_pct", "percent", "Use of the video encoder, where it is asked for.", combines=Combine.MEAN
)
GPU_DECODER = _per_gpu(
    "decoder_pct", "percent", "Use of the video decoder, where it is asked for.", combines=Combine.MEAN
)
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
GPU_TEMPERATURE = _per_gpu("temperature_c", "degree celsius", "Temperature of the GPU.", combines=Combine.MAX)
GPU_MEMORY_TEMPERATURE = _per_gpu(
    "memory_temperature_c", "degree celsius", "Temperature of its memory.", combines=Combine.MAX
)
GPU_POWER = _per_gpu("power_watts", "watt", "Power the board draws.")
GPU_POWER_LIMIT = _per_gpu("power_limit_watts", "watt", "Power the board may draw.")
GPU_ENERGY = _per_gpu(
    "energy_joules", "", "Energy in joules since the tick before, in a process that stays.", kind=Kind.COUNT
)
GPU_SM_CLOCK = _per_gpu("sm_clock_mhz", "megahertz", "Clock of the multiprocessors.", combines=Combine.MEAN)
GPU_MEMORY_CLOCK = _per_gpu("memory_clock_mhz", "megahertz", "Clock of the memory.", combines=Combine.MEAN)
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
