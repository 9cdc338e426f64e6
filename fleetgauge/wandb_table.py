"""A table of W&B out of what a job has: which columns of it, and which of its rows.

Knows DataFrames by what they can do, without importing pandas.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Sampled(NamedTuple):
    """A table, and how many of how many rows it shows."""

    table: Any  # of W&B, which need not be there
    rows: int
    total_rows: int


# Any: W&B as it was imported, and a DataFrame or a list of whatever W&B can show.
def sampled_table(
    wandb: Any,
    rows: Any,
    columns: Sequence[str] | None,
    preferred: Sequence[str] | None,
    max_rows: int,
    seed: int,
) -> Sampled:
    """A table of at most so many rows, selected at random, in their order."""
    if hasattr(rows, "iloc"):
        frame = rows.loc[:, ~rows.columns.duplicated()]
        selected = _choose(list(frame.columns), preferred or columns)
        indices = _indices(len(frame), max_rows, seed)
        table = wandb.Table(dataframe=frame[selected].iloc[indices], allow_mixed_types=True)
        return Sampled(table, len(indices), len(frame))
    listed = list(rows)
    if columns is None:
        columns = _choose(list(dict.fromkeys(name for row in listed for name in row)), preferred)
    indices = _indices(len(listed), max_rows, seed)
    cells = [_cells(listed[index], columns) for index in indices]
    table = wandb.Table(columns=list(columns), data=cells, allow_mixed_types=True)
    return Sampled(table, len(indices), len(listed))


def _choose(present: list[str], preferred: Sequence[str] | None) -> list[str]:
    """Those of the preferred columns that are there, all where none is."""
    return [name for name in preferred or () if name in present] or present


def _indices(count: int, most: int, seed: int) -> list[int]:
    if count <= most:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), most))  # noqa: S311  # nothing secret


def _cells(row: Any, columns: Sequence[str]) -> list[Any]:
    return [row.get(name) for name in columns] if isinstance(row, Mapping) else list(row)
