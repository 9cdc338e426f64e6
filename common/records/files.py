"""Files of records, on disk and in S3: find those that patterns match, and open them.

A pattern is a file, a directory (all files of the kind in it and below) or a glob, and `{date}` in it is a
UTC day. A name matches also after its file was rotated, numbered or compressed. Unlike `glob`, finding
reports what it could not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import chain, islice, takewhile

from common.collector import Network
from common.records.names import is_fixed, is_in_s3, split
from common.records.storage import Buckets, Content, Disk, File, Unreadable, reason

MAX_FILES = 100_000  # of a pattern
MAX_DISORDER = 600  # seconds by which a line may be older than a line before it
MAX_DOCUMENT = 8 << 20  # bytes
DATE = "{date}"
NOT_THERE = "it does not exist; where that is normal, write a wildcard in the path"


@dataclass
class Found:
    """The files of some patterns, each once, and what could not be read."""

    files: dict[str, File] = field(default_factory=dict)  # by path
    pattern_of: dict[str, str] = field(default_factory=dict)  # by path
    unreadable: Unreadable = field(default_factory=list)


class Files:
    """The files of a run. `{date}` in a pattern is each UTC day from `since` to `until`, both included."""

    def __init__(self, network: Network, since: float, until: float, max_objects: int = 20_000) -> None:
        self._disk = Disk()
        self._buckets = Buckets(network, max_objects)
        first, last = (datetime.fromtimestamp(at, UTC).toordinal() for at in (since, max(since, until)))
        self._days = [date.fromordinal(day).isoformat() for day in range(first, last + 1)]

    def find(self, patterns: Sequence[str], names: str = "*.jsonl") -> Found:
        """Return the files that match any of the patterns, each under the path that sorts first.

        `names` are the files that a directory stands for. The fixed part of a pattern must exist.
        """
        found = Found()
        for pattern in patterns:
            files: dict[str, File] = {}
            unreadable: Unreadable = []
            storage = self._storage(pattern)
            dated = [pattern.replace(DATE, day) for day in self._days] if DATE in pattern else [pattern]
            try:
                matched = chain.from_iterable(storage.files(path, names, unreadable) for path in dated)
                files = {file.path: file for file in islice(matched, MAX_FILES)}
                if next(matched, None):
                    unreadable.append((pattern, f"more than {MAX_FILES} files; narrow the pattern"))
                fixed = "/".join(takewhile(is_fixed, split(pattern.replace(DATE, "*"))))
                if not (files or unreadable or storage.exists(fixed)):
                    unreadable.append((fixed, NOT_THERE))
            except OSError as error:
                unreadable.append((pattern, reason(error)))
            found.files |= files
            found.pattern_of = dict.fromkeys(files, pattern) | found.pattern_of
            found.unreadable += [problem for problem in unreadable if problem not in found.unreadable]
        seen: set[object] = set()
        for path in sorted(found.files):
            identity = path if is_in_s3(path) else found.files[path].version
            if identity in seen:
                del found.files[path], found.pattern_of[path]
            seen.add(identity)
        return found

    def current(self, file: File) -> File:
        """Return a file that was renamed or changed since it was listed, as it is now.

        Raises FileNotFoundError where it was deleted, or OSError.
        """
        return self._storage(file.path).current(file)

    def open(self, file: File) -> Content:
        """Open a file; ChangedFileError where it is another than the listed one, or OSError."""
        return self._storage(file.path).open(file)

    def read_document(self, path: str) -> bytes:
        """Return a small file, or the first MAX_DOCUMENT + 1 bytes of a large one; raises OSError."""
        storage = self._storage(path)
        with closing(storage.open(storage.file(path))) as content:
            return content.at(0, MAX_DOCUMENT + 1)

    def _storage(self, path: str) -> Disk | Buckets:
        return self._buckets if is_in_s3(path) else self._disk
