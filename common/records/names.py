"""Names of record files: which of them match a pattern, and which belong to one writer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from common.text import visible

SCHEME = "s3://"
COMPRESSED = (".gz", ".zst")

_MAGIC = re.compile(r"[*?\[]")
_SUFFIX_NUMBER = re.compile(r"(.+)\.\d{1,9}")
_OWN_NUMBER = re.compile(r"(.+?)(\.[A-Za-z0-9_-]+)?\.\d{6}(\.[a-z]+)")


def is_in_s3(path: str) -> bool:
    """Return whether a path or pattern is in S3."""
    return path.startswith(SCHEME)


def shown(path: str) -> str:
    """Return a path as printable text: bytes that are not UTF-8 and control characters are escaped."""
    return visible(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


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


def split(pattern: str) -> list[str]:
    """Return the parts of a pattern, which is made absolute."""
    path = pattern.rstrip("/") if is_in_s3(pattern) else str(Path(pattern).absolute())
    return path.split("/")


def is_fixed(part: str) -> bool:
    """Return whether a part of a pattern matches only itself."""
    return not _MAGIC.search(part)


def literal_prefix(pattern: str) -> str:
    """Return what every path that matches a pattern begins with."""
    return _MAGIC.split(pattern, 1)[0]


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
