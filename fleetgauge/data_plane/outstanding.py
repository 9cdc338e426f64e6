"""Which bytes a data plane still holds, per partition, key and field.

Knows sizes that were measured elsewhere and the order in which operations began. Knows nothing of tensors or
clocks. Operations may begin in any thread at any time; whoever ends one holds a lock.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, repeat

from fleetgauge.data_plane.held_rows import Batch, Operation, Partition, Rows, by_key, grouped
from fleetgauge.data_plane.row_bytes import Columns, largest_row

# A table of `max_keys` keys has room for this many fields of each; past that, whole keys are given up.
MAX_FIELDS_PER_KEY = 64

# The last keys that were held and cleared are remembered, in lots: so many of so many keys, or of one clear.
MAX_CLEARED_LOTS = 16
CLEARED_PER_LOT = 1024


@dataclass(slots=True)
class OutstandingTotals:
    """What all partitions hold together, under the names that a client's snapshot has.

    `max_bytes_per_key_seen` is the most that one put carried for one key. The table being full, the oldest
    `keys_overflowed` keys were given up while still held; the outstanding figures are without them.
    `foreign_clears` are keys that were cleared here and put by somebody else.
    """

    bytes_outstanding: int = 0
    peak_bytes_outstanding: int = 0
    max_bytes_per_key_seen: int = 0
    n_keys_outstanding: int = 0
    keys_overflowed: int = 0
    bytes_overflowed: int = 0
    foreign_clears: int = 0


class Outstanding:
    """The bytes that were put and not cleared.

    Rows stay together as they were put: what came in one batch mostly goes in one, and then costs little more
    than the lookup of its keys. A later put of another field of b moves b, with all of its fields, into a
    batch of its own; the first keeps three rows, of which two are held, until most are gone:
        batch_of {a: 1, b: 2, c: 1}    batches {1: rows {a: 0, c: 2} of 3, 2: rows (b,)}

    Of a put and a clear that overlap, the one that began later stands: a consumer may clear a key before the
    producer's put of it has returned. A clear of a whole partition names no key, and spares puts under way.
        put(a) begins, clear(a) begins and ends, put(a) ends      a was cleared: the put enters no row
        clear(a) begins, put(a) begins and ends, clear(a) ends    a was put again: the clear spares it

    At most `max_keys` keys are held. Past that, those written to longest ago are given up: they are the
    likeliest to have been cleared by another process.
    """

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.totals = OutstandingTotals()
        self.partitions: dict[str, Partition] = {}
        self.batches: dict[int, Batch] = {}  # the one written to longest ago first
        self.under_way: dict[int, Operation] = {}
        self._n_sizes = 0
        self._max_sizes = max_keys * MAX_FIELDS_PER_KEY
        self._numbers = count(1)
        # So that a key that is cleared twice is not taken for another's.
        self._cleared = deque([defaultdict[str, list[Hashable]](list)], MAX_CLEARED_LOTS)
        self._n_newest = 0

    def begin(self, operation: Operation) -> None:
        operation.number = next(self._numbers)
        self.under_way[operation.number] = operation

    def abandon(self, operation: Operation) -> None:
        self.under_way.pop(operation.number, None)

    def finish_put(self, put: Operation, rows: Rows, columns: Columns) -> int:
        """Hold the rows of a put that succeeded. Returns how many keys they are."""
        del self.under_way[put.number]
        if self.under_way:
            self._spare(put, rows)
        totals, n_rows = self.totals, len(rows)
        if put.n_bytes > totals.max_bytes_per_key_seen and put.n_rows:
            totals.max_bytes_per_key_seen = largest_row(columns, totals.max_bytes_per_key_seen)
        if not n_rows:
            return 0
        partition = self.partitions.get(put.partition_id)
        if partition is None:
            partition = self.partitions[put.partition_id] = Partition(put.partition_id)
        batch_of = partition.batch_of
        n_held = len(batch_of)
        owners = list(map(batch_of.setdefault, rows, repeat(put.number)))
        batch = Batch(partition, rows, columns, put.n_rows, put.n_bytes)
        if len(batch_of) == n_held + n_rows:
            self._add(put.number, batch)
        else:
            n_rows = self._write_again(batch, put.number, owners)
        while totals.n_keys_outstanding > self.max_keys or self._n_sizes > self._max_sizes:
            self._give_up_oldest()
        if totals.bytes_outstanding > totals.peak_bytes_outstanding:
            totals.peak_bytes_outstanding = totals.bytes_outstanding
        return n_rows

    def finish_clear(self, clear: Operation) -> int:
        """Forget what was cleared. Returns how many keys it named, or how many its partition held."""
        del self.under_way[clear.number]
        keys, n_held = clear.rows, self.totals.n_keys_outstanding
        if keys is None:
            self._forget_partition(clear.partition_id, clear.spared)
            return n_held - self.totals.n_keys_outstanding
        under_way = self._withdraw(clear, set(keys)) if self.under_way else ()
        held = keys if clear.spared is None else self._unspared(clear.spared, keys)
        missing = self._forget(clear.partition_id, held)
        if not missing and clear.spared is None:
            return len(keys)
        ours = (lot.get(clear.partition_id, ()) for lot in self._cleared)
        self.totals.foreign_clears += len(set(missing).difference(under_way, *ours))
        return len(set(keys))

    def clear_everything(self) -> None:
        for partition_id in list(self.partitions):
            self._forget_partition(partition_id)

    def n_keys_of(self, partition_id: str) -> int:
        partition = self.partitions.get(partition_id)
        return len(partition.batch_of) if partition else 0

    def bytes_by_partition(self) -> dict[str, int]:
        return {partition.name: partition.n_bytes for partition in self.partitions.values()}

    def recount(self) -> None:
        """Make good what an interrupt left half done: held is what both tables know."""
        held, self.partitions, batches, self.batches = self.partitions, {}, self.batches, {}
        self.totals.n_keys_outstanding = self.totals.bytes_outstanding = self._n_sizes = 0
        for number, batch in batches.items():
            with suppress(Exception):  # keys that cannot be looked up any more cost their batch
                name = batch.partition.name
                numbers = held[name].batch_of
                rows = {key: row for key, row in by_key(batch.rows).items() if numbers.get(key) == number}
                index = dict.fromkeys(rows, number)
                if rows:
                    partition = self.partitions.setdefault(name, Partition(name))
                    partition.batch_of.update(index)
                    self._add(number, Batch(partition, rows, batch.columns, batch.n_rows))

    def _spare(self, put: Operation, rows: Rows) -> None:
        """Tell the clears that a put overtook which keys it has put again."""
        for clear in self._overtaken(put):
            if clear.columns is None:
                clear.spared = clear.spared or set()
                if len(clear.spared) <= self.max_keys:
                    clear.spared.update(rows)

    def _withdraw(self, clear: Operation, keys: set[Hashable]) -> set[Hashable]:
        """Take the keys of a clear out of the puts that it overtook. Returns those that any of them had."""
        withdrawn: set[Hashable] = set()
        for put in self._overtaken(clear):
            if put.columns is not None and put.rows and not keys.isdisjoint(put.rows):
                withdrawn.update(keys.intersection(put.rows))
                put.rows = {key: row for key, row in by_key(put.rows).items() if key not in keys}
        return withdrawn

    def _overtaken(self, by: Operation) -> list[Operation]:
        """What began before, and in the same partition."""
        return [
            operation
            for operation in list(self.under_way.values())
            if operation.number < by.number and operation.partition_id == by.partition_id
        ]

    def _unspared(self, spared: set[Hashable], keys: Collection[Hashable]) -> Collection[Hashable]:
        if len(spared) > self.max_keys:  # no more were remembered: what is held now was put since
            return ()
        return [key for key in keys if key not in spared]

    def _write_again(self, batch: Batch, number: int, owners: list[int]) -> int:
        """Hold rows of keys of which some are held, or repeated. A field that a key has is replaced."""
        partition, old = batch.partition, self.batches.get(owners[0])
        if old is not None and old.rows == batch.rows:
            self._drop(owners[0])
            self._add(owners[0], Batch(partition, old.rows, old.columns | batch.columns, old.n_rows))
            return len(owners)
        owner_of = dict(zip(batch.rows, owners, strict=True))
        for owner, keys in grouped(owner_of, list(owner_of.values())):
            columns, moved_to = batch.columns_of(keys), number
            if owner != number:
                columns, moved_to = self.batches[owner].columns_of(keys) | columns, next(self._numbers)
                self._remove_from(owner, keys)
                partition.batch_of.update(dict.fromkeys(keys, moved_to))
            self._add(moved_to, Batch(partition, tuple(keys), columns, len(keys)))
        return len(owner_of)

    def _forget(self, partition_id: str, keys: Collection[Hashable]) -> Collection[Hashable]:
        """Drop keys, and their partition with the last of them. Returns those that were not held."""
        partition = self.partitions.get(partition_id)
        if partition is None:
            return keys
        missing: Collection[Hashable] = ()
        for number, some in grouped(keys, list(map(partition.batch_of.pop, keys, repeat(0)))):
            if number:
                self._remove_from(number, some)
                self._remember(partition_id, some)
            else:
                missing = some
        if not partition.batch_of:
            del self.partitions[partition_id]
        return missing

    def _forget_partition(self, partition_id: str, spared: set[Hashable] | None = None) -> None:
        partition = self.partitions.get(partition_id)
        if partition is None:
            return
        if spared is not None:
            self._forget(partition_id, self._unspared(spared, tuple(partition.batch_of)))
            return
        del self.partitions[partition_id]
        for number in set(partition.batch_of.values()):
            self._drop(number)
        self._remember(partition_id, partition.batch_of)

    def _remember(self, partition_id: str, keys: Collection[Hashable]) -> None:
        if self._n_newest >= CLEARED_PER_LOT:
            self._cleared.append(defaultdict(list))
            self._n_newest = 0
        self._cleared[-1][partition_id].extend(keys)
        self._n_newest += len(keys)

    def _give_up_oldest(self) -> None:
        batch = next(iter(self.batches.values()))
        totals, n_bytes = self.totals, self.totals.bytes_outstanding
        # A few more, so as to give up a whole batch rather than take it apart.
        excess = max(totals.n_keys_outstanding - self.max_keys, 1) + self.max_keys // 16
        oldest = tuple(batch.rows)[:excess]
        self._forget(batch.partition.name, oldest)
        totals.keys_overflowed += len(oldest)
        totals.bytes_overflowed += n_bytes - totals.bytes_outstanding

    def _remove_from(self, number: int, keys: Collection[Hashable]) -> None:
        batch = self.batches[number]
        if len(keys) == len(batch.rows):
            self._drop(number)
            return
        self._count(batch, -1)
        batch.remove(keys)
        self._count(batch, 1)

    def _add(self, number: int, batch: Batch) -> None:
        self.batches[number] = batch
        self._count(batch, 1)

    def _drop(self, number: int) -> None:
        self._count(self.batches.pop(number), -1)

    def _count(self, batch: Batch, times: int) -> None:
        n_keys, n_bytes, totals = times * len(batch.rows), times * batch.n_bytes, self.totals
        batch.partition.n_bytes += n_bytes
        totals.bytes_outstanding += n_bytes
        totals.n_keys_outstanding += n_keys
        self._n_sizes += n_keys * len(batch.columns)
