"""The rows that one partition holds: which keys, and how many bytes each has in each field.

Rows stay together as they were put: what came in one batch mostly goes in one, and then costs little more
than the lookup of its keys. Knows nothing of other partitions, or of the order in which operations overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import repeat

from fleetgauge.data_plane.row_bytes import Columns, bytes_of_rows, joined, picked, total_bytes

# Batches of no more rows than this together are joined: a row alone would take several times its memory.
MAX_JOINED_ROWS = 64

# Keys in the order of their rows, or each with its row: only what is taken apart needs the latter. Neither is
# walked by the garbage collector, as long as keys are texts; a list or a set would be.
Rows = tuple[Hashable, ...] | dict[Hashable, int]


def rows_of(keys: tuple[Hashable, ...]) -> Rows:
    """One row per key; of a key that is repeated, the last."""
    return keys if len(set(keys)) == len(keys) else by_key(keys)


def by_key(rows: Rows) -> dict[Hashable, int]:
    return rows if isinstance(rows, dict) else dict(zip(rows, range(len(rows)), strict=True))


@dataclass(slots=True)
class Batch:
    """Rows of the same fields. Some of its `n_rows` may be held no longer; once these are most, they go."""

    rows: Rows
    columns: Columns
    n_rows: int
    n_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        if len(self.rows) < self.n_rows:
            self._pack()
        self.n_bytes = sum(total_bytes(column, self.n_rows) for column in self.columns.values())

    @property
    def n_sizes(self) -> int:
        return len(self.rows) * len(self.columns)

    def columns_of(self, keys: Iterable[Hashable]) -> Columns:
        self.rows = by_key(self.rows)
        return picked(self.columns, [self.rows[key] for key in keys])

    def remove(self, keys: Iterable[Hashable]) -> None:
        self.rows = by_key(self.rows)
        self.n_bytes -= bytes_of_rows(self.columns, list(map(self.rows.pop, keys)))
        if self.n_rows > 2 * len(self.rows) + 64:
            self._pack()

    def can_join(self, other: Batch) -> bool:
        return self.n_rows + other.n_rows <= MAX_JOINED_ROWS and self.columns.keys() == other.columns.keys()

    def joined(self, other: Batch) -> Batch:
        self._pack()
        columns = joined(self.columns, self.n_rows, other.columns, other.n_rows)
        return Batch((*self.rows, *other.rows), columns, self.n_rows + other.n_rows)

    def _pack(self) -> None:
        if isinstance(self.rows, dict):
            columns = picked(self.columns, list(self.rows.values()))
            self.columns, self.rows, self.n_rows = columns, tuple(self.rows), len(self.rows)


class Partition:
    """Batches, the one written to longest ago first, and for each key the number of the one it is in.

    A put of a, b, c is one batch of three rows. A later put of another field of b moves b, with all of its
    fields, into a batch of its own; the first keeps three rows, of which two are held, until most are gone:
        batch_of {a: 1, b: 2, c: 1}    batches {1: rows {a: 0, c: 2} of 3, 2: rows (b,)}
    The number and not the batch, because the garbage collector would have to walk a table of those.
    """

    def __init__(self) -> None:
        self.batch_of: dict[Hashable, int] = {}
        # A dict that has had a key other than text keeps all hashes in its table. Otherwise a lookup reads
        # them from the texts that it meets on its way, each of them far from the processor's cache.
        self.batch_of[None] = 0
        del self.batch_of[None]
        self.n_bytes = 0
        self.n_sizes = 0
        self.batches: dict[int, Batch] = {}
        self._n_numbers = 0

    def enter(self, batch: Batch) -> None:
        """Hold these rows too. A field that a key has already is replaced."""
        number, n_held = self._new_number(), len(self.batch_of)
        owners = list(map(self.batch_of.setdefault, batch.rows, repeat(number)))
        if len(self.batch_of) == n_held + len(owners):
            self._add(number, batch)
            return
        old = self.batches.get(owners[0])
        if old is not None and old.rows == batch.rows:
            self._set(owners[0], Batch(old.rows, old.columns | batch.columns, old.n_rows))
            return
        for owner, keys in _grouped(batch.rows, owners):
            columns = batch.columns_of(keys)
            if owner != number:
                columns = self.batches[owner].columns_of(keys) | columns
                self._remove_from(owner, keys)
            moved_to = self._new_number()
            self.batch_of.update(dict.fromkeys(keys, moved_to))
            self._add(moved_to, Batch(tuple(keys), columns, len(keys)))

    def remove(self, keys: Collection[Hashable]) -> None:
        """Forget keys, each named once. Those that are not held are ignored."""
        for number, held in _grouped(keys, list(map(self.batch_of.pop, keys, repeat(-1)))):
            if number >= 0:
                self._remove_from(number, held)

    def oldest_keys(self, at_most: int) -> tuple[Hashable, ...]:
        oldest = next(iter(self.batches.values()), None)
        return tuple(oldest.rows)[:at_most] if oldest else ()

    def recount(self) -> None:
        """Make good what an interrupt left half done: held is what both tables know."""
        batches, self.batches, self.n_bytes, self.n_sizes = self.batches, {}, 0, 0
        for number, batch in batches.items():
            rows = by_key(batch.rows)
            held = {key: row for key, row in rows.items() if self.batch_of.get(key) == number}
            if held:
                self._set(number, Batch(held, batch.columns, batch.n_rows))
        known = {key for batch in self.batches.values() for key in batch.rows}
        self.batch_of = {key: number for key, number in self.batch_of.items() if key in known}

    def _new_number(self) -> int:
        self._n_numbers += 1
        return self._n_numbers

    def _add(self, number: int, batch: Batch) -> None:
        last = next(reversed(self.batches), None)
        if last is not None and self.batches[last].can_join(batch):
            self.batch_of.update(dict.fromkeys(batch.rows, last))
            number, batch = last, self.batches[last].joined(batch)
        self._set(number, batch)

    def _set(self, number: int, batch: Batch) -> None:
        if old := self.batches.pop(number, None):
            self._count(old, -1)
        self.batches[number] = batch
        self._count(batch, 1)

    def _remove_from(self, number: int, keys: Collection[Hashable]) -> None:
        batch = self.batches[number]
        self._count(batch, -1)
        if len(keys) == len(batch.rows):
            del self.batches[number]
            return
        batch.remove(keys)
        self._count(batch, 1)

    def _count(self, batch: Batch, times: int) -> None:
        self.n_bytes += times * batch.n_bytes
        self.n_sizes += times * batch.n_sizes


def _grouped(keys: Collection[Hashable], numbers: list[int]) -> Iterable[tuple[int, Collection[Hashable]]]:
    if numbers and numbers.count(numbers[0]) == len(numbers):
        return [(numbers[0], keys)]
    groups: defaultdict[int, list[Hashable]] = defaultdict(list)
    for key, number in zip(keys, numbers, strict=True):
        groups[number].append(key)
    return groups.items()
