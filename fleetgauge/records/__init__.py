"""Records on disk: one JSON object per line, the contract between probes and service (docs/records.md)."""

from __future__ import annotations

from .reading import (
    ENVELOPE,
    MAX_LINE_BYTES,
    SCHEMA_VERSION,
    Damage,
    Event,
    Json,
    Line,
    Readable,
    identity,
    lines,
    read,
)
from .writer import RecordWriter, file_name, resolve_path

__all__ = [
    "ENVELOPE",
    "MAX_LINE_BYTES",
    "SCHEMA_VERSION",
    "Damage",
    "Event",
    "Json",
    "Line",
    "Readable",
    "RecordWriter",
    "file_name",
    "identity",
    "lines",
    "read",
    "resolve_path",
]
