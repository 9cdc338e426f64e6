"""Compute metadata of a process: its CPUs, GPUs and memory, its Slurm job, its model and runtime settings.

`metadata` decides between the sources; `slurm`, `cgroup`, `gpu`, `nvml` and `user_config` read one each.
`fleetgauge.wandb_logger` logs the result to W&B.
"""

from __future__ import annotations

from .metadata import collect_compute_metadata

__all__ = ["collect_compute_metadata"]
