"""What the host collector emits. All of it belongs to the node, not to the pod that measures."""

from __future__ import annotations

from common.metric import Metric, gauge

CPU_COUNT = gauge("host.cpu_count", "core", "Logical CPUs of the node.")
CPU_UTILIZATION = gauge(
    "host.cpu_utilization_pct", "percent", "Share of the node's CPU time in use, over half a second."
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
ALLOTTED_CPUS = gauge(
    "host.allotted_cpus", "core", "CPUs that Slurm, the affinity mask or the cgroup leave to this process."
)
ALLOTTED_MEMORY = gauge(
    "host.allotted_memory_gb", "gibibyte", "Memory that the cgroup or Slurm leave to this process, in GiB."
)
INFO = gauge(
    "host.info",
    "",
    "Always 1; the tags describe the node.",
    "platform",
    "arch",
    "gpu_type",
    "slurm_partition",
)
GPU_COUNT = gauge(
    "host.gpu_count", "device", "GPU boards the driver lists; absent where no driver can be asked."
)


def _per_gpu(name: str, unit: str, text: str, *tags: str) -> Metric:
    return gauge(f"host.gpu.{name}", unit, text, "gpu", "gpu_type", "gpu_uuid", *tags)


GPU_UTILIZATION = _per_gpu("utilization_pct", "percent", "Share of the last sampling period it was busy.")
GPU_MEMORY = _per_gpu("memory_total_gb", "gibibyte", "Memory of the GPU, in GiB.")
GPU_MEMORY_USED = _per_gpu("memory_used_gb", "gibibyte", "Memory of the GPU in use, in GiB.")
GPU_TEMPERATURE = _per_gpu("temperature_c", "degree celsius", "Temperature of the GPU.")
GPU_POWER = _per_gpu("power_watts", "watt", "Power the board draws.")
GPU_THROTTLED = _per_gpu(
    "throttled", "", "1 while heat or power holds the clocks down, 0 otherwise; idling does not count."
)
GPU_ECC_ERRORS = _per_gpu(
    "ecc_errors", "error", "Memory errors since the driver was loaded, corrected or uncorrected.", "kind"
)

METRICS = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric))
