"""Data-plane events, the callbacks that take them, a counter of losses, and state that is of one process.

`client` emits the events; `sinks` has the callbacks that aggregate them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar

from fleetgauge.records.background import Losses

logger = logging.getLogger("fleetgauge.data_plane")
# The logger of NeMo-RL's own wrapper, which jobs may have configured already.
_nemo_rl_logger = logging.getLogger("nemo_rl.data_plane.observability")

EventStatus = Literal["ok", "error", "timeout"]
T = TypeVar("T")


class DataPlaneEvent(TypedDict):
    """One call of the data plane, emitted after it returned or raised."""

    op: str
    partition_id: str
    n_keys: int
    n_bytes: int
    wall_ms: float
    status: EventStatus


OnEvent = Callable[[DataPlaneEvent], object]


def ignore_event(event: DataPlaneEvent) -> None:
    """Do nothing: the default callback, a named function so that a client can be pickled."""


def log_event(event: DataPlaneEvent) -> None:
    """Log one event at INFO: to our logger or, where that is disabled, to that of NeMo-RL's own wrapper."""
    enabled = logger if logger.isEnabledFor(logging.INFO) else _nemo_rl_logger
    enabled.info("data_plane_event: %s", event)


class LoggedLosses(Losses):
    """Counts losses of one kind, and logs the first.

    Safe from any thread without a lock, as `Losses` is.
    """

    def __init__(self, what: str) -> None:
        super().__init__(logger)
        self._what = what

    def lose(self, reason: object) -> None:
        """Count one loss; `reason`, usually the exception, is logged for the first only."""
        self.add()
        if self.is_new(""):
            self.log("data plane: %s: %r; further losses are only counted", self._what, reason)


class HasSnapshot(Protocol):
    def snapshot(self) -> dict[str, Any]: ...  # counters and, under `by_op`, a table of them


class EventSink:
    """A callback that knows its clients and has to be closed.

    Subclasses are called once per event, on the thread of the operation, so that they must not block. An
    exception is counted by the client.
    """

    def __call__(self, event: DataPlaneEvent) -> None:
        """Take one event."""
        raise NotImplementedError

    def attach(self, client: HasSnapshot) -> None:
        """Take note of a client; called by each client that is built or unpickled with this sink."""

    def close(self) -> None:
        """Write what is not yet written. Later events are lost."""


class PerProcess(Generic[T]):
    """A value of which every process has its own, made on first use.

    In a forked child, and out of a pickle, `get` returns a new value: counts begin at zero, and locks that
    another thread had acquired at the fork are never touched. It takes no lock itself.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._by_pid: dict[int, T] = {}

    def get(self) -> T:
        """Return the value of this process.

        Two threads may both make a value on first use; `setdefault` is atomic, so that both get the same one.
        """
        pid = os.getpid()
        value = self._by_pid.get(pid)
        return self._by_pid.setdefault(pid, self._make()) if value is None else value

    def __reduce__(self) -> tuple[type[PerProcess[T]], tuple[Callable[[], T]]]:
        """Pickle only how to make a value: the copy starts without any."""
        return PerProcess, (self._make,)


def environment_rank() -> int | None:
    """Return the rank in `RANK`, which torchrun and NeMo-RL's workers set; None without one."""
    text = os.environ.get("RANK", "")
    # `isdigit` alone accepts digits of other scripts; a number of ten digits is no rank.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
