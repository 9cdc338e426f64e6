"""Make a W&B table of a sample of rows and columns.

DataFrames are recognised by their attributes, without importing pandas.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Sampled(NamedTuple):
    """A table, and how many of how many rows it shows."""

    table: Any  # of W&B, which may not be installed
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
    """Return a table of at most `max_rows` rows, sampled at random, in their order."""
    if hasattr(rows, "iloc"):
        frame = rows.loc[:, ~rows.columns.duplicated()]
        chosen = _choose(list(frame.columns), preferred or columns)
        sampled = _indices(len(frame), max_rows, seed)
        table = wandb.Table(dataframe=frame[chosen].iloc[sampled], allow_mixed_types=True)
        return Sampled(table, len(sampled), len(frame))
    listed = list(rows)
    if columns is None:
        columns = _choose(list(dict.fromkeys(name for row in listed for name in row)), preferred)
    sampled = _indices(len(listed), max_rows, seed)
    cells = [_cells(listed[index], columns) for index in sampled]
    table = wandb.Table(columns=list(columns), data=cells, allow_mixed_types=True)
    return Sampled(table, len(sampled), len(listed))


def _choose(available: list[str], preferred: Sequence[str] | None) -> list[str]:
    """Return the preferred columns that are available, or all if none is."""
    return [name for name in preferred or () if name in available] or available


def _indices(count: int, max_rows: int, seed: int) -> list[int]:
    if count <= max_rows:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), max_rows))  # noqa: S311  # nothing secret


def _cells(row: Any, columns: Sequence[str]) -> list[Any]:
    return [row.get(name) for name in columns] if isinstance(row, Mapping) else list(row)
