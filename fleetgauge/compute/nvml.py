"""What the NVIDIA driver says of its GPUs, asked through `pynvml` where that is installed, else by itself.

Knows NVML; knows nothing of which GPUs a process may use. Asks without initialising CUDA, gives up at a
deadline, and lets a GPU that has fallen off the bus cost only itself.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fleetgauge.compute.gpu import Gpu, text
from fleetgauge.compute.once import left_out

DEADLINE_SECONDS = 10.0

# Codes of NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: this GPU will answer nothing more.
_LOST = (15, 16)
# The code of NVML_ERROR_LIBRARY_NOT_FOUND, which only a binding answers.
_NO_LIBRARY = 12
# NVML counts cores; what CUDA reports are multiprocessors. Cores in each, by compute capability.
_CORES: dict[tuple[int | None, int | None], int] = {
    **dict.fromkeys([(7, 0), (7, 5), (8, 0)], 64),
    **dict.fromkeys([(8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)], 128),
}
# What the questions are about, in NVML's numbers: a sensor, two kinds of memory errors, a counter.
_TEMPERATURE_GPU, _CORRECTED, _UNCORRECTED, _VOLATILE = 0, 0, 1, 0
CLOCK_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
_THROTTLES = {CLOCK_REASONS[bit] for bit in (0x4, 0x8, 0x20, 0x40, 0x80, 0x200)}
_LATE = "no answer before the deadline"


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One board: what it is and, where readings were asked for, how it does. Unknown is None.

    `instances` are the parts of a board that MIG has divided. `error` says why a board was not read, or
    not to the end.
    """

    gpu: Gpu
    instances: tuple[Gpu, ...] = ()
    utilization_pct: int | None = None
    memory_used_bytes: int | None = None
    temperature_c: int | None = None
    power_watts: float | None = None
    clock_reasons: tuple[str, ...] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    error: str | None = None

    @property
    def throttled(self) -> bool | None:
        """Whether heat or power holds the clocks below what was asked for. Idling is not throttling."""
        if self.clock_reasons is None:
            return None
        return not _THROTTLES.isdisjoint(self.clock_reasons)


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The boards, in the driver's order; None where it did not answer, or no library of it can be loaded."""

    boards: tuple[GpuReading, ...] | None
    library_loads: bool


def read_gpus(
    *,
    readings: bool = True,
    deadline: float = DEADLINE_SECONDS,
    # The binding has no types, and a stand-in need not be a module.
    nvml: Any = None,
    wait: Callable[[threading.Thread, float], object] = threading.Thread.join,
) -> tuple[GpuReading, ...] | None:
    """Describe every board, in the driver's order; None where there is no driver to ask."""
    return ask_driver(readings, deadline, nvml, wait).boards


def ask_driver(
    readings: bool,
    deadline: float,
    nvml: Any = None,
    wait: Callable[[threading.Thread, float], object] = threading.Thread.join,
) -> DriverAnswer:
    """Describe every board, and say whether there is anything to ask.

    A driver call that hangs cannot be interrupted: it sits in the kernel. So a thread asks, and past
    `deadline` seconds it is left behind; the boards it had not finished by then carry an `error`. It is a
    daemon, and not of a pool, because the interpreter joins any other kind on its way out. While one is
    stuck no other is started, so that a sick driver does not cost a long job a thread per question.
    """
    global left_behind
    if left_behind is not None and left_behind.is_alive():
        return DriverAnswer(None, library_loads=True)
    inquiry = _Inquiry(nvml, readings)
    thread = threading.Thread(target=inquiry.run, name="fleetgauge-nvml", daemon=True)
    thread.start()
    wait(thread, deadline)
    if thread.is_alive():
        left_behind = thread
        left_out("NVML", f"no answer within {deadline:g} s")
    boards = None if inquiry.boards is None else tuple(inquiry.boards)
    return DriverAnswer(boards, inquiry.library_loads)


left_behind: threading.Thread | None = None


@dataclass
class _Inquiry:
    """One conversation with the driver: filled by one thread, read by another that may not wait for it."""

    nvml: Any
    readings: bool
    boards: list[GpuReading] | None = None
    library_loads: bool = True

    def run(self) -> None:
        try:
            nvml = self.nvml if self.nvml is not None else _binding()
            nvml.nvmlInit()
        except Exception as error:
            self.library_loads = not isinstance(error, OSError) and _code(error) != _NO_LIBRARY
            left_out("NVML", error)
            return
        try:
            boards = [GpuReading(Gpu(index), error=_LATE) for index in range(nvml.nvmlDeviceGetCount())]
            self.boards = boards
            for index in range(len(boards)):
                boards[index] = _read_board(nvml, index, self.readings)
        except Exception as error:
            left_out("NVML", error)
        finally:
            with suppress(Exception):
                nvml.nvmlShutdown()


# The binding has no types.
def _binding() -> Any:
    """`pynvml`, or the driver's own library where it is missing or is something else of that name."""
    with suppress(Exception):
        pynvml = importlib.import_module("pynvml")
        if callable(pynvml.nvmlInit):
            return pynvml
    from fleetgauge.compute.driver import DriverLibrary  # with ctypes, which most machines never need

    return DriverLibrary()


def _code(error: Exception) -> object:
    """NVML's own code of an error, None of any other kind."""
    return getattr(error, "value", None)


def _read_board(nvml: Any, index: int, readings: bool) -> GpuReading:
    try:
        ask = _Questions(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        gpu, instances = ask.identity(index), ask.instances(index)
        if not readings:
            return GpuReading(gpu, instances, error=ask.error)
        power, reasons = ask.number("nvmlDeviceGetPowerUsage"), ask.clock_reasons()
        return GpuReading(
            gpu,
            instances,
            utilization_pct=ask.number("nvmlDeviceGetUtilizationRates", field="gpu"),
            memory_used_bytes=ask.number("nvmlDeviceGetMemoryInfo", field="used"),
            temperature_c=ask.number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            power_watts=None if power is None else power / 1000,
            clock_reasons=reasons,
            ecc_corrected=ask.ecc_errors(_CORRECTED),
            ecc_uncorrected=ask.ecc_errors(_UNCORRECTED),
            error=ask.error,
        )
    except Exception as error:
        left_out(f"GPU {index}", error)
        return GpuReading(Gpu(index), error=str(error))


@dataclass
class _Questions:
    """Questions to one device. One that it cannot answer costs one field."""

    nvml: Any
    handle: Any
    error: str | None = None

    def identity(self, index: int) -> Gpu:
        major, minor = self._answer("nvmlDeviceGetCudaComputeCapability") or (None, None)
        cores, in_each = self.number("nvmlDeviceGetNumGpuCores"), _CORES.get((major, minor))
        return Gpu(
            index=index,
            name=text(self._answer("nvmlDeviceGetName")) or None,
            memory_bytes=self.number("nvmlDeviceGetMemoryInfo", field="total"),
            major=major,
            minor=minor,
            multi_processor_count=cores // in_each if cores and in_each else None,
            uuid=text(self._answer("nvmlDeviceGetUUID")) or None,
        )

    def instances(self, index: int) -> tuple[Gpu, ...]:
        """The MIG instances of this board. Their slots are numbered with gaps."""
        enabled, _pending = self._answer("nvmlDeviceGetMigMode") or (0, 0)
        slots = self.number("nvmlDeviceGetMaxMigDeviceCount") if enabled else None
        handles = (self._answer("nvmlDeviceGetMigDeviceHandleByIndex", slot) for slot in range(slots or 0))
        return tuple(_instance(self.nvml, handle, index) for handle in handles if handle is not None)

    def clock_reasons(self) -> tuple[str, ...] | None:
        """Why the clocks are what they are. The function was renamed; older drivers know its older name."""
        reasons = self.number("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self.number("nvmlDeviceGetCurrentClocksThrottleReasons")
        return (
            None if reasons is None else tuple(name for bit, name in CLOCK_REASONS.items() if reasons & bit)
        )

    def ecc_errors(self, kind: int) -> int | None:
        """Errors since the driver was loaded."""
        return self.number("nvmlDeviceGetTotalEccErrors", kind, _VOLATILE)

    def number(self, function: str, *arguments: int, field: str | None = None) -> int | None:
        """An answer that is a number, or the field of it that is; all bits set is NVML's "not available"."""
        answer = self._answer(function, *arguments)
        number = getattr(answer, field, None) if field else answer
        if not isinstance(number, int) or number in (2**32 - 1, 2**64 - 1):
            return None
        return number

    # Whatever the binding returns: tuples, structures, handles, text.
    def _answer(self, function: str, *arguments: int) -> Any:
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except Exception as error:
            if _code(error) in _LOST:
                self.error = str(error)
            return None


def _instance(nvml: Any, handle: Any, index: int) -> Gpu:
    ask = _Questions(nvml, handle)
    processors = ask.number("nvmlDeviceGetAttributes", field="multiprocessorCount")
    return replace(ask.identity(index), multi_processor_count=processors)
