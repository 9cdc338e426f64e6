"""The NVIDIA driver's own library, asked without any package.

Answers the questions of `fleetgauge.compute.nvml` under the names that `pynvml` gives them, so that either
serves. Knows which arguments the functions of NVML fill in; knows nothing of what the answers mean.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_Text = ctypes.c_char * 96  # the largest name or uuid that NVML writes


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("multiprocessorCount", ctypes.c_uint),
        ("others", ctypes.c_uint * 7),
        ("memorySizeMB", ctypes.c_ulonglong),
    ]


# What each function fills in.
_OUTPUTS: dict[str, tuple[type[Any], ...]] = {
    "nvmlInit": (),
    "nvmlShutdown": (),
    "nvmlDeviceGetCount": (ctypes.c_uint,),
    "nvmlDeviceGetHandleByIndex": (ctypes.c_void_p,),
    "nvmlDeviceGetName": (_Text,),
    "nvmlDeviceGetUUID": (_Text,),
    "nvmlDeviceGetMemoryInfo": (_Memory,),
    "nvmlDeviceGetNumGpuCores": (ctypes.c_uint,),
    "nvmlDeviceGetCudaComputeCapability": (ctypes.c_int, ctypes.c_int),
    "nvmlDeviceGetMigMode": (ctypes.c_uint, ctypes.c_uint),
    "nvmlDeviceGetMaxMigDeviceCount": (ctypes.c_uint,),
    "nvmlDeviceGetMigDeviceHandleByIndex": (ctypes.c_void_p,),
    "nvmlDeviceGetAttributes": (_Attributes,),
}
# `pynvml` leaves out the version that these names have in the library.
_VERSIONED = ("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetAttributes")


class DriverError(Exception):
    """The driver refused to answer; `value` is NVML's code."""

    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


class DriverLibrary:
    """The library, loaded: an OSError where there is none. What it cannot be asked is an AttributeError."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    # Whatever the function fills in: a number, a text, a structure, a handle, or a tuple of numbers.
    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _OUTPUTS:
            raise AttributeError(name)
        function = getattr(self._library, f"{name}_v2" if name in _VERSIONED else name)
        return partial(self._ask, function, _OUTPUTS[name])

    def _ask(
        self, function: Callable[..., int], outputs: tuple[type[Any], ...], *inputs: ctypes.c_void_p | int
    ) -> Any:
        filled = [output() for output in outputs]
        arguments: list[Any] = [*inputs, *map(ctypes.byref, filled)]
        if outputs == (_Text,):
            arguments.append(ctypes.sizeof(_Text))
        code = function(*arguments)
        if code:
            raise DriverError(code, self._text(code))
        answers = tuple(_plain(output) for output in filled)
        return answers[0] if len(answers) == 1 else answers

    def _text(self, code: int) -> str:
        try:
            describe = self._library.nvmlErrorString
            describe.restype = ctypes.c_char_p
            text: bytes = describe(code)
            return text.decode("utf-8", "replace")
        except Exception:
            return f"NVML answers {code}"


def _plain(output: Any) -> Any:
    """A number or a text; a handle or a structure as it is."""
    if isinstance(output, ctypes.Structure | ctypes.c_void_p):
        return output
    return output.value
