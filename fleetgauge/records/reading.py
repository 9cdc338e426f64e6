"""The format of records, and a reader of record files that survives damaged lines; standard library only.

`writer` writes the same format; docs/records.md describes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
MAX_LINE_BYTES = 1_000_000  # bytes, without the newline
# In this order in every record: a person who reads the file finds the same columns.
ENVELOPE = ("schema_version", "kind", "event", "run_id", "seq", "timestamp", "host", "pid", "job", "rank")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it in front of the first line

Json = dict[str, Any]  # Any: what a line contains is for its reader to judge


class Event(StrEnum):
    """The position of a record in its run."""

    START = "start"
    STATS = "stats"
    END = "end"


def read(path: str | PathLike[str]) -> Iterator[Json]:
    """Yield the objects of one file in order, without damaged lines and without an unfinished last one.

    Memory is bounded by `MAX_LINE_BYTES`. Raises OSError where the file cannot be read.
    """
    skipping = False
    with Path(path).open("rb") as stream:
        stream.seek(len(_BYTE_ORDER_MARK) * (stream.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK))
        while piece := stream.readline(MAX_LINE_BYTES + 1):
            complete = piece.endswith(b"\n")
            if complete and not skipping:
                try:
                    # A crash of the machine may leave NUL bytes where a line was not yet on disk.
                    value = json.loads(piece.lstrip(b"\0").decode())
                except (ValueError, RecursionError):
                    value = None
                if isinstance(value, dict):
                    yield value
            # A hole of NUL bytes may be longer than any line; the record after it is read.
            skipping = not complete and (skipping or bool(piece.strip(b"\0")))
