"""Records on disk: one JSON object per line, the contract between probes and service (docs/records.md).

`writer` writes the records of one run, `background` has its thread and file, `reading` the format and a
simple reader. The service reads with `common.records`.
"""

from __future__ import annotations

from .reading import MAX_LINE_BYTES as MAX_LINE_BYTES
from .reading import SCHEMA_VERSION as SCHEMA_VERSION
from .reading import Event as Event
from .reading import Json as Json
from .reading import read as read
from .writer import RecordWriter as RecordWriter
from .writer import file_name as file_name
from .writer import resolve_path as resolve_path
