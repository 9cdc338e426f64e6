"""CPUs, memory, file systems and OS of the node, through psutil and the mounted root of the host.

In a container `/proc` shows all of the machine, but `/` and `/etc/os-release` are those of the image. GPUs
are in `gpus`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from collectors.host import metrics
from common.metric import Metric

CPU_SECONDS = 0.5
_MAX_OS_RELEASE_BYTES = 65536

MachineSample = tuple[Metric, float]


def cpu_times() -> tuple[float, float]:
    """Return the CPU seconds since boot, busy and total, summed over CPUs as psutil and node_exporter do.

    User time includes guest time, which is therefore subtracted from the sum of all fields, where it would
    count twice. iowait counts as idle.
    """
    times = psutil.cpu_times()
    total = sum(times) - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)
    return total - times.idle - getattr(times, "iowait", 0), total


def utilization(before: tuple[float, float], after: tuple[float, float]) -> float | None:
    """Return the percentage of CPU time in use between two readings; None where a counter did not advance.

    iowait may even decrease on Linux, so that a difference is not trusted to be positive.
    """
    busy, total = after[0] - before[0], after[1] - before[1]
    return round(min(100.0, 100 * busy / total), 1) if total > 0 and busy >= 0 else None


def samples(root: Path | None) -> Iterator[MachineSample]:
    """Yield CPU count, load and memory. psutil reads the proc file system of `root` already.

    Raises OSError or ValueError where the load of `root` cannot be read.
    """
    yield metrics.CPU_COUNT, len(psutil.cpu_times(percpu=True))
    # `getloadavg` cannot be pointed at another proc, which psutil's calls can.
    load = os.getloadavg()[0] if root is None else float((root / "proc/loadavg").read_text().split()[0])
    yield metrics.LOAD_1M, round(load, 2)
    memory = psutil.virtual_memory()
    yield metrics.MEMORY, gib(memory.total)
    yield metrics.MEMORY_AVAILABLE, gib(memory.available)
    yield metrics.MEMORY_USED, memory.percent


def disk(path: str, root: Path | None) -> Iterator[MachineSample]:
    """Yield free and used space of the file system of `path`; raises OSError where it cannot be read.

    `path` is one of the host; with a `root`, it is measured below that.
    """
    usage = psutil.disk_usage(path if root is None else str(resolve(root, path)))
    yield metrics.DISK_FREE, gib(usage.free)
    yield metrics.DISK_USED, usage.percent


def description(root: Path | None, environ: Mapping[str, str], gpu_type: str | None) -> dict[str, str]:
    """Return the tags of `host.info`, without unknown ones. A container has the kernel of its node.

    The OS is only known with a `root`: without one, `/etc/os-release` may be that of an image.
    """
    tags = {
        "kernel": platform.release(),
        "os": "" if root is None else os_name(root),
        "arch": platform.machine(),
        "gpu_type": gpu_type,
        "slurm_partition": environ.get("SLURM_JOB_PARTITION"),
    }
    return {key: value for key, value in tags.items() if value}


def os_name(root: Path) -> str:
    """Return PRETTY_NAME of the os-release file below `root`, empty where there is none.

    `etc/os-release` is a symbolic link on most distributions, relative or absolute.
    """
    for path in ("etc/os-release", "usr/lib/os-release"):
        try:
            with resolve(root, path).open("rb") as file:
                lines = file.read(_MAX_OS_RELEASE_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            continue
        fields = dict(line.partition("=")[::2] for line in lines)
        return fields.get("PRETTY_NAME", "").strip("\"' ")
    return ""


def resolve(root: Path, path: str) -> Path:
    """Return a path of the host below `root`; raises OSError for a symbolic link out of it."""
    # An absolute link of the host would lead into the container's own root: measuring that would be silently
    # wrong.
    resolved = (root / path.lstrip("/")).resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise OSError(f"a symbolic link leads out of {root}")
    return resolved


def gib(size: float) -> float:
    """Return bytes in GiB, with two decimals."""
    return round(size / 2**30, 2)
