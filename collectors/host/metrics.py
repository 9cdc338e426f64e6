"""Metrics of the host collector. Their host is the node, not the pod that measures.

docs/metrics.md and metadata.csv are generated from these declarations; `machine`, `gpus` and `collector` emit
them.
"""

from __future__ import annotations

from functools import partial

from common.metric import Combine, Kind, Metric, gauge

_node_gauge = partial(gauge, on_node=True, combines=Combine.SUM)
_node_share = partial(gauge, unit="percent", on_node=True, combines=Combine.MEAN)

CPU_COUNT = _node_gauge("host.cpu_count", "core", "Logical CPUs of the node.")
CPU_UTILIZATION = _node_share(
    "host.cpu_utilization_pct",
    text="Share of the node's CPU time in use since the last tick; in a single run, over half a second.",
)
LOAD_1M = _node_gauge(
    "host.load_1m", "process", "Processes running or waiting to run, averaged over one minute."
)
MEMORY = _node_gauge("host.memory_gb", "gibibyte", "Memory of the node, in GiB.")
MEMORY_AVAILABLE = _node_gauge(
    "host.memory_available_gb", "gibibyte", "Memory available without swapping, in GiB."
)
MEMORY_USED = _node_share("host.memory_used_pct", text="Share of the node's memory that is not available.")
DISK_FREE = _node_gauge(
    "host.disk.free_gb",
    "gibibyte",
    "Free space of a file system for unprivileged users, in GiB.",
    "path",
    combines=Combine.MIN,
)
DISK_USED = _node_gauge(
    "host.disk.used_pct",
    "percent",
    "Share of a file system in use, as df computes it.",
    "path",
    combines=Combine.MAX,
)
INFO = _node_gauge(
    "host.info",
    "",
    "Always 1; the tags describe the node. The OS is known where FLEETGAUGE_HOST_ROOT is set.",
    *("kernel", "os", "arch", "gpu_type", "slurm_partition"),
)
GPU_COUNT = _node_gauge("host.gpu_count", "device", "GPUs that respond; absent without a driver.")
GPU_COUNT_LISTED = _node_gauge(
    "host.gpu_count_listed", "device", "GPUs that the driver lists, including lost ones."
)


def _gpu_metric(
    name: str, unit: str, text: str, *tags: str, kind: Kind = Kind.GAUGE, combines: Combine = Combine.SUM
) -> Metric:
    """Declare a metric of a GPU. Flags are 0 or 1, so that their sum is a number of GPUs."""
    tags = ("gpu", "gpu_type", "gpu_uuid", *tags)
    return Metric(f"host.gpu.{name}", kind, unit, text, tags, combines=combines, on_node=True)


def _gpu_share(name: str, text: str) -> Metric:
    return _gpu_metric(name, "percent", text, combines=Combine.MEAN)


GPU_LOST = _gpu_metric(
    "lost", "", "1 for a GPU that fell off the bus or needs a reset, 0 for a responding GPU."
)
GPU_UTILIZATION = _gpu_share(
    "utilization_pct", "Share of the last sampling period in which a kernel ran; absent with MIG enabled."
)
GPU_MEMORY_UTILIZATION = _gpu_share(
    "memory_utilization_pct",
    "Share of the last sampling period in which memory was read or written; absent with MIG enabled.",
)
GPU_ENCODER = _gpu_share("encoder_pct", "Video encoder utilization; needs FLEETGAUGE_HOST_GPU_VIDEO.")
GPU_DECODER = _gpu_share("decoder_pct", "Video decoder utilization; needs FLEETGAUGE_HOST_GPU_VIDEO.")
_OF = "of the GPU or MIG instance, in GiB."
GPU_MEMORY = _gpu_metric("memory_total_gb", "gibibyte", f"Memory {_OF}")
GPU_MEMORY_USED = _gpu_metric("memory_used_gb", "gibibyte", f"Memory in use {_OF} Excludes reserved memory.")
GPU_MEMORY_FREE = _gpu_metric("memory_free_gb", "gibibyte", f"Free memory {_OF}")
GPU_MEMORY_RESERVED = _gpu_metric(
    "memory_reserved_gb", "gibibyte", f"Memory reserved for driver and firmware {_OF}"
)
GPU_JOB_MEMORY = _gpu_metric(
    "job_memory_gb",
    "gibibyte",
    "GPU memory used by a Slurm job or Kubernetes pod, in GiB; needs FLEETGAUGE_HOST_GPU_PROCESSES.",
    *("slurm_job", "pod_uid"),
)
GPU_TEMPERATURE = _gpu_metric(
    "temperature_c", "degree celsius", "Temperature of the GPU.", combines=Combine.MAX
)
GPU_MEMORY_TEMPERATURE = _gpu_metric(
    "memory_temperature_c", "degree celsius", "Temperature of the GPU memory.", combines=Combine.MAX
)
GPU_POWER = _gpu_metric("power_watts", "watt", "Power draw.")
GPU_POWER_LIMIT = _gpu_metric("power_limit_watts", "watt", "Power limit.")
GPU_ENERGY = _gpu_metric(
    "energy_joules", "", "Energy in joules since the previous tick; needs --every.", kind=Kind.COUNT
)
GPU_SM_CLOCK = _gpu_metric(
    "sm_clock_mhz", "megahertz", "Clock of the streaming multiprocessors.", combines=Combine.MEAN
)
GPU_MEMORY_CLOCK = _gpu_metric("memory_clock_mhz", "megahertz", "Clock of the memory.", combines=Combine.MEAN)
GPU_THROTTLED = _gpu_metric(
    "throttled",
    "",
    "1 while this reason lowers the clocks, 0 if not. A busy GPU at its power cap is healthy.",
    "reason",
)
GPU_SLOWED = _gpu_metric(
    "slowed", "", "1 while heat, a power brake or hardware protection slows the GPU, 0 if not."
)
GPU_PCIE_REPLAYS = _gpu_metric(
    "pcie_replays", "error", "Replays on the PCIe bus since the driver was loaded."
)
GPU_ECC_ERRORS = _gpu_metric(
    "ecc_errors", "error", "Memory errors since the driver was loaded, corrected or uncorrected.", "kind"
)
GPU_ECC_ERRORS_AGGREGATE = _gpu_metric(
    "ecc_errors_aggregate",
    "error",
    "Memory errors over the lifetime of the GPU, corrected or uncorrected.",
    "kind",
)
GPU_REMAPPED_ROWS = _gpu_metric(
    "remapped_rows", "row", "Memory rows remapped after errors, correctable or uncorrectable.", "kind"
)
GPU_REMAPPING_PENDING = _gpu_metric(
    "remapping_pending", "", "1 if a row will be remapped at the next reset, 0 if not."
)
GPU_REMAPPING_FAILED = _gpu_metric(
    "remapping_failed", "", "1 if a row could not be remapped and the GPU must be replaced, 0 if not."
)
GPU_NVLINKS_ACTIVE = _gpu_metric("nvlinks_active", "", "NVLink connections that are up.")
GPU_NVLINK_ERRORS = _gpu_metric(
    "nvlink_errors", "error", "Errors of the active NVLink connections since the driver was loaded.", "kind"
)
GPU_XID_ERRORS = _gpu_metric(
    "xid_errors",
    "error",
    "XID errors by number, at the second the driver reported them; needs --every.",
    "xid",
    kind=Kind.COUNT,
)

METRICS = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric))
