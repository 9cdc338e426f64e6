"""Records on disk: one JSON object per line, the contract between probes and service (docs/records.md)."""

from __future__ import annotations

from .reading import MAX_LINE_BYTES, SCHEMA_VERSION, Event, Json, read
from .writer import RecordWriter, file_name, resolve_path

__all__ = [
    "MAX_LINE_BYTES",
    "SCHEMA_VERSION",
    "Event",
    "Json",
    "RecordWriter",
    "file_name",
    "read",
    "resolve_path",
]
