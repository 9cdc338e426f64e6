"""Statistics of a data-plane client: totals of its calls, and the ledger of its outstanding bytes.

Every call is entered under one lock, so that all figures of a snapshot are of the same instant. The lock is
not taken while the inner client runs. `client` calls this, `ledger` does the accounting.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from fleetgauge.data_plane.events import EventStatus, LoggedLosses
from fleetgauge.data_plane.ledger import BytesLedger, Operation, OutstandingTotals
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
    """What a client has seen. Totals are of the operations that succeeded, all kinds mixed.

    `callback_errors` are exceptions of `on_event`, `measure_errors` those of counting.
    """

    total_bytes: int = 0
    total_keys: int = 0
    total_ops: int = 0
    last_put_bytes_per_key: int = 0
    callback_errors: int = 0
    measure_errors: int = 0
    by_op: dict[str, OpCounts] = field(default_factory=lambda: {op: OpCounts() for op in OPS})


class ClientStats:
    """Prepares a call before it is made, and enters it when it has ended. Neither raises an Exception.

    The lock protects the counts and the ledger; the counters of losses need none.
    """

    def __init__(self, max_keys: int) -> None:
        self._by_op = {op: OpCounts() for op in OPS}
        self._last_put_bytes_per_key = 0
        self._ledger = BytesLedger(max_keys)
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
        """Number a registration and set its keys."""
        call.number = next(self._numbers)
        call.n_keys = int(num_samples)

    def begin_put(self, call: Operation, sample_ids: Iterable[Hashable], fields: object) -> None:
        """Copy the keys, measure the batch and number the put, which is pending from here on."""
        # A copy: the inner client may change the list it is given.
        iterable = type(sample_ids) is list or isinstance(sample_ids, Iterable)  # quick for a list
        call.keys = tuple(sample_ids) if iterable else ()
        call.columns, call.n_bytes, _ = self.measured(fields, len(call.keys))
        # Last, so that a put whose keys could not be read has no number and is not pending. The order of
        # these numbers decides between a put and a clear that overlap.
        call.number = next(self._numbers)
        self._ledger.pending_puts[call.number] = call

    def begin_clear(self, call: Operation, sample_ids: Iterable[Hashable] | None) -> None:
        """Copy the keys, None for all of the partition, and number the clear."""
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
        """Enter a call that has ended, and log what could not be counted."""
        failures: list[Exception] = []
        with self._lock:
            # Never entered from within another entry: a re-entrant call would see half-changed sums.
            self._ended.append((call, status))
            if not self._entering:
                self._entering = True
                try:
                    while self._ended:
                        self._enter(*self._ended.popleft(), failures)
                # An interrupt half-way: the rows are right, the sums may not be.
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
        """Return the outstanding bytes by partition."""
        with self._lock:
            return self._ledger.bytes_by_partition()

    def _enter(self, call: Operation, status: EventStatus, failures: list[Exception]) -> None:
        """Add one call to the ledger and to the counts; what fails is appended to `failures`.

        Also sets the call's final number of keys, which its event reports.
        """
        counts, ledger = self._by_op[call.op], self._ledger
        try:
            if status != "ok":
                ledger.pending_puts.pop(call.number, None)
                if call.keys is not None:
                    # A failed call changes nothing; its event has the keys it was given.
                    call.n_keys = len(set(call.keys))
                elif call.op == "clear":
                    call.n_keys = ledger.n_keys_of(call.partition_id)
            elif call.columns is not None and call.keys is not None:
                call.n_keys = ledger.put(call, call.keys, call.columns)
                if call.n_keys:
                    self._last_put_bytes_per_key = call.n_bytes // call.n_keys
            # A clear, or a registration: both have a number and no columns.
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
