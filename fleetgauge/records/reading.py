"""The format of records, and a line reader that survives damaged files; standard library only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

SCHEMA_VERSION = 1
MAX_LINE_BYTES = 1_000_000  # bytes, without the newline
ENVELOPE = ("schema_version", "kind", "event", "run_id", "seq", "timestamp", "host", "pid", "job", "rank")

_CHUNK = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it in front of the first line
MAX_ID = 200
MAX_SEQ = 2**63

Json = dict[str, Any]  # Any: what a line holds is for its reader to judge


class Event(StrEnum):
    """Where in its run a record stands."""

    START = "start"
    STATS = "stats"
    END = "end"


class Damage(StrEnum):
    """What can be wrong with a line. Only a hole leaves a value to use: the record that follows it."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_LONG = "too_long"
    NUL_HOLE = "nul_hole"


class Line(NamedTuple):
    """A stretch of a file from one line start to the next: an object, damage, both or (blank) neither.

    `unfinished` is set on a stretch that ends inside a line over the cap, which is passed over in pieces.
    """

    start: int
    end: int
    value: Json | None
    damage: Damage | None = None
    unfinished: bool = False


_line: Callable[[tuple[int, int, Json | None, Damage | None, bool]], Line] = partial(tuple.__new__, Line)


class Readable(Protocol):
    """All that the reader asks of a file."""

    def read(self, size: int, /) -> bytes | None:
        """At most `size` bytes; nothing at the end."""


def lines(
    stream: Readable,
    offset: int = 0,
    *,
    skipping: bool = False,
    longest: int = MAX_LINE_BYTES,
    loads: Callable[[bytes], Any] | None = None,  # Any: parsed JSON
) -> Iterator[Line]:
    """The lines of a stream that stands at `offset`, which is a line start unless `skipping`.

    The stretches are adjacent. What follows the last newline is no line yet and is not part of any.
    """
    start = cursor = offset  # of the line, and of what is held of it in `rest`
    rest = b""
    while chunk := stream.read(_CHUNK):
        *complete, rest = (rest + chunk).split(b"\n")
        for text in complete:
            cursor += len(text) + 1
            value, damage = None, None
            if not skipping:
                holed = cursor - start > len(text) + 1
                if start == 0:
                    text = text.removeprefix(_BYTE_ORDER_MARK)
                value, damage = interpret(text, holed, longest, loads)
            yield _line((start, cursor, value, damage, False))
            start, skipping = cursor, False
        held = rest.lstrip(b"\0")  # a hole may be longer than any line
        cursor += len(rest) - len(held)
        rest = held
        if skipping or len(rest) > longest:
            cursor += len(rest)
            yield Line(start, cursor, None, None if skipping else Damage.TOO_LONG, unfinished=True)
            start, skipping, rest = cursor, True, b""


def interpret(
    text: bytes, holed: bool, longest: int, loads: Callable[[bytes], Any] | None
) -> tuple[Json | None, Damage | None]:
    """Return the object in a line, and the damage to it; neither for a blank one."""
    if holed or text.startswith(b"\0"):
        holed, text = True, text.lstrip(b"\0")
    if not text or text.isspace():
        return None, Damage.NUL_HOLE if holed else None
    if len(text) > longest:
        return None, Damage.TOO_LONG
    try:
        value = loads(text) if loads else json.loads(text.decode())
    except (ValueError, RecursionError):
        return None, Damage.NOT_JSON if _is_utf8(text) else Damage.NOT_UTF8
    if not isinstance(value, dict):
        return None, Damage.NOT_AN_OBJECT
    return value, Damage.NUL_HOLE if holed else None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def read(path: str | PathLike[str]) -> Iterator[Json]:
    """The objects of one file, in order, without those that are damaged."""
    with Path(path).open("rb") as stream:
        for line in lines(stream):
            if line.value is not None:
                yield line.value


def identity(value: Mapping[str, Any]) -> tuple[str, int] | None:
    """What makes a record that record wherever it is found: its run (and rank), and its number there."""
    run_id, seq, rank = value.get("run_id"), value.get("seq"), value.get("rank")
    if not isinstance(run_id, str) or not 0 < len(run_id) <= MAX_ID:
        return None
    if type(seq) is not int or not 0 <= seq < MAX_SEQ:
        return None
    if rank is None:
        return run_id, seq
    if type(rank) is int and -MAX_SEQ < rank < MAX_SEQ:
        return f"{run_id}/{rank}", seq
    return (f"{run_id}/{str(rank)[:20]}", seq) if isinstance(rank, str | float | bool) else None
