"""Measures the node through psutil and NVML, which see all of it from inside a container too.

`Node` is the state that a process has between ticks: CPU times and GPU energy at the last tick, and the
counts of the last hour. `machine` reads CPUs, memory and disks, `gpus` and `jobs` the GPUs, `xids` their
errors; `fleetgauge.compute.nvml` calls the driver.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
from pydantic import Field

from collectors.host import gpus, machine, metrics
from collectors.host.gpus import GpuReading, Sample
from collectors.host.jobs import is_host_proc
from collectors.host.xids import XidListener
from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Texts, named
from common.errors import ConfigurationError
from common.metric import Series
from fleetgauge.compute.nvml import NOT_READ, error_code, read_gpus

NVML_TIMEOUT_SECONDS = 10.0
_DRIVER_NOT_LOADED = 9  # no error: the library is installed on a machine without GPUs


class HostSettings(CollectorSettings):
    """Settings of the host collector; the node's name is FLEETGAUGE_NODE_NAME."""

    model_config = named("FLEETGAUGE_HOST_")

    paths: Texts = Field(("/",), description="File systems to measure, each by a path on it.")
    root: str = Field(
        "", description="Mount point of the host's root file system; empty for this process's own root."
    )
    gpu_uuid: bool = Field(False, description="Also tag GPU metrics with the UUID of the device.")
    gpu_video: bool = Field(False, description="Also measure the video encoders and decoders of GPUs.")
    gpu_processes: bool = Field(False, description="Also measure GPU memory by Slurm job or Kubernetes pod.")


class Node:
    """The node, and what this process has observed of it at earlier ticks.

    One thread calls `collect`, once per tick. A process that runs for a single tick has no earlier state: CPU
    utilisation is then measured over half a second, and energy and XID errors are not counted.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Begin without observations. `clock` returns epoch seconds."""
        self._cpu: tuple[float, float] | None = None
        self._known: dict[int, GpuReading] = {}  # by index, the last reading with a name
        self._energy: dict[int, int] = {}  # by index, in millijoules, at the last tick
        self._joules: dict[int, dict[int, float]] = {}  # by index and second, of the last hour
        self._count_tags: dict[int, dict[str, str]] = {}  # by index, as counts were first sent
        self._xids = XidListener(clock)  # at the time of an error, which occurs between ticks

    def collect(self, context: Context[HostSettings]) -> Iterator[Series]:
        """Yield the samples of CPUs, memory, file systems and GPUs at `context.now`.

        Report a file system or GPU that cannot be read as lost. Raises ConfigurationError for a wrong root,
        DeadlineExceededError where no time is left for the driver.
        """
        root = _root(context.settings)
        if self._cpu is None:
            self._cpu = machine.cpu_times()
            time.sleep(machine.CPU_SECONDS)
        before, self._cpu = self._cpu, machine.cpu_times()
        utilization = machine.utilization(before, self._cpu)
        if utilization is not None:  # absent, not 0, where a counter did not advance
            yield metrics.CPU_UTILIZATION(utilization, context.now)
        for metric, value in machine.samples(root):
            yield metric(value, context.now)
        for path in context.settings.paths:
            try:
                for metric, value in machine.disk(path, root):
                    yield metric(value, context.now, path=path)
            except OSError as error:
                context.report.lose(f"the file system of {path}", error.strerror or str(error))
        yield from self._gpus(context, root)

    def _gpus(self, context: Context[HostSettings], root: Path | None) -> Iterator[Series]:
        """Yield the samples of all GPUs; without a driver, only `host.info`."""
        import pynvml  # type: ignore[import-untyped]

        at = context.now
        # XID errors are events that NVML delivers only to a process that waits: a single run cannot count
        # them.
        if context.stays:
            self._xids.start()
        reading = read_gpus(
            partial(gpus.read, video=context.settings.gpu_video, proc=self._host_proc(context, root)),
            partial(GpuReading, error=NOT_READ),  # of a GPU that is not read in time
            deadline=context.deadline.timeout(NVML_TIMEOUT_SECONDS),
            nvml=pynvml,
        )
        found = [self._describe(gpu) for gpu in reading.gpus or ()]
        tags = machine.description(root, os.environ, next((gpu.name for gpu in found if gpu.name), None))
        yield metrics.INFO(1, at, **tags)
        # The library is present in many images, and the driver not loaded on nodes without GPUs: only a
        # driver that should work and does not is a loss.
        if reading.gpus is None:
            if reading.library_loads and reading.error and error_code(reading.error) != _DRIVER_NOT_LOADED:
                context.report.lose("the GPU driver", str(reading.error))
            return
        yield metrics.GPU_COUNT_LISTED(len(found), at)
        # With one GPU unknown, a number of GPUs that respond would be a guess.
        if None not in (lost := [gpu.lost for gpu in found]):
            yield metrics.GPU_COUNT(lost.count(False), at)
        for gpu in found:
            if gpu.error is not None:
                context.report.lose(f"GPU {gpu.index}", gpu.error)
            yield from _samples(gpu, context)
        yield from self._count_series(found, context)

    def _describe(self, gpu: GpuReading) -> GpuReading:
        """Return the reading with its last known name and UUID: a lost GPU reports neither.

        With other tags, its points would be another series, and a monitor could not compare them.
        """
        if gpu.name is not None:
            self._known[gpu.index] = gpu
        known = self._known.get(gpu.index, gpu)
        return replace(gpu, name=known.name, uuid=gpu.uuid or known.uuid)

    def _host_proc(self, context: Context[HostSettings], root: Path | None) -> Path | None:
        """Return the host's proc file system; None where it is unavailable or not needed.

        Where it is needed and unavailable, memory by job is reported as lost, with what to change.
        """
        proc = (root or Path("/")) / "proc"
        if not context.settings.gpu_processes:
            return None
        if is_host_proc(proc):
            return proc
        fix = "set hostPID on the pod, or mount the host's root and set FLEETGAUGE_HOST_ROOT"
        context.report.lose("GPU memory by job", f"{proc} is not the host's; {fix}")
        return None

    def _count_series(self, found: list[GpuReading], context: Context[HostSettings]) -> Iterator[Series]:
        """Yield energy and XID errors since the last tick, and again those of the last hour.

        A delivery may have failed; sending a count again for its own second, with the same tags, changes
        nothing. Points older than the intake accepts need not be sent again.
        """
        earliest = context.window.earliest or context.now
        for gpu in found:
            before = self._energy.get(gpu.index)
            joules = self._joules.setdefault(gpu.index, {})
            if gpu.energy_mj is not None:
                self._energy[gpu.index] = gpu.energy_mj
                # A single reading is no difference: the first tick of a process counts nothing.
                if before is not None and before <= gpu.energy_mj:  # the counter restarts with the driver
                    joules[context.now] = (gpu.energy_mj - before) / 1000
            for second in [second for second in joules if second < earliest]:
                del joules[second]
            if joules:
                tags = self._count_tags.setdefault(gpu.index, _tags(gpu, context))
                yield metrics.GPU_ENERGY.series([*joules], [*joules.values()], **tags)
        for (second, index, xid), count in sorted(self._xids.counts(earliest, context.now).items()):
            known = self._known.get(index, GpuReading(index))
            tags = self._count_tags.setdefault(index, _tags(known, context))
            yield metrics.GPU_XID_ERRORS(count, second, xid=str(xid), **tags)


def _root(settings: HostSettings) -> Path | None:
    """Return the mounted root of the host, None for this process's own, and have psutil read its proc.

    Raises ConfigurationError where nothing is mounted there.
    """
    root = Path(settings.root) if settings.root else None
    if root is not None and not (root / "proc/stat").exists():
        raise ConfigurationError(
            f"FLEETGAUGE_HOST_ROOT is {root}, which has no proc/stat: mount the host's / there or unset it"
        )
    # A global of psutil: every later call of this process reads the host's proc.
    psutil.PROCFS_PATH = str((root or Path("/")) / "proc")
    return root


def _tags(gpu: GpuReading, context: Context[HostSettings]) -> dict[str, str]:
    """Return the tags of a GPU, without unknown ones; its UUID only on request."""
    uuid = gpu.uuid if context.settings.gpu_uuid else None
    described = {"gpu": str(gpu.index), "gpu_type": gpu.name, "gpu_uuid": uuid}
    return {key: value for key, value in described.items() if value}


def _samples(gpu: GpuReading, context: Context[HostSettings]) -> Iterator[Series]:
    """Yield the series of one reading; an unknown value has none.

    Tags of a sample override those of its GPU.
    """
    tags = _tags(gpu, context)
    lost = [] if gpu.lost is None else [Sample(metrics.GPU_LOST, int(gpu.lost), {})]
    for metric, value, sample_tags in (*lost, *gpu.samples):
        # A MIG instance has a UUID of its own among its tags.
        if not context.settings.gpu_uuid:
            sample_tags.pop("gpu_uuid", None)
        yield metric(value, context.now, **(tags | sample_tags))


# One per process: with --every, ticks share it.
NODE = Node()
COLLECTOR = Collector(name="host", settings=HostSettings, metrics=metrics.METRICS, collect=NODE.collect)
