"""Callbacks for `MetricsDataPlaneClient(on_event=…)`: several in a chain, aggregates for W&B, and records.

A callback runs on the thread of the operation, so that the sinks here only queue the event; aggregating, the
network and the disk belong to the thread of a `Worker`. The records are explained in docs/data-plane.md.
"""

from __future__ import annotations

import atexit
import math
import os
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from typing import Any, Protocol

from fleetgauge.data_plane.events import (
    DataPlaneEvent,
    EventSink,
    EventStatus,
    HasSnapshot,
    LoggedLosses,
    OnEvent,
    PerProcess,
    environment_rank,
    logger,
)
from fleetgauge.data_plane.operation_totals import OperationTotals
from fleetgauge.records import Event, Json, RecordWriter, resolve_path
from fleetgauge.records.background import Worker

KIND = "data_plane"
# The partition of operations and bytes past the limits below.
OTHER_PARTITIONS = "_other"
MAX_WAITING = 10_000  # events that the thread has not taken yet
MAX_GROUPS = 500  # of operation, partition and status, in one interval
MAX_PARTITIONS = 500  # with bytes of their own in a record
MAX_QUEUED = 4000  # records that the disk has not taken yet
_GAUGES = {"peak_bytes_outstanding": "peak_bytes_outstanding", "keys_outstanding": "n_keys_outstanding"}
_COUNTERS = ("keys_overflowed", "foreign_clears")  # written as the increase since the record before


class _Chain(EventSink):
    """A callback that calls several; `errors` counts what they raised in this process."""

    def __init__(self, callbacks: tuple[OnEvent, ...]) -> None:
        self.callbacks = callbacks
        self._losses = PerProcess(partial(LoggedLosses, "a chained callback raised"))

    @property
    def errors(self) -> int:
        """Return how many calls of a chained callback raised."""
        return self._losses.get().count

    def __call__(self, event: DataPlaneEvent) -> None:
        """Pass the event to each callback. Each gets a copy, as one may change its event."""
        for callback in self.callbacks:
            self._guarded(callback, event.copy())

    def attach(self, client: HasSnapshot) -> None:
        """Attach a client to those callbacks that are sinks."""
        for sink in self._sinks():
            self._guarded(sink.attach, client)

    def close(self) -> None:
        """Close those callbacks that are sinks; one that fails does not prevent the next."""
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
    """Return a callback that calls several, each with a copy of its own and whatever the others raise.

    Raises TypeError for an argument that cannot be called.
    """
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
        """Log to `run`, at most every `interval_s` seconds.

        Raises TypeError for an object without `log`, ValueError for an interval that is negative or not
        finite.
        """
        if not callable(getattr(run, "log", None)):
            raise TypeError(f"WandbEvents needs a W&B run, and {run!r} has no log()")
        if not (math.isfinite(interval_s) and interval_s >= 0):
            raise ValueError(f"interval_s is {interval_s!r}: it must be a number of seconds, 0 or more")
        self._interval_s = interval_s
        # Weak: a sink must not prolong the lifetime of a client that the job has dropped.
        self._clients: weakref.WeakSet[HasSnapshot] = weakref.WeakSet()
        # W&B's run writes from the process that began it: used in a fork, two processes would share its
        # connection.
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
        """Add a client to those whose snapshots are logged."""
        self._clients.add(client)

    def __call__(self, event: DataPlaneEvent) -> None:
        """Queue an event. Never blocks; an event beyond the queue's limit is counted in `errors`."""
        self._logger.get().put(event)

    def close(self) -> None:
        """Log what is not yet logged, for a few seconds at most. Later events are dropped."""
        self._logger.get().worker.close()

    def __reduce__(self) -> tuple[type[WandbEvents], tuple[_NoRun, float]]:
        """Pickle without the run, which is of this process: the copy logs nothing."""
        return WandbEvents, (_NoRun(), self._interval_s)


class _WandbLogger:
    """The totals of one process, and the worker that alone changes them."""

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
        """Add an event; log if the interval is over, or the client was closed."""
        # Stored only after `add`: an event that raises leaves no entry without operations, whose mean would
        # fail.
        group = str(event["op"]), event["status"]
        totals = self._totals.get(group, OperationTotals())
        totals.add(event["n_keys"], event["n_bytes"], event["wall_ms"])
        self._totals[group] = totals
        if event["op"] == "close" or at >= self._due:
            self._due = at + self._interval_s
            self._log()

    def _log(self) -> None:
        # Without a commit the values wait for the next step of the host: ours must not advance its step
        # counter.
        if self._totals:
            self._run.log(self._metrics(), commit=False)  # after a failure the next one has everything

    def _metrics(self) -> dict[str, float]:
        """Return the totals by key of W&B, and the sums over all attached clients."""
        metrics: dict[str, float] = {}
        for op in sorted({op for op, _ in self._totals}):
            metrics |= _flattened(op, {status: t for (name, status), t in self._totals.items() if name == op})
        clients = list(self._clients)
        snapshots = [client.snapshot() for client in clients]
        gauges = ["foreign_clears", "keys_overflowed"] * bool(clients)
        # One client's outstanding bytes are not the job's where others put or clear too: then none are
        # better.
        if clients and all(getattr(client, "sole_writer", False) for client in clients):
            gauges += ["bytes_outstanding", "peak_bytes_outstanding", "n_keys_outstanding"]
        return metrics | {f"data_plane/{name}": sum(each[name] for each in snapshots) for name in gauges}


def _flattened(op: str, by_status: dict[EventStatus, OperationTotals]) -> dict[str, float]:
    """Return the keys of one operation; times only where an operation succeeded."""
    failed = {
        f"data_plane/{op}/{name}": by_status[status].count if status in by_status else 0
        for status, name in (("error", "errors"), ("timeout", "timeouts"))
    }
    ok = by_status.get("ok")
    if ok is None:
        return {f"data_plane/{op}/ops": 0, **failed}
    counts = {"ops": ok.count, "keys": ok.keys, "bytes": ok.bytes}
    times = {"avg": ok.wall_ms_sum / ok.count, "max": ok.wall_ms_max} | {
        f"p{percent}": ok.wall_ms_percentile(percent) for percent in (50, 95, 99)
    }
    return {
        **{f"data_plane/{op}/{name}": value for name, value in counts.items()},
        **failed,
        **{f"data_plane/{op}/wall_ms/{name}": value for name, value in times.items()},
    }


class JsonlEvents(EventSink):
    """Writes a record per operation, partition and status of each interval, and one of outstanding bytes.

    Intervals end at multiples of `interval_s`, on every rank at the same time. `path` is a file, a
    directory or a pattern with `{run_id}`; a directory, where every process has a file of its own, is best.
    Files are closed by age with `rotate_after` (`RecordWriter`). A configuration that can never work raises
    ValueError. From then on nothing raises, and an operation only appends its event to a bounded queue: what
    is lost is counted in `dropped` and logged once.

    File and threads are opened by the first event of a process. A copy out of a pickle, and a forked child,
    write records of their own, with the rank of their environment; `rank` is that of the building process.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        interval_s: float = 10.0,
        *,
        job: str | None = None,
        rank: int | None = None,
        rotate_after: float = math.inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Write to `path`. Raises ValueError for a path or an interval that can never work.

        `clock` returns epoch seconds: it dates the records.
        """
        if not (math.isfinite(interval_s) and interval_s > 0):
            raise ValueError(f"interval_s is {interval_s!r}: it must be a number of seconds, more than 0")
        resolve_path(path, kind=KIND, run_id="any")  # raises for what can never work
        if not rotate_after > 0:
            raise ValueError(f"rotate_after is {rotate_after!r}: it must be a number of seconds, more than 0")
        self._copy = partial(type(self), path, interval_s, job=job, rotate_after=rotate_after, clock=clock)
        self._clients: weakref.WeakSet[HasSnapshot] = weakref.WeakSet()
        # The sink is sent to every worker with the rank of the process that built it: elsewhere the
        # environment counts.
        built_in = os.getpid()

        def new_recorder() -> _Recorder:
            own_rank = rank if rank is not None and os.getpid() == built_in else environment_rank()
            writer = partial(RecordWriter, path, KIND, job=job, rank=own_rank, rotate_after=rotate_after)
            return _Recorder(writer, self._clients, interval_s, clock)

        self._recorder = PerProcess(new_recorder)

    @property
    def dropped(self) -> int:
        """Events that were not counted and records that were not written."""
        return self._recorder.get().dropped()

    def attach(self, client: HasSnapshot) -> None:
        """Add a client to those whose outstanding bytes are written."""
        self._clients.add(client)

    def __call__(self, event: DataPlaneEvent) -> None:
        """Queue an event. Never blocks; an event beyond the queue's limit is counted in `dropped`."""
        self._recorder.get().put(event)

    def flush(self) -> bool:
        """Wait until the events so far are counted; return False if a few seconds did not suffice."""
        return self._recorder.get().worker.flush()

    def close(self) -> None:
        """Write what waits and sync, for a few seconds at most. Later events are dropped."""
        self._recorder.get().worker.close()

    def __reduce__(self) -> tuple[Callable[[], JsonlEvents], tuple[()]]:
        """Pickle the arguments without the rank: the copy writes records of its own."""
        return self._copy, ()


class _Recorder:
    """The aggregates and the file of one process.

    Only the worker's thread changes them. The file is opened by the first event, so that a copy that is never
    used costs neither a file nor a thread.
    """

    def __init__(
        self,
        new_writer: Callable[..., RecordWriter],
        clients: weakref.WeakSet[HasSnapshot],
        interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.worker = Worker(
            *("data-plane", "the data plane", MAX_WAITING, logger),
            tick=self._tick,
            period=interval_s,
            finish=self._finish,
        )
        self._new_writer = new_writer
        self._writer: RecordWriter | None = None
        self._clients = clients
        self._counted: weakref.WeakKeyDictionary[HasSnapshot, dict[str, int]] = weakref.WeakKeyDictionary()
        self._interval_s = interval_s
        self._clock = clock
        self._end = 0.0
        self._groups: dict[tuple[str, str, str], OperationTotals] = {}

    def dropped(self) -> int:
        """Return the events and records lost in this process."""
        return self.worker.lost + (self._writer.dropped if self._writer else 0)

    def put(self, event: DataPlaneEvent) -> None:
        """Queue an event: all that an operation's own thread does."""
        self.worker.start()
        self.worker.put(partial(self._add, self._clock(), event))

    # From here on everything runs on the worker's thread.

    def _open(self, at: float) -> RecordWriter:
        """Open the file, begin an interval and write the start record."""
        writer = self._writer = self._new_writer(queue_size=MAX_QUEUED)
        atexit.unregister(self.worker.close)  # what is registered last runs first: before the writer's
        atexit.register(self.worker.close)
        self._end = self._end_after(at)
        writer.write(Event.START, self._outstanding(set()), self._clock())
        return writer

    def _tick(self) -> None:
        """End the interval although no event arrives."""
        now = self._clock()
        if self._writer is not None and self._is_over(now):
            self._write_interval(self._writer, now)

    def _finish(self) -> None:
        """Write what is left as the end record, and close the file."""
        if self._writer is not None:
            self._write_interval(self._writer, self._clock(), Event.END)
            self._writer.close()

    def _add(self, at: float, event: DataPlaneEvent) -> None:
        """Add an event to its group, after writing the interval before it where that is over."""
        group = (str(event["op"]), str(event["partition_id"]), str(event["status"]))
        writer = self._writer or self._open(at)
        if self._is_over(at):
            self._write_interval(writer, at)
        # Partition names may be unbounded: past the limit, memory and records stay bounded and the sums stay
        # right.
        if group not in self._groups and len(self._groups) >= MAX_GROUPS:
            group = (group[0], OTHER_PARTITIONS, group[2])
        # Stored only after `add`, as an event that raises must not leave an empty group.
        totals = self._groups.get(group, OperationTotals())
        totals.add(event["n_keys"], event["n_bytes"], event["wall_ms"])
        self._groups[group] = totals

    def _is_over(self, now: float) -> bool:
        """Return whether the interval has ended, or the clock was set back.

        An event that another thread overtook may be an interval late.
        """
        return not self._end - 2 * self._interval_s <= now < self._end

    def _end_after(self, now: float) -> float:
        """Return the next multiple of the interval.

        It is the same on every rank, so that records of a job add up.
        """
        end = (now // self._interval_s + 1) * self._interval_s
        return end if end > now else now + self._interval_s  # fractions of a second are not exact

    def _write_interval(self, writer: RecordWriter, now: float, event: Event = Event.STATS) -> None:
        """Write the operations with the end of their interval, and what is outstanding with the time now."""
        groups, self._groups = self._groups, {}
        ended, self._end = min(self._end, now), self._end_after(now)
        for (op, partition_id, status), totals in groups.items():
            named = {"op": op, "partition_id": partition_id, "status": status}
            writer.write(Event.STATS, named | operations_body(totals), ended)
        body = self._outstanding({partition_id for _, partition_id, _ in groups})
        # The end record completes the run of this writer, so that it is written even without clients.
        if event is Event.END or "bytes_outstanding" in body:
            writer.write(event, body, self._clock())

    def _outstanding(self, partitions: set[str]) -> Json:
        """Return what all clients have outstanding; 0 for a partition that was used and has nothing.

        Only the interval where no client is attached or a snapshot fails. `partitions` are those of the
        interval.
        """
        body: Json = {"interval_s": self._interval_s}
        by_partition = dict.fromkeys(partitions - {"", OTHER_PARTITIONS}, 0)
        clients: list[HasSnapshot] = []
        sums = dict.fromkeys((*_GAUGES, *_COUNTERS), 0)
        # A client may be any object with a `snapshot`, and another may be attached at this moment. What fails
        # costs this record; the operations are written.
        try:
            clients += self._clients
            for client in clients:
                snapshot, counted = client.snapshot(), self._counted.setdefault(client, {})
                for name, n_bytes in getattr(client, "bytes_outstanding_by_partition", dict)().items():
                    by_partition[name] = by_partition.get(name, 0) + n_bytes
                for field, name in _GAUGES.items():
                    sums[field] += snapshot.get(name, 0)
                for name in _COUNTERS:
                    sums[name] += snapshot.get(name, 0) - counted.get(name, 0)
                    counted[name] = snapshot.get(name, 0)
            sole_writer = all(getattr(client, "sole_writer", False) for client in clients)
        except Exception as error:
            self.worker.lose("a client's snapshot failed", error)
            return body
        if clients:
            body |= sums | {"bytes_outstanding": largest(by_partition), "sole_writer": sole_writer}
        return body


def operations_body(totals: OperationTotals) -> Json:
    """Return the body of a record of operations.

    Buckets without operations are left out; keys of JSON objects are text.
    """
    return {
        "count": totals.count,
        "keys": totals.keys,
        "bytes": totals.bytes,
        "wall_ms": {
            "sum": totals.wall_ms_sum,
            "min": totals.wall_ms_min,
            "max": totals.wall_ms_max,
            "buckets": {str(index): count for index, count in sorted(totals.buckets.items())},
        },
    }


def largest(by_partition: Mapping[str, int]) -> dict[str, int]:
    """Return the partitions with the most bytes, and the sum of the others under `_other`.

    At most `MAX_PARTITIONS` entries; ties are ordered by name, so that the choice is deterministic.
    """
    if len(by_partition) <= MAX_PARTITIONS:
        return dict(by_partition)
    ranked = sorted(by_partition.items(), key=lambda item: (-item[1], item[0]))
    others = sum(n_bytes for _, n_bytes in ranked[MAX_PARTITIONS - 1 :])
    return dict(ranked[: MAX_PARTITIONS - 1]) | {OTHER_PARTITIONS: others}
