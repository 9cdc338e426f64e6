"""Files on disk, found with one stat each. Unlike `glob`, it says what it could not look into."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from io import FileIO
from itertools import takewhile
from pathlib import Path

from common.records.paths import MAGIC, MAX_DEPTH, former_names, matches, shown
from common.records.storage import MAX_DOCUMENT, RACY, Found, Raw, Status, Storage, Wanted

MAX_FILES = 100_000


class LocalStorage(Storage):
    """The file system."""

    def find(self, pattern: str, found: Found) -> None:
        path, plain = Path(pattern).absolute(), _plain(pattern)
        if pattern.endswith("/") or path.is_dir():
            top, parts = path, ["**", "*.jsonl"]
        else:
            top = plain.parent if plain == path else plain
            parts = list(path.parts[len(top.parts) :])
        known = len(found.files)
        if _is_there(top):
            _walk(str(top), parts, found)
        if known < MAX_FILES <= len(found.files):
            found.unreadable.append((pattern, f"more than {MAX_FILES} files"))

    def absent(self, pattern: str) -> str | None:
        plain = _plain(pattern)
        return None if _is_there(plain) else str(plain)

    def is_directory(self, path: str) -> bool:
        return path.endswith("/") or Path(path).is_dir()

    def tree(self, path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        top = Path(path).absolute()
        for name, below, files in os.walk(top):  # what cannot be entered, `find` reports
            below[:] = sorted(one for one in below if not one.startswith("."))
            yield name, [*below], files
            if len(Path(name).parts) - len(top.parts) >= MAX_DEPTH:
                below.clear()

    def looks(self, path: str, now: float) -> list[int | str] | None:
        status = _status(os.stat(path))  # noqa: PTH116
        return status.looks if status.written < now - RACY else None

    def read(self, path: str) -> bytes:
        with Path(path).open("rb") as file:
            return file.read(MAX_DOCUMENT + 1)

    def opened(self, files: Iterable[Wanted]) -> Iterator[tuple[str, Raw | OSError]]:
        for path, _, _ in files:
            try:
                raw = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115  # Path.open has a slower way
            except OSError as error:
                yield path, error
                continue
            with raw:
                yield path, _File(raw)


class _File:
    version = ""

    def __init__(self, raw: FileIO) -> None:
        self.status = _status(os.fstat(raw.fileno()))
        self.read = raw.read
        self.seek = raw.seek
        self._descriptor = raw.fileno()

    def at(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)


def _status(of: os.stat_result) -> Status:
    looks: list[int | str] = [of.st_size, of.st_mtime_ns, of.st_dev, of.st_ino]
    return Status(of.st_size, of.st_mtime, looks, (of.st_dev, of.st_ino))


def _plain(pattern: str) -> Path:
    return Path(*takewhile(lambda part: not MAGIC.search(part), Path(pattern).absolute().parts))


def _is_there(path: Path) -> bool:
    """Whether it exists, or may: what cannot be looked into is told where it is read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _walk(directory: str, parts: list[str], found: Found, depth: int = 0) -> None:
    """Match the parts of a pattern one directory at a time."""
    try:
        with os.scandir(directory) as listing:
            entries = [entry for entry in listing if not entry.name.startswith(".") or parts[0][0] == "."]
    except OSError as error:
        found.unreadable.append((shown(directory), error.strerror or str(error)))
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        _walk(directory, rest or ["*"], found, depth)
        for entry in entries:
            if depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                _walk(entry.path, parts, found, depth + 1)
    elif rest:
        for entry in entries:
            if matches(entry.name, part) and entry.is_dir():
                _walk(entry.path, rest, found, depth)
    else:
        for entry in entries:
            if any(matches(name, part) for name in former_names(entry.name)):
                _add(entry, found)


def _add(entry: os.DirEntry[str], found: Found) -> None:
    try:
        entry.path.encode()
        status = entry.stat()
    except FileNotFoundError:
        return  # gone since it was listed, or a link to nothing
    except UnicodeEncodeError:
        found.unreadable.append((shown(entry.path), "its name is not UTF-8"))
        return
    except OSError as error:
        found.unreadable.append((shown(entry.path), error.strerror or str(error)))
        return
    if stat.S_ISREG(status.st_mode) and len(found.files) < MAX_FILES:
        found.files[entry.path] = _status(status)
