"""Records on disk: one JSON object per line, the contract between probes and service (docs/records.md).

Here are the format's constants, the names files get, and a line reader that survives damaged files. The
writer is `RecordWriter`; it is built on the standard library alone, as all of this module is.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from fleetgauge._writer import AppendFile, BackgroundWriter, plain

SCHEMA_VERSION = 1
LONGEST_LINE = 1_000_000  # bytes, without the newline
ENVELOPE = ("schema_version", "kind", "event", "run_id", "seq", "timestamp", "host", "pid", "job", "rank")

_CHUNK = 1 << 18
_LONGEST_ID = 200
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")

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


class Readable(Protocol):
    """All that the reader asks of a file."""

    def read(self, size: int, /) -> bytes | None:
        """At most `size` bytes; nothing at the end."""


def lines(
    stream: Readable,
    offset: int = 0,
    *,
    skipping: bool = False,
    longest: int = LONGEST_LINE,
    loads: Callable[[bytes], Any] | None = None,  # Any: parsed JSON
) -> Iterator[Line]:
    """The lines of a stream that stands at `offset`, which is a line start unless `skipping`.

    The stretches are adjacent. What follows the last newline is no line yet and is not part of any.
    """
    start = cursor = offset  # of the line, and of what is held of it in `rest`
    rest = b""
    while chunk := stream.read(_CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        for text in whole:
            cursor += len(text) + 1
            value, damage = None, None
            if not skipping:
                holed = cursor - start > len(text) + 1
                value, damage = _interpret(text, holed, longest, loads)
            yield Line(start, cursor, value, damage)
            start, skipping = cursor, False
        if rest.startswith(b"\0") and not skipping:
            held = rest.lstrip(b"\0")  # a hole may be longer than any line
            cursor += len(rest) - len(held)
            rest = held
        if skipping or len(rest) > longest:
            cursor += len(rest)
            yield Line(start, cursor, None, None if skipping else Damage.TOO_LONG, unfinished=True)
            start, skipping, rest = cursor, True, b""


def _interpret(
    text: bytes, holed: bool, longest: int, loads: Callable[[bytes], Any] | None
) -> tuple[Json | None, Damage | None]:
    """What one line says, or why it says nothing."""
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
    if not isinstance(run_id, str) or not 0 < len(run_id) <= _LONGEST_ID:
        return None
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
        return None
    return (run_id if rank is None else f"{run_id}/{str(rank)[:20]}"), seq


def resolve_path(path: str | PathLike[str], *, kind: str, run_id: str, run_hash: str | None = None) -> Path:
    """The file a path stands for: itself, `<kind>-<run_id>.jsonl` in a directory, or a filled-in pattern.

    Raises ValueError for what can never work; what merely cannot be written now is no error here.
    """
    text = fspath(path)
    if "://" in text:
        raise ValueError(
            f"{text!r}: records are appended to a local or mounted file; "
            "object storage cannot append, so upload closed files instead"
        )
    if not text.strip() or "\0" in text:
        raise ValueError(f"{text!r} is not a path")
    known = {"run_id": run_id, "run_hash": run_hash}

    def fill(match: re.Match[str]) -> str:
        value = known.get(match[1])
        if value is None:
            why = "is not known here" if match[1] in known else "is not one of {run_hash}, {run_id}"
            raise ValueError(f"{text!r}: {match[0]} {why}")
        return file_name(value)

    filled = _PLACEHOLDER.sub(fill, text)
    if filled.endswith("/") or Path(filled).is_dir():
        return Path(filled) / f"{file_name(kind)}-{file_name(run_id)}.jsonl"
    return Path(filled)


def file_name(text: str) -> str:
    """The text as part of a file's name: no separator, nothing that climbs or hides."""
    return _UNSAFE.sub("_", text)[:100].lstrip(".") or "_"


class RecordWriter:
    """Writes the records of one run, from any thread, behind a bounded queue.

    A configuration that can never work raises ValueError here. From then on nothing raises or waits:
    what could not be kept is counted in `dropped`, shows as a gap in `seq`, and is said once in the log.
    `run_id` names this one writer; a job that starts again takes another one.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        kind: str,
        *,
        run_id: str | None = None,
        run_hash: str | None = None,
        job: str | None = None,
        rank: int | None = None,
        queue_size: int = 1000,
        rotate_bytes: int = 64_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not kind or queue_size < 1 or rotate_bytes < 1:
            raise ValueError("a writer needs a kind, and room for at least one record")
        self.run_id = uuid.uuid4().hex if run_id is None else run_id
        if not 0 < len(self.run_id) <= _LONGEST_ID or not self.run_id.isprintable():
            raise ValueError(f"run_id {self.run_id!r}: write 1 to {_LONGEST_ID} printable characters")
        self.path = resolve_path(path, kind=kind, run_id=self.run_id, run_hash=run_hash)
        self._kind = kind
        self._where = {"host": socket.gethostname(), "pid": os.getpid()}
        self._where |= {key: value for key, value in (("job", job), ("rank", rank)) if value is not None}
        self._clock = clock
        self._numbers = itertools.count()
        stem, name = self.path.stem, file_name(self.run_id)
        file = AppendFile(self.path, stem if name in stem else f"{stem}.{name}", rotate_bytes)
        self._writer = BackgroundWriter(file, self._encode, queue_size)

    @property
    def dropped(self) -> int:
        """Records that were not written, for whatever reason."""
        return self._writer.dropped

    def write(self, event: Event | str, body: Mapping[str, Any]) -> bool:  # Any: a kind's body
        """Queue one record, true now. The body's values belong to the writer from here on."""
        try:
            return self._writer.put((next(self._numbers), self._clock(), str(event), dict(body)))
        except Exception as error:
            self._writer.lose("it could not be taken", error)
            return False

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued and sync; False where that took longer than `timeout` seconds."""
        return self._writer.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encode(self, item: tuple[int, float, str, Json]) -> tuple[bytes, bool]:
        """The line of a queued record, and whether the disk must have it before we go on."""
        seq, timestamp, event, body = item
        record = {
            "schema_version": SCHEMA_VERSION,
            "kind": self._kind,
            "event": event,
            "run_id": self.run_id,
            "seq": seq,
            "timestamp": timestamp,
            **self._where,
        }
        record |= {key: value for key, value in plain(body).items() if key not in ENVELOPE}
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a record of {len(line)} bytes is longer than readers take ({LONGEST_LINE})")
        return line + b"\n", event == Event.END
