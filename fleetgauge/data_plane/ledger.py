"""The ledger of outstanding bytes: what was put and not cleared, per partition, key and field.

Sizes are measured elsewhere; callers hold a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, repeat
from typing import NamedTuple

from fleetgauge.data_plane.row_bytes import Columns, largest_row, row_sizes, total_bytes

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
    """One call, from its begin to its end: the fields of its event, and for a put or clear its keys."""

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


class Row(NamedTuple):
    """The bytes of a key by field. Keys with equal sizes share one row, so a row is never changed."""

    n_bytes: int
    number: int  # of the latest put that wrote it
    sizes: Mapping[Hashable, int]

    @classmethod
    def of(cls, sizes: Mapping[Hashable, int], number: int) -> Row:
        return cls(sum(sizes.values()), number, sizes)


class Batch(NamedTuple):
    """The rows of a put that differ from key to key, as long as its keys are only cleared all at once."""

    n_bytes: int
    number: int
    keys: Keys
    columns: Columns

    def rows(self) -> dict[Hashable, Row]:
        """Return each key's row; of a key that is repeated, the last."""
        sizes = row_sizes(self.columns, len(self.keys))
        return {key: Row.of(own, self.number) for key, own in zip(self.keys, sizes, strict=True)}


def entry_of(keys: Keys, columns: Columns, number: int) -> Row | Batch:
    """Return the entry of all these keys: one row if their sizes are equal."""
    sizes = {name: column for name, column in columns.items() if isinstance(column, int)}
    if len(sizes) == len(columns):
        return Row.of(sizes, number)
    return Batch(total_bytes(columns, len(keys)), number, keys, columns)


def _bytes_of(entry: Row | Batch | None, n_keys: int) -> int:
    if entry is None:
        return 0
    return entry.n_bytes if isinstance(entry, Batch) else entry.n_bytes * n_keys


class Partition:
    """The outstanding rows of a partition by key, oldest first."""

    __slots__ = ("n_batches", "n_bytes", "rows")

    def __init__(self) -> None:
        self.rows: dict[Hashable, Row | Batch] = {}
        self.n_batches = 0
        self.n_bytes = 0

    def split(self, keys: Iterable[Hashable]) -> None:
        """Replace the batches that have any of these keys by a row for each of their keys."""
        if not self.n_batches:
            return
        rows = self.rows
        batches = {id(entry): entry for entry in map(rows.get, keys) if isinstance(entry, Batch)}
        for batch in batches.values():
            rows.update({key: row for key, row in batch.rows().items() if rows.get(key) is batch})
            self.n_batches -= 1

    def enter(self, keys: Keys, columns: Columns, number: int) -> bool:
        """Enter keys that are all new, or have one entry in common; return False if they are neither."""
        rows, old = self.rows, self.rows.get(keys[0])
        if old is None:
            fits = rows.keys().isdisjoint(keys)
        elif isinstance(old, Batch):
            fits = old.keys == keys
        else:
            fits = set(map(id, map(rows.get, keys))) == {id(old)}
        if fits:
            if old is not None:
                columns = {**(old.columns if isinstance(old, Batch) else old.sizes), **columns}
                number = max(old.number, number)
            entry = entry_of(keys, columns, number)
            rows.update(dict.fromkeys(keys, entry))
            self.n_batches += isinstance(entry, Batch) - isinstance(old, Batch)
            self.n_bytes += _bytes_of(entry, len(keys)) - _bytes_of(old, len(keys))
        return fits

    def merge(self, new: Mapping[Hashable, Row], cleared: Collection[Hashable]) -> None:
        """Enter any keys, except those that were cleared."""
        self.split(new)
        rows = self.rows
        merged: dict[tuple[int, int], tuple[Row | Batch, Row, Row]] = {}  # by identity of the two rows
        for key, row in new.items():
            if key in cleared:
                continue
            old = rows.get(key)
            if isinstance(old, Row):
                pair = id(old), id(row)
                if pair not in merged:
                    both = Row.of({**old.sizes, **row.sizes}, max(old.number, row.number))
                    merged[pair] = (old, row, both)
                row = merged[pair][2]
                self.n_bytes -= old.n_bytes
            rows[key] = row
            self.n_bytes += row.n_bytes

    def remove(self, keys: Keys) -> Collection[Hashable]:
        """Remove keys. Returns those that were not outstanding."""
        rows, n_before = self.rows, len(self.rows)
        batch = rows.get(keys[0]) if keys and self.n_batches else None
        if isinstance(batch, Batch) and (batch.keys is keys or batch.keys == keys):
            deque(map(rows.pop, keys), maxlen=0)
            self.n_batches -= 1
            self.n_bytes -= batch.n_bytes
            return ()
        self.split(keys)
        removed = list(map(rows.pop, keys, repeat(None)))
        if n_before - len(rows) == len(keys):
            self.n_bytes -= sum([row[0] for row in removed if row])
            return ()
        outstanding = {key: row for key, row in zip(keys, removed, strict=True) if row is not None}
        self.n_bytes -= sum(row.n_bytes for row in outstanding.values())
        return set(keys).difference(outstanding)


class Ledger:
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
        """Enter the rows of a put that succeeded. Returns how many keys they are."""
        self.pending_puts.pop(put.number, None)
        if not keys:
            return 0
        totals = self.totals
        if put.n_bytes > totals.max_bytes_per_key_seen:
            totals.max_bytes_per_key_seen = largest_row(columns, totals.max_bytes_per_key_seen)
        self._newest_put = max(self._newest_put, put.number)
        partition = self._partitions.get(put.partition_id)
        if partition is None:
            partition = self._partitions[put.partition_id] = Partition()
        before = len(partition.rows), partition.n_bytes
        n_keys = len(set(keys)) if len(keys) > 1 else 1
        if put.cleared or n_keys < len(keys) or not partition.enter(keys, columns, put.number):
            entry = entry_of(keys, columns, put.number)
            rows = entry.rows() if isinstance(entry, Batch) else dict.fromkeys(keys, entry)
            partition.merge(rows, put.cleared or ())
        self._count(put.partition_id, partition, *before)
        if totals.n_keys_outstanding > self.max_keys:
            self._give_up_oldest()
        totals.peak_bytes_outstanding = max(totals.peak_bytes_outstanding, totals.bytes_outstanding)
        return n_keys

    def clear(self, clear: Operation) -> int:
        """Remove the keys of a clear that succeeded, or its partition. Returns how many it was about."""
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
        for partition_id, partition in list(self._partitions.items()):
            self._remove(partition_id, partition, tuple(partition.rows))

    def n_keys_of(self, partition_id: str) -> int:
        partition = self._partitions.get(partition_id)
        return len(partition.rows) if partition else 0

    def bytes_by_partition(self) -> dict[str, int]:
        return {partition_id: partition.n_bytes for partition_id, partition in self._partitions.items()}

    def recount(self) -> None:
        """Compute all sums anew, after an operation was interrupted half-way."""
        for partition_id, partition in list(self._partitions.items()):
            try:
                partition.n_batches = len(partition.rows)  # at most
                partition.split(list(partition.rows))
                partition.n_batches = 0
                partition.n_bytes = sum(row.n_bytes for row in partition.rows.values())
            except Exception:  # keys that cannot be looked up any more cost their partition
                partition.rows.clear()
            if not partition.rows:
                del self._partitions[partition_id]
        self.totals.n_keys_outstanding = sum(len(each.rows) for each in self._partitions.values())
        self.totals.bytes_outstanding = sum(each.n_bytes for each in self._partitions.values())

    def _withdraw(self, clear: Operation) -> set[Hashable]:
        """Note the cleared keys in puts that began earlier and have not ended. Returns those they have."""
        pending: set[Hashable] = set()
        for put in list(self.pending_puts.values()):
            if put.number < clear.number and put.partition_id == clear.partition_id:
                common = set(clear.keys or ()).intersection(put.keys or ())
                put.cleared = common.union(put.cleared or ()) or None
                pending |= common
        return pending

    def _remove(self, partition_id: str, partition: Partition, keys: Keys) -> Collection[Hashable]:
        before = len(partition.rows), partition.n_bytes
        missing = partition.remove(keys)
        self._count(partition_id, partition, *before)
        return missing

    def _count(self, partition_id: str, partition: Partition, n_keys: int, n_bytes: int) -> None:
        """Add to the totals what changed in a partition; drop it if it is empty."""
        self.totals.n_keys_outstanding += len(partition.rows) - n_keys
        self.totals.bytes_outstanding += partition.n_bytes - n_bytes
        if not partition.rows:
            self._partitions.pop(partition_id, None)

    def _give_up_oldest(self) -> None:
        """Give up the oldest keys of the oldest partitions: others have likely cleared them.

        A sixteenth more than necessary, so that it is rare; a batch is not split for that.
        """
        totals, n_bytes = self.totals, self.totals.bytes_outstanding
        while self._partitions:
            partition_id, partition = next(iter(self._partitions.items()))
            oldest = next(iter(partition.rows.values()))
            excess = totals.n_keys_outstanding - self.max_keys
            room = max(0, excess + self.max_keys // 16)
            keys = oldest.keys if isinstance(oldest, Batch) else tuple(islice(partition.rows, room))
            keys = keys if len(keys) <= room else keys[: max(0, excess)]
            if not keys:
                break
            self._remove(partition_id, partition, keys)
            totals.keys_overflowed += len(keys)
        totals.bytes_overflowed += n_bytes - totals.bytes_outstanding
