"""Rows of keys that go together: in an operation that is under way, and in the batch that they were put in.

Knows which keys they are, and how many bytes each has in each field. Knows nothing of what is held in all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable

from fleetgauge.data_plane.row_bytes import Columns, bytes_of_rows, picked, total_bytes

Keys = tuple[Hashable, ...]

# Keys in the order of their rows, or each with its row: only what is taken apart needs the latter. Neither is
# walked by the garbage collector, as long as keys are texts; a list or a set would be.
Rows = Keys | dict[Hashable, int]


def by_key(rows: Rows) -> dict[Hashable, int]:
    """Each key with its row; of a key that is repeated, the last."""
    return rows if isinstance(rows, dict) else dict(zip(rows, range(len(rows)), strict=True))


class Operation:
    """One call: what its event says, and for a put or a clear that is under way the rows it is about.

    `rows` of a put are those that were not cleared since it began; of a clear they are its keys, or None for
    all of its partition, and `spared` are those that were put since.
    """

    n_keys = 0
    n_bytes = 0
    wall_ms = 0.0
    number = 0  # in the order in which puts and clears begin; 0 for anything else
    rows: Rows | None = None
    columns: Columns | None = None  # of a put
    n_rows: int  # of a put
    spared: set[Hashable] | None = None

    def __init__(self, op: str, partition_id: str) -> None:
        self.op = op
        self.partition_id = partition_id


class Partition:
    """Which batch each key is in, by number: a table of batches would be walked by the garbage collector."""

    __slots__ = ("batch_of", "n_bytes", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.batch_of: dict[Hashable, int] = {}
        self.n_bytes = 0


class Batch:
    """Rows of the same fields. Some of its `n_rows` may be held no longer; once these are most, they go."""

    __slots__ = ("columns", "n_bytes", "n_rows", "partition", "rows")

    def __init__(
        self, partition: Partition, rows: Rows, columns: Columns, n_rows: int, n_bytes: int | None = None
    ) -> None:
        self.partition = partition
        self.rows = rows
        self.columns = columns
        self.n_rows = n_rows
        if len(rows) < n_rows:
            self._pack()
            n_bytes = None
        self.n_bytes = total_bytes(self.columns, self.n_rows) if n_bytes is None else n_bytes

    def columns_of(self, keys: Iterable[Hashable]) -> Columns:
        self.rows = by_key(self.rows)
        return picked(self.columns, [self.rows[key] for key in keys])

    def remove(self, keys: Iterable[Hashable]) -> None:
        self.rows = by_key(self.rows)
        self.n_bytes -= bytes_of_rows(self.columns, list(map(self.rows.pop, keys)))
        if self.n_rows > 2 * len(self.rows) + 64:
            self._pack()

    def _pack(self) -> None:
        self.columns = picked(self.columns, list(by_key(self.rows).values()))
        self.rows, self.n_rows = tuple(self.rows), len(self.rows)


def grouped(keys: Collection[Hashable], numbers: list[int]) -> Iterable[tuple[int, Collection[Hashable]]]:
    """The keys of each number."""
    if numbers and numbers.count(numbers[0]) == len(numbers):
        return [(numbers[0], keys)]
    groups: defaultdict[int, list[Hashable]] = defaultdict(list)
    for key, number in zip(keys, numbers, strict=True):
        groups[number].append(key)
    return groups.items()
