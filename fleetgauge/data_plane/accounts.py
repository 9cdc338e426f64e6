"""The books of a data-plane client: what its calls add up to and which bytes it still holds.

Knows when a call began, how it ended and what its rows weigh; keeps all of it under one lock, so that every
figure of a snapshot is of the same instant. Knows nothing of the client that is wrapped, or of callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from fleetgauge.data_plane.events import DataPlaneEvent, EventStatus, Losses
from fleetgauge.data_plane.outstanding import Outstanding, OutstandingTotals
from fleetgauge.data_plane.row_bytes import BatchBytes, measure

OPS = ("register", "claim_meta", "get_data", "check_consumption_status", "put", "get", "clear", "close")

T = TypeVar("T")


@dataclass(slots=True)
class OpCounts:
    """Calls of one operation. `ops`, `keys` and `bytes` are of those that succeeded."""

    ops: int = 0
    keys: int = 0
    bytes: int = 0
    errors: int = 0
    timeouts: int = 0


@dataclass(slots=True)
class DataPlaneStats(OutstandingTotals):
    """What a client has seen. Totals are of the operations that succeeded, all kinds mixed."""

    total_bytes: int = 0
    total_keys: int = 0
    total_ops: int = 0
    last_put_bytes_per_key: int = 0
    callback_errors: int = 0
    measure_errors: int = 0
    by_op: dict[str, OpCounts] = field(default_factory=lambda: {op: OpCounts() for op in OPS})


@dataclass(slots=True)
class Call:
    """One operation: what its event says, and what to account for once it is known how it ended."""

    op: str
    partition_id: str
    n_keys: int = 0
    n_bytes: int = 0
    wall_ms: float = 0.0
    on_success: Callable[[], object] | None = None
    on_failure: Callable[[], object] | None = None

    def event(self, status: EventStatus) -> DataPlaneEvent:
        return {
            "op": self.op,
            "partition_id": self.partition_id,
            "n_keys": self.n_keys,
            "n_bytes": self.n_bytes,
            "wall_ms": self.wall_ms,
            "status": status,
        }


class Accounts:
    """Plans a call before it is made, without raising, and books it when it has ended."""

    def __init__(self, max_keys: int) -> None:
        self._stats = DataPlaneStats()
        self._outstanding = Outstanding(max_keys)
        self.callback_losses = Losses("on_event raised")
        self._measure_losses = Losses("bytes or keys of a call could not be counted")
        self._overflows = Losses(
            "too many keys are outstanding and the oldest no longer counted, max_keys is"
        )
        # Re-entrant: a finalizer or a signal handler may use the client while its own thread is booking.
        self._lock = threading.RLock()

    def plan_register(self, call: Call, num_samples: int) -> None:
        with self._lock:
            clear = self._outstanding.begin_clear(call.partition_id)
        call.on_success = lambda: self._outstanding.finish_clear_of_partition(clear)
        call.on_failure = lambda: self._outstanding.abandon(clear)
        call.n_keys = int(num_samples)

    def plan_put(self, call: Call, sample_ids: Iterable[Hashable], fields: object) -> None:
        # A copy: the inner client may change the list it is given.
        keys = tuple(sample_ids) if isinstance(sample_ids, Iterable) else ()
        batch = self.measured(fields, len(keys))
        call.n_bytes = batch.total
        with self._lock:
            put = self._outstanding.begin_put(call.partition_id, keys)
        call.n_keys = len(put.rows)
        call.on_failure = lambda: self._outstanding.abandon(put)

        def book() -> None:
            self._outstanding.finish_put(put, batch.columns)
            if call.n_keys:
                self._stats.last_put_bytes_per_key = call.n_bytes // call.n_keys

        call.on_success = book

    def plan_clear(self, call: Call, sample_ids: Iterable[Hashable] | None) -> None:
        keys = None if sample_ids is None else dict.fromkeys(sample_ids)
        with self._lock:
            clear = self._outstanding.begin_clear(call.partition_id)
            call.n_keys = self._outstanding.n_keys_of(call.partition_id) if keys is None else len(keys)
        call.on_failure = lambda: self._outstanding.abandon(clear)

        def book() -> None:
            if keys is None:
                call.n_keys = self._outstanding.finish_clear_of_partition(clear)
            else:
                self._outstanding.finish_clear(clear, keys)

        call.on_success = book

    def plan_close(self, call: Call) -> None:
        call.on_success = self._outstanding.clear_everything

    def measured(self, fields: object, n_rows: int) -> BatchBytes:
        batch = measure(fields, n_rows)
        for error in batch.unmeasured:
            self._measure_losses.add(error)
        return batch

    def guarded(self, otherwise: T, count: Callable[..., T], *arguments: object) -> T:
        """What `count` answers, or `otherwise` if it cannot: counting never fails the operation."""
        try:
            return count(*arguments)
        except Exception as error:
            self._measure_losses.add(error)
            return otherwise

    def end(self, call: Call, status: EventStatus) -> None:
        book = call.on_success if status == "ok" else call.on_failure
        with self._lock:
            failures = self._booked(book) if book is not None else []
            self._count(call, status)
            overflowed = self._outstanding.overflowed
        self._say(failures, overflowed=overflowed)

    def snapshot(self) -> DataPlaneStats:
        with self._lock:
            outstanding = asdict(self._outstanding.totals())
            failures = self._outstanding.taken_failures()
            by_op = {op: replace(counts) for op, counts in self._stats.by_op.items()}
            stats = replace(self._stats, **outstanding, by_op=by_op)
        self._say(failures, overflowed=stats.keys_overflowed > 0)
        stats.callback_errors = self.callback_losses.count
        stats.measure_errors = self._measure_losses.count
        return stats

    def bytes_by_partition(self) -> dict[str, int]:
        with self._lock:
            return self._outstanding.bytes_by_partition()

    def _booked(self, book: Callable[[], object]) -> list[Exception]:
        try:
            book()
        except Exception as error:
            return [error, *self._outstanding.taken_failures()]
        return self._outstanding.taken_failures()

    def _say(self, failures: list[Exception], *, overflowed: bool) -> None:
        # Not under the lock: a log handler has locks of its own, and may ask for a snapshot.
        for error in failures:
            self._measure_losses.add(error)
        if overflowed:
            self._overflows.add(self._outstanding.max_keys)

    def _count(self, call: Call, status: EventStatus) -> None:
        counts = self._stats.by_op[call.op]
        if status == "ok":
            self._stats.total_ops += 1
            self._stats.total_keys += call.n_keys
            self._stats.total_bytes += call.n_bytes
            counts.ops += 1
            counts.keys += call.n_keys
            counts.bytes += call.n_bytes
        elif status == "timeout":
            counts.timeouts += 1
        else:
            counts.errors += 1

    def __getstate__(self) -> dict[str, object]:
        # Copied under the lock: the books go on being written while the copy is pickled.
        with self._lock:
            copied = {"_stats": self.snapshot(), "_outstanding": deepcopy(self._outstanding)}
            return {name: value for name, value in self.__dict__.items() if name != "_lock"} | copied

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())
