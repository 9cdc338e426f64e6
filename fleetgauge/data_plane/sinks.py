"""What can be done with data-plane events: share them out, add them up for W&B.

Everything here is a callback for `MetricsDataPlaneClient(on_event=…)`. Once built, none raises or makes an
operation wait: what is lost is counted, and said once.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from fleetgauge.data_plane.events import DataPlaneEvent, EventSink, EventStatus, HasSnapshot, Losses, OnEvent
from fleetgauge.data_plane.operation_totals import OperationTotals
from fleetgauge.data_plane.peers import Peers, rank_here
from fleetgauge.records.background import renewed_in_child

# How long a program's end may be held up by a log that hangs.
MAX_LAST_LOG_WAIT_S = 5.0


class _Chain(EventSink):
    def __init__(self, callbacks: tuple[OnEvent, ...]) -> None:
        self.callbacks = callbacks
        self._losses = Losses("a chained callback raised")

    @property
    def errors(self) -> int:
        return self._losses.count

    def __call__(self, event: DataPlaneEvent) -> None:
        for callback in self.callbacks:
            self._guarded(callback, event.copy())

    def attach(self, client: HasSnapshot) -> None:
        for sink in self._sinks():
            self._guarded(sink.attach, client)

    def before_write(self) -> None:
        for sink in self._sinks():
            self._guarded(sink.before_write)

    def close(self) -> None:
        for sink in self._sinks():
            self._guarded(sink.close)

    def _sinks(self) -> list[EventSink]:
        return [callback for callback in self.callbacks if isinstance(callback, EventSink)]

    def _guarded(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._losses.add(error)


def chain(*callbacks: OnEvent) -> _Chain:
    """One callback out of several. Each gets its own copy; one that raises does not keep it from the rest."""
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(f"chain() takes callbacks, and {callback!r} cannot be called")
    return _Chain(callbacks)


class WandbRun(Protocol):
    def log(self, data: dict[str, Any], *, commit: bool) -> object: ...  # W&B takes values of many types


class _NoRun:
    """Stands for the run where it is not: a run belongs to the process that began it."""

    def __init__(self) -> None:
        self._losses = Losses("a copy of WandbEvents in another process logs nothing to W&B")

    def log(self, data: dict[str, Any], *, commit: bool) -> None:  # noqa: ARG002  # what a run takes
        self._losses.add("the run is in the process that began it")


class WandbEvents(EventSink):
    """Logs what the events add up to since the start, under `data_plane/`, at most every `interval_s`.

    The values ride on the host's own next `run.log`: they never advance its step. Values that accumulate lose
    nothing when two intervals fall into one step. Partitions are not told apart, as their names may be
    without end. The run stays where it is: out of a pickle, and in a forked child, nothing is logged.
    """

    def __init__(
        self, run: WandbRun, interval_s: float = 10.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not callable(getattr(run, "log", None)):
            raise TypeError(f"WandbEvents needs a W&B run, and {run!r} has no log()")
        if not (math.isfinite(interval_s) and interval_s >= 0):
            raise ValueError(f"interval_s is {interval_s!r}: it must be a number of seconds, 0 or more")
        self._interval_s = interval_s
        self._clock = clock
        self.clients: weakref.WeakSet[HasSnapshot] = weakref.WeakSet()
        self._n_attached = 0  # with those that are gone
        self.peers = Peers()
        self._begin(run)
        renewed_in_child.add(self)

    def _begin(self, run: WandbRun) -> None:
        self._run = run
        self._due = self._clock() + self._interval_s
        self._totals: dict[tuple[str, EventStatus], OperationTotals] = {}
        self._losses = Losses("an event or its aggregate did not reach W&B")
        self._lock = threading.RLock()
        self._logging = threading.Lock()

    def after_fork(self) -> None:
        self._begin(_NoRun())

    def __reduce__(self) -> tuple[type[WandbEvents], tuple[_NoRun, float]]:
        self.peers.copied = True
        return WandbEvents, (_NoRun(), self._interval_s)

    @property
    def errors(self) -> int:
        return self._losses.count

    def attach(self, client: HasSnapshot) -> None:
        with self._lock:
            self.clients.add(client)
            self._n_attached += 1

    def before_write(self) -> None:
        self.peers.begin("")

    def __call__(self, event: DataPlaneEvent) -> None:
        try:
            if self._counted_and_due(event):
                self._log(wait_s=0)
        except Exception as error:
            self._losses.add(error)

    def close(self) -> None:
        atexit.unregister(self.close)
        if not self._log(wait_s=MAX_LAST_LOG_WAIT_S):
            self._losses.add("an earlier log has not returned")

    def metrics(self) -> dict[str, float]:
        """What would be logged now. What is outstanding is left out where the clients cannot know it."""
        metrics: dict[str, float] = {}
        with self._lock:
            for op in sorted({op for op, _ in self._totals}):
                metrics |= _flattened(
                    op, {status: t for (name, status), t in self._totals.items() if name == op}
                )
            clients = list(self.clients)
        read = {client: client.snapshot() for client in clients}
        gauges = ["foreign_clears", "keys_overflowed"] * bool(read)
        if read and not self.peers.unknown(read, self._n_attached, rank_here()):
            gauges += ["bytes_outstanding", "peak_bytes_outstanding", "n_keys_outstanding"]
        return metrics | {
            f"data_plane/{one}": sum(snapshot[one] for snapshot in read.values()) for one in gauges
        }

    def _counted_and_due(self, event: DataPlaneEvent) -> bool:
        one = OperationTotals.of_one(event["n_keys"], event["n_bytes"], event["wall_ms"])
        with self._lock:
            if not self._totals:
                atexit.register(self.close)
            self._totals.setdefault((event["op"], event["status"]), OperationTotals()).add(one)
            now = self._clock()
            if now < self._due and event["op"] != "close":
                return False
            self._due = now + self._interval_s
            return True

    def _log(self, *, wait_s: float) -> bool:
        # One at a time, or older values could land on newer ones; an operation does not wait its turn.
        if not self._logging.acquire(timeout=wait_s):
            return False
        try:
            if metrics := self.metrics():
                self._run.log(metrics, commit=False)
        except Exception as error:
            self._losses.add(error)
        finally:
            self._logging.release()
        return True


def _flattened(op: str, by_status: dict[EventStatus, OperationTotals]) -> dict[str, float]:
    failed = {
        f"data_plane/{op}/{name}": by_status[status].count if status in by_status else 0
        for status, name in (("error", "errors"), ("timeout", "timeouts"))
    }
    ok = by_status.get("ok")
    if ok is None:
        return {f"data_plane/{op}/ops": 0, **failed}
    counts = {"ops": ok.count, "keys": ok.keys, "bytes": ok.bytes}
    times = {"avg": ok.wall_ms_avg, "max": ok.wall_ms_max} | {
        f"p{percent}": ok.wall_ms_percentile(percent) for percent in (50, 95, 99)
    }
    return {
        **{f"data_plane/{op}/{name}": value for name, value in counts.items()},
        **failed,
        **{f"data_plane/{op}/wall_ms/{name}": value for name, value in times.items()},
    }
