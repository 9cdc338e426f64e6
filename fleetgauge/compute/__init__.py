"""What a process runs on: its CPUs, GPUs and memory, its Slurm job, its model and runtime settings."""

from __future__ import annotations

from .cgroup import Limits, read_limits
from .gpu import Gpu, Visible
from .metadata import Host, collect_compute_metadata, count_cpus, measure_memory, read_host, see_gpus
from .nvml import GpuReading, read_gpus
from .slurm import Answer

__all__ = [
    "Answer",
    "Gpu",
    "GpuReading",
    "Host",
    "Limits",
    "Visible",
    "collect_compute_metadata",
    "count_cpus",
    "measure_memory",
    "read_gpus",
    "read_host",
    "read_limits",
    "see_gpus",
]
