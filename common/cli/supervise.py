"""The processes of a live push: a parent, and one child per collector in a process group of its own.

A child is the same command line with one variable that names its collector. It prints one outcome per run on
its standard output, and ends, or with `--every` continues. Its standard input is a pipe from the parent: end
of file means that the parent has ended, and the child ends itself. Standard library only, until there is
something to send.

`supervise` is the parent, `work` the child. `common/outcome.py` is the protocol, `environment.py` has the
variables of a child, `common/signals.py` kills children when the parent is interrupted.
"""

from __future__ import annotations

import hashlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from common import logs, registry, signals
from common.cli.environment import child_environment
from common.options import Options
from common.outcome import ErrorSummary, Outcome, Status

if TYPE_CHECKING:
    from common.config.settings import CoreSettings

# Children at a time, where each runs once: this bounds the memory that the pod needs.
AT_ONCE = 2
GRACE = 10.0  # seconds after its deadline in which a child starts, reports and ends by itself
MAX_OUTCOME_BYTES = 1_000_000
MAX_BAD = 3  # runs in a row that may fail before a process that stays is not ready
FORBIDDEN = 403
# Type of the error of a child that has no outcome of its own; no exception has this name.
CHILD_ERROR = "ChildError"

log = logging.getLogger(__name__)


class Child:
    """A child that runs, and what it has printed so far.

    It is in `signals.children` until `end`, so that it never outlives an interrupted parent. `end_at` is the
    monotonic time at which it counts as hung. OSError where the process cannot be started.
    """

    def __init__(self, name: str, options: Options, argv: list[str], environ: Mapping[str, str]) -> None:
        self.name = name
        self.started = time.monotonic()
        self.end_at = self.started + options.timeout + GRACE  # until its next outcome
        self.timeout = options.timeout
        self._every = options.every
        self._printed = b""
        self._process = subprocess.Popen(
            [sys.executable, str(registry.ROOT / "scripts" / "run_collector.py"), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(name, environ, options.config),
            # A group of its own, so that everything the collector starts can be killed with it. A thread
            # could not be ended at all.
            start_new_session=True,
        )
        self.output = cast("IO[bytes]", self._process.stdout)
        signals.children.add(self._process.pid)

    def read(self) -> list[Outcome]:
        """Return the outcomes that it printed, or one that has the reason why there is none.

        It must only be called when the output is readable: it would block.
        """
        chunk = os.read(self.output.fileno(), 65536)
        if not chunk:
            code = self.exit_code()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return [self.failed(f"the child {how} without a report")]
        *lines, self._printed = (self._printed + chunk).split(b"\n")
        try:
            if len(self._printed) > MAX_OUTCOME_BYTES:
                raise ValueError(f"longer than {MAX_OUTCOME_BYTES:,} bytes")
            outcomes = [Outcome.decode(line) for line in lines]
        except (ValueError, TypeError, KeyError) as error:
            return [self.failed(f"what the child printed is no outcome: {error}")]
        # The next outcome of a process that stays is due after one interval.
        if outcomes and self._every:
            self.end_at = time.monotonic() + self._every + self.timeout + GRACE
        return outcomes

    def end(self) -> int:
        """End the child and all that it started; return its exit code, negative for a signal.

        SIGKILL at once, because nothing has to be flushed: the next run computes the same points again.
        """
        # The group may have ended already; macOS reports EPERM for a group of zombies.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            code = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:  # it is in an uninterruptible system call
            code = -signal.SIGKILL
        signals.children.discard(self._process.pid)
        if self._process.stdin:
            self._process.stdin.close()
        self.output.close()
        return code

    def exit_code(self) -> int:
        """Return the exit code of a child that has closed its output; one that still runs is ended."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(GRACE)
        return self.end()

    def failed(self, why: str) -> Outcome:
        """Return the outcome of a child that has none of its own, and log the reason."""
        return _failed(self.name, why, round(time.monotonic() - self.started, 3))


def supervise(
    names: list[str],
    options: Options,
    argv: list[str],
    environ: Mapping[str, str],
    show: Callable[[Outcome], None],
) -> bool:
    """Run each collector in a child, and give each outcome to `show`.

    `argv` is the command line that each child gets as well, `environ` what its variables are selected from.
    Each runs once, two at a time. With `--every` all run until interrupted, each on its own clock; one that
    died or hung is started again, at most once in each interval. Returns False where Datadog refused the key
    in three runs in a row: continuing is no use.
    """
    every = options.every
    ready = ReadyFile(environ.get("FLEETGAUGE_READY_FILE", "").strip() if every else "", names)
    start_at = dict.fromkeys(names, 0.0)  # of those that do not run
    running: list[Child] = []
    while start_at or running:
        outcomes: list[Outcome] = []
        # Start what is due. A failure to start is an outcome too.
        for name, due in [*start_at.items()]:
            if due <= time.monotonic() and (every or len(running) < AT_ONCE):
                del start_at[name]
                try:
                    running.append(Child(name, options, argv, environ))
                except OSError as error:  # the machine is short of descriptors, processes or memory
                    why = f"the child could not be started: {error.strerror or error}"
                    outcomes.append(_failed(name, why))
        if not outcomes:
            outcomes = _next_outcomes(running, min(start_at.values()) if every and start_at else None)
        # Handle outcomes: end children that are done or broken, report for those that could not.
        for outcome in outcomes:
            is_lost = outcome.error is not None and outcome.error.type == CHILD_ERROR
            if is_lost or not every:
                for child in [child for child in running if child.name == outcome.collector]:
                    child.end()
                    running.remove(child)
            if is_lost:
                _report(outcome, options, environ)
                if every:
                    # Not at once: a collector that fails at start would be started in a loop.
                    start_at[outcome.collector] = time.monotonic() + pause(time.time(), every)
            show(outcome)
            ready.note(outcome)
            if every and ready.refused(outcome.collector) == MAX_BAD:
                log.error("Datadog refused the key in %d runs in a row: giving up", MAX_BAD)
                for child in running:
                    child.end()
                return False
    return True


def _next_outcomes(children: list[Child], wake_at: float | None) -> list[Outcome]:
    """Wait until a child prints, dies or hangs, or until `wake_at`; return the outcomes there are.

    `wake_at` is on the monotonic clock, None for no limit. The list may be empty.
    """
    now = time.monotonic()
    ends = [child.end_at for child in children] + ([] if wake_at is None else [wake_at])
    # poll needs no descriptor of its own, as epoll does: the process may be short of them.
    with selectors.PollSelector() as selector:
        for child in children:
            selector.register(child.output, selectors.EVENT_READ, child)
        ready = {key.data for key, _ in selector.select(max(0.0, min(ends, default=now) - now))}
    found: list[Outcome] = []
    for child in children:
        if child in ready:
            found += child.read()
        elif child.end_at <= time.monotonic():
            why = f"its deadline of {child.timeout:g} s passed, and the child did not end by itself"
            found.append(child.failed(why))
    return found


def _failed(name: str, why: str, seconds: float = 0.0) -> Outcome:
    """Log a failure and return it as an outcome with CHILD_ERROR."""
    log.error("%s: %s", name, why)
    return Outcome(name, Status.FAILED, seconds=seconds, error=ErrorSummary(CHILD_ERROR, why))


def _report(outcome: Outcome, options: Options, environ: Mapping[str, str]) -> None:
    """Send `collector.up = 0` for a child that could not; a failure to send is logged."""
    from common.run.run import report_failure

    report_failure(outcome, options, environ)
    # The session logged under the name of that collector.
    logs.set_up("run_collector", verbose=options.verbose)


class ReadyFile:
    """Counts runs in a row that failed, and maintains a file for a probe of Kubernetes.

    The file is there once each collector had a good run, and not while one had three bad ones in a row. A
    DaemonSet without a probe is READY whatever its process does.
    """

    def __init__(self, path: str, names: list[str]) -> None:
        self._path = Path(path) if path else None
        # Not ready before the first good run. A file that an earlier container left is removed.
        self._bad = dict.fromkeys(names, MAX_BAD)
        self._refused = dict.fromkeys(names, 0)
        self._update()

    def note(self, outcome: Outcome) -> None:
        """Count the outcome of one run. A unit that was lost does not make it bad, an error does."""
        name, error = outcome.collector, outcome.error
        is_bad = error is not None and outcome.status is not Status.SKIPPED
        self._bad[name] = self._bad[name] + 1 if is_bad else 0
        is_refused = error is not None and error.status == FORBIDDEN
        self._refused[name] = self._refused[name] + 1 if is_refused else 0
        self._update()

    def refused(self, name: str) -> int:
        """Return how often in a row Datadog refused the key of a collector, with 403."""
        return self._refused[name]

    def _update(self) -> None:
        """Create or remove the file; an error is logged, because collecting is more important."""
        if self._path is None:
            return
        try:
            if max(self._bad.values()) < MAX_BAD:
                self._path.touch()
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.error("FLEETGAUGE_READY_FILE: %s: %s", self._path, error.strerror or error)


# The child.


def work(name: str, options: Options, environ: Mapping[str, str]) -> int:
    """Run a collector for a parent, once or with `--every` again and again; return the exit code.

    Standard output is for outcomes only. The exit code is 0 also for a failed run: the outcome has its
    status.
    """
    # What a collector or a C library prints would break the protocol: descriptor 1 becomes standard error.
    output = os.dup(1)
    os.dup2(2, 1)  # whatever is printed is no outcome
    # Before the slow imports: the parent may be killed at any time.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from common.run.run import run
    from common.run.session import Cache

    cache, stamp = Cache(), _stamp(options.config)
    while True:
        outcome = run(name, options, environ, cache=cache)
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # what was printed: the parent ends this process once it has the outcome
        os.write(output, outcome.encode())
        if options.every is None:
            return 0
        error = outcome.error
        # A rotated key or a changed ConfigMap is read without a restart of the pod.
        before, stamp = stamp, _stamp(options.config)
        if stamp != before or (error and (error.configuration or error.status == FORBIDDEN)):
            cache.forget_settings()
        core = cache.configuration.core if cache.configuration else None
        time.sleep(pause(time.time(), options.every, delay(core, name, options.every)))


def pause(now: float, interval: int, delay: float = 0.0) -> float:
    """Return the seconds until the next run, which is `delay` later than a multiple of the interval.

    Aligned to the wall clock, so that runs do not drift. The result is never 0.
    """
    return interval - (now - delay) % interval


def delay(core: CoreSettings | None, name: str, interval: int) -> float:
    """Return the seconds after each multiple of the interval, so that nodes do not all send at once.

    A hash of the node's name: the same after each restart. 0 for collectors that run once per cluster.
    """
    if core is None or not (core.node_local or registry.declaration(name).per_node):
        return 0.0
    node = core.node_name or socket.gethostname()
    digest = hashlib.sha256(node.encode("utf-8", "surrogateescape")).digest()
    return interval * int.from_bytes(digest[:4], "big") / 2**32


def _end_with_parent() -> None:
    """Wait for the end of standard input, then end this process and all that it started.

    The kernel closes the pipe when the parent ends, also by SIGKILL.
    """
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _stamp(config: str | None) -> tuple[int, ...]:
    """Return what changes with the configuration file, also where Kubernetes swaps its directory.

    Empty without a file, and where it cannot be read at the moment. A mounted ConfigMap is a symbolic link,
    and `stat` follows it to a new inode.
    """
    with suppress(OSError):
        if config:
            status = Path(config).stat()
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return ()
