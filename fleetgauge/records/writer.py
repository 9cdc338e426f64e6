"""Write the records of one run: the names of files, and a writer that never raises into its host.

The thread and the file are in `background`, the format is in `reading`.
"""

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
from contextlib import suppress
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from fleetgauge.records.background import AppendFile, Worker, json_ready, log
from fleetgauge.records.reading import ENVELOPE, MAX_LINE_BYTES, SCHEMA_VERSION, Event, Json

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
MAX_ID = 200


def resolve_path(path: str | PathLike[str], *, kind: str, run_id: str, run_hash: str | None = None) -> Path:
    """Return the file of a path: itself, `<kind>-<run_id>.jsonl` in a directory, or a filled-in pattern.

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
    if filled.endswith("/") or os.path.isdir(filled):  # noqa: PTH112  # `Path.is_dir` raises where it may not look
        return Path(filled) / f"{file_name(kind)}-{file_name(run_id)}.jsonl"
    return Path(filled)


def file_name(text: str) -> str:
    """Return the text as part of a file's name, without separators and leading dots."""
    return _UNSAFE.sub("_", text)[:100].lstrip(".") or "_"


class RecordWriter:
    """Writes the records of one run, from any thread, behind a bounded queue.

    A configuration that can never work raises ValueError here. From then on nothing raises or blocks: a
    record that is not written is counted in `dropped`, is a gap in `seq`, and each reason is logged once.
    `run_id` identifies this writer; a job that starts again takes another one. A forked child writes nothing.

    A file that is `rotate_after` seconds old or would exceed `rotate_bytes` is closed with the next record:
    it is renamed, with a number before its suffix, and never changes again.
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
        """Start the thread. The file is opened by the first record.

        `path` is as in `resolve_path`; `queue_size` is how many records may wait. Raises ValueError for
        arguments that can never work. `clock` returns epoch seconds.
        """
        if not kind or queue_size < 1 or rotate_bytes < 1:
            raise ValueError("a writer needs a kind, and room for at least one record")
        if not rotate_after > 0:
            raise ValueError(f"rotate_after is {rotate_after!r}: it must be a number of seconds, more than 0")
        self.run_id = uuid.uuid4().hex if run_id is None else run_id
        if not 0 < len(self.run_id) <= MAX_ID or not self.run_id.isprintable():
            raise ValueError(f"run_id {self.run_id!r}: write 1 to {MAX_ID} printable characters")
        self.path = resolve_path(path, kind=kind, run_id=self.run_id, run_hash=run_hash)
        # The host may change its directory later; it may also be in one that was removed.
        with suppress(OSError):
            self.path = self.path.absolute()
        writer = {"host": socket.gethostname(), "pid": os.getpid(), "job": job, "rank": rank}
        self._envelope = {"schema_version": SCHEMA_VERSION, "kind": kind, "run_id": self.run_id}
        self._envelope |= json_ready({key: value for key, value in writer.items() if value is not None})
        self._clock = clock
        self._numbers = itertools.count()
        stem, name = self.path.stem, file_name(self.run_id)
        # Several writers may share a path: their renamed files must not.
        rotated_stem = stem if name in stem else f"{stem}.{name}"
        self._file = AppendFile(self.path, rotated_stem, rotate_bytes, rotate_after)
        self._worker = Worker("records", self.path, queue_size, log, finish=self._finish)
        self._worker.start()

    @property
    def dropped(self) -> int:
        """Records that were not written, for whatever reason."""
        return self._worker.lost

    def write(
        self,
        event: Event | str,
        body: Mapping[str, Any],  # Any: a kind's body
        timestamp: float | None = None,
    ) -> bool:
        """Queue one record of that time, by default now; return False where it is dropped.

        The body's values belong to the writer from here on.
        """
        try:
            at = float(self._clock() if timestamp is None else timestamp)
            # Numbered here and not on the thread: a record that is dropped from here on is a gap in `seq`.
            # The body is copied shallowly; serialising it is the thread's work.
            line = partial(self._append, next(self._numbers), at, str(event), dict(body))
            return self._worker.put(line)
        except Exception as error:
            self._worker.lose("it could not be taken", error)
            return False

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued and sync; return False if that took longer than `timeout` seconds."""
        return self._worker.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # From here on everything runs on the worker's thread.

    def _append(self, seq: int, timestamp: float, event: str, body: Json) -> None:
        """Write one record. Raises what cannot be serialised or written; the worker counts it."""
        record = self._envelope | {"event": event, "seq": seq, "timestamp": timestamp}
        record = {key: record[key] for key in ENVELOPE if key in record}
        # A body cannot replace a field of the envelope.
        record |= {key: value for key, value in json_ready(body).items() if key not in ENVELOPE}
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a record of {len(line)} bytes is longer than readers take ({MAX_LINE_BYTES})")
        self._file.append(line + b"\n", timestamp)
        # The end is worth a sync: it is what makes a run complete for its reader.
        if event == Event.END:
            self._sync()

    def _finish(self) -> None:
        self._sync()
        with suppress(OSError):
            self._file.close()

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            self._worker.warn("sync", "%s may be incomplete on disk: %s", self.path, error)
