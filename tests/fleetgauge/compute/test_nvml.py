"""What the driver is asked, over the real binding and recorded answers."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from fleetgauge.compute.gpu import Gpu
from fleetgauge.compute.metadata import read_host
from fleetgauge.compute.nvml import Device, GpuReading, read_boards, read_gpus
from support.nvml.recorded import Driver, recording
from support.nvml.recorded import probe_binding as binding

H100 = "NVIDIA H100 80GB HBM3"
H100_BYTES = 85520809984


pytestmark = pytest.mark.usefixtures("nothing_said_yet")


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver(recording("h100x8"), hang_in="nvmlInitWithFlags")
    binding(monkeypatch, driver)
    yield driver
    driver.release.set()


def drive(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[GpuReading, ...]:
    binding(monkeypatch, Driver(recording(name)))
    boards = read_gpus()
    assert boards is not None
    return boards


def test_eight_boards_are_read_in_the_drivers_order(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    boards = drive(monkeypatch, "h100x8")
    assert caplog.messages == []
    assert [board.gpu.index for board in boards] == list(range(8))
    assert boards[0] == GpuReading(
        Gpu(0, H100, H100_BYTES, 9, 0, 132, "GPU-1f1a36a5-a4de-45b0-95c0-3b1a56a9e000")
    )


def test_a_divided_board_lists_its_instances_across_the_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    (board,) = drive(monkeypatch, "a100-mig")
    assert board.gpu.multi_processor_count == 108
    assert board.error is None
    name = "NVIDIA A100-SXM4-40GB MIG "
    assert board.instances == (
        Gpu(0, f"{name}3g.20gb", 19968 * 2**20, 8, 0, 42, "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"),
        Gpu(0, f"{name}2g.10gb", 9856 * 2**20, 8, 0, 28, "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"),
        Gpu(0, f"{name}1g.5gb", 4864 * 2**20, 8, 0, 14, "MIG-5caa6d73-7d5b-5e5a-a9c5-9e9fba94d8d1"),
    )


def test_boards_of_several_kinds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    a100, _, t4, _ = drive(monkeypatch, "mixed")
    assert a100.gpu.name == "NVIDIA A100-SXM4-40GB"
    assert (t4.gpu.name, t4.gpu.multi_processor_count) == ("Tesla T4", 40)
    assert t4.error is None


@pytest.mark.parametrize(
    ("card", "capability", "cores", "multiprocessors"),
    [
        ("V100", [7, 0], 5120, 80),
        ("T4", [7, 5], 2560, 40),
        ("A100", [8, 0], 6912, 108),
        ("A40", [8, 6], 10752, 84),
        ("L40S", [8, 9], 18176, 142),
        ("H100", [9, 0], 16896, 132),
        ("B200", [10, 0], 18944, 148),
        ("B300", [10, 3], 20480, 160),
        ("RTX 5090", [12, 0], 21760, 170),
        ("GB10", [12, 1], 6144, 48),
    ],
)
def test_multiprocessors_are_counted_from_cores(
    monkeypatch: pytest.MonkeyPatch, card: str, capability: list[int], cores: int, multiprocessors: int
) -> None:
    answers = {"nvmlDeviceGetCudaComputeCapability": capability, "nvmlDeviceGetNumGpuCores": [cores]}
    tape = {"nvmlInitWithFlags": [], "nvmlShutdown": [], "nvmlDeviceGetCount_v2": [1], "devices": [answers]}
    binding(monkeypatch, Driver(tape))
    major, minor = capability
    assert read_gpus() == (GpuReading(Gpu(0, None, None, major, minor, multiprocessors)),)


def test_a_card_of_an_unknown_generation_has_no_multiprocessor_count(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("h100x8")
    tape["devices"][0]["nvmlDeviceGetCudaComputeCapability"] = [99, 0]
    binding(monkeypatch, Driver(tape))
    boards = read_gpus()
    assert boards is not None
    assert boards[0].gpu == Gpu(0, H100, H100_BYTES, 99, 0, None, "GPU-1f1a36a5-a4de-45b0-95c0-3b1a56a9e000")


def test_a_board_that_answers_nothing_is_still_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = {"nvmlInitWithFlags": [], "nvmlShutdown": [], "nvmlDeviceGetCount_v2": [1], "devices": [{}]}
    binding(monkeypatch, Driver(tape))
    assert read_gpus() == (GpuReading(Gpu(0)),)


def test_a_gpu_that_fell_off_the_bus_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    boards = drive(monkeypatch, "h100-lost")
    assert caplog.messages == ["GPU 1 left out: NVMLError_GpuIsLost: GPU is lost"]
    assert [board.gpu.name for board in boards] == [H100, None, H100, H100]
    assert boards[1] == GpuReading(Gpu(1), error="GPU is lost")
    assert [board.error for board in boards] == [None, "GPU is lost", None, None]


def test_a_gpu_that_needs_a_reset_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("h100x8")
    tape["devices"][0]["nvmlDeviceGetUUID"] = 16
    tape["devices"][1]["nvmlDeviceGetUUID"] = 4
    binding(monkeypatch, Driver(tape))
    boards = read_gpus()
    assert boards is not None
    assert (boards[0].gpu.uuid, boards[0].error) == (None, "GPU requires restart")
    # A question that is not permitted is only that.
    assert (boards[1].gpu.uuid, boards[1].error) == (None, None)


def test_a_board_that_breaks_the_binding_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = binding(monkeypatch, Driver(recording("mixed")))
    open_handle = nvml.nvmlDeviceGetHandleByIndex

    def broken(index: int) -> object:
        if index == 1:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return open_handle(index)

    monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByIndex", broken)
    boards = read_gpus()
    assert boards is not None
    assert [board.gpu.name for board in boards] == ["NVIDIA A100-SXM4-40GB", None, "Tesla T4", "Tesla T4"]
    assert "invalid start byte" in (boards[1].error or "")


def test_only_the_inventory_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(recording("h100x8"))
    binding(monkeypatch, driver)
    boards = read_gpus()
    assert boards is not None
    assert boards[7] == GpuReading(
        Gpu(7, H100, H100_BYTES, 9, 0, 132, "GPU-1f1a36a5-a4de-45b0-95c0-3b1a56a9e007")
    )
    assert not {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"} & set(driver.calls)
    # These boards could be divided, but are not.
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in driver.calls


def test_names_in_bytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = binding(monkeypatch, Driver(recording("mixed")))
    monkeypatch.setattr(nvml, "nvmlDeviceGetName", lambda handle: b"Tesla T4")
    monkeypatch.setattr(nvml, "nvmlDeviceGetUUID", lambda handle: b"GPU-7d3c")
    boards = read_gpus()
    assert boards is not None
    assert (boards[0].gpu.name, boards[0].gpu.uuid) == ("Tesla T4", "GPU-7d3c")


def test_the_library_is_shut_down_as_often_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recording("mixed")
    for count in ([4], 999):
        driver = Driver({**tape, "nvmlDeviceGetCount_v2": count})
        binding(monkeypatch, driver)
        read_gpus()
        assert (driver.calls[0], driver.calls[-1]) == ("nvmlInitWithFlags", "nvmlShutdown")
        assert driver.calls.count("nvmlShutdown") == 1


def test_no_driver_is_unknown_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    binding(monkeypatch, Driver(recording("driver-not-loaded")))
    assert read_gpus() is None
    assert read_gpus() is None
    assert [record.getMessage() for record in caplog.records] == [
        "NVML left out: NVMLError_DriverNotLoaded: Driver Not Loaded"
    ]


def test_no_binding_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_gpus() is None
    assert read_host().gpus is None


def test_a_driver_without_gpus_answers_none_of_them_not_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver({**recording("h100x8"), "nvmlDeviceGetCount_v2": [0]}))
    assert read_gpus() == ()
    assert read_host().gpus == ()


def test_the_inventory_lists_instances_after_their_board(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(recording("a100-mig"))
    binding(monkeypatch, driver)
    gpus = read_host().gpus
    assert "nvmlDeviceGetPowerUsage" not in driver.calls
    assert gpus is not None
    assert [str(gpu.uuid)[:8] for gpu in gpus] == ["GPU-5c89", "MIG-c738", "MIG-a28a", "MIG-5caa"]


def test_a_driver_that_hangs_does_not_hang_its_caller(
    hanging: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "fleetgauge")
    assert read_gpus(deadline=0.01) is None
    assert caplog.messages == ["NVML left out: no answer within 0.01 s"]


def test_a_driver_that_hangs_costs_one_thread_however_often_it_is_asked(hanging: Driver) -> None:
    waited: list[threading.Thread] = []

    def until_it_hangs(thread: threading.Thread, deadline: float) -> None:
        waited.append(thread)
        hanging.entered.wait()

    assert [read_gpus(wait=until_it_hangs) for _ in range(3)] == [None, None, None]
    (thread,) = waited
    # The interpreter waits for no daemon on its way out.
    assert thread.daemon
    hanging.release.set()
    thread.join()
    boards = read_gpus()
    assert boards is not None
    assert len(boards) == 8


def test_a_board_that_hangs_costs_itself_and_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(recording("h100x8"), hang_in="nvmlDeviceGetHandleByIndex_v2", hang_on=3)
    binding(monkeypatch, driver)
    boards = read_gpus(wait=lambda thread, deadline: driver.entered.wait())
    driver.release.set()
    assert boards is not None
    assert [board.gpu.name for board in boards] == [H100] * 3 + [None] * 5
    assert boards[3] == GpuReading(Gpu(3), error="no answer before the deadline")


def test_the_deadline_is_what_the_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    binding(monkeypatch, Driver(recording("mixed")))
    waited: list[float] = []

    def wait(thread: threading.Thread, deadline: float) -> None:
        waited.append(deadline)
        thread.join()

    read_gpus(wait=wait, deadline=3.5)
    read_gpus(wait=wait)
    assert waited == [3.5, 10.0]


def test_a_stand_in_can_be_handed_over() -> None:
    def no_driver() -> None:
        raise OSError("libnvidia-ml.so.1")

    assert read_gpus(nvml=SimpleNamespace(nvmlInit=no_driver)) is None


@pytest.mark.parametrize(
    "thread_error", [RuntimeError("can't start new thread"), MemoryError()], ids=["threads", "memory"]
)
def test_a_host_without_a_thread_to_spare_is_still_described(
    monkeypatch: pytest.MonkeyPatch, thread_error: Exception
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise thread_error

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert read_host().gpus is None
    assert read_host().os_cpus >= 1


@pytest.mark.parametrize(
    ("answer", "field", "number"),
    [
        (7, None, 7),
        (0, None, 0),
        ("7", None, None),
        (None, None, None),
        (2**32 - 2, None, 2**32 - 2),
        (2**32 - 1, None, None),
        (2**32, None, 2**32),
        (2**64 - 2, None, 2**64 - 2),
        (2**64 - 1, None, None),
        (SimpleNamespace(total=5), "total", 5),
        (SimpleNamespace(total=5), "free", None),
        ((3, 4), 0, 3),
        ((3, 4), 1, 4),
        (None, 0, None),
    ],
)
def test_a_number_is_one_that_is_available(
    answer: object, field: str | int | None, number: int | None
) -> None:
    ask = Device(SimpleNamespace(told=lambda _: answer), "board")
    assert ask.get_number("told", field=field) == number


def test_of_a_board_that_does_not_say_whether_it_is_divided_no_instances_are_asked_for() -> None:
    answers = {"nvmlDeviceGetMaxMigDeviceCount": lambda _: 2}
    answers["nvmlDeviceGetMigDeviceHandleByIndex"] = lambda *_: 1
    assert Device(SimpleNamespace(**answers), "board").instances() == []
    divided = Device(SimpleNamespace(nvmlDeviceGetMigMode=lambda _: (1, 0), **answers), "board")
    assert [part.handle for part in divided.instances()] == [1, 1]


class RefusalError(Exception):
    value = 9


class NoLibraryError(Exception):
    value = 12


@pytest.mark.parametrize(
    ("error", "loads"), [(OSError("no file"), False), (NoLibraryError(), False), (RefusalError(), True)]
)
def test_a_library_that_cannot_be_loaded_is_told_from_a_driver_that_refuses(
    error: Exception, loads: bool
) -> None:
    def refuse() -> None:
        raise error

    answer = read_boards(lambda nvml, index: index, int, deadline=30, nvml=SimpleNamespace(nvmlInit=refuse))
    assert (answer.boards, answer.library_loads, answer.error) == (None, loads, error)


def test_a_driver_without_boards_says_so() -> None:
    empty = SimpleNamespace(nvmlInit=int, nvmlDeviceGetCount=int, nvmlShutdown=int)
    assert read_gpus(nvml=empty) == ()
    answer = read_boards(lambda nvml, index: index, int, deadline=30, nvml=empty)
    assert (answer.boards, answer.library_loads, answer.error) == ([], True, None)


@pytest.mark.parametrize(
    ("capability", "processors"),
    [
        *((capability, 1280 // 64) for capability in ((7, 0), (7, 5), (8, 0))),
        *(
            (capability, 1280 // 128)
            for capability in ((8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1))
        ),
        ((6, 1), None),
    ],
)
def test_multiprocessors_are_cores_by_those_of_each(
    capability: tuple[int, int], processors: int | None
) -> None:
    board = SimpleNamespace(
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetCudaComputeCapability=lambda _: capability,
        nvmlDeviceGetNumGpuCores=lambda _: 1280,
    )
    board.nvmlInit = board.nvmlShutdown = lambda: None
    board.nvmlDeviceGetCount = lambda: 1
    [reading] = read_gpus(nvml=board) or ()
    gpu = reading.gpu
    assert (gpu.major, gpu.minor, gpu.multi_processor_count) == (*capability, processors)


@pytest.mark.parametrize(("code", "lost"), [(14, None), (15, "gone"), (16, "gone"), (17, None)])
def test_a_board_is_lost_by_what_it_answers(code: int, lost: str | None) -> None:
    error = type("NvmlError", (Exception,), {"value": code})("gone")

    def refuse(_: object) -> None:
        raise error

    ask = Device(SimpleNamespace(told=refuse), "board")
    assert (ask.get("told"), ask.lost, ask.codes) == (None, lost, {"told": code})
