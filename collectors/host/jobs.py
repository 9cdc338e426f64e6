"""GPU memory by Slurm job or Kubernetes pod, from the cgroups of the processes on a GPU.

NVML reports pids of the host, so that it needs the host's pid namespace or its mounted proc.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from fleetgauge.compute.nvml import Device

_MAX_CGROUP_BYTES = 65536
# `job_<id>` is a level of the path in Slurm's hierarchies of cgroup v1 and v2 alike.
_SLURM = re.compile(r"slurm\S*/job_(\d+)(?:/|$)", re.MULTILINE)
# `kubepods` is optional: in a cgroup namespace the path of another pod starts with `/../`.
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})[/.]")


def is_host_proc(proc: Path) -> bool:
    """Return whether `proc` belongs to the host, whose pids NVML reports; pid 2 is `kthreadd` only there."""
    try:
        return (proc / "2/comm").read_text() == "kthreadd\n"
    except (OSError, ValueError):
        return False


def parse_job(cgroup: str) -> tuple[str, str] | None:
    """Return the tag key and value of the job that a `/proc/<pid>/cgroup` names; None outside a job.

    Slurm is tried before Kubernetes.
    """
    if slurm := _SLURM.search(cgroup):
        return "slurm_job", slurm[1]
    if pod := _POD.search(cgroup):
        return "pod_uid", pod[1].replace("_", "-")  # systemd escapes the dash
    return None


def memory_by_job(device: Device, proc: Path) -> dict[tuple[str, str], int]:
    """Return the bytes of a device that each job uses, without jobs with a process of unknown usage.

    Keys are pairs of tag key and value, as `parse_job` returns them. `proc` is the host's proc file system.
    """
    used: dict[tuple[str, str], int] = defaultdict(int)
    unknown = set()
    for process in device.get("nvmlDeviceGetComputeRunningProcesses") or ():
        try:
            with (proc / str(process.pid) / "cgroup").open("rb") as file:
                job = parse_job(file.read(_MAX_CGROUP_BYTES).decode("utf-8", "replace"))
        except OSError:  # the process has ended
            continue
        # NVML has no usage for some processes; a sum without them would be too small, and is left out.
        if job and process.usedGpuMemory is not None:
            used[job] += process.usedGpuMemory
        elif job:
            unknown.add(job)
    return {job: total for job, total in used.items() if job not in unknown}
