"""A node to collect from: a context of the host collector, a clock, and its points by metric."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import pynvml  # type: ignore[import-untyped]

from collectors.host.collector import HostSettings, Node
from common.collector import Context
from common.config.sources import Configuration
from common.metric import Metric
from common.net.retry import Deadline
from common.window import due
from support.points import Point, points

CODES = sorted({code for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")})
NOW = 1_794_786_458
Values = dict[tuple[str, ...], float]


def context(
    seconds: float = 60,
    environ: Mapping[str, str] | None = None,
    *,
    now: int = NOW,
    earliest: int = NOW - 3000,
    stays: bool = False,
    **more: str,
) -> Context[HostSettings]:
    settings = Configuration({**(environ or {}), **more}, None).table(HostSettings, "host")
    window = due(now, 60, None, earliest)
    return Context(settings, window, now, Deadline(seconds), stays=stays)


class Ticks:
    """A node in a process with --every: each tick a minute after the last."""

    def __init__(self, **environ: str) -> None:
        self.now = NOW
        self.node = Node(lambda: self.now)
        self.earliest = NOW - 3000
        self._environ = environ

    def tick(self) -> list[Point]:
        self.now += 60
        given = context(environ=self._environ, now=self.now, earliest=self.earliest, stays=True)
        return points(self.node.collect(given))


def collected(given: Context[HostSettings] | None = None, node: Node | None = None) -> list[Point]:
    return points((node or Node()).collect(given or context()))


def values(found: Iterable[Point], metric: Metric) -> Values:
    return {point.tags: point.value for point in found if point.metric == metric}


def by_gpu(found: Iterable[Point], metric: Metric, **tags: str) -> dict[str, float]:
    """Return the values of a metric by their `gpu` tag, of points with these tags."""
    required = {f"{key}:{value}" for key, value in tags.items()}
    return {
        dict(tag.partition(":")[::2] for tag in point.tags)["gpu"]: point.value
        for point in found
        if point.metric == metric and required <= set(point.tags)
    }


def table(found: Iterable[Point], without: str = "") -> dict[tuple[str, tuple[str, ...]], float]:
    """Return values by metric name and tags; `without` is a tag key to leave out."""
    left_out = f"{without}:"
    return {
        (point.metric.name, tuple(tag for tag in point.tags if not tag.startswith(left_out))): point.value
        for point in found
    }


def listeners() -> set[threading.Thread]:
    """Return the threads that wait for XID errors in this process."""
    return {thread for thread in threading.enumerate() if thread.name == "xid-listener"}


class HostRoot:
    """A host's root as it would be mounted: four CPUs, 64 GiB, an OS, and processes of jobs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cpu(user=100, idle=900)
        others = ("Buffers", "Cached", "Shmem", "Active", "Inactive", "SReclaimable", "Slab")
        memory = {
            "MemTotal": 64 << 20,
            "MemFree": 1 << 20,
            "MemAvailable": 16 << 20,
            **dict.fromkeys(others, 0),
        }
        self._write("proc/meminfo", "".join(f"{key}: {value} kB\n" for key, value in memory.items()))
        self._write("proc/loadavg", "3.25 2.00 1.00 1/200 12345\n")
        self._write("proc/2/comm", "kthreadd\n")
        self._write("etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\n')

    def cpu(self, user: int, idle: int, iowait: int = 0, guest: int = 0) -> None:
        """Set the CPU times since boot, in hundredths of a second. User time includes guest time."""
        line = f"{user} 0 0 {idle} {iowait} 0 0 0 {guest} 0"
        each = "".join(f"cpu{number} {line}\n" for number in range(4))
        self._write("proc/stat", f"cpu  {line}\n{each}intr 0\nctxt 0\nbtime 1794000000\n")

    def process(self, pid: int, cgroup: str) -> None:
        self._write(f"proc/{pid}/cgroup", cgroup)

    def _write(self, path: str, content: str) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(content)
