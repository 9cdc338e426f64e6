"""A driver from a recording: the real `pynvml` binding over a shared library that is not there.

A recording holds, for each device, what every C function of NVML put into its output arguments, or the
error code it returned; a function it does not hold is not supported. Constants, structures, error classes
and the conversion of text are therefore the binding's own. The recordings are written by hand, after what
NVML documents and these cards are known to answer.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the demo uses this too, and has no pytest
    import pytest

DATA = Path(__file__).parents[2] / "data" / "nvml"
_SUCCESS, _NOT_SUPPORTED, _NOT_FOUND = 0, 3, 6


class Driver:
    """What the binding takes for `libnvidia-ml.so.1`."""

    def __init__(self, recording: dict[str, Any], hang_in: str = "", hang_on: int = -1) -> None:
        self._recording = recording
        self._hang_in, self._hang_on = hang_in, hang_on
        self._devices: list[dict[str, Any]] = []
        self.entered = threading.Event()
        self.release = threading.Event()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("__") or name in self._recording.get("functions_not_found", []):
            raise AttributeError(name)
        return lambda *arguments: self._call(name, arguments)

    def _call(self, name: str, arguments: tuple[Any, ...]) -> int:
        self.calls.append(name)
        inputs = [argument.value for argument in arguments if isinstance(argument, ctypes.c_uint)]
        outputs = [one for one in arguments if hasattr(one, "_obj") or isinstance(one, ctypes.Array)]
        handle = next((one for one in arguments if isinstance(one, ctypes._Pointer)), None)
        device = self._recording if handle is None else self.device(handle)
        if name == self._hang_in and self._hang_on in (-1, *inputs):
            self.entered.set()
            self.release.wait()
        if name == "nvmlDeviceGetHandleByIndex_v2":
            return self._open(self._recording["devices"][inputs[0]], outputs[0])
        if name == "nvmlDeviceGetMigDeviceHandleByIndex":
            return self._open(device["instances"].get(str(inputs[0]), _NOT_FOUND), outputs[0])
        answer = device.get(f"{name}({', '.join(map(str, inputs))})", device.get(name, _NOT_SUPPORTED))
        if isinstance(answer, int):
            return answer
        for output, value in zip(outputs, answer, strict=True):
            _fill(output, value)
        return _SUCCESS

    def device(self, handle: Any) -> dict[str, Any]:
        """What the recording holds of the device that a handle was given for."""
        return self._devices[(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1]

    def _open(self, device: dict[str, Any] | int, output: Any) -> int:
        if isinstance(device, int):
            return device
        self._devices.append(device)
        # A handle is opaque to the binding: its address is only ever handed back.
        ctypes.c_void_p.from_address(ctypes.addressof(output._obj)).value = len(self._devices)
        return _SUCCESS


def binding(monkeypatch: pytest.MonkeyPatch, driver: Driver | ctypes.CDLL | None) -> ModuleType:
    """A fresh `pynvml` over `driver`, installed as the process's own."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The binding hangs its error classes on whatever goes by its name.
    monkeypatch.setitem(sys.modules, "pynvml", module)
    spec.loader.exec_module(module)
    module.nvmlLib = driver  # type: ignore[attr-defined]
    return module


def probe_binding(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> ModuleType:
    """The same in place of the probe's own binding."""
    module = binding(monkeypatch, driver)
    monkeypatch.setattr("fleetgauge.compute.nvml.NvmlLibrary", lambda: module)
    return module


def recording(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return loaded


def _fill(output: Any, value: Any) -> None:
    if isinstance(output, ctypes.Array):
        output.value = value.encode()
    elif isinstance(value, list):
        for element, each in zip(output._obj, value, strict=True):
            _set(element, each)
    elif isinstance(value, dict):
        _set(output._obj, value)
    else:
        output._obj.value = value


def _set(structure: Any, fields: dict[str, Any]) -> None:
    for field, value in fields.items():
        setattr(structure, field, value)
