"""Which job a process on a GPU belongs to, by the cgroup that Slurm or Kubernetes put it in."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from fleetgauge.compute.nvml import Device

_MAX_CGROUP_BYTES = 65536
_SLURM = re.compile(r"slurm\S*/job_(\d+)(?:/|$)", re.MULTILINE)
# Without `kubepods`, which another pod's path lacks when it is told from within a cgroup namespace.
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})[/.]")


def host_pids(proc: Path) -> bool:
    """Whether this is the proc file system of the host, whose pids the driver speaks of.

    Anywhere else a pid of the driver is nobody's, or somebody else's. The second process of a host, and of
    nothing else, is the kernel's `kthreadd`.
    """
    try:
        return (proc / "2/comm").read_text() == "kthreadd\n"
    except (OSError, ValueError):
        return False


def job_of(cgroup: str) -> tuple[str, str] | None:
    """The tag of a process's job, by the content of its `cgroup` file."""
    if slurm := _SLURM.search(cgroup):
        return "slurm_job", slurm[1]
    if pod := _POD.search(cgroup):
        return "pod_uid", pod[1].replace("_", "-")  # systemd's names cannot have the dash
    return None


def memory_by_job(device: Device, proc: Path) -> dict[tuple[str, str], int]:
    """Bytes that each job uses of a device. A job of which one process is unknown is left out whole."""
    used: dict[tuple[str, str], int] = defaultdict(int)
    unknown = set()
    for process in device.get("nvmlDeviceGetComputeRunningProcesses") or ():
        try:
            with (proc / str(process.pid) / "cgroup").open("rb") as file:
                job = job_of(file.read(_MAX_CGROUP_BYTES).decode("utf-8", "replace"))
        except OSError:  # it has ended
            continue
        if job and process.usedGpuMemory is not None:
            used[job] += process.usedGpuMemory
        elif job:
            unknown.add(job)
    return {job: total for job, total in used.items() if job not in unknown}
