"""Which bytes a data plane still holds, per partition, key and field.

Knows sizes that were measured elsewhere and the order in which operations began. Knows nothing of tensors,
clocks or threads: whoever calls it holds a lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fleetgauge.data_plane.held_rows import Batch, Partition, Rows, by_key, rows_of
from fleetgauge.data_plane.row_bytes import Columns, largest_row

# A table of `max_keys` keys has room for this many fields of each; past that, whole keys are given up.
MAX_FIELDS_PER_KEY = 64

# Rows that may wait to be entered or removed together.
MAX_WAITING_ROWS = 16384


@dataclass(slots=True)
class PendingPut:
    """A put that has begun, and the rows of those of its keys that were not cleared since."""

    partition_id: str
    began: int
    n_rows: int
    rows: Rows


@dataclass(slots=True)
class PendingClear:
    """A clear that has begun, and the keys that were put since."""

    partition_id: str
    began: int
    spared: set[Hashable] = field(default_factory=set)


Pending = TypeVar("Pending", PendingPut, PendingClear)


def _overtaken(under_way: dict[int, Pending], by: PendingPut | PendingClear) -> list[Pending]:
    """What began before, and in the same partition."""
    return [
        operation
        for operation in under_way.values()
        if operation.partition_id == by.partition_id and operation.began < by.began
    ]


@dataclass(slots=True)
class OutstandingTotals:
    """What all partitions hold together, under the names that a client's snapshot has.

    `max_bytes_per_key_seen` is the most that one put carried for one key. The table being full, the oldest
    `keys_overflowed` keys were given up while still held; the outstanding figures are without them.
    """

    bytes_outstanding: int = 0
    peak_bytes_outstanding: int = 0
    max_bytes_per_key_seen: int = 0
    n_keys_outstanding: int = 0
    keys_overflowed: int = 0
    bytes_overflowed: int = 0


class Outstanding:
    """The bytes that were put and not cleared.

    Of a put and a clear that overlap, the one that began later stands: a consumer may clear a key before the
    producer's put of it has returned. A clear of a whole partition names no key, and spares puts under way.
        put(a) begins, clear(a) begins and ends, put(a) ends      a was cleared: the put enters no row
        clear(a) begins, put(a) begins and ends, clear(a) ends    a was put again: the clear spares it

    At most `max_keys` keys are held. Past that, the partition written to longest ago gives up the keys that
    were: they are the likeliest to have been cleared by another process.

    What is put and cleared is booked when somebody asks, or in lots: by the end of a call a table this large
    has left the processor's cache, and going through it once for many costs a fraction of doing so for each.
    What is asked in the midst of that, by a finalizer say, waits for its turn, or is answered as of before.
    """

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self._failures: list[Exception] = []
        self._totals = OutstandingTotals()
        self._n_sizes = 0
        self._n_begun = 0
        self.puts: dict[int, PendingPut] = {}
        self.clears: dict[int, PendingClear] = {}
        self.waiting: deque[Callable[[], None]] = deque()
        self._n_waiting = 0
        self._booking = False
        self.partitions: OrderedDict[str, Partition] = OrderedDict()

    def begin_put(self, partition_id: str, keys: tuple[Hashable, ...]) -> PendingPut:
        """Announce a put of one row per key, in order; of a key that is repeated the last stands."""
        put = PendingPut(partition_id, self._began(), len(keys), rows_of(keys))
        self.puts[put.began] = put
        return put

    def begin_clear(self, partition_id: str) -> PendingClear:
        clear = PendingClear(partition_id, self._began())
        self.clears[clear.began] = clear
        return clear

    def abandon(self, operation: PendingPut | PendingClear) -> None:
        self.puts.pop(operation.began, None)
        self.clears.pop(operation.began, None)

    def finish_put(self, put: PendingPut, columns: Columns) -> None:
        """Take a put that succeeded, with the bytes of its rows in each field it wrote."""
        self.abandon(put)
        for clear in _overtaken(self.clears, put):
            if len(clear.spared) <= self.max_keys:
                clear.spared.update(put.rows)
        self._book(put.n_rows, lambda: self._enter(put, columns))

    def finish_clear(self, clear: PendingClear, keys: Collection[Hashable]) -> None:
        """Forget keys, each named once; those that are not held are ignored."""
        self.abandon(clear)
        for put in _overtaken(self.puts, clear):
            if any(map(keys.__contains__, put.rows)):
                put.rows = {key: row for key, row in by_key(put.rows).items() if key not in keys}
        unspared = self._unspared(clear, keys)
        self._book(len(unspared), lambda: self._forget(clear.partition_id, unspared))

    def finish_clear_of_partition(self, clear: PendingClear) -> int:
        """Forget all keys of a partition. Returns how many they were."""
        self.abandon(clear)
        n_keys = self.n_keys_of(clear.partition_id)
        self._book(0, lambda: self._forget_partition(clear))
        return n_keys - self.n_keys_of(clear.partition_id)

    def clear_everything(self) -> None:
        self._book(0, self._forget_everything)
        self._book_waiting()

    def totals(self) -> OutstandingTotals:
        self._book_waiting()
        return replace(self._totals)

    @property
    def overflowed(self) -> bool:
        return self._totals.keys_overflowed > 0

    def taken_failures(self) -> list[Exception]:
        """Why something could not be booked since this was last asked."""
        failures, self._failures = self._failures, []
        return failures

    def n_keys_of(self, partition_id: str) -> int:
        self._book_waiting()
        partition = self.partitions.get(partition_id)
        return len(partition.batch_of) if partition else 0

    def bytes_by_partition(self) -> dict[str, int]:
        self._book_waiting()
        return {partition_id: partition.n_bytes for partition_id, partition in self.partitions.items()}

    def __getstate__(self) -> dict[str, object]:
        # Without what is under way: it ends where it began.
        self._book_waiting()
        return self.__dict__ | {"puts": {}, "clears": {}, "waiting": deque(), "_booking": False}

    def _began(self) -> int:
        self._n_begun += 1
        return self._n_begun

    def _unspared(self, clear: PendingClear, keys: Collection[Hashable]) -> Collection[Hashable]:
        if not clear.spared:
            return keys
        if len(clear.spared) > self.max_keys:  # no more were remembered: what is held now was put since
            return ()
        return [key for key in keys if key not in clear.spared]

    def _book(self, n_rows: int, operation: Callable[[], None]) -> None:
        self.waiting.append(operation)
        self._n_waiting += n_rows + 1
        if self._n_waiting > MAX_WAITING_ROWS:
            self._book_waiting()

    def _book_waiting(self) -> None:
        if self._booking:
            return
        self._booking = True
        self._n_waiting = 0
        try:
            while self.waiting:
                try:
                    self.waiting.popleft()()
                except Exception as error:  # what cannot be booked costs itself, not who asks
                    self._failures.append(error)
        finally:
            self._booking = False

    def _enter(self, put: PendingPut, columns: Columns) -> None:
        totals = self._totals
        if put.n_rows:
            totals.max_bytes_per_key_seen = largest_row(columns, at_least=totals.max_bytes_per_key_seen)
        if not put.rows:
            return
        partition = self.partitions.setdefault(put.partition_id, Partition())
        self.partitions.move_to_end(put.partition_id)
        with self._counted(partition):
            partition.enter(Batch(put.rows, columns, put.n_rows))
        while self._is_overfull() and self._give_up_oldest():
            pass
        totals.peak_bytes_outstanding = max(totals.peak_bytes_outstanding, totals.bytes_outstanding)

    def _forget(self, partition_id: str, keys: Collection[Hashable]) -> None:
        """Drop keys, and their partition with the last of them."""
        partition = self.partitions.get(partition_id)
        if partition is None:
            return
        with self._counted(partition):
            partition.remove(keys)
        if not partition.batch_of:
            del self.partitions[partition_id]

    def _forget_partition(self, clear: PendingClear) -> None:
        partition = self.partitions.get(clear.partition_id)
        if partition is None:
            return
        if clear.spared:
            self._forget(clear.partition_id, self._unspared(clear, partition.batch_of))
            return
        del self.partitions[clear.partition_id]
        self._totals.n_keys_outstanding -= len(partition.batch_of)
        self._totals.bytes_outstanding -= partition.n_bytes
        self._n_sizes -= partition.n_sizes

    def _forget_everything(self) -> None:
        self.partitions.clear()
        self._recount()

    def _is_overfull(self) -> bool:
        too_many_sizes = self._n_sizes > self.max_keys * MAX_FIELDS_PER_KEY
        return too_many_sizes or self._totals.n_keys_outstanding > self.max_keys

    def _give_up_oldest(self) -> int:
        """Returns how many keys there were to give up."""
        partition_id, partition = next(iter(self.partitions.items()))
        totals, n_bytes = self._totals, self._totals.bytes_outstanding
        # A few more, so as to give up a whole batch rather than take it apart.
        excess = max(totals.n_keys_outstanding - self.max_keys, 1)
        oldest = partition.oldest_keys(excess + self.max_keys // 16)
        self._forget(partition_id, oldest)
        totals.keys_overflowed += len(oldest)
        totals.bytes_overflowed += n_bytes - totals.bytes_outstanding
        return len(oldest)

    @contextmanager
    def _counted(self, partition: Partition) -> Iterator[None]:
        """Follow what a partition holds as it changes; count again if an interrupt comes between."""
        n_keys, n_bytes, n_sizes = len(partition.batch_of), partition.n_bytes, partition.n_sizes
        try:
            yield
        except BaseException:
            self._recount()
            raise
        self._totals.n_keys_outstanding += len(partition.batch_of) - n_keys
        self._totals.bytes_outstanding += partition.n_bytes - n_bytes
        self._n_sizes += partition.n_sizes - n_sizes

    def _recount(self) -> None:
        recounted: OrderedDict[str, Partition] = OrderedDict()
        for partition_id, partition in self.partitions.items():
            with suppress(Exception):  # keys that cannot be looked up any more cost their partition
                partition.recount()
                if partition.batch_of:
                    recounted[partition_id] = partition
        self.partitions = recounted
        self._totals.n_keys_outstanding = sum(len(partition.batch_of) for partition in recounted.values())
        self._totals.bytes_outstanding = sum(partition.n_bytes for partition in recounted.values())
        self._n_sizes = sum(partition.n_sizes for partition in recounted.values())
