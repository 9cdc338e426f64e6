"""Writes the records of one run: the names files get, and a writer that never raises into its host."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from fleetgauge.records.background import AppendFile, BackgroundWriter, json_ready
from fleetgauge.records.reading import ENVELOPE, MAX_ID, MAX_LINE_BYTES, SCHEMA_VERSION, Event, Json

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


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

    A file that would have more than `rotate_bytes` is renamed, with a number before its suffix, and the next
    one begun. With `rotate_after`, so is one with the first record that comes so many seconds after it was
    begun, and the last one at `close()`: whatever has a number is whole, and can be uploaded.
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
        rotate_after: float = math.inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not kind or queue_size < 1 or rotate_bytes < 1:
            raise ValueError("a writer needs a kind, and room for at least one record")
        if not rotate_after > 0:
            raise ValueError(f"rotate_after is {rotate_after!r}: it must be a number of seconds, more than 0")
        self.run_id = uuid.uuid4().hex if run_id is None else run_id
        if not 0 < len(self.run_id) <= MAX_ID or not self.run_id.isprintable():
            raise ValueError(f"run_id {self.run_id!r}: write 1 to {MAX_ID} printable characters")
        self.path = resolve_path(path, kind=kind, run_id=self.run_id, run_hash=run_hash)
        self._kind = kind
        self._where = {"host": socket.gethostname(), "pid": os.getpid()}
        self._where |= {key: value for key, value in (("job", job), ("rank", rank)) if value is not None}
        self._clock = clock
        self._numbers = itertools.count()
        stem, name = self.path.stem, file_name(self.run_id)
        rotated_stem = stem if name in stem else f"{stem}.{name}"
        file = AppendFile(self.path, rotated_stem, rotate_bytes, rotate_after)
        self._writer = BackgroundWriter(file, self._encode, queue_size)

    @property
    def dropped(self) -> int:
        """Records that were not written, for whatever reason."""
        return self._writer.worker.lost

    def write(self, event: Event | str, body: Mapping[str, Any]) -> bool:  # Any: a kind's body
        """Queue one record, true now. The body's values belong to the writer from here on."""
        try:
            return self._writer.put((next(self._numbers), self._clock(), str(event), dict(body)))
        except Exception as error:
            self._writer.worker.lose("it could not be taken", error)
            return False

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued and sync; False where that took longer than `timeout` seconds."""
        return self._writer.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encode(self, item: tuple[int, float, str, Json]) -> tuple[bytes, float, bool]:
        """The line of a queued record, its time, and whether the disk must have it before we go on."""
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
        record |= {key: value for key, value in json_ready(body).items() if key not in ENVELOPE}
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a record of {len(line)} bytes is longer than readers take ({MAX_LINE_BYTES})")
        return line + b"\n", timestamp, event == Event.END
