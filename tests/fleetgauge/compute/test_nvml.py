"""The inventory of GPUs, over the real functions of pynvml and recorded values."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from fleetgauge.compute.gpu import Gpu
from fleetgauge.compute.metadata import read_host
from fleetgauge.compute.nvml import DEADLINE_SECONDS, Device, NvmlError, read_gpus, read_inventory
from support.nvml.recorded import Driver, recording
from support.nvml.recorded import probe_binding as binding

pytestmark = pytest.mark.usefixtures("nothing_said_yet")


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver(recording("h100x8"), hang_in="nvmlInitWithFlags")
    binding(monkeypatch, driver)
    yield driver
    driver.release.set()


@pytest.mark.parametrize(
    ("major", "minor", "cores", "multiprocessors"),
    [(8, 0, 6912, 108), (9, 0, 16896, 132), (99, 0, 1280, None)],
    ids=["A100", "H100", "unknown generation"],
)
def test_multiprocessors_are_counted_from_cores(
    monkeypatch: pytest.MonkeyPatch, major: int, minor: int, cores: int, multiprocessors: int | None
) -> None:
    gpu = {"nvmlDeviceGetCudaComputeCapability": [major, minor], "nvmlDeviceGetNumGpuCores": [cores]}
    binding(monkeypatch, Driver({"nvmlInitWithFlags": [], "nvmlDeviceGetCount_v2": [1], "devices": [gpu]}))
    assert read_inventory() == ((Gpu(0, None, None, major, minor, multiprocessors),), True)


def test_library_is_shut_down_as_often_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in ([4], 999):
        driver = Driver({**recording("mixed"), "nvmlDeviceGetCount_v2": count})
        binding(monkeypatch, driver)
        read_inventory()
        assert (driver.calls[0], driver.calls[-1]) == ("nvmlInitWithFlags", "nvmlShutdown")
        assert driver.calls.count("nvmlShutdown") == 1


def test_driver_that_hangs_occupies_a_single_thread_and_not_its_caller(
    hanging: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    for _ in range(3):
        late = read_gpus(lambda _, index: index, int, deadline=0.01)
        assert (late.gpus, type(late.error)) == (None, TimeoutError)
    assert caplog.messages == ["NVML left out: no answer within 0.01 s"]
    [thread] = [each for each in threading.enumerate() if each.name == "fleetgauge-nvml"]
    assert thread.daemon  # the interpreter waits for no daemon at its end
    hanging.release.set()
    thread.join()
    assert read_gpus(lambda _, index: index, int, deadline=DEADLINE_SECONDS).gpus == list(range(8))


def test_host_without_a_thread_to_spare_is_still_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    host = read_host()
    assert (host.gpus, host.has_driver, host.os_cpus >= 1) == (None, True, True)


def test_number_is_none_where_it_is_not_available() -> None:
    values: list[tuple[object, str | int | None, int | None]] = [(0, None, 0), ("7", None, None)]
    values += [(None, None, None), (None, 0, None), ((3, 4), 1, 4)]
    values += [(number, None, number) for number in (2**32 - 2, 2**64 - 2)]
    values += [(number, None, None) for number in (2**32 - 1, 2**64 - 1)]
    values += [(SimpleNamespace(total=5), "total", 5), (SimpleNamespace(total=5), "free", None)]
    for value, field, number in values:
        device = Device(SimpleNamespace(function=lambda _, value=value: value), "handle")
        assert device.get_number("function", field=field) == number


def test_device_that_requires_a_reset_is_lost() -> None:
    def refuse(_: object) -> None:
        raise NvmlError(16)

    device = Device(SimpleNamespace(function=refuse), "handle")
    assert device.get("function") is None
    assert (device.lost, device.codes) == ("NVML error 16", {"function": 16})
