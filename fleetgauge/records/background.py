"""Work in the background: a bounded queue with a thread, and a file that lines are appended to.

What a line contains is defined in `fleetgauge.records.writer`. All probes share these classes, so that none
of them blocks or raises into its host.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

log = logging.getLogger("fleetgauge.records")

_MAX_JSON_DEPTH = 20  # levels of nesting


def json_ready(value: Any, depth: int = 0) -> Any:  # Any: whatever a host puts into a record
    """Return the value as JSON can represent it; None for a number that is not finite and for other types.

    Entries of a mapping that become None are left out, unless they were None before. Integers beyond 64 bits
    become None, as readers in other languages cannot represent them.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # Lone surrogates, such as of undecodable file names, cannot be encoded: they become question marks.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth >= _MAX_JSON_DEPTH:
        return None
    if isinstance(value, Mapping):
        entries = {json_ready(str(key)): (item, json_ready(item, depth + 1)) for key, item in value.items()}
        return {key: ready for key, (item, ready) in entries.items() if ready is not None or item is None}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_ready(item, depth + 1) for item in value]
    try:
        scalar = value.item()  # numpy and torch scalars
    except Exception:
        return None
    return json_ready(scalar, depth + 1)


def describe(error: object) -> str:
    """Return the class and the text of an exception, the class alone where the text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


class AppendFile:
    """A file that lines are appended to, one `os.write` each; every method may raise OSError.

    A file that is `rotate_after` seconds old or would exceed `rotate_bytes` is renamed before the next line,
    and a new file opened. A failed write may leave half a line: the next line then starts on a new one. A
    file that was renamed or deleted by others is opened again by its path.

    One thread at a time: it has no lock. `rotated_stem` begins the names of renamed files.
    """

    def __init__(
        self, path: Path, rotated_stem: str, rotate_bytes: int, rotate_after: float = math.inf
    ) -> None:
        self.path = path
        self._rotated_stem = rotated_stem
        self._rotate_bytes = rotate_bytes
        self._rotate_after = rotate_after
        self._first_line_at: float | None = None
        self._rotations = 0
        self._torn: bool  # known once the file is open
        self._descriptor: int | None = None

    def append(self, line: bytes, at: float = 0.0) -> None:
        """Write one line of the time `at`; the line ends in a newline."""
        descriptor, size = self._open()
        # A clock that was set back ends the file, too: its lines stay in order of time.
        old = self._first_line_at is not None and abs(at - self._first_line_at) >= self._rotate_after
        if size and (old or size + len(line) > self._rotate_bytes):
            self._rotate()
            descriptor, size = self._open()
        self._first_line_at = at if self._first_line_at is None else self._first_line_at
        if self._torn:
            line = b"\n" + line
        self._torn = True  # until the write succeeded; at worst a blank line follows
        # One write on an O_APPEND descriptor: writers of one file do not tear each other's lines on a local
        # disk.
        written = os.write(descriptor, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes could be written")
        self._torn = False

    def sync(self) -> None:
        """Flush what was written to the disk."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor; a later write opens the file again.

        A host may have closed all descriptors that it did not know: the number may then be another file's.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and os.path.samestat(os.fstat(descriptor), self._opened):
            os.close(descriptor)

    def _open(self) -> tuple[int, int]:
        """Return the descriptor of the file that now has our path, and its size."""
        if self._descriptor is not None:
            with suppress(OSError):
                status = os.fstat(self._descriptor)
                if os.path.samestat(status, self.path.stat()):
                    return self._descriptor, status.st_size
            self.close()
        # The directory may be removed while a job runs, too.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._descriptor = descriptor
        self._first_line_at = None
        self._opened = os.fstat(descriptor)
        size = self._opened.st_size
        # Another writer, or an earlier run, may have stopped in the middle of a line.
        self._torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        return descriptor, size

    def _rotate(self) -> None:
        """Rename the file to the next free number; the name keeps the suffix that readers look for."""
        while True:
            self._rotations += 1
            target = self.path.with_name(f"{self._rotated_stem}.{self._rotations:06d}{self.path.suffix}")
            if not target.exists():
                break
        # Before the rename: a renamed file never changes again, and a reader may take it as complete. Some
        # file systems cannot sync.
        with suppress(OSError):
            self.sync()
        self.close()
        self.path.rename(target)


class Losses:
    """Counts losses without a lock, and logs a warning for the first of each reason.

    A lock could deadlock: losses are also counted in signal handlers and finalizers.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._by_thread: dict[int, int] = {}  # each thread changes its own entry only
        self._reasons: set[str] = set()

    @property
    def count(self) -> int:
        """Return the number of losses, over all threads."""
        return sum(list(self._by_thread.values()))

    def add(self) -> None:
        """Count one loss of this thread."""
        thread = threading.get_ident()
        self._by_thread[thread] = self._by_thread.get(thread, 0) + 1

    def is_new(self, reason: str) -> bool:
        """Return whether this is the first loss of its reason, and remember it."""
        new = reason not in self._reasons
        self._reasons.add(reason)
        return new

    def log(self, text: str, *arguments: object) -> None:
        """Log a warning; a handler that fails is ignored."""
        with suppress(Exception):  # a log handler that fails must not fail our host
            self._log.warning(text, *arguments)


class Worker:
    """A bounded queue of tasks and a daemon thread that runs them in order, whatever they raise.

    Nothing here raises into or blocks the host, and `put` takes no lock: a task that is not run is counted in
    `lost`, and the thread logs each reason once. `output` names for the log what is missing then. `tick` is
    called after `period` seconds without a task, `finish` after the last. The worker belongs to the process
    that made it: in a forked child it takes no task.
    """

    def __init__(
        self,
        name: str,
        output: object,
        max_waiting: int,
        log: logging.Logger,
        *,
        tick: Callable[[], None] | None = None,
        period: float = threading.TIMEOUT_MAX,
        finish: Callable[[], None] | None = None,
    ) -> None:
        self.max_waiting = max_waiting
        self.thread = threading.Thread(target=self._run, name=f"fleetgauge-{name}", daemon=True)
        self._output = output
        self._losses = Losses(log)
        self._tick, self._finish = tick, finish
        self._period = min(period, threading.TIMEOUT_MAX)
        self._pid = os.getpid()
        # A list, because `pop` is atomic: exactly one thread starts the worker, without a lock.
        self._unstarted = [True]  # emptied by the thread that calls `start` first
        self._closed = False
        # A SimpleQueue may be entered again from a signal handler or a finalizer; a Queue would deadlock.
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    @property
    def lost(self) -> int:
        """Tasks that were not run, or failed."""
        return self._losses.count

    def start(self) -> None:
        """Start the thread unless it was started, and close at exit. Where that fails, every task is lost.

        A daemon thread, which the interpreter does not join: the handler at exit waits for a few seconds
        instead.
        """
        if not self._unstarted:
            return
        try:
            self._unstarted.pop()
            self.thread.start()
            atexit.register(self.close)
        except IndexError:  # another thread was first
            return
        except RuntimeError as error:  # there are too many threads, or the interpreter ends
            self._closed = True
            self.warn("thread", "no records for %s: no thread could be started: %s", self._output, error)

    def put(self, task: Callable[[], None], last: bool = False) -> bool:
        """Queue a task; return False, and count a loss, where the queue is full and it is not the `last`.

        The same after `close`, and in a forked child, which has no thread to run it.
        """
        if os.getpid() != self._pid:
            self._losses.add()
            self.warn("fork", "a forked process does not write the records for %s", self._output)
        elif self._closed:
            self._losses.add()
        elif self._queue.qsize() >= self.max_waiting and not last:
            self.lose(f"{self.max_waiting} records are waiting already")
        else:
            self._queue.put(task)
            return True
        return False

    def flush(self) -> bool:
        """Wait until the tasks queued so far have run; return False after a few seconds."""
        reached = threading.Event()
        return self.put(reached.set, last=True) and reached.wait(5.0)

    def close(self, timeout: float = 5.0) -> bool:
        """Take no further task and run the queued ones; return False if `timeout` seconds did not suffice."""
        if os.getpid() != self._pid:
            return False
        atexit.unregister(self.close)
        if not self._closed and self._finish is not None:
            self._queue.put(self._finish)
        self._closed = True
        self._queue.put(None)
        # A thread cannot join itself, and one that was never started cannot be joined.
        if self.thread is threading.current_thread() or not self.thread.ident:
            return False
        self.thread.join(min(max(0.0, timeout), threading.TIMEOUT_MAX))
        if self.thread.is_alive():
            self.warn("slow", "gave up waiting for %s; records may be missing", self._output)
        return not self.thread.is_alive()

    def lose(self, why: str, error: object = None) -> None:
        """Count a task that is not run, or failed; the thread logs the first of each reason."""
        self._losses.add()
        if self._losses.is_new(why):
            cause = "" if error is None else f": {describe(error)}"
            text = "lost a record for %s because %s%s; further losses are only counted"
            # The thread of the host must not log here: a log handler may block, and may hold locks.
            log = partial(self._losses.log, text, self._output, why, cause)
            if self.thread is threading.current_thread():
                log()
            else:
                self._queue.put(log)

    def warn(self, reason: str, text: str, *arguments: object) -> None:
        """Log a warning, once for each reason."""
        if self._losses.is_new(reason):
            self._losses.log(text, *arguments)

    def _run(self) -> None:
        """Run tasks until `close`; `tick` where none arrives within the period."""
        task: Callable[[], None] | None
        while True:
            try:
                task = self._queue.get(timeout=self._period)
            except Empty:
                task = self._tick
            if task is None:
                return
            try:
                task()
            except BaseException as error:  # a SystemExit would end the thread silently
                self.lose("it could not be written", error)
