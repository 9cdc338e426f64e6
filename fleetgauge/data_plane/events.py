"""What a data-plane event is, and who can be told of one.

Knows neither the client that tells nor what becomes of an event, except that it can be logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, Protocol, TypedDict

from fleetgauge.records.background import renewed_in_child

logger = logging.getLogger("fleetgauge.data_plane")
_nemo_rl_logger = logging.getLogger("nemo_rl.data_plane.observability")

EventStatus = Literal["ok", "error", "timeout"]

# Operations that may change what is held, however they end.
WRITES = frozenset({"put", "clear", "register"})


class DataPlaneEvent(TypedDict):
    """One call of the data plane, told after it returned or raised."""

    op: str
    partition_id: str
    n_keys: int
    n_bytes: int
    wall_ms: float
    status: EventStatus


OnEvent = Callable[[DataPlaneEvent], object]


def ignore_event(event: DataPlaneEvent) -> None:
    """The default callback: a named function, so that a client without a callback can be pickled."""


def log_event(event: DataPlaneEvent) -> None:
    """Log one event at INFO: to our logger, or where that is not heard, to that of NeMo-RL's own wrapper."""
    heard = logger if logger.isEnabledFor(logging.INFO) else _nemo_rl_logger
    heard.info("data_plane_event: %s", event)


class Losses:
    """Counts what was lost of one kind, and says so the first time only. A copy counts for itself."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.after_fork()
        renewed_in_child.add(self)

    def after_fork(self) -> None:
        self.count = 0
        self._lock = threading.RLock()

    def add(self, reason: object) -> None:
        with self._lock:
            self.count += 1
            first = self.count == 1
        if first:
            with suppress(Exception):
                logger.warning("data plane: %s: %r; further losses are only counted", self.what, reason)

    def __reduce__(self) -> tuple[type[Losses], tuple[str]]:
        return Losses, (self.what,)


class HasSnapshot(Protocol):
    def snapshot(self) -> dict[str, Any]: ...  # counters and, under `by_op`, a table of them


class EventSink:
    """A callback that is told which clients it hears from, and has to be closed."""

    def __call__(self, event: DataPlaneEvent) -> None:
        raise NotImplementedError

    def attach(self, client: HasSnapshot) -> None:
        """Called by each client that is built with this sink."""

    def before_write(self) -> None:
        """Called by a client, in each process that it is in, before its first operation that writes."""

    def close(self) -> None:
        """Hand on whatever is still held. Events may follow."""
