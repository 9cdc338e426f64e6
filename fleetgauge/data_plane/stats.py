"""Statistics of a data-plane client: totals of its calls, and the ledger of its outstanding bytes.

Every call is entered under one lock, so that all figures of a snapshot are of the same instant.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from fleetgauge.data_plane.events import EventStatus, LoggedLosses
from fleetgauge.data_plane.ledger import Ledger, Operation, OutstandingTotals
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


class ClientStats:
    """Prepares a call before it is made, and enters it when it has ended. Neither raises an Exception."""

    def __init__(self, max_keys: int) -> None:
        self._by_op = {op: OpCounts() for op in OPS}
        self._last_put_bytes_per_key = 0
        self._ledger = Ledger(max_keys)
        self._numbers = itertools.count(1)
        self.callback_losses = LoggedLosses("on_event raised")
        self._measure_losses = LoggedLosses("bytes or keys of a call could not be counted")
        self._overflows = LoggedLosses(
            "too many keys are outstanding and the oldest no longer counted, max_keys is"
        )
        # A finalizer or a signal handler may use the client while its own thread is entering a call: the lock
        # is re-entrant, and that call is entered after the current one.
        self._lock = threading.RLock()
        self._ended: deque[tuple[Operation, EventStatus]] = deque()
        self._entering = False

    def begin_register(self, call: Operation, num_samples: int) -> None:
        call.number = next(self._numbers)
        call.n_keys = int(num_samples)

    def begin_put(self, call: Operation, sample_ids: Iterable[Hashable], fields: object) -> None:
        # A copy: the inner client may change the list it is given.
        iterable = type(sample_ids) is list or isinstance(sample_ids, Iterable)  # quick for a list
        call.keys = tuple(sample_ids) if iterable else ()
        call.columns, call.n_bytes, _ = self.measured(fields, len(call.keys))
        call.number = next(self._numbers)
        self._ledger.pending_puts[call.number] = call

    def begin_clear(self, call: Operation, sample_ids: Iterable[Hashable] | None) -> None:
        call.keys = None if sample_ids is None else tuple(sample_ids)
        call.number = next(self._numbers)

    def measured(self, fields: object, n_rows: int) -> BatchBytes:
        """Return the bytes of a batch; what cannot be measured is counted."""
        batch = measure(fields, n_rows)
        for error in batch.unmeasured:
            self._measure_losses.lose(error)
        return batch

    def guarded(self, default: T, count: Callable[..., T], *arguments: object) -> T:
        """Return what `count` returns, or `default` if it raises: counting never fails the operation."""
        try:
            return count(*arguments)
        except Exception as error:
            self._measure_losses.lose(error)
            return default

    def end(self, call: Operation, status: EventStatus) -> None:
        """Enter a call that has ended."""
        failures: list[Exception] = []
        with self._lock:
            self._ended.append((call, status))
            if not self._entering:
                self._entering = True
                try:
                    while self._ended:
                        self._enter(*self._ended.popleft(), failures)
                except BaseException:
                    self._ledger.recount()
                    raise
                finally:
                    self._entering = False
        # Not under the lock: a log handler has locks of its own, and may call `snapshot`.
        for error in failures:
            self._measure_losses.lose(error)
        if self._ledger.totals.keys_overflowed and not self._overflows.count:
            self._overflows.lose(self._ledger.max_keys)

    def snapshot(self) -> DataPlaneStats:
        """Return everything counted so far."""
        with self._lock:
            by_op = {op: replace(counts) for op, counts in self._by_op.items()}
            outstanding = asdict(self._ledger.totals)
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
            return self._ledger.bytes_by_partition()

    def _enter(self, call: Operation, status: EventStatus, failures: list[Exception]) -> None:
        counts, ledger = self._by_op[call.op], self._ledger
        try:
            if status != "ok":
                ledger.pending_puts.pop(call.number, None)
                if call.keys is not None:
                    call.n_keys = len(set(call.keys))
                elif call.op == "clear":
                    call.n_keys = ledger.n_keys_of(call.partition_id)
            elif call.columns is not None and call.keys is not None:
                call.n_keys = ledger.put(call, call.keys, call.columns)
                if call.n_keys:
                    self._last_put_bytes_per_key = call.n_bytes // call.n_keys
            elif call.number:
                n_keys = ledger.clear(call)
                if call.op == "clear":
                    call.n_keys = n_keys
            elif call.op == "close":
                ledger.clear_all()
        except Exception as error:
            ledger.recount()
            failures.append(error)
        if status == "ok":
            counts.ops += 1
            counts.keys += call.n_keys
            counts.bytes += call.n_bytes
        elif status == "timeout":
            counts.timeouts += 1
        else:
            counts.errors += 1
