"""Compute metadata of a process: its CPUs, GPUs and memory, its Slurm job, its model and runtime settings."""

from __future__ import annotations

from .metadata import collect_compute_metadata

__all__ = ["collect_compute_metadata"]
