"""The books of a data-plane client: what its calls add up to and which bytes it still holds.

Knows when a call began, how it ended and what its rows weigh; books it under one lock, so that every figure
of a snapshot is of the same instant. Knows nothing of the client that is wrapped, or of callbacks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from fleetgauge.data_plane.events import EventStatus, Losses
from fleetgauge.data_plane.held_rows import Operation
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


class Accounts:
    """Plans a call before it is made, without raising, and books it when it has ended."""

    def __init__(self, max_keys: int) -> None:
        self._by_op = {op: OpCounts() for op in OPS}
        self._last_put_bytes_per_key = 0
        self._outstanding = Outstanding(max_keys)
        self.callback_losses = Losses("on_event raised")
        self._measure_losses = Losses("bytes or keys of a call could not be counted")
        self._overflows = Losses(
            "too many keys are outstanding and the oldest no longer counted, max_keys is"
        )
        # Re-entrant: a finalizer or a signal handler may use the client while its own thread is booking. What
        # it does is booked after that, and what it asks is answered as of before.
        self._lock = threading.RLock()
        self._ended: deque[tuple[Operation, EventStatus]] = deque()
        self._failures: deque[Exception] = deque()
        self._booking = False

    def plan_register(self, call: Operation, num_samples: int) -> None:
        self._outstanding.begin(call)
        call.n_keys = int(num_samples)

    def plan_put(self, call: Operation, sample_ids: Iterable[Hashable], fields: object) -> None:
        # A copy: the inner client may change the list it is given.
        iterable = type(sample_ids) is list or isinstance(sample_ids, Iterable)
        call.rows = keys = tuple(sample_ids) if iterable else ()
        call.n_rows = len(keys)
        call.columns, call.n_bytes, _ = self.measured(fields, len(keys))
        self._outstanding.begin(call)

    def plan_clear(self, call: Operation, sample_ids: Iterable[Hashable] | None) -> None:
        call.rows = None if sample_ids is None else tuple(sample_ids)
        self._outstanding.begin(call)

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

    def end(self, call: Operation, status: EventStatus) -> None:
        with self._lock:
            self._ended.append((call, status))
            if not self._booking:
                self._booking = True
                try:
                    while self._ended:
                        self._book(*self._ended.popleft())
                except BaseException:
                    self._outstanding.recount()
                    raise
                finally:
                    self._booking = False
        # Not under the lock: a log handler has locks of its own, and may ask for a snapshot.
        while self._failures:
            self._measure_losses.add(self._failures.popleft())
        if self._outstanding.totals.keys_overflowed and not self._overflows.count:
            self._overflows.add(self._outstanding.max_keys)

    def snapshot(self) -> DataPlaneStats:
        with self._lock:
            by_op = {op: replace(counts) for op, counts in self._by_op.items()}
            outstanding = asdict(self._outstanding.totals)
            last_put = self._last_put_bytes_per_key
        return DataPlaneStats(
            **outstanding,
            total_bytes=sum(counts.bytes for counts in by_op.values()),
            total_keys=sum(counts.keys for counts in by_op.values()),
            total_ops=sum(counts.ops for counts in by_op.values()),
            last_put_bytes_per_key=last_put,
            callback_errors=self.callback_losses.count,
            measure_errors=self._measure_losses.count,
            by_op=by_op,
        )

    def bytes_by_partition(self) -> dict[str, int]:
        with self._lock:
            return self._outstanding.bytes_by_partition()

    def _book(self, call: Operation, status: EventStatus) -> None:
        counts = self._by_op[call.op]
        try:
            if status != "ok":
                self._abandon(call)
            elif call.columns is not None and call.rows is not None:
                call.n_keys = n_keys = self._outstanding.finish_put(call, call.rows, call.columns)
                if n_keys:
                    self._last_put_bytes_per_key = call.n_bytes // n_keys
            elif call.number:
                n_keys = self._outstanding.finish_clear(call)
                if call.op == "clear":
                    call.n_keys = n_keys
            elif call.op == "close":
                self._outstanding.clear_everything()
        except Exception as error:
            self._outstanding.recount()
            self._failures.append(error)
        if status == "ok":
            counts.ops += 1
            counts.keys += call.n_keys
            counts.bytes += call.n_bytes
        elif status == "timeout":
            counts.timeouts += 1
        else:
            counts.errors += 1

    def _abandon(self, call: Operation) -> None:
        self._outstanding.abandon(call)
        if call.rows is not None:
            call.n_keys = len(set(call.rows))
        elif call.op == "clear":
            call.n_keys = self._outstanding.n_keys_of(call.partition_id)
