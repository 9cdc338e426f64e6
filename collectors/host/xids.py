"""XID errors, which the driver tells only whoever listens: a thread does, in a process that stays."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from collectors.host.boards import load_pynvml
from fleetgauge.compute.nvml import error_code

WAIT_MILLISECONDS = 5000
MAX_KEPT = 10_000  # seconds with an error; a board that reports more is dead, and has said so
_XID_EVENT = 0x8
_UNINITIALIZED, _TIMEOUT = 1, 10

log = logging.getLogger(__name__)


class XidListener:
    """Counts XID errors by second, board and number, from its start on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: Counter[tuple[int, int, int]] = Counter()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="xid-listener", daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        """Whether it listens no longer, because no driver could be asked, and has nothing left to tell."""
        return not self._thread.is_alive() and not self._seen

    def take(self, before: int) -> list[tuple[int, int, int, int]]:
        """Second, board, XID and how many, of seconds that are over; each is told once."""
        with self._lock:
            over = [key for key in self._seen if key[0] < before]
            return [(*key, self._seen.pop(key)) for key in over]

    def _listen(self) -> None:
        """That the library stays initialised also spares every tick its start."""
        try:
            nvml = load_pynvml()
            nvml.nvmlInit()
            events = nvml.nvmlEventSetCreate()
            boards = dict(
                board
                for index in range(nvml.nvmlDeviceGetCount())
                if (board := _registered(nvml, events, index)) is not None
            )
        except Exception as error:  # no driver, or none with events
            log.debug("XID errors are not listened for: %s", error)
            return
        while boards:
            try:
                event = nvml.nvmlEventSetWait(events, WAIT_MILLISECONDS)
            except Exception as error:
                if error_code(error) == _UNINITIALIZED:
                    return
                if error_code(error) != _TIMEOUT:  # a board that is lost makes every wait fail at once
                    time.sleep(WAIT_MILLISECONDS / 1000)
                continue
            index = boards.get(_address(event.device))
            with self._lock:
                if index is not None and event.eventType & _XID_EVENT and len(self._seen) < MAX_KEPT:
                    self._seen[int(self._clock()), index, event.eventData] += 1


# The binding has no types.
def _registered(nvml: Any, events: Any, index: int) -> tuple[int | None, int] | None:
    """A board that will tell, by its address; None for one that cannot."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        nvml.nvmlDeviceRegisterEvents(handle, _XID_EVENT, events)
    except Exception as error:
        log.debug("XID errors of GPU %d are not listened for: %s", index, error)
        return None
    return _address(handle), index


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
