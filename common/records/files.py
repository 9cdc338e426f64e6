"""Files of records, on disk and in S3 (or a store that has its API): find those of patterns, and open them.

A pattern is a file, a directory (all files of the kind in it and below) or a glob, and `{date}` in it is a
UTC day. A name matches also after its file was rotated, numbered or compressed. Unlike `glob`, finding
reports what it could not read.

Both storages list, look at and open files in the same way. Every range that is read of an object is absolute
and of one version of it (`If-Match`). Failures are raised as OSError with a reason that a person can act on.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common.config import aws
from common.config.aws import ChangedFileError, request_s3
from common.config.settings import CoreSettings
from common.text import visible

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

MAX_FILES = 100_000  # of a pattern; in S3, that are listed for it
MAX_DEPTH = 100  # of the directories of a path
TOO_DEEP = f"it is below more than {MAX_DEPTH} directories"
TOO_MANY = f"it has more than {MAX_FILES:,} files; narrow the pattern"
MAX_DISORDER = 600  # seconds by which a line may be older than a line before it
MAX_DOCUMENT = 8 << 20  # bytes
MAX_PREFETCHED = 4 << 20  # bytes of an object
DISK_CHUNK = 1 << 16  # bytes to read at a time: for more than 128 kB, malloc calls the kernel each time
S3_CHUNK = 1 << 20  # a request costs as much time as some of them
ATTEMPTS = 3  # to read a body that breaks off; complete requests are retried by boto3

SCHEME = "s3://"
COMPRESSED = (".gz", ".zst")
_MAGIC = re.compile(r"[*?\[]")
_SUFFIX_NUMBER = re.compile(r"(.+)(?:\.\d{1,9}|[.-]20\d\d[\d_-]{4,})")
# The end of a name that was rotated, by a number or a date; others may be numbers of a job or a process.
_ROTATED = re.compile(r"(?<=[^/])(?:\.[\w-]+)?\.0\d{5}(\.[a-z]+)$|(?:\.\d{1,3}|[.-]20\d\d[\d_-]{4,})$")
_OWN_NUMBER = re.compile(r"(.+?)(\.[\w-]+)?\.\d{6}(\.[a-z]+)")
DATE = "{date}"
NOT_THERE = "it does not exist; where that is normal, write a wildcard in the path"

Unreadable = list[tuple[str, str]]  # paths and reasons


class File(NamedTuple):
    """A regular file or an object, as listed."""

    path: str  # absolute, or s3://bucket/key
    size: int  # bytes as stored
    modified: float  # seconds since the epoch
    version: object  # S3: the ETag; on disk: device and inode, which stay when a file is renamed
    pattern: str = ""  # that matched it


class Content:
    """The bytes of one version of a file, by absolute ranges; `read` makes it a stream, from its start on.

    `fetch` returns the bytes between two offsets. What was prefetched stays in memory, up to `max_prefetched`
    bytes; so does the last chunk that was fetched.
    """

    def __init__(
        self, fetch: Callable[[int, int], bytes], size: int, chunk: int, max_prefetched: int = 0
    ) -> None:
        self.size = size
        self.chunk = chunk  # bytes to fetch at a time
        self._fetch = fetch
        self._room = max_prefetched
        self._blocks = [(0, b"")]  # offsets and bytes: the last that were fetched, then what was prefetched
        self._offset = 0  # of the stream

    def at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from an offset; none at the end."""
        for start, block in self._blocks:
            if start <= offset < start + len(block):
                return block[offset - start : offset - start + size]
        end = min(offset + max(size, self.chunk), self.size)
        block = self._fetch(offset, end) if offset < end else b""
        self._blocks[0] = (offset, block)
        return block[:size]

    def prefetch(self, start: int, end: int) -> None:
        """Fetch bytes that will be read, unless they are too many to stay in memory."""
        end = min(end, self.size)
        if start < end <= start + self._room:
            self._room -= end - start
            self._blocks.append((start, self._fetch(start, end)))

    def read(self, size: int) -> bytes:
        """Return the next bytes of the stream, at most `size`; none at the end."""
        found = self.at(self._offset, size)
        self._offset += len(found)
        return found


class Disk:
    """The file system."""

    def exists(self, path: str) -> bool:
        """Return whether there is anything under a path; raises OSError."""
        return Path(path).exists()

    def files(self, pattern: str, names: str, unreadable: Unreadable) -> Iterator[File]:
        """Yield the files that match a pattern; append what cannot be read to `unreadable`.

        `names` are the files that a directory stands for, with all below it. A link to a directory is
        followed only where a part of the pattern before `**` matches it.
        """
        parts = split(pattern)
        if pattern.endswith("/") or os.path.isdir(pattern):  # noqa: PTH112  # Path.is_dir may raise
            parts += ["**", names]
        fixed = len(list(takewhile(is_fixed, parts[:-1])))
        root, parts = "/".join(parts[:fixed]), parts[fixed:]
        explicit = parts.index("**") if "**" in parts else len(parts)

        def report(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # deleted since it was listed, or a link to nothing
                unreadable.append((error.filename, reason(error)))

        for directory, below, others in os.walk(root or "/", onerror=report, followlinks=True):
            above = [name for name in directory.removeprefix(root).split("/") if name]
            below[:] = [
                name
                for name in below
                if matches([*above, name], parts, inside=True)
                and (len(above) < explicit or not os.path.islink(f"{directory}/{name}"))  # noqa: PTH114
            ]
            if below and len(above) == MAX_DEPTH:
                unreadable.append((directory, TOO_DEEP))
                below.clear()
            for name in chain(others, _added(directory, others)):
                if matches([*above, name], parts):
                    try:
                        yield self.file(os.path.join(directory, name))  # noqa: PTH118
                    except OSError as error:
                        report(error)

    def file(self, path: str) -> File:
        """Return a file as it is now; OSError where it is not a regular one."""
        status = os.stat(path)  # noqa: PTH116  # faster than Path
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        try:
            path.encode()
        except UnicodeEncodeError:
            raise OSError(errno.EILSEQ, "its name is not UTF-8", path) from None
        return File(path, status.st_size, status.st_mtime, (status.st_dev, status.st_ino))

    def current(self, file: File) -> File:
        """Return a file that was renamed or compressed, or else the one that has its path now."""
        names = {*former_names(file.path)}
        for path in Path(file.path).parent.iterdir():
            # The inode of a deleted file may be that of the next one that is created.
            if not names.isdisjoint(former_names(str(path))) and path.is_file():
                other = self.file(str(path))
                if other.version == file.version:
                    return other
        paths = (file.path + suffix for suffix in ("", *COMPRESSED))
        return self.file(next(filter(os.path.exists, paths), file.path))

    def open(self, file: File) -> Content:
        """Open a file; ChangedFileError where another one has its path, or OSError."""
        # Opening a pipe in the usual way waits for a writer.
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        content = Content(
            lambda start, end: os.pread(descriptor, end - start, start), status.st_size, DISK_CHUNK
        )
        weakref.finalize(content, os.close, descriptor)
        if (status.st_dev, status.st_ino) != file.version:
            raise ChangedFileError("another file has its name")
        return content


class Buckets:
    """The buckets that one account can read, with objects by paths of the form s3://bucket/key."""

    def __init__(self, core: CoreSettings) -> None:
        self._core = core
        self._listed: dict[tuple[str, int], list[File]] = {}  # by prefix and limit

    @cached_property
    def _client(self) -> S3Client:
        client: S3Client = aws.client("s3", self._core, "reading records in S3")
        return client

    def exists(self, path: str) -> bool:
        """Return whether a path is a bucket, or there are objects below it; raises OSError."""
        return not _bucket_and_key(path)[1] or bool(self._list(f"{path}/", limit=0))

    def files(self, pattern: str, names: str, unreadable: Unreadable) -> Iterator[File]:
        """Yield the objects that match a pattern, as on disk; too many are reported in `unreadable`."""
        below = [*split(pattern), "**", names]
        parts = below if pattern.endswith("/") else split(pattern)
        listed = self._list(_MAGIC.split(pattern, maxsplit=1)[0], MAX_FILES)
        if len(listed) > MAX_FILES:
            unreadable.append((pattern, TOO_MANY))
        for file in listed:
            path = file.path.split("/")
            if len(path) > MAX_DEPTH:
                unreadable.append((file.path, TOO_DEEP))
            elif path[-1] and (matches(path, parts) or (is_fixed(pattern) and matches(path, below))):
                yield file

    def _list(self, prefix: str, limit: int) -> list[File]:
        """Return the objects whose paths begin with a prefix: all, or one more than the limit."""
        if (prefix, limit) not in self._listed:
            bucket, key = _bucket_and_key(prefix)
            # `run.000001.jsonl` is one of `run.jsonl`, and does not begin with it.
            stem = re.sub(r"(?<=[^/])\.[a-z]*$", "", key)
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=stem, PaginationConfig={"MaxItems": limit + 1}
            )
            answers = request_s3(lambda: list(pages))
            if any("Name" not in page for page in answers):  # botocore parses any XML as an empty page
                raise OSError("the answer is no listing of a bucket; check AWS_ENDPOINT_URL")
            listed = self._listed[prefix, limit] = []
            for entry in chain.from_iterable(page.get("Contents", ()) for page in answers):
                path, modified = f"{SCHEME}{bucket}/{entry['Key']}", entry["LastModified"].timestamp()
                listed.append(File(path, entry["Size"], modified, entry["ETag"]))
        return self._listed[prefix, limit]

    def file(self, path: str) -> File:
        """Return an object as it is now; raises OSError."""
        bucket, key = _bucket_and_key(path)
        head = request_s3(lambda: self._client.head_object(Bucket=bucket, Key=key))
        if not {"ContentLength", "ETag", "LastModified"} <= head.keys():
            raise OSError("the answer is no object of a bucket; check AWS_ENDPOINT_URL")
        return File(path, head["ContentLength"], head["LastModified"].timestamp(), head["ETag"])

    def current(self, file: File) -> File:
        """Return the current version of an object; raises OSError."""
        return self.file(file.path)

    def open(self, file: File) -> Content:
        """Return the content of one version of an object; nothing is requested yet."""
        return Content(partial(self._read, file), file.size, S3_CHUNK, MAX_PREFETCHED)

    def _read(self, file: File, start: int, end: int) -> bytes:
        """Return the bytes `start <= offset < end`; ChangedFileError where there is another version now.

        A body that breaks off is requested again.
        """
        from botocore.exceptions import BotoCoreError

        bucket, key = _bucket_and_key(file.path)
        size, byte_range, content = end - start, f"bytes={start}-{end - 1}", b""
        get = partial(self._client.get_object, Range=byte_range, IfMatch=str(file.version))
        for _ in range(ATTEMPTS):
            found = request_s3(lambda: get(Bucket=bucket, Key=key))
            with closing(found["Body"]) as body, suppress(BotoCoreError):
                content = body.read(size + 1)  # a server that ignores the range sends more
            if len(content) == size:
                return content
        raise OSError(f"S3 sent {len(content)} of {size} bytes")


def reason(error: Exception) -> str:
    """Return why something failed, without the path and the error number."""
    return getattr(error, "strerror", None) or str(error)


def _bucket_and_key(path: str) -> tuple[str, str]:
    bucket, _, key = path.removeprefix(SCHEME).partition("/")
    return bucket, key


class Found(NamedTuple):
    """The files of some patterns by path, each once, and what could not be read."""

    files: dict[str, File]
    unreadable: Unreadable


class Files:
    """The files of a run. `{date}` in a pattern is each UTC day from `since` to `until`, both included."""

    def __init__(self, core: CoreSettings, since: float, until: float) -> None:
        self._disk = Disk()
        self._buckets = Buckets(core)
        first, last = (datetime.fromtimestamp(at, UTC).toordinal() for at in (since, max(since, until)))
        self._days = [date.fromordinal(day).isoformat() for day in range(first, last + 1)]

    def find(self, patterns: Sequence[str], names: str = "*.jsonl") -> Found:
        """Return the files that match any of the patterns, each under the path that sorts first.

        `names` are the files that a directory stands for. The fixed part of a pattern must exist.
        """
        found: dict[str, File] = {}
        unreadable: Unreadable = []
        for pattern in patterns:
            n_before, storage = len(unreadable), self.storage(pattern)
            dated = [pattern.replace(DATE, day) for day in self._days] if DATE in pattern else [pattern]
            files: dict[str, File] = {}
            try:
                matched = chain.from_iterable(storage.files(path, names, unreadable) for path in dated)
                files = {file.path: file._replace(pattern=pattern) for file in islice(matched, MAX_FILES)}
                if next(matched, None):
                    unreadable.append((pattern, TOO_MANY))
                fixed = "/".join(takewhile(is_fixed, split(pattern.replace(DATE, "*"))))
                if not (files or len(unreadable) > n_before or storage.exists(fixed)):
                    unreadable.append((fixed, NOT_THERE))
            except OSError as error:
                unreadable.append((pattern, reason(error)))
            found = files | found
        distinct: dict[object, File] = {}
        for path, file in sorted(found.items()):
            distinct.setdefault(path if is_in_s3(path) else file.version, file)
        return Found({file.path: file for file in distinct.values()}, list(dict.fromkeys(unreadable)))

    def read_document(self, path: str) -> bytes:
        """Return a small file; OSError for one that is too large or cannot be read."""
        storage = self.storage(path)
        file = storage.file(path)
        if file.size > MAX_DOCUMENT:
            raise OSError(f"it has more than the {MAX_DOCUMENT:,} bytes that this reads")
        return storage.open(file).at(0, file.size)

    def storage(self, path: str) -> Disk | Buckets:
        """Return where a file or pattern is."""
        return self._buckets if is_in_s3(path) else self._disk


def _added(directory: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the names of files that a directory has by now: one that was rotated has a new name."""
    for _, _, found in islice(os.walk(directory), 1):
        yield from {*found}.difference(names)


# Names


def is_in_s3(path: str) -> bool:
    """Return whether a path or pattern is in S3."""
    return path.startswith(SCHEME)


def shown(path: str) -> str:
    """Return a path as printable text: bytes that are not UTF-8 and control characters are escaped."""
    return visible(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def former_names(name: str) -> Iterator[str]:
    """Yield a name, and the names that it may have had before it was compressed, rotated or numbered.

    `run.jsonl.2.gz` was `run.jsonl`, and so was `run.000002.jsonl`. `run.<run id>.000002.jsonl` was that, or
    `run.<run id>.jsonl`.
    """
    yield name
    plain = name.removesuffix(".gz").removesuffix(".zst")
    if plain != name:
        yield plain
    if match := _SUFFIX_NUMBER.fullmatch(plain):
        yield match[1]
    if match := _OWN_NUMBER.fullmatch(plain):
        yield match[1] + (match[2] or "") + match[3]
        yield match[1] + match[3]


def unit(path: str) -> str:
    """Return the path that a file was written under before it was rotated, numbered or compressed."""
    return _ROTATED.sub(r"\1", path.removesuffix(".gz").removesuffix(".zst"))


def split(pattern: str) -> list[str]:
    """Return the parts of a pattern, which is made absolute."""
    path = pattern.rstrip("/") if is_in_s3(pattern) else str(Path(pattern).absolute())
    return path.split("/")


def is_fixed(part: str) -> bool:
    """Return whether a part of a pattern matches only itself."""
    return not _MAGIC.search(part)


def matches(names: Sequence[str], parts: Sequence[str], *, inside: bool = False) -> bool:
    """Return whether a path matches a pattern; with `inside`, whether a path below it may.

    `**` is any number of directories. Hidden names match only parts that begin with a dot. The last name
    matches also by a name that it had before it was rotated or compressed.
    """
    if not names:
        return inside == bool(parts)
    if not parts:
        return False
    part, name = parts[0], names[0]
    if part == "**":
        is_below = not name.startswith(".") and matches(names[1:], parts, inside=inside)
        return is_below or matches(names, parts[1:] or ["*"], inside=inside)
    candidates = former_names(name) if len(names) == 1 and not inside else (name,)
    if not any(_matches(candidate, part) for candidate in candidates):
        return False
    return matches(names[1:], parts[1:], inside=inside)


def _matches(name: str, part: str) -> bool:
    """Return whether a name is a part of a pattern, literally or as a wildcard."""
    return name == part or (fnmatchcase(name, part) and (part.startswith(".") or not name.startswith(".")))
