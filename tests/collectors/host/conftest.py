"""Nodes with and without GPUs to measure."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from collectors.host import machine
from support.host_node import listeners
from support.nvml.compiled import CompiledDriver, compile_driver
from support.nvml.recorded import binding


@pytest.fixture(autouse=True)
def _short_cpu_interval(nothing_said_yet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure CPU utilization over a millisecond, and have psutil read this machine again afterwards."""
    monkeypatch.setattr(machine, "CPU_SECONDS", 0.001)
    monkeypatch.setattr(psutil, "PROCFS_PATH", psutil.PROCFS_PATH)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_driver(tmp_path_factory.mktemp("driver")))


@pytest.fixture
def driver(library: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompiledDriver]:
    """Eight GPUs behind the real binding: 3 is lost, 5 has MIG enabled, 6 supports nothing."""
    driver = CompiledDriver(library)
    driver.fake_reset()
    driver.old(6)
    binding(monkeypatch, driver)
    yield driver
    driver.fake_reset()
    driver.refuse("nvmlEventSetCreate", 9)  # for a thread that has just started
    for listener in listeners():
        listener.join()
