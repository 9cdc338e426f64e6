"""What the node is and how busy it is, by psutil and, where it is mounted, the host's own root.

In a container `/proc` shows the whole machine already, but `/` and `/etc/os-release` are the image's.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from collectors.host import metrics
from common.metric import Metric

CPU_SECONDS = 0.5
_MAX_OS_RELEASE_BYTES = 65536

Figure = tuple[Metric, float]


class CpuTimes(NamedTuple):
    """CPU seconds since the start of the machine, as psutil and node_exporter add them up."""

    busy: float
    total: float


def cpu_times() -> CpuTimes:
    """What all CPUs did so far. Time of guests is in that of users already; waiting for a disk is idle."""
    times = psutil.cpu_times()
    total = sum(times) - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)
    return CpuTimes(total - times.idle - getattr(times, "iowait", 0), total)


def utilization(before: CpuTimes, after: CpuTimes) -> float | None:
    """The share in percent that was in use in between; None where no time passed, or it went backwards."""
    passed, busy = after.total - before.total, after.busy - before.busy
    return round(min(100.0, 100 * busy / passed), 1) if passed > 0 and busy >= 0 else None


def first_cpu_times() -> CpuTimes:
    """Those of half a second ago, for a process that has no earlier look to compare with."""
    before = cpu_times()
    time.sleep(CPU_SECONDS)
    return before


def figures(root: Path | None) -> Iterator[Figure]:
    """How large the machine is and what is left of it."""
    yield metrics.CPU_COUNT, len(psutil.cpu_times(percpu=True))
    load = os.getloadavg()[0] if root is None else float((root / "proc/loadavg").read_text().split()[0])
    yield metrics.LOAD_1M, round(load, 2)
    memory = psutil.virtual_memory()
    yield metrics.MEMORY, gib(memory.total)
    yield metrics.MEMORY_AVAILABLE, gib(memory.available)
    yield metrics.MEMORY_USED, memory.percent


def disk(path: str, root: Path | None) -> Iterator[Figure]:
    """The file system that holds a path of the node."""
    usage = psutil.disk_usage(path if root is None else str(below(root, path)))
    yield metrics.DISK_FREE, gib(usage.free)
    yield metrics.DISK_USED, usage.percent


def description(root: Path | None, environ: Mapping[str, str], gpu_type: str | None) -> dict[str, str]:
    """Tags that say what kind of node it is. The kernel is the node's in any container."""
    tags = {
        "kernel": platform.release(),
        "os": "" if root is None else os_name(root),
        "arch": platform.machine(),
        "gpu_type": gpu_type,
        "slurm_partition": environ.get("SLURM_JOB_PARTITION"),
    }
    return {key: value for key, value in tags.items() if value}


def os_name(root: Path) -> str:
    """What the OS below a root calls itself; nothing where it does not say."""
    for place in ("etc/os-release", "usr/lib/os-release"):
        try:
            with below(root, place).open("rb") as file:
                lines = file.read(_MAX_OS_RELEASE_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            continue
        fields = dict(line.partition("=")[::2] for line in lines)
        return fields.get("PRETTY_NAME", "").strip("\"' ")
    return ""


def below(root: Path, path: str) -> Path:
    """A path of the host, seen from here. A link that leads elsewhere would show the container's own."""
    place = (root / path.lstrip("/")).resolve()
    if not place.is_relative_to(root.resolve()):
        raise OSError(f"a link leads out of {root}")
    return place


def gib(size: float) -> float:
    """Bytes in GiB, to a hundredth."""
    return round(size / 2**30, 2)
