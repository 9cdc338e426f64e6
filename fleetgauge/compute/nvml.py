"""What the NVIDIA driver says of its GPUs, asked through `pynvml` where that is installed, else by itself.

Knows NVML; knows nothing of which GPUs a process may use. Asks without initialising CUDA, gives up at a
deadline, and lets a GPU that has fallen off the bus cost only itself.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from fleetgauge.compute.gpu import Gpu, text
from fleetgauge.compute.once import left_out

DEADLINE_SECONDS = 10.0

NOT_SUPPORTED = 3
# Codes of NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: this GPU will answer nothing more.
LOST = (15, 16)
LATE = "no answer before the deadline"
# The code of NVML_ERROR_LIBRARY_NOT_FOUND, which only a binding answers.
_NO_LIBRARY = 12
# NVML counts cores; what CUDA reports are multiprocessors. Cores in each, by compute capability.
_CORES: dict[tuple[int | None, int | None], int] = {
    **dict.fromkeys([(7, 0), (7, 5), (8, 0)], 64),
    **dict.fromkeys([(8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)], 128),
}

Board = TypeVar("Board")


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One board. `instances` are its parts where MIG has divided it; `error` says why it was not read."""

    gpu: Gpu
    instances: tuple[Gpu, ...] = ()
    error: str | None = None


@dataclass
class DriverAnswer(Generic[Board]):
    """The boards, in the driver's order: None where it did not answer, or no library of it can be loaded.

    Filled by one thread, read by another that may not wait for it.
    """

    boards: list[Board] | None = None
    library_loads: bool = True
    error: Exception | None = None


def read_gpus(
    *,
    deadline: float = DEADLINE_SECONDS,
    # The binding has no types, and a stand-in need not be a module.
    nvml: Any = None,
    wait: Callable[[threading.Thread, float], object] = threading.Thread.join,
) -> tuple[GpuReading, ...] | None:
    """Describe every board, in the driver's order; None where there is no driver to ask."""
    boards = ask_driver(read_board, unread_board, deadline=deadline, nvml=nvml, wait=wait).boards
    return None if boards is None else tuple(boards)


def ask_driver(
    read: Callable[[Any, int], Board],
    unread: Callable[[int], Board],
    *,
    deadline: float,
    nvml: Any = None,
    wait: Callable[[threading.Thread, float], object] = threading.Thread.join,
) -> DriverAnswer[Board]:
    """Read every board with `read`, which is given the binding and an index and does not raise.

    A board that was not read before the deadline is what `unread` says. A driver call that hangs cannot be
    interrupted: it sits in the kernel. So a thread asks, and past `deadline` seconds it is left behind. It
    is a daemon, and not of a pool, because the interpreter joins any other kind on its way out. While one is
    stuck no other is started, so that a sick driver does not cost a long job a thread per question.
    """
    global left_behind
    if left_behind is not None and left_behind.is_alive():
        return DriverAnswer(error=TimeoutError("an earlier question is still unanswered"))
    answer: DriverAnswer[Board] = DriverAnswer()
    thread = threading.Thread(
        target=_ask, args=(answer, read, unread, nvml), name="fleetgauge-nvml", daemon=True
    )
    thread.start()
    wait(thread, deadline)
    if thread.is_alive():
        left_behind = thread
        late = f"no answer within {deadline:g} s"
        left_out("NVML", late)
        boards = None if answer.boards is None else list(answer.boards)
        return DriverAnswer(boards, answer.library_loads, TimeoutError(late))
    return answer


left_behind: threading.Thread | None = None


def _ask(
    answer: DriverAnswer[Board], read: Callable[[Any, int], Board], unread: Callable[[int], Board], nvml: Any
) -> None:
    try:
        nvml = nvml if nvml is not None else binding()
        nvml.nvmlInit()
    except Exception as error:
        answer.library_loads = not isinstance(error, OSError) and code_of(error) != _NO_LIBRARY
        answer.error = error
        left_out("NVML", error)
        return
    try:
        answer.boards = boards = [unread(index) for index in range(nvml.nvmlDeviceGetCount())]
        for index in range(len(boards)):
            boards[index] = read(nvml, index)
    except Exception as error:
        answer.error = error
        left_out("NVML", error)
    finally:
        with suppress(Exception):
            nvml.nvmlShutdown()


# The binding has no types.
def binding() -> Any:
    """`pynvml`, or the driver's own library where it is missing or is something else of that name."""
    with suppress(Exception):
        pynvml = importlib.import_module("pynvml")
        if callable(pynvml.nvmlInit):
            return pynvml
    from fleetgauge.compute.driver import DriverLibrary  # with ctypes, which most machines never need

    return DriverLibrary()


def code_of(error: Exception) -> object:
    """NVML's own code of an error, None of any other kind."""
    return getattr(error, "value", None)


def read_board(nvml: Any, index: int) -> GpuReading:
    """What one board is."""
    try:
        ask = Questions(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        gpu = _identity(ask, index)
        return GpuReading(gpu, tuple(_instance(part, index) for part in ask.instances()), ask.lost)
    except Exception as error:
        left_out(f"GPU {index}", error)
        return GpuReading(Gpu(index), error=str(error))


def unread_board(index: int) -> GpuReading:
    """A board that the driver lists and has not described."""
    return GpuReading(Gpu(index), error=LATE)


@dataclass
class Questions:
    """Questions to one device, each asked once. One that it cannot answer costs one answer."""

    nvml: Any
    handle: Any
    lost: str | None = None  # what it said, where it is
    codes: dict[str, object] = field(default_factory=dict)  # of the errors, by function
    _answers: dict[tuple[str, tuple[object, ...]], Any] = field(default_factory=dict)

    def instances(self) -> list[Questions]:
        """The MIG instances of this board. Their slots are numbered with gaps."""
        enabled, _pending = self.answer("nvmlDeviceGetMigMode") or (0, 0)
        slots = self.number("nvmlDeviceGetMaxMigDeviceCount") if enabled else None
        handles = (self.answer("nvmlDeviceGetMigDeviceHandleByIndex", slot) for slot in range(slots or 0))
        return [Questions(self.nvml, handle) for handle in handles if handle is not None]

    def words(self, function: str) -> str | None:
        """An answer that is a text."""
        return text(self.answer(function)) or None

    def number(self, function: str, *arguments: int, field: str | int | None = None) -> int | None:
        """An answer that is a number, or the field of it that is; all bits set is NVML's "not available"."""
        number = self.answer(function, *arguments)
        if isinstance(field, int):
            number = None if number is None else number[field]
        elif field:
            number = getattr(number, field, None)
        return number if isinstance(number, int) and number not in (2**32 - 1, 2**64 - 1) else None

    # Whatever the binding returns: tuples, structures, handles, text.
    def answer(self, function: str, *arguments: object) -> Any:
        """What the device answers, None where it does not."""
        key = (function, arguments)
        if key not in self._answers:
            self._answers[key] = self._ask(function, *arguments)
        return self._answers[key]

    def _ask(self, function: str, *arguments: object) -> Any:
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except Exception as error:
            self.codes[function] = code_of(error)
            if code_of(error) in LOST:
                self.lost = str(error)
            return None


def _identity(ask: Questions, index: int) -> Gpu:
    major, minor = ask.answer("nvmlDeviceGetCudaComputeCapability") or (None, None)
    cores, in_each = ask.number("nvmlDeviceGetNumGpuCores"), _CORES.get((major, minor))
    return Gpu(
        index=index,
        name=ask.words("nvmlDeviceGetName"),
        memory_bytes=ask.number("nvmlDeviceGetMemoryInfo", field="total"),
        major=major,
        minor=minor,
        multi_processor_count=cores // in_each if cores and in_each else None,
        uuid=ask.words("nvmlDeviceGetUUID"),
    )


def _instance(ask: Questions, index: int) -> Gpu:
    processors = ask.number("nvmlDeviceGetAttributes", field="multiprocessorCount")
    return replace(_identity(ask, index), multi_processor_count=processors)
