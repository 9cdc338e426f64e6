"""Work in the background: a bounded queue with a thread, and files that lines are appended to by one.

Knows files, rotation and threads; what a line says is the business of `fleetgauge.records`.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

log = logging.getLogger("fleetgauge.records")

_MAX_DEPTH = 20  # levels of nesting


class Forked(Protocol):
    """What has locks: a lock that another thread held at a fork would be held in the child for ever."""

    def after_fork(self) -> None:
        """Called in the child, before anything else happens there."""


renewed_in_child: weakref.WeakSet[Forked] = weakref.WeakSet()


def _renew_in_child() -> None:
    for owner in list(renewed_in_child):
        owner.after_fork()


os.register_at_fork(after_in_child=_renew_in_child)


def json_ready(value: Any, depth: int = 0) -> Any:  # Any: whatever a host puts into a record
    """The value as JSON can hold it. A number that is not finite, or what JSON has no word for, is None."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth >= _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        entries = {json_ready(str(key)): (one, json_ready(one, depth + 1)) for key, one in value.items()}
        return {key: kept for key, (one, kept) in entries.items() if kept is not None or one is None}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_ready(one, depth + 1) for one in value]
    try:
        scalar = value.item()  # numpy and torch scalars
    except Exception:
        return None
    return json_ready(scalar, depth + 1) if isinstance(scalar, bool | int | float | str) else None


class AppendFile:
    """A file that lines are appended to, one `os.write` each; every method may raise OSError.

    A write that failed may have left half a line behind: the next one starts on a new line. A file that
    was renamed or deleted under us is opened anew by its path. With `rotate_after` seconds, nothing is left
    under its path in the end: what has a number is whole.
    """

    def __init__(
        self, path: Path, rotated_stem: str, rotate_bytes: int, rotate_after: float = math.inf
    ) -> None:
        self.path = path
        self._rotated_stem = rotated_stem
        self._rotate_bytes = rotate_bytes
        self._rotate_after = rotate_after
        self._begun: float | None = None
        self._rotations = 0
        self._torn: bool  # known once the file is open
        self._descriptor: int | None = None

    def append(self, line: bytes, at: float = 0.0) -> None:
        """Write one line, which ends in a newline; rotate first a file that is old or would be too large."""
        descriptor, size = self._open()
        old = self._begun is not None and at - self._begun >= self._rotate_after
        if size and (old or size + len(line) > self._rotate_bytes):
            self._rotate()
            descriptor, size = self._open()
        self._begun = at if self._begun is None else self._begun
        if self._torn:
            line = b"\n" + line
        self._torn = True  # until we know better; at worst a blank line follows
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes could be written")
        self._torn = False

    def sync(self) -> None:
        """Make what was written survive the machine."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back; a later write opens the file again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def finish(self) -> None:
        """Close the file, and rotate one that its age would have rotated."""
        try:
            if self._descriptor is not None and self._rotate_after < math.inf:
                self._rotate()
        finally:
            self.close()

    def _open(self) -> tuple[int, int]:
        """The descriptor of the file that now has our path, and its size."""
        if self._descriptor is not None:
            status = os.fstat(self._descriptor)
            with suppress(OSError):
                if os.path.samestat(status, self.path.stat()):
                    return self._descriptor, status.st_size
            self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._descriptor = descriptor
        self._begun = None
        size = os.fstat(descriptor).st_size
        self._torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        return descriptor, size

    def _rotate(self) -> None:
        """Rename the file to the next free number; the name keeps the suffix that readers look for."""
        while True:
            self._rotations += 1
            target = self.path.with_name(f"{self._rotated_stem}.{self._rotations:06d}{self.path.suffix}")
            if not target.exists():
                break
        self.sync()
        self.close()
        self.path.rename(target)


class Worker:
    """A bounded queue of things to do and a daemon thread that does them, in order, whatever they raise.

    Nothing here raises into or waits for the host: what is not done is counted in `lost`, and each kind of
    trouble is logged once. `output` is what goes missing then, for the log.
    """

    def __init__(self, name: str, output: object, max_waiting: int, log: logging.Logger) -> None:
        self.lost = 0
        self.max_waiting = max_waiting
        self.thread = threading.Thread(target=self._work, name=f"fleetgauge-{name}", daemon=True)
        self._output = output
        self._log = log
        self.after_fork()
        renewed_in_child.add(self)
        self._said: set[str] = set()
        # A SimpleQueue may be entered again from a signal handler or a finalizer; a Queue would deadlock.
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def after_fork(self) -> None:
        self._counting = threading.RLock()

    def put(self, task: Callable[[], None], last: bool = False) -> bool:
        """Have something done; False, and one more lost, where too much waits and it is not the last."""
        if self._queue.qsize() >= self.max_waiting and not last:
            self.lose(f"{self.max_waiting} records are waiting already")
            return False
        self._queue.put(task)
        return True

    def close(self, timeout: float) -> bool:
        """Do what is queued, but nothing after it; False where that took longer than `timeout` seconds."""
        self._queue.put(None)
        if self.thread is threading.current_thread() or not self.thread.ident:
            return False
        self.thread.join(max(0.0, timeout))
        if self.thread.is_alive():
            self.warn("slow", "gave up waiting for %s; records may be missing", self._output)
        return not self.thread.is_alive()

    def lose(self, why: str, error: Exception | None = None) -> None:
        """Count a record that will not be written, and log why where that was not logged yet."""
        with self._counting:
            self.lost += 1
        cause = f": {type(error).__name__}: {error}" if error else ""
        text = "lost a record for %s because %s%s; further losses are only counted"
        self.warn(why, text, self._output, why, cause)

    def warn(self, trouble: str, text: str, *arguments: object) -> None:
        """Log a warning, once for each kind of trouble."""
        if trouble in self._said:
            return
        self._said.add(trouble)
        with suppress(Exception):  # a log handler that fails must not fail our host
            self._log.warning(text, *arguments)

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                task()
            except Exception as error:
                self.lose("it could not be written", error)


class BackgroundWriter:
    """Turns what is put into lines of a file, on a thread of its own.

    `encode` runs on the thread and returns a line, the time it is of, and whether to sync.
    """

    def __init__(
        self, file: AppendFile, encode: Callable[[Any], tuple[bytes, float, bool]], queue_size: int
    ) -> None:
        self._file = file
        self._encode = encode
        self._closed = False
        self._pid = os.getpid()
        self.worker = Worker("records", file.path, queue_size, log)
        try:
            self.worker.thread.start()
        except RuntimeError as error:
            self._closed = True
            self.worker.warn("thread", "no records for %s: no thread could be started: %s", file.path, error)
        else:
            atexit.register(self.close)

    def put(self, item: object) -> bool:
        """Queue an item; False, and one more lost, where there is no room or no one to write it."""
        if os.getpid() != self._pid:
            self.worker.warn("fork", "a forked process does not write the records for %s", self._file.path)
        elif self._closed:
            self.worker.lose("the writer is closed")
        else:
            return self.worker.put(partial(self._append, item))
        return False

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued and end; False where that took longer than `timeout` seconds."""
        if os.getpid() != self._pid:
            return False
        if not self._closed:
            self._closed = True
            self.worker.put(self._finish, last=True)
            atexit.unregister(self.close)
        return self.worker.close(timeout)

    def _append(self, item: object) -> None:
        line, at, sync = self._encode(item)
        self._file.append(line, at)
        if sync:
            self._sync()

    def _finish(self) -> None:
        self._sync()
        with suppress(OSError):
            self._file.finish()

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            self.worker.warn("sync", "%s may be incomplete on disk: %s", self._file.path, error)
