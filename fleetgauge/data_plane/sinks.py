"""Callbacks for `MetricsDataPlaneClient(on_event=…)`: several in a chain, and aggregates for W&B."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from fleetgauge.data_plane.events import (
    DataPlaneEvent,
    EventSink,
    EventStatus,
    HasSnapshot,
    LoggedLosses,
    OnEvent,
    logger,
)
from fleetgauge.data_plane.operation_totals import OperationTotals
from fleetgauge.data_plane.process import PerProcess
from fleetgauge.records.background import Worker

MAX_WAITING = 10_000  # events that the thread has not taken yet


class _Chain(EventSink):
    def __init__(self, callbacks: tuple[OnEvent, ...]) -> None:
        self.callbacks = callbacks
        self._losses = PerProcess(partial(LoggedLosses, "a chained callback raised"))

    @property
    def errors(self) -> int:
        return self._losses.get().count

    def __call__(self, event: DataPlaneEvent) -> None:
        for callback in self.callbacks:
            self._guarded(callback, event.copy())

    def attach(self, client: HasSnapshot) -> None:
        for sink in self._sinks():
            self._guarded(sink.attach, client)

    def close(self) -> None:
        for sink in self._sinks():
            self._guarded(sink.close)

    def _sinks(self) -> list[EventSink]:
        return [callback for callback in self.callbacks if isinstance(callback, EventSink)]

    def _guarded(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._losses.get().lose(error)


def chain(*callbacks: OnEvent) -> _Chain:
    """Return a callback that calls several, each with a copy of its own and whatever the others raise."""
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(f"chain() takes callbacks, and {callback!r} cannot be called")
    return _Chain(callbacks)


class WandbRun(Protocol):
    def log(self, data: dict[str, Any], *, commit: bool) -> object: ...  # W&B takes values of many types


class _NoRun:
    """Replaces the run outside of the process that began it."""

    def log(self, data: dict[str, Any], *, commit: bool) -> None:  # noqa: ARG002  # as a run's
        raise RuntimeError("a copy in another process logs nothing: the run is in the process that began it")


class WandbEvents(EventSink):
    """Logs the totals of the events since the start under `data_plane/`, at most every `interval_s`.

    `run.log` is called on a thread of its own, without a step: the values appear at the next step that the
    host logs. Partitions are not distinguished, as their names may be without end. What is outstanding is
    logged where all clients are declared the `sole_writer`. The run stays where it is: a copy out of a
    pickle, and a forked child, log nothing.
    """

    def __init__(
        self, run: WandbRun, interval_s: float = 10.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not callable(getattr(run, "log", None)):
            raise TypeError(f"WandbEvents needs a W&B run, and {run!r} has no log()")
        if not (math.isfinite(interval_s) and interval_s >= 0):
            raise ValueError(f"interval_s is {interval_s!r}: it must be a number of seconds, 0 or more")
        self._interval_s = interval_s
        self._clients: weakref.WeakSet[HasSnapshot] = weakref.WeakSet()
        built_in = os.getpid()

        def new_logger() -> _WandbLogger:
            own_run = run if os.getpid() == built_in else _NoRun()
            return _WandbLogger(own_run, self._clients, interval_s, clock)

        self._logger = PerProcess(new_logger)

    @property
    def errors(self) -> int:
        """Events that were not counted, and logs that failed."""
        return self._logger.get().worker.lost

    def attach(self, client: HasSnapshot) -> None:
        self._clients.add(client)

    def __call__(self, event: DataPlaneEvent) -> None:
        self._logger.get().put(event)

    def close(self) -> None:
        """Log what is not yet logged, for a few seconds at most. Later events are dropped."""
        self._logger.get().worker.close()

    def __reduce__(self) -> tuple[type[WandbEvents], tuple[_NoRun, float]]:
        return WandbEvents, (_NoRun(), self._interval_s)


class _WandbLogger:
    """The totals of one process."""

    def __init__(
        self,
        run: WandbRun,
        clients: weakref.WeakSet[HasSnapshot],
        interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.worker = Worker("wandb", "W&B", MAX_WAITING, logger, finish=self._log)
        self._run = run
        self._clients = clients
        self._interval_s = interval_s
        self._clock = clock
        self._due = clock() + interval_s
        self._totals: dict[tuple[str, EventStatus], OperationTotals] = {}

    def put(self, event: DataPlaneEvent) -> None:
        """Queue an event: all that an operation's own thread does."""
        self.worker.start()
        self.worker.put(partial(self._add, self._clock(), event))

    # From here on everything runs on the worker's thread.

    def _add(self, at: float, event: DataPlaneEvent) -> None:
        totals = self._totals.get((event["op"], event["status"]), OperationTotals())
        totals.add(event["n_keys"], event["n_bytes"], event["wall_ms"])
        self._totals[event["op"], event["status"]] = totals
        if event["op"] == "close" or at >= self._due:
            self._due = at + self._interval_s
            self._log()

    def _log(self) -> None:
        if self._totals:
            self._run.log(self._metrics(), commit=False)  # after a failure the next one has everything

    def _metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for op in sorted({op for op, _ in self._totals}):
            metrics |= _flattened(op, {status: t for (name, status), t in self._totals.items() if name == op})
        clients = list(self._clients)
        snapshots = [client.snapshot() for client in clients]
        gauges = ["foreign_clears", "keys_overflowed"] * bool(clients)
        if clients and all(getattr(client, "sole_writer", False) for client in clients):
            gauges += ["bytes_outstanding", "peak_bytes_outstanding", "n_keys_outstanding"]
        return metrics | {f"data_plane/{name}": sum(each[name] for each in snapshots) for name in gauges}


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
