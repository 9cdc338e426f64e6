"""The NVIDIA driver's library (NVML) by ctypes, and its inventory of GPUs.

`NvmlLibrary` has the few functions that the inventory needs, by the names of `pynvml`, so that the service
can pass `pynvml` instead. CUDA is not initialised. A driver that hangs is abandoned at a deadline, and a GPU
that has fallen off the bus leaves the others readable. `collectors/host` reads its samples through here.
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
# NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: every later call to this GPU fails.
LOST = (15, 16)
NOT_READ = "no answer before the deadline"
# NVML_ERROR_LIBRARY_NOT_FOUND, which only pynvml raises.
_NO_LIBRARY = 12
# CUDA cores per streaming multiprocessor (SM), by compute capability: NVML counts only cores.
_CORES_PER_SM: dict[tuple[int | None, int | None], int] = {
    **dict.fromkeys([(7, 0), (7, 5), (8, 0)], 64),
    **dict.fromkeys([(8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)], 128),
}
# The output arguments of each function, as names of ctypes or of `NvmlLibrary._types`.
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
# Functions whose symbol in the library ends in `_v2`.
_VERSION_2 = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetAttributes")

T = TypeVar("T")


class NvmlError(Exception):
    """An error that the library returned; `value` is NVML's code, as in pynvml."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class NvmlLibrary:
    """NVML by ctypes. Raises OSError where it cannot be loaded, AttributeError for a function it lacks.

    A probe must not depend on a package for this: only the driver's own library is needed.
    """

    def __init__(self) -> None:
        import ctypes  # only machines with GPUs need it

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
        """Return a function that takes NVML's inputs and returns its outputs.

        Raises AttributeError for a function that is not in `_OUTPUTS`, or that the driver lacks.
        """
        if name not in _OUTPUTS:
            raise AttributeError(name)
        function = getattr(self._library, f"{name}_v2" if name in _VERSION_2 else name)
        return partial(self._call, function, _OUTPUTS[name])

    def _call(self, function: Callable[..., int], outputs: tuple[str, ...], *inputs: Any) -> Any:
        """Call a function with buffers for its outputs; return one output, or a tuple. Raises NvmlError."""
        buffers = [(self._types.get(name) or getattr(self._ctypes, name))() for name in outputs]
        arguments = [*inputs, *map(self._ctypes.byref, buffers)]
        if outputs == ("text",):
            arguments.append(self._ctypes.sizeof(buffers[0]))
        if code := function(*arguments):
            raise NvmlError(code)
        # Handles and structures are returned as they are.
        opaque = (self._ctypes.Structure, self._ctypes.c_void_p)
        values = tuple(output if isinstance(output, opaque) else output.value for output in buffers)
        return values[0] if len(values) == 1 else values


@dataclass
class DriverReading(Generic[T]):
    """The readings of all GPUs, in the driver's order; None where the driver could not be read.

    One thread fills it in; another may read it before the first has ended. `library_loads` is False where
    there is no NVIDIA library at all.
    """

    gpus: list[T] | None = None
    library_loads: bool = True
    error: Exception | None = None


def read_inventory(deadline: float = DEADLINE_SECONDS) -> tuple[tuple[Gpu, ...] | None, bool]:
    """Return the GPUs, each followed by its MIG instances, and whether the library can be loaded.

    The GPUs are None where there is no driver. A GPU that could not be read has its index only.
    """
    reading = read_gpus(_read_gpu, lambda index: [Gpu(index)], deadline=deadline)
    gpus = reading.gpus
    return None if gpus is None else tuple(
        device for devices in gpus for device in devices
    ), reading.library_loads


def read_gpus(
    read: Callable[[Any, int], T],
    placeholder: Callable[[int], T],
    *,
    deadline: float,
    nvml: Any = None,
) -> DriverReading[T]:
    """Return `read(nvml, index)` of every GPU, `placeholder(index)` for those not read before the deadline.

    `read` must not raise. `nvml` is the binding, by default a new `NvmlLibrary`. A driver call that hangs in
    the kernel cannot be interrupted: a thread calls, and is abandoned after `deadline` seconds. It is a
    daemon thread and not one of a pool, which the interpreter would join at exit. While it is stuck no other
    is started: then, and after a timeout, the error of the result is a TimeoutError.
    """
    global abandoned
    if abandoned is not None and abandoned.is_alive():
        return DriverReading(error=TimeoutError("an earlier call still hangs"))
    reading: DriverReading[T] = DriverReading()
    thread = threading.Thread(
        target=_read, args=(reading, read, placeholder, nvml), name="fleetgauge-nvml", daemon=True
    )
    thread.start()
    thread.join(deadline)
    if thread.is_alive():
        abandoned = thread
        timeout = f"no answer within {deadline:g} s"
        debug_once("NVML", timeout)
        # A copy: the abandoned thread may still write into its own list.
        gpus = None if reading.gpus is None else list(reading.gpus)
        return DriverReading(gpus, reading.library_loads, TimeoutError(timeout))
    return reading


abandoned: threading.Thread | None = None


def _read(
    reading: DriverReading[T], read: Callable[[Any, int], T], placeholder: Callable[[int], T], nvml: Any
) -> None:
    """Fill in a reading, from the thread that may be abandoned."""
    try:
        nvml = nvml if nvml is not None else NvmlLibrary()
        nvml.nvmlInit()
    except Exception as error:
        reading.library_loads = not isinstance(error, OSError) and error_code(error) != _NO_LIBRARY
        reading.error = error
        debug_once("NVML", error)
        return
    try:
        # Placeholders first: after a timeout, GPUs that were not reached are in the list as well.
        reading.gpus = gpus = [placeholder(index) for index in range(nvml.nvmlDeviceGetCount())]
        for index in range(len(gpus)):
            gpus[index] = read(nvml, index)
    except Exception as error:
        reading.error = error
        debug_once("NVML", error)
    finally:
        with suppress(Exception):
            nvml.nvmlShutdown()


def error_code(error: Exception) -> object:
    """Return the NVML code of an error, None for any other exception."""
    return getattr(error, "value", None)


@dataclass
class Device:
    """A GPU or MIG instance. The result of each call is cached; a call that fails has the result None.

    `codes` has the error code of each function's last failure; a GPU that is lost fails every later call.
    """

    nvml: Any
    handle: Any
    lost: str | None = None  # the message of the error in LOST
    codes: dict[str, object] = field(default_factory=dict)  # NVML error codes by function
    _values: dict[tuple[str, tuple[object, ...]], Any] = field(default_factory=dict)

    def instances(self) -> list[Device]:
        """Return the MIG instances of this GPU, whose indices have gaps."""
        enabled, _pending = self.get("nvmlDeviceGetMigMode") or (0, 0)
        slots = self.get_number("nvmlDeviceGetMaxMigDeviceCount") if enabled else None
        handles = (self.get("nvmlDeviceGetMigDeviceHandleByIndex", slot) for slot in range(slots or 0))
        return [Device(self.nvml, handle) for handle in handles if handle is not None]

    def get_text(self, function: str) -> str | None:
        """Return a text, None where it is empty or the call fails."""
        return text(self.get(function)) or None

    def get_number(self, function: str, *arguments: int, field: str | int | None = None) -> int | None:
        """Return an integer result, or the `field` of a tuple or structure; None where it is not available.

        NVML marks a value that is not available by setting all bits.
        """
        number = self.get(function, *arguments)
        if isinstance(field, int):
            number = None if number is None else number[field]
        elif field:
            number = getattr(number, field, None)
        return number if isinstance(number, int) and number not in (2**32 - 1, 2**64 - 1) else None

    def get(self, function: str, *arguments: object) -> Any:  # Any: tuples, structures, handles, text
        """Call a function on the device and return its result, None where it fails."""
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


def _read_gpu(nvml: Any, index: int) -> list[Gpu]:
    """Return a GPU and its MIG instances; only the index where it cannot be read. Never raises."""
    try:
        device = Device(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        gpus = [_describe(device, index)]
        for instance in device.instances():
            # Of a MIG instance the number of multiprocessors is an attribute, and need not be computed from
            # cores.
            count = instance.get_number("nvmlDeviceGetAttributes", field="multiprocessorCount")
            gpus.append(replace(_describe(instance, index), multi_processor_count=count))
        return gpus
    except Exception as error:
        debug_once(f"GPU {index}", error)
        return [Gpu(index)]


def _describe(device: Device, index: int) -> Gpu:
    """Return a device as its driver describes it; what it does not report is None."""
    major, minor = device.get("nvmlDeviceGetCudaComputeCapability") or (None, None)
    cores, cores_per_sm = device.get_number("nvmlDeviceGetNumGpuCores"), _CORES_PER_SM.get((major, minor))
    return Gpu(
        index=index,
        name=device.get_text("nvmlDeviceGetName"),
        memory_bytes=device.get_number("nvmlDeviceGetMemoryInfo", field="total"),
        major=major,
        minor=minor,
        multi_processor_count=cores // cores_per_sm if cores and cores_per_sm else None,
        uuid=device.get_text("nvmlDeviceGetUUID"),
    )
