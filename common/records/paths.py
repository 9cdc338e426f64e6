"""Finds the files that paths, directories and globs stand for, with one stat each.

Knows how files are renamed when they are rotated or compressed, so that what was renamed is still found.
Unlike `glob`, it says what it could not look into.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

MAX_FILES = 100_000
MAX_DEPTH = 16  # directories under the first one that `**` looks into

_MAGIC = re.compile(r"[*?\[]")
_SUFFIX_NUMBER = re.compile(r"(.+)\.\d{1,9}")
_OWN_NUMBER = re.compile(r"(.+?)(\.[A-Za-z0-9_-]+)?\.\d{6}(\.[a-z]+)")


@dataclass
class Found:
    """Regular files by path, what could not be looked into with the reason, and what is not there.

    `missing` has a pattern's path up to its first wildcard, which must exist, by the pattern; `blind` are
    patterns of which nothing could be looked into.
    """

    files: dict[str, os.stat_result] = field(default_factory=dict)
    pattern_of: dict[str, str] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    blind: set[str] = field(default_factory=set)


def find(patterns: Sequence[str]) -> Found:
    """Every file the patterns name, each once, under the path that sorts first.

    A directory stands for all `.jsonl` files in it and below.
    """
    found = Found()
    for pattern in patterns:
        path = Path(pattern).absolute()
        plain = Path(*takewhile(lambda part: not _MAGIC.search(part), path.parts))
        if pattern.endswith("/") or path.is_dir():
            top, parts = path, ["**", "*.jsonl"]
        else:
            top = plain.parent if plain == path else plain
            parts = list(path.parts[len(top.parts) :])
        known, trouble = len(found.files), len(found.unreadable)
        if _is_there(top):
            _walk(str(top), parts, found)
        if len(found.files) == known and not _is_there(plain):
            found.missing[pattern] = str(plain)
        elif len(found.files) == known and len(found.unreadable) > trouble:
            found.blind.add(pattern)
        found.pattern_of |= dict.fromkeys(list(found.files)[known:], pattern)
    if len(found.files) >= MAX_FILES:
        found.unreadable.append((", ".join(patterns), f"more than {MAX_FILES} files"))
    _keep_one_of_each(found.files)
    return found


def _is_there(path: Path) -> bool:
    """Whether it exists, or may: what cannot be looked into is told where it is read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def shown(path: str) -> str:
    """A path as text that can be written anywhere: bytes that are not UTF-8 and controls are escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _keep_one_of_each(files: dict[str, os.stat_result]) -> None:
    """Leave out second names of one file, and a compressed file while its original is still there."""
    known: set[tuple[int, int]] = set()
    for path in sorted(files):
        node = (files[path].st_dev, files[path].st_ino)
        if node in known or (path.endswith(".gz") and path.removesuffix(".gz") in files):
            del files[path]
        known.add(node)


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
            if _matches(entry.name, part) and entry.is_dir():
                _walk(entry.path, rest, found, depth)
    else:
        for entry in entries:
            if any(_matches(name, part) for name in former_names(entry.name)):
                _add(entry, found)


def _matches(name: str, part: str) -> bool:
    return name == part or fnmatchcase(name, part)


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
        found.files[entry.path] = status


def first_name(path: str) -> str:
    """The path that a file was written under, before it was rotated or compressed."""
    directory, slash, name = path.rpartition("/")
    return directory + slash + min(former_names(name), key=len)


def former_names(name: str) -> Iterator[str]:
    """The name, and the names it may have had before it was compressed or rotated.

    `run.jsonl.2.gz` was `run.jsonl`; so were `run.000002.jsonl` and `run.<run id>.000002.jsonl`.
    """
    yield name
    plain = name.removesuffix(".gz")
    if plain != name:
        yield plain
    if match := _SUFFIX_NUMBER.fullmatch(plain):
        yield match[1]
    if match := _OWN_NUMBER.fullmatch(plain):
        yield match[1] + match[3]
        yield match[1] + (match[2] or "") + match[3]
