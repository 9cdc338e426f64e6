"""The ledger of outstanding bytes: what was put and not cleared, per partition, key and field.

Pure accounting: sizes are measured in `row_bytes`, and callers hold a lock (`stats`). A key is written field
by field by several workers, so that bytes are counted per key and field: writing a field again replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from itertools import islice, repeat

from fleetgauge.data_plane.row_bytes import Columns, bytes_by_row, sizes_at

Keys = tuple[Hashable, ...]


@dataclass(slots=True)
class OutstandingTotals:
    """Sums over all partitions, under the names of a client's snapshot.

    `max_bytes_per_key_seen` is the most that one put carried for one key. With more than `max_keys` keys the
    oldest are given up while outstanding: `keys_overflowed` of them, `bytes_overflowed`; the other figures
    are without them. `foreign_clears` are keys that were cleared here and not outstanding here.
    """

    bytes_outstanding: int = 0
    peak_bytes_outstanding: int = 0
    max_bytes_per_key_seen: int = 0
    n_keys_outstanding: int = 0
    keys_overflowed: int = 0
    bytes_overflowed: int = 0
    foreign_clears: int = 0


class Operation:
    """One call, from its begin to its end: the fields of its event, and for a put or clear its keys.

    The defaults are class attributes, so that a call which needs none of them costs no assignments.
    """

    n_keys = 0
    n_bytes = 0
    wall_ms = 0.0
    number = 0  # of puts, clears and registrations in the order in which they began; 0 for other calls
    keys: Keys | None = None  # None for all keys of the partition
    columns: Columns | None = None  # of a put
    cleared: set[Hashable] | None = None  # of a put: its keys that a later clear has cleared

    def __init__(self, op: str, partition_id: str) -> None:
        self.op = op
        self.partition_id = partition_id


class Batch:
    """The keys of one put, which share this object: a put of any size costs one allocation.

    `n_bytes` is that of each key, a plain number if all are equal. Otherwise the row of a key is found by an
    index, which is made when a key is first looked up alone.
    """

    __slots__ = ("_index", "columns", "keys", "n_bytes", "n_left", "number")

    def __init__(self, keys: Keys, columns: Columns, number: int) -> None:
        self.n_bytes = bytes_by_row(columns)
        self.columns = columns
        self.number = number
        self.n_left = len(keys)  # keys that are outstanding, at most
        # Keys with equal bytes need nothing of their own.
        self.keys = () if isinstance(self.n_bytes, int) else keys
        self._index: dict[Hashable, int] = {}

    def _row(self, key: Hashable) -> int:
        if self.keys and not self._index:
            self._index = dict(zip(self.keys, range(len(self.keys)), strict=True))
        return self._index.get(key, 0)

    def bytes_of(self, key: Hashable) -> int:
        """Return the bytes of one key."""
        return self.n_bytes if isinstance(self.n_bytes, int) else self.n_bytes[self._row(key)]

    def sizes_of(self, key: Hashable) -> dict[Hashable, int]:
        """Return the bytes of one key by field."""
        return sizes_at(self.columns, self._row(key))


class Partition:
    """The outstanding keys of a partition, oldest first; `n_bytes` is always the sum of their bytes."""

    __slots__ = ("n_bytes", "rows")

    def __init__(self) -> None:
        self.rows: dict[Hashable, Batch] = {}
        self.n_bytes = 0

    def enter(self, keys: Keys, batch: Batch, cleared: Collection[Hashable]) -> int:
        """Enter the keys of a put, except those in `cleared`. Returns how many distinct keys it has.

        A key that is outstanding already gets the fields of the put, beside its others.
        """
        rows, new = self.rows, dict.fromkeys(keys, batch)
        # The usual case, all keys new: no loop in Python.
        if not cleared and len(new) == len(keys) and rows.keys().isdisjoint(new):
            rows.update(new)
            self.n_bytes += batch.n_bytes * len(new) if isinstance(batch.n_bytes, int) else sum(batch.n_bytes)
            return len(new)
        n_shared = 0
        for key in new:
            if key not in cleared:
                old = rows.get(key)
                if old is None:
                    rows[key] = batch
                    n_shared += 1
                else:
                    sizes = old.sizes_of(key) | batch.sizes_of(key)
                    rows[key] = Batch((key,), sizes, max(old.number, batch.number))
                    self.n_bytes -= old.bytes_of(key)
                    self._release(old, 1)
                self.n_bytes += rows[key].bytes_of(key)
        self._release(batch, batch.n_left - n_shared)
        return len(new)

    def remove(self, keys: Keys) -> Collection[Hashable]:
        """Remove keys and their bytes. Returns those that were not outstanding."""
        n_before = len(self.rows)
        # One pass in C; None marks a key that was not there, or that `keys` repeats.
        removed = list(map(self.rows.pop, keys, repeat(None)))
        first = removed[0] if removed else None
        # The usual case, the keys of one put: no loop in Python.
        if first and removed.count(first) == len(keys) and first.keys in ((), keys):
            n_bytes = first.n_bytes
            self.n_bytes -= n_bytes * len(keys) if isinstance(n_bytes, int) else sum(n_bytes)
            return ()
        pairs = list(zip(keys, removed, strict=True))
        self.n_bytes -= sum([batch.bytes_of(key) for key, batch in pairs if batch])
        for batch, number in Counter(removed).items():
            if batch:
                self._release(batch, number)
        if n_before - len(self.rows) == len(keys):
            return ()
        return set(keys) - {key for key, batch in pairs if batch}

    def _release(self, batch: Batch, number: int) -> None:
        """Note that keys of a batch are gone. Where most are, the others get a smaller batch."""
        batch.n_left -= number
        if batch.keys and 0 < 2 * batch.n_left < len(batch.keys):
            keys = tuple(key for key in dict.fromkeys(batch.keys) if self.rows.get(key) is batch)
            sizes = [batch.sizes_of(key) for key in keys]
            columns: Columns = {field: [row[field] for row in sizes] for field in batch.columns}
            self.rows.update(dict.fromkeys(keys, Batch(keys, columns, batch.number)))


class BytesLedger:
    """The bytes that were put and not cleared; a field that is written again replaces its former bytes.

    Of a put and a clear of the same key that overlap, the one that began later wins: a consumer may clear a
    key before the producer's put of it has returned. A clear of a partition names no key, and leaves
    puts that have not returned as they are.
        put(a) begins, clear(a) begins and ends, put(a) ends      the put enters nothing
        clear(a) begins, put(a) begins and ends, clear(a) ends    the clear removes nothing
    """

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.totals = OutstandingTotals()
        self.pending_puts: dict[int, Operation] = {}
        self._partitions: dict[str, Partition] = {}
        self._newest_put = 0  # the highest number of a put that was entered

    def put(self, put: Operation, keys: Keys, columns: Columns) -> int:
        """Enter the rows of a put that succeeded. Returns how many distinct keys it has.

        Keys that a later clear removed while the put was in flight are not entered. Past `max_keys`, the
        oldest keys are given up.
        """
        self.pending_puts.pop(put.number, None)
        if not keys:
            return 0
        totals = self.totals
        batch = Batch(keys, columns, put.number)
        # No row can exceed the complete batch: most puts skip the search.
        if put.n_bytes > totals.max_bytes_per_key_seen:
            largest = batch.n_bytes if isinstance(batch.n_bytes, int) else max(batch.n_bytes)
            totals.max_bytes_per_key_seen = max(totals.max_bytes_per_key_seen, largest)
        self._newest_put = max(self._newest_put, put.number)
        partition = self._partitions.setdefault(put.partition_id, Partition())
        before = len(partition.rows), partition.n_bytes
        n_keys = partition.enter(keys, batch, put.cleared or ())
        self._count(put.partition_id, partition, *before)
        if totals.n_keys_outstanding > self.max_keys:
            self._give_up_oldest()
        totals.peak_bytes_outstanding = max(totals.peak_bytes_outstanding, totals.bytes_outstanding)
        return n_keys

    def clear(self, clear: Operation) -> int:
        """Remove the keys of a clear that succeeded, or its partition.

        Returns the number of distinct keys of the clear; for a complete partition, of the keys removed. A
        registration is also entered here, as it empties its partition.
        """
        partition = self._partitions.get(clear.partition_id) or Partition()
        keys = tuple(partition.rows) if clear.keys is None else clear.keys
        pending = self._withdraw(clear) if self.pending_puts else set()
        n_before = self.totals.n_keys_outstanding
        # Keys that were put since the clear began stay.
        if self._newest_put > clear.number:
            rows = partition.rows
            keys = tuple(key for key in keys if key not in rows or rows[key].number < clear.number)
        missing = self._remove(clear.partition_id, partition, keys)
        n_removed = n_before - self.totals.n_keys_outstanding
        if clear.keys is None or n_removed == len(clear.keys):
            return n_removed
        self.totals.foreign_clears += len(set(missing) - pending)
        return len(set(clear.keys))

    def clear_all(self) -> None:
        """Remove everything: the client was closed."""
        for partition_id, partition in list(self._partitions.items()):
            self._remove(partition_id, partition, tuple(partition.rows))

    def n_keys_of(self, partition_id: str) -> int:
        """Return the number of outstanding keys of a partition, 0 for an unknown one."""
        partition = self._partitions.get(partition_id)
        return len(partition.rows) if partition else 0

    def bytes_by_partition(self) -> dict[str, int]:
        """Return the outstanding bytes of every partition that has outstanding keys."""
        return {partition_id: partition.n_bytes for partition_id, partition in self._partitions.items()}

    def recount(self) -> None:
        """Compute all sums anew, after an operation was interrupted half-way.

        The rows are the truth: each changes in one step, while the sums follow in separate statements.
        """
        for partition_id, partition in list(self._partitions.items()):
            partition.n_bytes = sum(batch.bytes_of(key) for key, batch in partition.rows.items())
            if not partition.rows:
                del self._partitions[partition_id]
        self.totals.n_keys_outstanding = sum(len(each.rows) for each in self._partitions.values())
        self.totals.bytes_outstanding = sum(each.n_bytes for each in self._partitions.values())

    def _withdraw(self, clear: Operation) -> set[Hashable]:
        """Note the cleared keys in puts that began earlier and have not ended. Returns those they have."""
        pending: set[Hashable] = set()
        # A copy: `begin_put` adds entries from other threads without the lock.
        for put in list(self.pending_puts.values()):
            if put.number < clear.number and put.partition_id == clear.partition_id:
                common = set(clear.keys or ()).intersection(put.keys or ())
                put.cleared = common.union(put.cleared or ()) or None
                pending |= common
        return pending

    def _remove(self, partition_id: str, partition: Partition, keys: Keys) -> Collection[Hashable]:
        """Remove keys of a partition and update the totals. Returns the keys that were not outstanding."""
        before = len(partition.rows), partition.n_bytes
        missing = partition.remove(keys)
        self._count(partition_id, partition, *before)
        return missing

    def _count(self, partition_id: str, partition: Partition, n_keys: int, n_bytes: int) -> None:
        """Add to the totals what changed since the partition had `n_keys` and `n_bytes`.

        Drop it if it is empty.
        """
        self.totals.n_keys_outstanding += len(partition.rows) - n_keys
        self.totals.bytes_outstanding += partition.n_bytes - n_bytes
        if not partition.rows:
            self._partitions.pop(partition_id, None)

    def _give_up_oldest(self) -> None:
        """Give up the oldest keys of the oldest partitions: others have likely cleared them.

        In NeMo-RL workers put and the driver clears, so that a worker's table only grows. A sixteenth more
        than necessary is given up, so that it is rare.
        """
        totals, n_bytes = self.totals, self.totals.bytes_outstanding
        while self._partitions:
            partition_id, partition = next(iter(self._partitions.items()))
            excess = totals.n_keys_outstanding - self.max_keys
            keys = tuple(islice(partition.rows, max(0, excess + self.max_keys // 16)))
            if not keys:
                break
            self._remove(partition_id, partition, keys)
            totals.keys_overflowed += len(keys)
        totals.bytes_overflowed += n_bytes - totals.bytes_outstanding
