"""XID errors, which NVML reports as events only: with --every a thread waits for them.

The kernel log has them as well, but reading it needs privileges that the pod does not request.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from fleetgauge.compute.nvml import error_code

WAIT_MILLISECONDS = 5000
MAX_COUNTERS = 10_000  # a GPU with more errors than that has failed
_XID_EVENT = 0x8
_UNINITIALIZED, _TIMEOUT = 1, 10

log = logging.getLogger(__name__)


class XidListener:
    """Counts XID errors by second, GPU index and XID, while its thread runs.

    The lock protects the counts, which the thread adds to and `counts` removes.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: Counter[tuple[int, int, int]] = Counter()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen, again where the thread has ended, because there was no driver."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._listen, name="xid-listener", daemon=True)
            self._thread.start()

    def counts(self, since: int, until: int) -> dict[tuple[int, int, int], int]:
        """Return the counts by (second, GPU index, XID) for `since <= second < until`; drop older ones.

        The current second is left out until it is over: sent in two parts, the second would overwrite the
        first.
        """
        with self._lock:
            for key in [key for key in self._counts if key[0] < since]:
                del self._counts[key]
            return {key: count for key, count in self._counts.items() if key[0] < until}

    def _listen(self) -> None:
        """Count events until the driver is shut down. Ticks benefit: NVML stays initialised as long.

        A failure to begin ends the thread; the next tick tries again.
        """
        import pynvml as nvml  # type: ignore[import-untyped]

        try:
            nvml.nvmlInit()
            events = nvml.nvmlEventSetCreate()
            count = nvml.nvmlDeviceGetCount()
        except Exception as error:  # no driver, or none with events
            log.debug("cannot listen for XID errors: %s", error)
            return
        handles = {}
        for number in range(count):
            # A GPU that cannot be registered, such as a lost one, does not prevent listening to the others.
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                nvml.nvmlDeviceRegisterEvents(handle, _XID_EVENT, events)
                handles[_address(handle)] = number
            except Exception as error:
                log.debug("cannot listen for XID errors of GPU %d: %s", number, error)
        # The timeout bounds each wait, as a thread inside the driver cannot be interrupted.
        while handles:
            try:
                event = nvml.nvmlEventSetWait(events, WAIT_MILLISECONDS)
            except Exception as error:
                if error_code(error) == _UNINITIALIZED:
                    return
                if error_code(error) != _TIMEOUT:  # a lost GPU makes every wait fail at once
                    time.sleep(WAIT_MILLISECONDS / 1000)
                continue
            index = handles.get(_address(event.device))
            with self._lock:
                if index is not None and event.eventType & _XID_EVENT and len(self._counts) < MAX_COUNTERS:
                    self._counts[int(self._clock()), index, event.eventData] += 1


def _address(handle: Any) -> int | None:  # Any: the binding has no types
    """Return the address that a handle points to: events carry a new handle object for the same GPU."""
    return ctypes.cast(handle, ctypes.c_void_p).value
