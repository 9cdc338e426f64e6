"""Which bytes a data plane still holds, per partition, key and field.

Knows sizes that were measured elsewhere and the order in which operations began. Knows nothing of tensors,
clocks or threads: whoever calls it holds a lock.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, repeat

from fleetgauge._row_bytes import Columns, largest_row, picked, sizes_of, total_bytes

# A table of `max_keys` keys has room for this many fields of each; past that, whole keys are given up.
FIELDS_PER_KEY = 64

# How many rows may wait to be entered together.
_ROWS_PER_LOT = 8192


@dataclass(slots=True)
class PendingPut:
    """A put that has begun, and those of its keys that were cleared before it ended."""

    partition_id: str
    began: int
    keys: list[Hashable]
    withdrawn: set[Hashable] = field(default_factory=set)


@dataclass(slots=True)
class Held:
    """`largest_row` is the most bytes that one put gave one key."""

    n_keys: int = 0
    n_bytes: int = 0
    peak_bytes: int = 0
    largest_row: int = 0
    keys_overflowed: int = 0
    bytes_overflowed: int = 0


@dataclass(slots=True)
class _Partition:
    """A table by columns, so that a batch is entered by a few calls and allocates little.

    A key has a slot for as long as it is held; a slot is not used again until the table is packed.
    """

    slot_of: dict[Hashable, int] = field(default_factory=dict)
    columns: dict[Hashable, array[int]] = field(default_factory=dict)
    began: array[int] = field(default_factory=lambda: array("q"))
    n_bytes: int = 0

    @property
    def n_sizes(self) -> int:
        return len(self.columns) * len(self.slot_of)

    def enter(self, keys: list[Hashable], columns: Columns, began: int) -> int:
        """Write a row per key; of a key that is repeated the last stands. Returns how the bytes grew."""
        first, n_rows, n_held = len(self.began), len(keys), len(self.slot_of)
        slots = list(map(self.slot_of.setdefault, keys, range(first, first + n_rows)))
        n_fresh = len(self.slot_of) - n_held
        for name in columns:
            self.columns.setdefault(name, sizes_of(0, first))
        if n_fresh == n_rows:
            self._append(columns, n_rows, began)
            return sum(total_bytes(column, n_rows) for column in columns.values())
        if n_fresh == 0 and _side_by_side(slots):
            return self._overwrite(slots[0], columns, n_rows, began)
        self._append({}, n_rows, began)
        return self._scatter(slots, columns, first, began)

    def _append(self, columns: Columns, n_rows: int, began: int) -> None:
        for name, column in self.columns.items():
            column.extend(sizes_of(columns.get(name, 0), n_rows))
        self.began.extend(sizes_of(began, n_rows))

    def _overwrite(self, first: int, columns: Columns, n_rows: int, began: int) -> int:
        """The rows lie side by side, as when a batch is written again or more fields are added to it."""
        rows = slice(first, first + n_rows)
        grown = 0
        for name, sizes in columns.items():
            grown += total_bytes(sizes, n_rows) - sum(self.columns[name][rows])
            self.columns[name][rows] = sizes_of(sizes, n_rows)
        self.began[rows] = array("q", map(max, self.began[rows], repeat(began)))
        return grown

    def _scatter(self, slots: list[int], columns: Columns, first: int, began: int) -> int:
        held = {slot for slot in slots if slot < first}
        written = held.union(slots)
        grown = 0
        for name, sizes in columns.items():
            column = self.columns[name]
            grown -= sum(map(column.__getitem__, held))
            for slot, size in zip(slots, sizes_of(sizes, len(slots)), strict=True):
                column[slot] = size
            grown += sum(map(column.__getitem__, written))
        for slot in held:
            self.began[slot] = max(began, self.began[slot])
        self._pack_if_sparse()
        return grown

    def remove(self, keys: Collection[Hashable], before: int) -> int:
        """Drop those of the keys that are held and whose put began before. Returns the bytes they held."""
        popped = list(map(self.slot_of.pop, keys, repeat(-1)))
        slots = [slot for slot in popped if slot >= 0]
        if any(self.began[slot] > before for slot in slots):
            later = {key: slot for key, slot in zip(keys, popped, strict=True) if slot >= 0}
            self.slot_of.update((key, slot) for key, slot in later.items() if self.began[slot] > before)
            slots = [slot for slot in slots if self.began[slot] < before]
        freed = self._bytes_at(slots)
        self._pack_if_sparse()
        return freed

    def recount(self) -> None:
        """Make good what an interrupt left half done: a slot without a row in every column is no slot."""
        n_slots = min(map(len, (self.began, *self.columns.values())))
        self.slot_of = {key: slot for key, slot in self.slot_of.items() if slot < n_slots}
        for column in (self.began, *self.columns.values()):
            del column[n_slots:]
        self.n_bytes = self._bytes_at(list(self.slot_of.values()))

    def _bytes_at(self, slots: list[int]) -> int:
        columns = self.columns.values()
        if _side_by_side(slots):
            return sum(sum(column[slots[0] : slots[0] + len(slots)]) for column in columns)
        return sum(sum(map(column.__getitem__, slots)) for column in columns)

    def _pack_if_sparse(self) -> None:
        if len(self.began) > 2 * len(self.slot_of) + 64:
            self.pack()

    def pack(self) -> None:
        """Take back the slots of keys, and the columns of fields, that are no longer held."""
        slots = list(self.slot_of.values())
        packed = {name: array("q", map(column.__getitem__, slots)) for name, column in self.columns.items()}
        columns = {name: column for name, column in packed.items() if any(column)}
        began = array("q", map(self.began.__getitem__, slots))
        slot_of = dict(zip(self.slot_of, range(len(slots)), strict=True))
        self.columns, self.began, self.slot_of = columns, began, slot_of


def _side_by_side(slots: list[int]) -> bool:
    return bool(slots) and slots == list(range(slots[0], slots[0] + len(slots)))


class Outstanding:
    """The bytes that were put and not cleared.

    Of a put and a clear that overlap, the one that began later stands: a consumer may clear a key before the
    producer's put of it has returned. A clear of a whole partition names no key, and spares puts under way.

    At most `max_keys` keys are held. Past that, the partition written to longest ago gives up its oldest
    keys: they are the likeliest to have been cleared by another process.

    Puts are entered when somebody asks, or in lots: by the end of a put a table this large has left the
    processor's cache, and going through it once for many puts costs a fraction of doing so for each. What is
    asked in the midst of that, by a finalizer say, waits for its turn, or is answered as of before.
    """

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self._failures: list[Exception] = []
        self._held = Held()
        self._n_sizes = 0
        self._n_begun = 0
        self._under_way: dict[int, PendingPut] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._n_waiting = 0
        self._entering = False
        self._partitions: OrderedDict[str, _Partition] = OrderedDict()

    def begin(self) -> int:
        self._n_begun += 1
        return self._n_begun

    def begin_put(self, partition_id: str, keys: list[Hashable]) -> PendingPut:
        """Announce a put of one row per key, in order."""
        put = PendingPut(partition_id, self.begin(), keys)
        self._under_way[put.began] = put
        return put

    def abandon(self, put: PendingPut) -> None:
        self._under_way.pop(put.began, None)

    def finish_put(self, put: PendingPut, columns: Columns) -> None:
        """Take a put that succeeded, with the bytes of its rows in each field it wrote."""
        self.abandon(put)
        self._waiting.append(lambda: self._enter(put, columns))
        self._n_waiting += len(put.keys)
        if self._n_waiting > _ROWS_PER_LOT:
            self._enter_waiting()

    def clear(self, partition_id: str, keys: Collection[Hashable], began: int) -> None:
        """Forget keys; those that are not held are ignored."""
        for put in self._under_way.values():
            if put.partition_id == partition_id and put.began < began:
                put.withdrawn.update(set(put.keys).intersection(keys))
        self._waiting.append(lambda: self._forget(partition_id, keys, began))
        self._enter_waiting()

    def clear_partition(self, partition_id: str, began: int) -> int:
        """Forget all keys of a partition. Returns how many they were."""
        n_keys = self.n_keys_of(partition_id)
        self._waiting.append(lambda: self._forget_partition(partition_id, began))
        return n_keys - self.n_keys_of(partition_id)

    def clear_everything(self) -> None:
        self._waiting.append(self._forget_everything)
        self._enter_waiting()

    def held(self) -> Held:
        self._enter_waiting()
        return replace(self._held)

    @property
    def overflowed(self) -> bool:
        return self._held.keys_overflowed > 0

    def taken_failures(self) -> list[Exception]:
        """Why puts could not be entered since this was last asked."""
        failures, self._failures = self._failures, []
        return failures

    def n_keys_of(self, partition_id: str) -> int:
        self._enter_waiting()
        partition = self._partitions.get(partition_id)
        return len(partition.slot_of) if partition else 0

    def bytes_by_partition(self) -> dict[str, int]:
        self._enter_waiting()
        return {partition_id: partition.n_bytes for partition_id, partition in self._partitions.items()}

    def __getstate__(self) -> dict[str, object]:
        # Without the puts under way: they end where they began.
        self._enter_waiting()
        return self.__dict__ | {"_under_way": {}, "_waiting": deque(), "_entering": False}

    def _enter_waiting(self) -> None:
        if self._entering:
            return
        self._entering = True
        self._n_waiting = 0
        try:
            while self._waiting:
                try:
                    self._waiting.popleft()()
                except Exception as error:  # what cannot be entered costs itself, not who asks
                    self._failures.append(error)
        finally:
            self._entering = False

    def _enter(self, put: PendingPut, columns: Columns) -> None:
        keys = put.keys
        if keys:
            self._held.largest_row = largest_row(columns, at_least=self._held.largest_row)
        if put.withdrawn:
            rows = [row for row, key in enumerate(keys) if key not in put.withdrawn]
            keys, columns = [keys[row] for row in rows], picked(columns, rows)
        if not keys:
            return
        partition = self._partitions.setdefault(put.partition_id, _Partition())
        self._partitions.move_to_end(put.partition_id)
        with self._counted(partition):
            grown = partition.enter(keys, columns, put.began)
            partition.n_bytes += grown
            self._held.n_bytes += grown
        while self._held.n_keys > self.max_keys or self._n_sizes > self.max_keys * FIELDS_PER_KEY:
            self._give_up_oldest()
        self._held.peak_bytes = max(self._held.peak_bytes, self._held.n_bytes)

    def _forget(self, partition_id: str, keys: Collection[Hashable], before: int) -> None:
        """Drop keys put before, and their partition with the last of them."""
        partition = self._partitions.get(partition_id)
        if partition is None:
            return
        with self._counted(partition):
            freed = partition.remove(keys, before)
            partition.n_bytes -= freed
            self._held.n_bytes -= freed
        if not partition.slot_of:
            del self._partitions[partition_id]

    def _forget_partition(self, partition_id: str, before: int) -> None:
        partition = self._partitions.get(partition_id)
        if partition is None:
            return
        if max(partition.began) > before:
            self._forget(partition_id, list(partition.slot_of), before)
            return
        del self._partitions[partition_id]
        self._held.n_keys -= len(partition.slot_of)
        self._held.n_bytes -= partition.n_bytes
        self._n_sizes -= partition.n_sizes

    def _forget_everything(self) -> None:
        self._partitions.clear()
        self._recount()

    def _give_up_oldest(self) -> None:
        partition_id, partition = next(iter(self._partitions.items()))
        n_keys, n_bytes = self._held.n_keys - self.max_keys, self._held.n_bytes
        too_many_fields = n_keys <= 0
        if too_many_fields:
            n_keys = (len(partition.slot_of) + 1) // 2
        oldest = list(islice(partition.slot_of, n_keys))
        self._forget(partition_id, oldest, self.begin())
        self._held.keys_overflowed += len(oldest)
        self._held.bytes_overflowed += n_bytes - self._held.n_bytes
        if too_many_fields:
            with self._counted(partition):
                partition.pack()

    @contextmanager
    def _counted(self, partition: _Partition) -> Iterator[None]:
        """Follow keys and sizes as they come and go; count again if an interrupt comes between."""
        n_keys, n_sizes = len(partition.slot_of), partition.n_sizes
        try:
            yield
            self._held.n_keys += len(partition.slot_of) - n_keys
            self._n_sizes += partition.n_sizes - n_sizes
        except BaseException:
            self._recount()
            raise

    def _recount(self) -> None:
        for partition in self._partitions.values():
            partition.recount()
        held = OrderedDict(
            (name, partition) for name, partition in self._partitions.items() if partition.slot_of
        )
        self._partitions = held
        self._held.n_bytes = sum(partition.n_bytes for partition in held.values())
        self._held.n_keys = sum(len(partition.slot_of) for partition in held.values())
        self._n_sizes = sum(partition.n_sizes for partition in held.values())
