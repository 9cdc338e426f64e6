"""A node to collect from: a context of the host collector, a clock, and the samples by metric."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pynvml  # type: ignore[import-untyped]

from collectors.host.collector import HostSettings, Node
from common.collector import Context
from common.config.settings import ConfigurationFile, load
from common.metric import Mark, Metric, Sample
from common.net.retry import Deadline

CODES = sorted({code for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")})
NOW = 1_794_786_458
Values = dict[tuple[str, ...], float]


def context(
    seconds: float = 60, environ: Mapping[str, str] | None = None, **more: str
) -> Context[HostSettings]:
    given = {**(environ or {}), **more}
    settings = load(HostSettings, "host", environ=given, file=ConfigurationFile())
    log = logging.getLogger("collectors.host")
    return Context(settings, NOW, NOW, "node-7", {}, Deadline(seconds), log, clock=lambda: NOW)


class Ticks:
    """A node in a process that stays: each tick a minute after the last, remembering what was delivered."""

    def __init__(self, **environ: str) -> None:
        self.now = float(NOW)
        self.node = Node()
        self.sendable_since = 0
        self._environ = environ
        self._state: dict[str, object] = {}

    def tick(self, *, delivered: bool = True) -> list[Sample]:
        self.now += 60
        given = replace(
            context(environ=self._environ),
            clock=lambda: self.now,
            state=self._state,
            stays=True,
            sendable_since=self.sendable_since,
        )
        items = list(self.node.collect(given))
        for item in items:
            if isinstance(item, Mark) and delivered:
                self._state = {**self._state, **item.changes}
        return samples(items)


def samples(items: Iterable[Sample | Mark]) -> list[Sample]:
    return [item for item in items if isinstance(item, Sample)]


def collected(given: Context[HostSettings] | None = None, node: Node | None = None) -> list[Sample]:
    return samples((node or Node()).collect(given or context()))


def values(found: Iterable[Sample], metric: Metric) -> Values:
    return {sample.tags: sample.value for sample in found if sample.metric == metric}


def by_gpu(found: Iterable[Sample], metric: Metric, **tags: str) -> dict[str, float]:
    """The values of a metric by their `gpu` tag, of those that carry these tags."""
    wanted = {f"{key}:{value}" for key, value in tags.items()}
    return {
        dict(tag.partition(":")[::2] for tag in sample.tags)["gpu"]: sample.value
        for sample in found
        if sample.metric == metric and wanted <= set(sample.tags)
    }


def table(found: Iterable[Sample], without: str = "") -> dict[tuple[str, tuple[str, ...]], float]:
    """All of it by name and tags, to compare two readings by; `without` names a tag that is left out."""
    left_out = f"{without}:"
    return {
        (one.metric.name, tuple(tag for tag in one.tags if not tag.startswith(left_out))): one.value
        for one in found
    }


def listeners() -> set[threading.Thread]:
    """Who waits for XID errors in this process."""
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
        """What all CPUs did since the start, in hundredths of a second. Guests are within user."""
        line = f"{user} 0 0 {idle} {iowait} 0 0 0 {guest} 0"
        each = "".join(f"cpu{number} {line}\n" for number in range(4))
        self._write("proc/stat", f"cpu  {line}\n{each}intr 0\nctxt 0\nbtime 1794000000\n")

    def process(self, pid: int, cgroup: str) -> None:
        self._write(f"proc/{pid}/cgroup", cgroup)

    def _write(self, path: str, content: str) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(content)
