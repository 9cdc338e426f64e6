"""Files of records, on disk and in S3: find those that patterns match, and open them.

A pattern is a file, a directory (all `.jsonl` files in it and below) or a glob, and `{date}` in it is a UTC
day. A name matches also after its file was rotated, numbered or compressed. Unlike `glob`, finding reports
what it could not read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from common.collector import Network
from common.records.s3 import S3, ObjectContent
from common.text import visible

MAX_FILES = 100_000
MAX_DOCUMENT = 8 << 20  # bytes
MAX_DIRECTORY_DEPTH = 16  # directories below the first that `**` enters
MAX_DISORDER = 600  # seconds by which a line may be older than a line before it
DATE = "{date}"
COMPRESSED = (".gz", ".zst")

_SCHEME = "s3://"
_MAGIC = re.compile(r"[*?\[]")
_SUFFIX_NUMBER = re.compile(r"(.+)\.\d{1,9}")
_OWN_NUMBER = re.compile(r"(.+?)(\.[A-Za-z0-9_-]+)?\.\d{6}(\.[a-z]+)")
_FIRST_LINE = 4096  # bytes of a first line that are compared


class File(NamedTuple):
    """A regular file or an object, as listed."""

    path: str  # absolute, or s3://bucket/key
    size: int  # bytes as stored
    modified: float  # seconds since the epoch
    version: str  # S3: the ETag; "" on disk
    identity: object  # equal for two paths of one file


@dataclass
class Found:
    """The files of some patterns, each once and without copies, and what could not be read."""

    files: dict[str, File] = field(default_factory=dict)  # by path
    pattern_of: dict[str, str] = field(default_factory=dict)  # by path
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # path and reason
    missing: dict[str, str] = field(default_factory=dict)  # by pattern: its fixed part, which does not exist


# Names


def is_in_s3(path: str) -> bool:
    """Return whether a path or pattern is in S3."""
    return path.startswith(_SCHEME)


def shown(path: str) -> str:
    """Return a path as printable text: bytes that are not UTF-8 and control characters are escaped."""
    return visible(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def reason(error: OSError) -> str:
    """Return why something failed, without the path and the error number."""
    return error.strerror or str(error)


def former_names(name: str) -> Iterator[str]:
    """Yield a name, and the names that it may have had before it was compressed, rotated or numbered.

    `run.jsonl.2.gz` was `run.jsonl`; so were `run.000002.jsonl` and `run.<run id>.000002.jsonl`.
    """
    yield name
    plain = name.removesuffix(".gz").removesuffix(".zst")
    if plain != name:
        yield plain
    if match := _SUFFIX_NUMBER.fullmatch(plain):
        yield match[1]
    if match := _OWN_NUMBER.fullmatch(plain):
        yield match[1] + match[3]
        yield match[1] + (match[2] or "") + match[3]


def unit(path: str) -> str:
    """Return the path that a file was written under before it was rotated, numbered or compressed."""
    directory, slash, name = path.rpartition("/")
    return directory + slash + min(former_names(name), key=len)


def _matches(name: str, part: str) -> bool:
    return name == part or fnmatchcase(name, part)


# Storages


_Entry = tuple[str, bool, bool]  # a name in a directory, whether it is a directory, and whether a link


class DiskContent:
    """The bytes that a file had when it was opened."""

    chunk = 1 << 16  # bytes to read at a time: for more than 128 kB, malloc calls the kernel each time

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor

    def at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from an offset; none at the end."""
        return os.pread(self._descriptor, max(0, min(size, self.size - offset)), offset)

    def prefetch(self, start: int, end: int) -> None:
        """Do nothing: reading twice costs little."""

    def close(self) -> None:
        """Close the file; reading raises OSError from then on."""
        os.close(self._descriptor)
        self._descriptor = -1


Content = DiskContent | ObjectContent


class _Disk:
    """The file system."""

    def load(self, pattern: str) -> str | None:  # noqa: ARG002
        return None

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)  # noqa: PTH112  # Path.is_dir raises where it cannot be known

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def entries(self, directory: str) -> list[_Entry]:
        entries: list[_Entry] = []
        with os.scandir(directory) as listing:
            for entry in listing:
                is_link = entry.is_symlink()
                is_directory = self.is_directory(entry.path) if is_link else entry.is_dir()
                entries.append((entry.name, is_directory, is_link))
        return entries

    def file(self, path: str) -> File:
        status = os.stat(path)  # noqa: PTH116  # faster than Path
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        return File(path, status.st_size, status.st_mtime, "", (status.st_dev, status.st_ino))

    def open(self, file: File) -> DiskContent:
        content, identity = _open(file.path)
        if identity != file.identity:
            content.close()
            raise FileNotFoundError("another file has its name")
        return content

    def read_document(self, path: str) -> bytes:
        with closing(_open(path)[0]) as content:
            return content.at(0, MAX_DOCUMENT + 1)


def _open(path: str) -> tuple[DiskContent, object]:
    """Open a regular file; OSError where it is none. Opening a pipe in the usual way waits for a writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    content = DiskContent(descriptor, status.st_size)
    if not stat.S_ISREG(status.st_mode):
        content.close()
        raise OSError("it is not a regular file")
    return content, (status.st_dev, status.st_ino)


class _Buckets:
    """Objects, by paths of the form s3://bucket/key, as if they were in directories. Each is listed once."""

    def __init__(self, network: Network, max_objects: int) -> None:
        self._network = network
        self._max_objects = max_objects
        self._listed: dict[str, int] = {}  # by prefix, with the bucket: how many objects were listed
        self._files: dict[str, dict[str, File]] = {}  # by directory and name
        self._below: dict[str, dict[str, None]] = {}  # names of directories, by the directory they are in

    @cached_property
    def _s3(self) -> S3:
        return S3(self._network.aws("s3", "reading records in S3"))

    def load(self, pattern: str) -> str | None:
        """List what a pattern may match; return why that is not all, or None. Raises OSError."""
        magic = _MAGIC.search(pattern)
        prefix = pattern[: magic.start()] if magic else pattern
        prefix += "/" * ("/" not in prefix.removeprefix(_SCHEME))
        for listed, count in self._listed.items():
            if prefix == listed or (prefix.startswith(listed) and count <= self._max_objects):
                break
        else:
            bucket, key = _bucket_and_key(prefix)
            objects = self._s3.list(bucket, key, self._max_objects)
            self._listed[prefix] = count = len(objects)
            for item in objects:
                path = f"{_SCHEME}{bucket}/{item.key}"
                directory, _, name = path.rpartition("/")
                files = self._directory(directory)
                if name:  # or it is the directory itself
                    files[name] = File(path, item.size, item.modified, item.version, path)
        if count > self._max_objects:
            return f"more than {self._max_objects} objects; narrow the pattern, or raise MAX_OBJECTS"
        return None

    def _directory(self, path: str) -> dict[str, File]:
        """Return the objects in a directory by name; a new one is added to the directory that it is in."""
        if path not in self._files:
            self._files[path], self._below[path] = {}, {}
            parent, _, name = path.rpartition("/")
            if parent != _SCHEME[:-1]:
                self._directory(parent)
                self._below[parent][name] = None
        return self._files[path]

    def is_directory(self, path: str) -> bool:
        try:
            self.load(f"{path}/")
        except OSError:
            return not _MAGIC.search(path)  # it may be
        return path in self._files

    def exists(self, path: str) -> bool:
        bucket, key = _bucket_and_key(path)
        return not key or path in self._files or bool(self._s3.list(bucket, f"{key}/", limit=0))

    def entries(self, directory: str) -> list[_Entry]:
        files, below = self._files.get(directory, {}), self._below.get(directory, {})
        return [*((name, False, False) for name in files), *((name, True, False) for name in below)]

    def file(self, path: str) -> File:
        directory, _, name = path.rpartition("/")
        return self._files[directory][name]

    def refresh(self, path: str) -> File:
        current = self._s3.head(*_bucket_and_key(path))
        return File(path, current.size, current.modified, current.version, path)

    def open(self, file: File) -> ObjectContent:
        return ObjectContent(self._s3, *_bucket_and_key(file.path), file.version, file.size)

    def read_document(self, path: str) -> bytes:
        return self.open(self.refresh(path)).at(0, MAX_DOCUMENT + 1)


def _bucket_and_key(path: str) -> tuple[str, str]:
    bucket, _, key = path.removeprefix(_SCHEME).partition("/")
    return bucket, key


class Files:
    """The files of a run. `{date}` in a pattern is each UTC day from `since` to `until`, both included."""

    def __init__(self, network: Network, since: float, until: float, max_objects: int = 20_000) -> None:
        self._arguments = (network, since, until, max_objects)
        self._since = since
        self._disk = _Disk()
        self._buckets = _Buckets(network, max_objects)
        first, last = (datetime.fromtimestamp(at, UTC).toordinal() for at in (since, max(since, until)))
        self._days = [date.fromordinal(day).isoformat() for day in range(first, last + 1)]
        self._pattern_of: dict[str, str] = {}
        self._second: dict[str, Found] = {}  # by pattern: what listing it once more found
        self._lock = Lock()

    def expand(self, pattern: str) -> list[str]:
        """Return a pattern once for each day that `{date}` in it is."""
        return [pattern.replace(DATE, day) for day in self._days] if DATE in pattern else [pattern]

    def find(self, patterns: Sequence[str]) -> Found:
        """Return the files that match any of the patterns, each under the path that sorts first.

        Of a plain file and a compressed one of its name with the same first line, the plain one is returned.
        """
        found = Found()
        for pattern in patterns:
            matched = Found()
            try:
                for dated in self.expand(pattern):
                    self._find(dated, matched)
                fixed = "/".join(takewhile(_is_fixed, _names(pattern.replace(DATE, "*"))))
                if not (matched.files or matched.unreadable or self._storage(pattern).exists(fixed)):
                    found.missing[pattern] = fixed
            except OSError as error:
                matched.unreadable.append((shown(pattern), reason(error)))
            found.files |= matched.files
            found.unreadable += matched.unreadable
            found.pattern_of = dict.fromkeys(matched.files, pattern) | found.pattern_of
        found.unreadable = list(dict.fromkeys(found.unreadable))
        self._remove_copies(found)
        self._pattern_of |= found.pattern_of
        self._second.clear()
        return found

    def _find(self, pattern: str, found: Found) -> None:
        """Add the files of a pattern without `{date}`, and what could not be read; raises OSError."""
        storage, names = self._storage(pattern), _names(pattern)
        problem = storage.load(pattern)
        if pattern.endswith("/") or storage.is_directory("/".join(names)):
            names += ["**", "*.jsonl"]
        fixed = len(list(takewhile(_is_fixed, names[:-1])))
        self._walk(storage, "/".join(names[:fixed]), names[fixed:], found)
        if len(found.files) > MAX_FILES:
            found.files.popitem()
            problem = f"more than {MAX_FILES} files; narrow the pattern"
        if problem:
            found.unreadable.append((shown(pattern), problem))

    def _walk(
        self, storage: _Disk | _Buckets, directory: str, parts: Sequence[str], found: Found, depth: int = 0
    ) -> None:
        """Match the parts of a pattern, a directory at a time; hidden names match only parts with a dot."""
        part, remaining = parts[0], parts[1:]
        try:
            entries = storage.entries(directory or "/")
        except FileNotFoundError:
            return
        except OSError as error:
            found.unreadable.append((shown(directory), reason(error)))
            return
        if part == "**":
            self._walk(storage, directory, remaining or ["*"], found, depth)
        for name, is_directory, is_link in entries:
            path = f"{directory}/{name}"
            if len(found.files) > MAX_FILES:
                return
            if name.startswith(".") and not part.startswith("."):
                continue
            if part == "**":
                if not is_directory or is_link:
                    continue
                if depth < MAX_DIRECTORY_DEPTH:
                    self._walk(storage, path, parts, found, depth + 1)
                else:
                    found.unreadable.append(
                        (shown(path), f"it is more than {MAX_DIRECTORY_DEPTH} directories deep")
                    )
            elif remaining:
                if is_directory and _matches(name, part):
                    self._walk(storage, path, remaining, found, depth)
            elif not is_directory and any(_matches(former, part) for former in former_names(name)):
                _add(storage, path, found)

    def tree(self, path: str) -> Iterator[tuple[str, list[str], list[File]]]:
        """Yield each directory from a path on down, the names of those in it, and its files.

        Hidden directories and links to directories are left out, and what `find` reports as unreadable.
        Raises OSError where nothing can be listed.
        """
        storage, top = self._storage(path), "/".join(_names(path))
        storage.load(f"{top}/")
        directories = [(top, 0)]
        for directory, depth in directories:
            found, below = Found(), list[str]()
            with suppress(OSError):
                for name, is_directory, is_link in storage.entries(directory):
                    if not is_directory:
                        _add(storage, f"{directory}/{name}", found)
                    elif not is_link and not name.startswith("."):
                        below.append(name)
            if depth < MAX_DIRECTORY_DEPTH:
                directories += [(f"{directory}/{name}", depth + 1) for name in sorted(below)]
            yield directory, sorted(below), list(found.files.values())

    def find_again(self, file: File) -> File | None:
        """Return a file that is no longer under its path, by its new one; None where it was deleted.

        Its pattern is listed once more. Another file that has its path now replaced it.
        """
        pattern = self._pattern_of.get(file.path)
        if pattern is None:
            return None
        with self._lock:
            if pattern not in self._second:
                self._second[pattern] = Files(*self._arguments).find([pattern])
            files = self._second[pattern].files
        for other in files.values():
            # The identity of a deleted file may be that of the next one that is created.
            may_be_renamed = other.path not in self._pattern_of or unit(other.path) == unit(file.path)
            if other.identity == file.identity and may_be_renamed:
                return other
        return files.get(file.path)

    def refresh(self, file: File) -> File:
        """Return an object as it is now; raises OSError."""
        return self._buckets.refresh(file.path)

    def open(self, file: File) -> Content:
        """Open a file; FileNotFoundError where its path is another file's or does not exist, or OSError."""
        return self._storage(file.path).open(file)

    def is_directory(self, path: str) -> bool:
        """Return whether a path is a directory or a prefix of keys, or may be where it cannot be read."""
        paths = ("/".join(_names(dated)) for dated in self.expand(path))
        return path.endswith("/") or any(map(self._storage(path).is_directory, paths))

    def read_document(self, path: str) -> bytes:
        """Return a small file, or the first MAX_DOCUMENT + 1 bytes of a large one; raises OSError."""
        return self._storage(path).read_document(path)

    def _storage(self, path: str) -> _Disk | _Buckets:
        return self._buckets if is_in_s3(path) else self._disk

    def _remove_copies(self, found: Found) -> None:
        identities: set[object] = set()
        for path in sorted(found.files):
            file = found.files[path]
            plain = found.files.get(path.rpartition(".")[0]) if path.endswith(COMPRESSED) else None
            if file.identity in identities or (plain and self._is_copy(plain, file)):
                del found.files[path], found.pattern_of[path]
            identities.add(file.identity)

    def _is_copy(self, plain: File, compressed: File) -> bool:
        """Return whether two files have the same first line; assumed of those that no run will read."""
        if compressed.modified < self._since - MAX_DISORDER:
            return True
        line = self._first_line(plain)
        return line is not None and line == self._first_line(compressed)

    def _first_line(self, file: File) -> bytes | None:
        """Return the first line of a file, or its start; None where it is not complete or unreadable."""
        chunk: bytes | str = b""
        with suppress(OSError), closing(self.open(file)) as content:
            if file.path.endswith(COMPRESSED):
                from common.records.compression import decompress

                chunk = next(decompress(file.path, content.at, _FIRST_LINE), b"")
            else:
                chunk = content.at(0, _FIRST_LINE)
        start = chunk[:_FIRST_LINE] if isinstance(chunk, bytes) else b""
        line, newline, _ = start.partition(b"\n")
        return line if newline or len(line) == _FIRST_LINE else None


def _names(pattern: str) -> list[str]:
    """Return the parts of an absolute path or pattern."""
    path = pattern.rstrip("/") if is_in_s3(pattern) else str(Path(pattern).absolute())
    return path.split("/")


def _is_fixed(name: str) -> bool:
    return not _MAGIC.search(name)


def _add(storage: _Disk | _Buckets, path: str, found: Found) -> None:
    try:
        path.encode()
        found.files[path] = storage.file(path)
    except FileNotFoundError:
        return  # deleted since it was listed, or a link to nothing
    except UnicodeEncodeError:
        found.unreadable.append((shown(path), "its name is not UTF-8"))
    except OSError as error:
        found.unreadable.append((shown(path), reason(error)))
