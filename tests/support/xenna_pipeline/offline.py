"""Reads the file of an offline W&B run: a LevelDB log of protocol buffers, which the client only writes."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEADER = 7
_BLOCK = 32768
_FULL, _LAST = 1, 4


def _chunks(content: bytes) -> Iterator[bytes]:
    """The records of the log; one that crosses a block is in pieces."""
    position, pieces = _HEADER, b""
    while position + 7 <= len(content):
        left = _BLOCK - position % _BLOCK
        if left < 7:
            position += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, position)
        pieces += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (_FULL, _LAST):
            yield pieces
            pieces = b""


def records(path: Path) -> Iterator[Any]:  # Any: generated classes that have no types
    """The records of a `.wandb` file, in order."""
    pb2: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")  # it takes half a second
    yield from map(pb2.Record.FromString, _chunks(path.read_bytes()))


def _records(path: Path, kind: str) -> Iterator[Any]:
    return (getattr(record, kind) for record in records(path) if record.WhichOneof("record_type") == kind)


def update(values: dict[str, Any], items: Any) -> None:
    """Put the pairs of a record where their keys say."""
    for item in items:
        *path, last = item.nested_key or [item.key]
        place = values
        for name in path:
            place = place.setdefault(name, {})
        place[last] = json.loads(item.value_json)


def history(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The rows that were logged, each with its step."""
    return [
        (
            row.step.num,
            {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item},
        )
        for row in _records(path, "history")
    ]


def step_metrics(path: Path) -> dict[str, str]:
    """What metrics were defined to be drawn over, by name or glob."""
    return {metric.name or metric.glob_name: metric.step_metric for metric in _records(path, "metric")}


def run(path: Path) -> Any:  # Any: a generated class that has no types
    """What the run is."""
    return next(_records(path, "run"))


def summary(path: Path) -> dict[str, Any]:
    """The summary as it was left."""
    changes = [item for change in _records(path, "summary") for item in change.update]
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in changes}
