"""The same machine at the same time, by us and by node_exporter."""

from __future__ import annotations

import pytest

from collectors.host import machine, metrics
from support.host_node import collected, values
from support.node_exporter import BINARY, NodeExporter, node_exporter
from support.requirements import needs

pytestmark = [pytest.mark.slow, needs("prometheus-node-exporter", BINARY)]
Scrape = dict[tuple[str, str], float]


def cpu_seconds(scrape: Scrape, *, idle: bool) -> float:
    modes = ('mode="idle"', 'mode="iowait"')
    return sum(
        value
        for (name, labels), value in scrape.items()
        if name == "node_cpu_seconds_total" and (idle or not any(mode in labels for mode in modes))
    )


def of_root(scrape: Scrape, name: str) -> float:
    [value] = [
        value
        for (found, labels), value in scrape.items()
        if found == f"node_filesystem_{name}_bytes" and 'mountpoint="/"' in labels
    ]
    return value


def test_cpu_memory_and_disk_are_those_of_node_exporter() -> None:
    with node_exporter() as exporter:
        compare(exporter)


def compare(exporter: NodeExporter) -> None:
    before, (busy, total), found, after = (
        exporter.scrape(),
        machine.cpu_times(),
        collected(),
        exporter.scrape(),
    )
    # Counters only grow, so that ours lie between theirs, to the hundredth of a second the kernel counts in.
    for idle, value in ((True, total), (False, busy)):
        low, high = cpu_seconds(before, idle=idle), cpu_seconds(after, idle=idle)
        assert low - 0.1 <= value <= high + 0.1
    cpus = {labels for name, labels in before if name == "node_cpu_seconds_total" and 'mode="idle"' in labels}
    assert values(found, metrics.CPU_COUNT) == {(): len(cpus)}
    total = before["node_memory_MemTotal_bytes", ""]
    assert values(found, metrics.MEMORY) == {(): round(total / 2**30, 2)}
    available = [scrape["node_memory_MemAvailable_bytes", ""] for scrape in (before, after)]
    slack = total / 100  # what other processes take in between
    assert (
        min(available) - slack
        <= values(found, metrics.MEMORY_AVAILABLE)[()] * 2**30
        <= max(available) + slack
    )
    free = [of_root(scrape, "avail") for scrape in (before, after)]
    slack = of_root(before, "size") / 100
    assert min(free) - slack <= values(found, metrics.DISK_FREE)["path:/",] * 2**30 <= max(free) + slack
    used = of_root(before, "size") - of_root(before, "free")
    share = 100 * used / (used + of_root(before, "avail"))
    assert values(found, metrics.DISK_USED)["path:/",] == pytest.approx(share, abs=1)
