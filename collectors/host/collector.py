"""Reads the node through psutil, which sees the whole machine from inside a container too."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from collectors.host.metrics import CPU_COUNT, LOAD_1M, MEMORY, MEMORY_AVAILABLE, METRICS
from common.collector import Collector, Context
from common.metric import Sample
from common.settings import CollectorSettings, named

GIB = 2**30


class HostSettings(CollectorSettings):
    """The host collector has no settings of its own; the node's name is FLEETGAUGE_NODE_NAME."""

    model_config = named("FLEETGAUGE_HOST_")


def collect(context: Context[HostSettings]) -> Iterator[Sample]:
    """The node's size and how busy it is."""
    now, node = context.now, context.node_name
    cpus = psutil.cpu_count()
    if cpus is not None:
        yield CPU_COUNT(cpus, now, on_host=node)
    yield LOAD_1M(psutil.getloadavg()[0], now, on_host=node)
    memory = psutil.virtual_memory()
    yield MEMORY(round(memory.total / GIB, 2), now, on_host=node)
    yield MEMORY_AVAILABLE(round(memory.available / GIB, 2), now, on_host=node)


def check(context: Context[HostSettings]) -> Iterator[str]:
    """The node can always be read; say under which name it will appear."""
    yield f"metrics will carry the host {context.node_name}"


COLLECTOR = Collector(
    name="host", settings=HostSettings, metrics=METRICS, collect=collect, check=check, per_node=True
)
