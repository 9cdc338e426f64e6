"""How many bytes each row of a batch carries, field by field.

Knows tensors by what they can do and reads only their shapes, element sizes and offsets, never their
contents: no tensor library is imported, and a batch that lies on a device or in a lazy stack is not copied to
be measured. Knows nothing of keys or partitions: `ledger` accounts for these.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

# Tensors and batches are duck-typed here: naming their types would import torch and tensordict.
Leaf = Any


# The bytes of a field in each row of a batch: a plain number if all rows are equal, else a list or a vector
# of numpy or torch.
Column = int | Any
Columns = dict[Hashable, Column]


class BatchBytes(NamedTuple):
    """The bytes of a batch, field by field and in all. What is `unmeasured` is in no count."""

    columns: Columns
    total: int
    unmeasured: list[Exception]


def bytes_by_row(columns: Columns) -> int | list[int]:
    """Return the bytes of each row over all fields; a plain number if all rows are equal."""
    sizes = _added(columns.values())
    return sizes if isinstance(sizes, int | list) else list(sizes.tolist())


def sizes_at(columns: Columns, row: int) -> dict[Hashable, int]:
    """Return the bytes of one row by field."""
    return {name: column if isinstance(column, int) else int(column[row]) for name, column in columns.items()}


def _total(column: Column, n_rows: int) -> int:
    if isinstance(column, int):
        return column * n_rows
    return sum(column) if isinstance(column, list) else int(column.sum())


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
    total = sum([_total(column, n_rows or 1) for column in columns.values()])
    return BatchBytes(columns, total, unmeasured)


def _columns(batch: Leaf, n_rows: int, unmeasured: list[Exception]) -> Columns:
    """Return the bytes of each field; a batch that is a single leaf has the one field ""."""
    # The usual batch, by its exact type: the cheapest test first.
    if type(batch) is dict:
        return {name: _rows(leaf, n_rows, unmeasured) for name, leaf in batch.items()}
    members = getattr(batch, "tensordicts", None)
    # Reading a field of a lazy stack would copy its rows together, or fail where their shapes differ.
    if isinstance(members, (list, tuple)):
        return _stacked(members, n_rows, unmeasured)
    if _is_mapping(batch):
        return {name: _rows(leaf, n_rows, unmeasured) for name, leaf in batch.items()}
    return {} if batch is None else {"": _rows(batch, n_rows, unmeasured)}


def _stacked(members: Sequence[Leaf], n_rows: int, unmeasured: list[Exception]) -> Columns:
    """Return the columns of a lazy stack, whose members are its rows. A member without a field has 0 there.

    The total of a stack along another dimension is right, and its rows are an even share of it.
    """
    stacked: dict[Hashable, list[int]] = {}
    for row, member in enumerate(members):
        for name, column in _columns(member, 1, unmeasured).items():
            stacked.setdefault(name, [0] * len(members))[row] = _total(column, 1)
    return {name: _fitted(sizes, n_rows) for name, sizes in stacked.items()}


def _rows(leaf: Leaf, n_rows: int, unmeasured: list[Exception]) -> Column:
    """Return the bytes of one leaf in each row. A leaf that is not understood counts as 0 bytes."""
    try:
        if getattr(leaf, "is_nested", False) is True:
            return _fitted(_nested_rows(leaf), n_rows)
        if _is_tensor(leaf):
            size = leaf.numel() * leaf.element_size()
            if n_rows == 1 and type(size) is int:
                return size
            return _fitted(size, n_rows) if isinstance(size, int) else 0
        # tensordict's wrapper of a Python object: a non-tensor leaf, and not the mapping it could be taken
        # for.
        if getattr(type(leaf), "_is_non_tensor", False):
            return 0
        if isinstance(leaf, (list, tuple)):
            return _fitted(_listed_rows(leaf, unmeasured), n_rows)
        if _is_mapping(leaf):
            return _added(_columns(leaf, n_rows, unmeasured).values())
        size = getattr(leaf, "nbytes", 0)
        return _fitted(size, n_rows) if isinstance(size, int) else 0
    # One leaf that cannot be measured costs only itself.
    except Exception as error:
        unmeasured.append(error)
        return 0


def _listed_rows(rows: list[Leaf] | tuple[Leaf, ...], unmeasured: list[Exception]) -> Column:
    """A list of tensors or of batches, one a row. A list of anything else is a non-tensor leaf.

    Its first item decides, so that a million Python numbers are not walked.
    """
    if not rows or not (_is_mapping(rows[0]) or _is_tensor(rows[0])):
        return 0
    return [_total(_rows(row, 1, unmeasured), 1) for row in rows]


def _nested_rows(nested: Leaf) -> Column:
    """Return the bytes of each row of a nested tensor, of strided or jagged layout."""
    # Only the jagged layout has offsets; of the strided one every row is a view.
    if not callable(getattr(nested, "offsets", None)):
        return [row.numel() * row.element_size() for row in nested.unbind()]
    # The ragged dimension, wherever it is, is the one whose size is not a plain number.
    width = math.prod(size for size in nested.shape[1:] if isinstance(size, int)) * nested.element_size()
    # A narrowed view has the buffer of the original; its `lengths` are how much of that is its own.
    if (lengths := nested.lengths()) is None:
        offsets = _on_host(nested.offsets())
        lengths = offsets[1:] - offsets[:-1]
    return _on_host(lengths) * width  # a copy: the tensor may change


def _on_host(numbers: Leaf) -> Leaf:
    """Return the numbers in host memory: offsets may be on the GPU, and are small."""
    return numbers.cpu() if hasattr(numbers, "cpu") else numbers


def _is_tensor(leaf: Leaf) -> bool:
    return hasattr(leaf, "numel") and hasattr(leaf, "element_size")


def _is_mapping(leaf: Leaf) -> bool:
    return callable(getattr(leaf, "items", None)) and callable(getattr(leaf, "keys", None))


def _fitted(own: Column, n_rows: int) -> Column:
    """Return the bytes for `n_rows` rows: as they are if they match, else the total divided evenly.

    The first rows get one byte more each where the total is not divisible, so that the sum is exact.
    """
    if not isinstance(own, int):
        if len(own) == n_rows > 1:
            return own
        own = _total(own, n_rows)
    share, remainder = divmod(own, n_rows)
    return [share + 1] * remainder + [share] * (n_rows - remainder) if remainder else share


def _added(columns: Iterable[Column]) -> Column:
    """Return the sum of columns, row by row; an int where all rows are equal."""
    equal = 0
    uneven: list[Any] = []
    for column in columns:
        if isinstance(column, int):
            equal += column
        else:
            uneven.append(column)
    if not any(isinstance(column, list) for column in uneven):
        return sum(uneven, equal)
    listed = (column if isinstance(column, list) else column.tolist() for column in uneven)
    return [sum(sizes, equal) for sizes in zip(*listed, strict=True)]
