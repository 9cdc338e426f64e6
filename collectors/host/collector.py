"""Reads the node through psutil and the GPU driver, which see the whole machine from inside a container too.

What this process was given of it follows the same rules as the metadata that jobs log about themselves:
`fleetgauge.compute` holds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
from pydantic import Field

from collectors.host import metrics
from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Texts, named
from common.metric import Sample
from fleetgauge.compute import GpuReading, Host, collect_compute_metadata, read_gpus
from fleetgauge.compute.metadata import gib

CPU_SECONDS = 0.5
NVML_SECONDS = 10.0


class HostSettings(CollectorSettings):
    """Settings of the host collector; the node's name is FLEETGAUGE_NODE_NAME."""

    model_config = named("FLEETGAUGE_HOST_")

    paths: Texts = Field(("/",), description="File systems to measure, each by a path on it.")
    gpu_uuid: bool = Field(False, description="Tag GPU metrics with the device's uuid as well.")


def collect(context: Context[HostSettings]) -> Iterator[Sample]:
    """The node's size and how busy it is, each at the second it was measured."""
    now, node = context.now, context.node_name
    yield from _machine(now, node)
    yield from _disks(context)
    boards = read_gpus(deadline=context.deadline.timeout(NVML_SECONDS))
    yield from share_samples(describe(os.environ, boards), now, node)
    if boards is None:
        return
    yield metrics.GPU_COUNT(len(boards), now, on_host=node)
    for board in boards:
        if board.error is not None:
            context.lose(f"GPU {board.gpu.index}", board.error)
        yield from board_samples(board, now, node, with_uuid=context.settings.gpu_uuid)


def _machine(now: int, node: str) -> Iterator[Sample]:
    cpus = psutil.cpu_count()
    if cpus is not None:
        yield metrics.CPU_COUNT(cpus, now, on_host=node)
    yield metrics.CPU_UTILIZATION(psutil.cpu_percent(interval=CPU_SECONDS), now, on_host=node)
    yield metrics.LOAD_1M(round(psutil.getloadavg()[0], 2), now, on_host=node)
    memory = psutil.virtual_memory()
    yield metrics.MEMORY(gib(memory.total), now, on_host=node)
    yield metrics.MEMORY_AVAILABLE(gib(memory.available), now, on_host=node)
    yield metrics.MEMORY_USED(memory.percent, now, on_host=node)


def _disks(context: Context[HostSettings]) -> Iterator[Sample]:
    for path in context.settings.paths:
        try:
            usage = psutil.disk_usage(path)
        except OSError as error:
            context.lose(f"the file system of {path}", error.strerror or str(error))
            continue
        yield metrics.DISK_FREE(gib(usage.free), context.now, on_host=context.node_name, path=path)
        yield metrics.DISK_USED(usage.percent, context.now, on_host=context.node_name, path=path)


# Any: the metadata's values are whatever JSON can hold.
def describe(environ: Mapping[str, str], boards: tuple[GpuReading, ...] | None) -> dict[str, Any]:
    """What this process was given of the machine, by the rules that jobs follow too."""
    gpus = None if boards is None else tuple(gpu for board in boards for gpu in (board.gpu, *board.instances))
    machine = Host(
        os_cpus=psutil.cpu_count() or 1,
        affinity=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
    )
    return collect_compute_metadata(env=environ, host=machine)


def share_samples(described: Mapping[str, Any], now: int, node: str) -> Iterator[Sample]:
    """This process's share of the node, and what kind of node it is."""
    if "compute.cpu_count" in described:
        yield metrics.ALLOTTED_CPUS(described["compute.cpu_count"], now, on_host=node)
    if "compute.memory_gb" in described:
        yield metrics.ALLOTTED_MEMORY(described["compute.memory_gb"], now, on_host=node)
    tags = {
        "platform": described.get("system", {}).get("platform"),
        "arch": described.get("compute.cpu_architecture"),
        "gpu_type": described.get("compute.gpu_type"),
        "slurm_partition": described.get("slurm", {}).get("slurm_partition"),
    }
    yield metrics.INFO(1, now, on_host=node, **{key: value for key, value in tags.items() if value})


def board_samples(board: GpuReading, now: int, node: str, *, with_uuid: bool) -> Iterator[Sample]:
    """What is known of one GPU; what is not has no sample."""
    described = {
        "gpu": None if board.gpu.index is None else str(board.gpu.index),
        "gpu_type": board.gpu.name,
        "gpu_uuid": board.gpu.uuid if with_uuid else None,
    }
    tags = {key: str(value) for key, value in described.items() if value}
    values = (
        (metrics.GPU_UTILIZATION, board.utilization_pct),
        (metrics.GPU_MEMORY, None if board.gpu.memory_bytes is None else gib(board.gpu.memory_bytes)),
        (metrics.GPU_MEMORY_USED, None if board.memory_used_bytes is None else gib(board.memory_used_bytes)),
        (metrics.GPU_TEMPERATURE, board.temperature_c),
        (metrics.GPU_POWER, board.power_watts),
        (metrics.GPU_THROTTLED, None if board.throttled is None else int(board.throttled)),
    )
    for metric, value in values:
        if value is not None:
            yield metric(value, now, on_host=node, **tags)
    for kind, errors in (("corrected", board.ecc_corrected), ("uncorrected", board.ecc_uncorrected)):
        if errors is not None:
            yield metrics.GPU_ECC_ERRORS(errors, now, on_host=node, kind=kind, **tags)


def check(context: Context[HostSettings]) -> Iterator[str]:
    """The node can always be read; say under which name it will appear and what it has."""
    yield f"metrics will carry the host {context.node_name}"
    boards = read_gpus(readings=False, deadline=context.deadline.timeout(NVML_SECONDS))
    yield "no GPU driver can be asked" if boards is None else f"the driver lists {len(boards)} GPUs"


COLLECTOR = Collector(
    name="host", settings=HostSettings, metrics=metrics.METRICS, collect=collect, check=check, per_node=True
)
