"""How many bytes each row of a batch carries, field by field.

Knows tensors by what they can do and reads only their shapes, element sizes and offsets, never their
contents: no tensor library is imported, and a batch that lies on a device or in a lazy stack is not copied
to be measured. Knows nothing of keys or partitions.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

# Tensors and batches are duck-typed here: naming their types would import torch and tensordict.
Leaf = Any


class Uneven:
    """The bytes of a field in rows that differ: their sum at once, those of each row when somebody asks."""

    __slots__ = ("_sizes", "largest", "n_rows", "total")

    def __init__(
        self, n_rows: int, total: int, largest: int, sizes: array[int] | Callable[[], array[int]]
    ) -> None:
        self.n_rows = n_rows
        self.total = total
        self.largest = largest
        self._sizes = sizes

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Uneven:
        packed = array("q", sizes)
        return cls(len(packed), sum(packed), max(packed, default=0), packed)

    @property
    def sizes(self) -> array[int]:
        if not isinstance(self._sizes, array):
            self._sizes = self._sizes()
        return self._sizes


# The bytes of a field in each row of a batch; a number stands for rows that are all alike.
Column = int | Uneven
Columns = dict[Hashable, Column]


class BatchBytes(NamedTuple):
    """The bytes of a batch, field by field and in all. What is `unmeasured` is in no count."""

    columns: Columns
    total: int
    unmeasured: list[Exception]


def total_bytes(columns: Columns, n_rows: int) -> int:
    return sum([_total(column, n_rows) for column in columns.values()])


def _total(column: Column, n_rows: int) -> int:
    return column.total if isinstance(column, Uneven) else column * n_rows


def picked(columns: Columns, rows: list[int]) -> Columns:
    """The same fields of only these rows."""
    return {
        name: column if isinstance(column, int) else Uneven.of(map(column.sizes.__getitem__, rows))
        for name, column in columns.items()
    }


def bytes_of_rows(columns: Columns, rows: list[int]) -> int:
    return sum(
        column * len(rows) if isinstance(column, int) else sum(map(column.sizes.__getitem__, rows))
        for column in columns.values()
    )


def largest_row(columns: Columns, at_least: int) -> int:
    """The bytes of the largest row, or `at_least` if no row can be larger."""
    bound = sum([column if isinstance(column, int) else column.largest for column in columns.values()])
    if bound <= at_least:
        return at_least
    rows = _added(columns.values())
    return max(at_least, rows if isinstance(rows, int) else rows.largest)


def measure(fields: Leaf, n_rows: int) -> BatchBytes:
    """Measure `fields`, the batch of `n_rows` rows.

    A leaf that has rows of its own (jagged, nested, stacked) is counted row by row when they are `n_rows`.
    Any other total is divided evenly, which for a dense batch is each row's own bytes. Never raises: what
    cannot be measured is named in the answer. Without rows, the batch is measured as one.
    """
    unmeasured: list[Exception] = []
    columns: Columns = {}
    try:
        columns = _columns(fields, n_rows or 1, unmeasured)
    except Exception as error:
        unmeasured.append(error)
    return BatchBytes(columns, total_bytes(columns, n_rows or 1), unmeasured)


def _columns(batch: Leaf, n_rows: int, unmeasured: list[Exception]) -> Columns:
    if type(batch) is dict:
        return {name: _rows(leaf, n_rows, unmeasured) for name, leaf in batch.items()}
    members = getattr(batch, "tensordicts", None)
    # Reading a field of a lazy stack would copy its rows together, or fail where their shapes differ.
    if isinstance(members, (list, tuple)):
        if getattr(batch, "stack_dim", 0) == 0:
            return _stacked_by_row(members, n_rows, unmeasured)
        return _stacked_across_rows(members, n_rows, unmeasured)
    if _is_mapping(batch):
        return {name: _rows(leaf, n_rows, unmeasured) for name, leaf in batch.items()}
    return {} if batch is None else {"": _rows(batch, n_rows, unmeasured)}


def _stacked_by_row(members: Sequence[Leaf], n_rows: int, unmeasured: list[Exception]) -> Columns:
    stacked: dict[Hashable, array[int]] = {}
    for row, member in enumerate(members):
        for name, column in _columns(member, 1, unmeasured).items():
            stacked.setdefault(name, array("q", [0]) * len(members))[row] = _total(column, 1)
    return {name: _fitted(Uneven.of(sizes), n_rows) for name, sizes in stacked.items()}


def _stacked_across_rows(members: Iterable[Leaf], n_rows: int, unmeasured: list[Exception]) -> Columns:
    columns: Columns = {}
    for member in members:
        for name, sizes in _columns(member, n_rows, unmeasured).items():
            columns[name] = _added([columns[name], sizes]) if name in columns else sizes
    return columns


def _rows(leaf: Leaf, n_rows: int, unmeasured: list[Exception]) -> Column:
    try:
        if getattr(leaf, "is_nested", False) is True:
            return _fitted(_nested_rows(leaf), n_rows)
        if _is_tensor(leaf):
            size = leaf.numel() * leaf.element_size()
            if n_rows == 1 and type(size) is int:
                return size
            return _fitted(size, n_rows) if isinstance(size, int) else 0
        if getattr(type(leaf), "_is_non_tensor", False):
            return 0
        if isinstance(leaf, (list, tuple)):
            return _fitted(_listed_rows(leaf, unmeasured), n_rows)
        if _is_mapping(leaf):
            return _added(_columns(leaf, n_rows, unmeasured).values())
        size = getattr(leaf, "nbytes", 0)
        return _fitted(size, n_rows) if isinstance(size, int) else 0
    except Exception as error:  # one leaf that cannot be measured costs only itself
        unmeasured.append(error)
        return 0


def _listed_rows(rows: list[Leaf] | tuple[Leaf, ...], unmeasured: list[Exception]) -> Column:
    """A list of tensors or of batches, one a row. A list of anything else is a non-tensor leaf.

    Its first item decides, so that a million Python numbers are not walked.
    """
    if not rows or not (_is_mapping(rows[0]) or _is_tensor(rows[0])):
        return 0
    return Uneven.of(_total(_rows(row, 1, unmeasured), 1) for row in rows)


def _nested_rows(nested: Leaf) -> Uneven:
    if not callable(getattr(nested, "offsets", None)):
        return Uneven.of(row.numel() * row.element_size() for row in nested.unbind())
    # The ragged dimension, wherever it stands, is the one whose size is not a plain number.
    width = math.prod(size for size in nested.shape[1:] if isinstance(size, int)) * nested.element_size()
    # A narrowed view keeps its whole buffer and says in `lengths` how much of it is its own.
    if (lengths := nested.lengths()) is None:
        offsets = nested.offsets()
        if (ends := _array(offsets)) is None:
            return Uneven.of((end - start) * width for start, end in pairwise(offsets.tolist()))
        own, total = ends[1:] - ends[:-1], ends.item(-1) - ends.item(0)
    elif (own := _array(lengths)) is None:
        return Uneven.of(length * width for length in lengths.tolist())
    else:
        own, total = own.copy(), int(own.sum())  # a copy: the tensor may change
    largest = own.item(own.argmax()) * width if total else 0
    return Uneven(len(own), total * width, largest, lambda: array("q", (own * width).tobytes()))


def _array(numbers: Leaf) -> Leaf | None:
    """Numbers that lie on the host and are wide enough, as an array to calculate with."""
    try:
        shared = numbers.numpy() if hasattr(numbers, "numpy") else numbers
        return shared if memoryview(shared).format in ("l", "q") else None
    except Exception:  # they lie on a device, or there is no numpy: then number by number
        return None


def _is_tensor(leaf: Leaf) -> bool:
    return hasattr(leaf, "numel") and hasattr(leaf, "element_size")


def _is_mapping(leaf: Leaf) -> bool:
    return callable(getattr(leaf, "items", None)) and callable(getattr(leaf, "keys", None))


def _fitted(own: Column, n_rows: int) -> Column:
    if isinstance(own, Uneven):
        if own.n_rows == n_rows > 1:
            return own
        own = own.total
    share, rest = divmod(own, n_rows)
    return Uneven.of([share + 1] * rest + [share] * (n_rows - rest)) if rest else share


def _added(columns: Iterable[Column]) -> Column:
    alike = 0
    uneven: list[Uneven] = []
    for column in columns:
        if isinstance(column, int):
            alike += column
        else:
            uneven.append(column)
    if not uneven:
        return alike
    if len(uneven) == 1 and not alike:
        return uneven[0]
    return Uneven.of(sum(sizes, alike) for sizes in zip(*(column.sizes for column in uneven), strict=True))
