"""The NVIDIA driver's library (NVML) by ctypes, and its inventory of GPUs.

`NvmlLibrary` has the few functions that the inventory needs, by the names of `pynvml`, so that either serves:
the service hands in `pynvml`, which has all of them. CUDA is not initialised. A driver that hangs is given
up at a deadline, and a GPU that has fallen off the bus costs only itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from fleetgauge.compute.gpu import Gpu, text
from fleetgauge.compute.user_config import debug_once

DEADLINE_SECONDS = 10.0

NOT_SUPPORTED = 3
# Codes of NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: this GPU will answer nothing more.
LOST = (15, 16)
LATE = "no answer before the deadline"
# The code of NVML_ERROR_LIBRARY_NOT_FOUND, which only pynvml raises.
_NO_LIBRARY = 12
# NVML counts cores; what CUDA reports are multiprocessors. Cores in each, by compute capability.
_CORES: dict[tuple[int | None, int | None], int] = {
    **dict.fromkeys([(7, 0), (7, 5), (8, 0)], 64),
    **dict.fromkeys([(8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)], 128),
}
# The types that each function fills in, by their names in ctypes; `_v2` is the version in the library.
_OUTPUTS = {
    "nvmlInit": (),
    "nvmlShutdown": (),
    "nvmlDeviceGetCount": ("c_uint",),
    "nvmlDeviceGetHandleByIndex": ("c_void_p",),
    "nvmlDeviceGetName": ("text",),
    "nvmlDeviceGetUUID": ("text",),
    "nvmlDeviceGetMemoryInfo": ("memory",),
    "nvmlDeviceGetNumGpuCores": ("c_uint",),
    "nvmlDeviceGetCudaComputeCapability": ("c_int", "c_int"),
    "nvmlDeviceGetMigMode": ("c_uint", "c_uint"),
    "nvmlDeviceGetMaxMigDeviceCount": ("c_uint",),
    "nvmlDeviceGetMigDeviceHandleByIndex": ("c_void_p",),
    "nvmlDeviceGetAttributes": ("attributes",),
}
_VERSION_2 = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetAttributes")

Board = TypeVar("Board")


class NvmlError(Exception):
    """An error that the library returned; `value` is NVML's code."""

    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


class NvmlLibrary:
    """The library. Raises OSError where it cannot be loaded, AttributeError for a function it lacks."""

    def __init__(self) -> None:
        import ctypes  # most machines never need it

        self._ctypes = ctypes
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        sizes = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
        counts = [
            ("multiprocessorCount", ctypes.c_uint),
            ("others", ctypes.c_uint * 7),
            ("memorySizeMB", ctypes.c_ulonglong),
        ]
        self._types: dict[str, Any] = {
            "text": ctypes.c_char * 96,  # the largest name or uuid that NVML writes
            "memory": type("Memory", (ctypes.Structure,), {"_fields_": sizes}),
            "attributes": type("Attributes", (ctypes.Structure,), {"_fields_": counts}),
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:  # Any: a number, text, structure or handle
        if name not in _OUTPUTS:
            raise AttributeError(name)
        function = getattr(self._library, f"{name}_v2" if name in _VERSION_2 else name)
        return partial(self._call, function, _OUTPUTS[name])

    def _call(self, function: Callable[..., int], outputs: tuple[str, ...], *inputs: Any) -> Any:
        filled = [(self._types.get(name) or getattr(self._ctypes, name))() for name in outputs]
        arguments = [*inputs, *map(self._ctypes.byref, filled)]
        if outputs == ("text",):
            arguments.append(self._ctypes.sizeof(filled[0]))
        if code := function(*arguments):
            raise NvmlError(code, self._describe(code))
        # A handle and a structure stay as they are.
        opaque = (self._ctypes.Structure, self._ctypes.c_void_p)
        values = tuple(output if isinstance(output, opaque) else output.value for output in filled)
        return values[0] if len(values) == 1 else values

    def _describe(self, code: int) -> str:
        try:
            describe = self._library.nvmlErrorString
            describe.restype = self._ctypes.c_char_p
            description: bytes = describe(code)
            return description.decode("utf-8", "replace")
        except Exception:
            return f"NVML error {code}"


@dataclass
class DriverReading(Generic[Board]):
    """The boards, in the driver's order: None where it did not answer, or its library cannot be loaded.

    Filled by one thread, read by another that may not wait for it.
    """

    boards: list[Board] | None = None
    library_loads: bool = True
    error: Exception | None = None


def read_inventory(deadline: float = DEADLINE_SECONDS) -> tuple[tuple[Gpu, ...] | None, bool]:
    """Return every board, each followed by its MIG instances, and whether the library can be loaded.

    The first is None where there is no driver. A board that could not be read has its index only.
    """
    reading = read_boards(_read_board, lambda index: [Gpu(index)], deadline=deadline)
    boards = reading.boards
    return None if boards is None else tuple(gpu for board in boards for gpu in board), reading.library_loads


def read_boards(
    read: Callable[[Any, int], Board],
    late: Callable[[int], Board],
    *,
    deadline: float,
    nvml: Any = None,
    wait: Callable[[threading.Thread, float], object] = threading.Thread.join,
) -> DriverReading[Board]:
    """Read every board with `read`, which is given the binding and an index and does not raise.

    A board that was not read before the deadline is what `late` returns. A driver call that hangs cannot be
    interrupted: it is in the kernel. So a thread calls, and after `deadline` seconds it is abandoned. It is a
    daemon, and not of a pool, because the interpreter joins any other kind at its end. While one is stuck no
    other is started, so that a sick driver does not cost a long job a thread per call.
    """
    global abandoned
    if abandoned is not None and abandoned.is_alive():
        return DriverReading(error=TimeoutError("an earlier call still hangs"))
    reading: DriverReading[Board] = DriverReading()
    thread = threading.Thread(
        target=_read, args=(reading, read, late, nvml), name="fleetgauge-nvml", daemon=True
    )
    thread.start()
    wait(thread, deadline)
    if thread.is_alive():
        abandoned = thread
        timeout = f"no answer within {deadline:g} s"
        debug_once("NVML", timeout)
        boards = None if reading.boards is None else list(reading.boards)
        return DriverReading(boards, reading.library_loads, TimeoutError(timeout))
    return reading


abandoned: threading.Thread | None = None


def _read(
    reading: DriverReading[Board], read: Callable[[Any, int], Board], late: Callable[[int], Board], nvml: Any
) -> None:
    try:
        nvml = nvml if nvml is not None else NvmlLibrary()
        nvml.nvmlInit()
    except Exception as error:
        reading.library_loads = not isinstance(error, OSError) and error_code(error) != _NO_LIBRARY
        reading.error = error
        debug_once("NVML", error)
        return
    try:
        reading.boards = boards = [late(index) for index in range(nvml.nvmlDeviceGetCount())]
        for index in range(len(boards)):
            boards[index] = read(nvml, index)
    except Exception as error:
        reading.error = error
        debug_once("NVML", error)
    finally:
        with suppress(Exception):
            nvml.nvmlShutdown()


def error_code(error: Exception) -> object:
    """Return NVML's own code of an error, None for any other kind."""
    return getattr(error, "value", None)


@dataclass
class Device:
    """One device. Each function is called once; one that fails costs its own value."""

    nvml: Any
    handle: Any
    lost: str | None = None  # the error, where the device is lost
    codes: dict[str, object] = field(default_factory=dict)  # of the errors, by function
    _values: dict[tuple[str, tuple[object, ...]], Any] = field(default_factory=dict)

    def instances(self) -> list[Device]:
        """Return the MIG instances of this board. Their slots are numbered with gaps."""
        enabled, _pending = self.get("nvmlDeviceGetMigMode") or (0, 0)
        slots = self.get_number("nvmlDeviceGetMaxMigDeviceCount") if enabled else None
        handles = (self.get("nvmlDeviceGetMigDeviceHandleByIndex", slot) for slot in range(slots or 0))
        return [Device(self.nvml, handle) for handle in handles if handle is not None]

    def get_text(self, function: str) -> str | None:
        """Return a value that is text."""
        return text(self.get(function)) or None

    def get_number(self, function: str, *arguments: int, field: str | int | None = None) -> int | None:
        """Return a number, or the field of a value that is one; all bits set is NVML's "not available"."""
        number = self.get(function, *arguments)
        if isinstance(field, int):
            number = None if number is None else number[field]
        elif field:
            number = getattr(number, field, None)
        return number if isinstance(number, int) and number not in (2**32 - 1, 2**64 - 1) else None

    def get(self, function: str, *arguments: object) -> Any:  # Any: tuples, structures, handles, text
        """Return what a function returns for the device, None where it fails."""
        key = (function, arguments)
        if key not in self._values:
            self._values[key] = None
            try:
                self._values[key] = getattr(self.nvml, function)(self.handle, *arguments)
            except Exception as error:
                self.codes[function] = error_code(error)
                if error_code(error) in LOST:
                    self.lost = str(error)
        return self._values[key]


def _read_board(nvml: Any, index: int) -> list[Gpu]:
    try:
        device = Device(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        board = _describe(device, index)
        return [board, *(_describe_instance(part, index) for part in device.instances())]
    except Exception as error:
        debug_once(f"GPU {index}", error)
        return [Gpu(index)]


def _describe(device: Device, index: int) -> Gpu:
    major, minor = device.get("nvmlDeviceGetCudaComputeCapability") or (None, None)
    cores, in_each = device.get_number("nvmlDeviceGetNumGpuCores"), _CORES.get((major, minor))
    return Gpu(
        index=index,
        name=device.get_text("nvmlDeviceGetName"),
        memory_bytes=device.get_number("nvmlDeviceGetMemoryInfo", field="total"),
        major=major,
        minor=minor,
        multi_processor_count=cores // in_each if cores and in_each else None,
        uuid=device.get_text("nvmlDeviceGetUUID"),
    )


def _describe_instance(part: Device, index: int) -> Gpu:
    processors = part.get_number("nvmlDeviceGetAttributes", field="multiprocessorCount")
    return replace(_describe(part, index), multi_processor_count=processors)
