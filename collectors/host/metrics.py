"""What the host collector emits. All of it belongs to the node, not to the pod that measures."""

from __future__ import annotations

from common.metric import gauge

CPU_COUNT = gauge("host.cpu_count", "core", "Logical CPUs of the node.")
LOAD_1M = gauge("host.load_1m", "process", "Processes running or waiting to run, averaged over one minute.")
MEMORY = gauge("host.memory_gb", "gibibyte", "Memory of the node, in GiB.")
MEMORY_AVAILABLE = gauge(
    "host.memory_available_gb", "gibibyte", "Memory that can be given out without swapping, in GiB."
)

METRICS = (CPU_COUNT, LOAD_1M, MEMORY, MEMORY_AVAILABLE)
