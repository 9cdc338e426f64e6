"""What the names of files tell: wildcards, and how files are renamed when they are rotated or compressed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

MAX_DEPTH = 16  # directories under the first one that `**` looks into

COMPRESSED = (".gz", ".zst")
MAGIC = re.compile(r"[*?\[]")
_SUFFIX_NUMBER = re.compile(r"(.+)\.\d{1,9}")
_OWN_NUMBER = re.compile(r"(.+?)(\.[A-Za-z0-9_-]+)?\.\d{6}(\.[a-z]+)")


def shown(path: str) -> str:
    """A path as text that can be written anywhere: bytes that are not UTF-8 and controls are escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def first_name(path: str) -> str:
    """The path that a file was written under, before it was rotated or compressed."""
    directory, slash, name = path.rpartition("/")
    return directory + slash + min(former_names(name), key=len)


def stem(path: str) -> str:
    """What a path has in common with all names that its file may have had, or have next."""
    directory, slash, name = path.rpartition("/")
    return directory + slash + name.partition(".")[0]


def former_names(name: str) -> Iterator[str]:
    """The name, and the names it may have had before it was compressed or rotated.

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


def matches(name: str, part: str) -> bool:
    """Whether a name is one that a part of a pattern stands for."""
    return name == part or fnmatchcase(name, part)


def filter_of(start: str, parts: Sequence[str]) -> Callable[[str], bool]:
    """What tells of many paths whether they are below a start as a pattern's parts say.

    It looks at each directory once. The last name may be rotated or compressed. Hidden names are meant only
    where they are written.
    """
    *before, last = parts if parts[-1] != "**" else (*parts, "*")
    hidden = last.startswith(".")
    known: dict[str, bool] = {}

    def fits(path: str) -> bool:
        directory, _, name = path.rpartition("/")
        meant = known.get(directory)
        if meant is None:
            names = f"{directory}/"[len(start) :].split("/")[:-1]
            meant = known[directory] = path.startswith(start) and _lead_to(before, names)
        if not meant or (name[:1] == "." and not hidden):
            return False
        return matches(name, last) or any(matches(former, last) for former in former_names(name))

    return fits


def _lead_to(parts: Sequence[str], names: Sequence[str], depth: int = 0) -> bool:
    """Whether parts of a pattern stand for the names of directories."""
    if not parts:
        return not names
    part, rest = parts[0], parts[1:]
    if part == "**" and _lead_to(rest, names, depth):
        return True
    if not names or (names[0].startswith(".") and not part.startswith(".")):
        return False
    if part == "**":
        return depth < MAX_DEPTH and _lead_to(parts, names[1:], depth + 1)
    return matches(names[0], part) and _lead_to(rest, names[1:], depth)
