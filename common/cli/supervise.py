"""The processes of a live push: a parent, and one child per collector in a process group of its own.

A child is the same command line with one variable that names its collector. It prints one outcome per run on
its standard output, and ends, or with `--every` continues. Its standard input is a pipe from the parent: end
of file means that the parent has ended, and the child ends itself. Standard library only, until there is
something to send.

`supervise` is the parent, `work` the child. `common/outcome.py` is the protocol, `common/signals.py` kills
children when the parent is interrupted.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, cast

from common import logs, registry, signals
from common.options import Options
from common.outcome import ErrorSummary, Outcome, Status

CHILD = "FLEETGAUGE_CHILD"  # names the collector that a process runs for its parent
# Children at a time, where each runs once: this bounds the memory that the pod needs.
AT_ONCE = 2
GRACE = 10.0  # seconds after its deadline in which a child starts, reports and ends by itself
MAX_REPORT = 40.0  # seconds for a report of the parent: it may have to wait for the store as well
MAX_OUTCOME_BYTES = 1_000_000
MAX_BAD = 3  # runs in a row that may fail before a process that stays is not ready
FORBIDDEN = 403
# Type of the error of a child that has no outcome of its own; no exception has this name.
CHILD_ERROR = "ChildError"

# A list of what is passed, and not of what is removed: an unknown variable may be a credential.
_PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTPS_PROXY", "NO_PROXY"),
    *("DD_ENV", "DD_SERVICE", "DD_VERSION", "DD_SITE", "DD_API_KEY", "AWS_REGION", "JOB_COMPLETION_INDEX"),
)

log = logging.getLogger(__name__)


# The parent.


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
    in three runs in a row: continuing is no use. The ready file is there once each collector had a good
    run, and not while one had three bad ones in a row.
    """
    every = options.every
    slots = threading.Semaphore(len(names) if every else AT_ONCE)
    arrived: SimpleQueue[Outcome] = SimpleQueue()

    def watch(name: str) -> None:
        while True:
            with slots:
                started = time.monotonic()
                try:
                    for outcome in _outcomes(name, options, argv, environ):
                        arrived.put(outcome)
                # Any: a defect of ours must not leave the parent waiting.
                except Exception as error:
                    is_defect = not isinstance(error, ChildProcessError)
                    log.error("%s: %s", name, error, exc_info=is_defect)
                    seconds = round(time.monotonic() - started, 3)
                    summary = ErrorSummary(CHILD_ERROR, str(error))
                    arrived.put(Outcome(name, Status.FAILED, seconds, error=summary))
            if every is None:
                return
            # Not at once: a collector that fails at start would be started in a loop.
            time.sleep(pause(time.time(), every))

    for name in names:
        threading.Thread(target=watch, args=(name,), daemon=True).start()
    ready_file = environ.get("FLEETGAUGE_READY_FILE", "").strip() if every else ""
    # Not ready before the first good run of each. A file that an earlier container left is removed.
    bad = dict.fromkeys(names, MAX_BAD)  # runs in a row with an error
    _mark_ready(ready_file, is_ready=False)
    refused = dict.fromkeys(names, 0)  # runs in a row in which Datadog refused the key
    outstanding = len(names)
    try:
        while every or outstanding:
            outcome = arrived.get()
            outstanding -= 1
            name, error = outcome.collector, outcome.error
            if error and error.type == CHILD_ERROR:
                from common.run.run import report_failure

                # In a thread: a server that sends its headers byte by byte keeps within each timeout.
                given = (outcome, options, environ)
                report = threading.Thread(target=report_failure, args=given, daemon=True)
                try:
                    report.start()
                    report.join(MAX_REPORT)
                except RuntimeError:  # no thread can be started, as no child could be
                    report_failure(*given)
                # It logged under the name of that collector.
                logs.set_up("run_collector", verbose=options.verbose)
            # A unit that was lost does not make a run bad, an error does.
            bad[name] = bad[name] + 1 if error and outcome.status is not Status.SKIPPED else 0
            _mark_ready(ready_file, is_ready=max(bad.values()) < MAX_BAD)
            show(outcome)
            refused[name] = refused[name] + 1 if error and error.status == FORBIDDEN else 0
            if every and refused[name] == MAX_BAD:
                log.error("Datadog refused the key in %d runs in a row: giving up", MAX_BAD)
                return False
    finally:  # also where the output cannot be written: one that hangs would not notice the end
        signals.end_children()
    return True


def _outcomes(name: str, options: Options, argv: list[str], environ: Mapping[str, str]) -> Iterator[Outcome]:
    """Start a child, yield its outcomes as it prints them, and end it; one that runs once has one outcome.

    ChildProcessError, with the reason, where it dies, hangs or prints anything else. It is in
    `signals.children` while it runs, so that it never outlives an interrupted parent.
    """
    end_at = time.monotonic() + options.timeout + GRACE  # until its next outcome
    command = [sys.executable, str(registry.ROOT / "scripts" / "run_collector.py"), *argv]
    given = child_environment(name, environ, options.config)
    try:
        # A group of its own, so that everything the collector starts can be killed with it. A thread could
        # not be ended at all.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given, start_new_session=True
        )
    except OSError as error:  # the machine is short of descriptors, processes or memory
        raise ChildProcessError(f"the child could not be started: {error.strerror or error}") from None
    signals.children.add(process.pid)
    output = cast("IO[bytes]", process.stdout).fileno()
    printed = b""
    try:
        while len(printed) <= MAX_OUTCOME_BYTES:
            ready, _, _ = select.select([output], [], [], max(0.0, end_at - time.monotonic()))
            if not ready:
                why = f"its deadline of {options.timeout:g} s passed, and the child did not end by itself"
                raise ChildProcessError(why)
            chunk = os.read(output, 65536)
            if not chunk:
                if process.pid not in signals.children:  # this process ends, and has killed it
                    return
                code = _end(process, patience=GRACE)
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise ChildProcessError(f"the child {how} without a report")
            *lines, printed = (printed + chunk).split(b"\n")
            for outcome in map(Outcome.decode, lines):
                yield outcome
                if options.every is None:
                    return
                # The next outcome of a process that stays is due after one interval.
                end_at = time.monotonic() + options.every + options.timeout + GRACE
        raise ChildProcessError(f"what the child printed is longer than {MAX_OUTCOME_BYTES:,} bytes")
    except ValueError as error:
        raise ChildProcessError(f"what the child printed is {error}") from None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes], patience: float = 0.0) -> int:
    """End a child and all that it started; return its exit code, negative for a signal.

    It may end by itself for `patience` seconds. Then SIGKILL, because nothing has to be flushed: the next run
    computes the same points again.
    """
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    # The group may have ended already; macOS reports EPERM for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # it is in an uninterruptible system call
        process.wait(GRACE)
    signals.children.discard(process.pid)
    for pipe in filter(None, (process.stdin, process.stdout)):
        pipe.close()
    return -signal.SIGKILL if process.returncode is None else process.returncode


def child_environment(name: str, environ: Mapping[str, str], config: str | None) -> dict[str, str]:
    """Return the environment of the child of one collector: no other one's settings or credentials.

    `config` is the path of the configuration file, None for none. AWS credentials are for those that may need
    them: secrets are in AWS, or records or state in S3. A configuration file is not read here, so that with
    one they may always be needed.
    """
    declaration = registry.declaration(name)
    exact = {*_PASSED, *declaration.secrets, *declaration.environment}
    paths = f"{registry.PREFIX}{name.upper()}_PATHS"
    in_s3 = any("s3://" in environ.get(variable, "") for variable in (f"{registry.PREFIX}STATE", paths))
    needs_aws = bool(config or in_s3 or environ.get(f"{registry.PREFIX}SECRET_PREFIX", "").strip())
    # All AWS_ variables: roles of EKS (web identity, container credentials) are found by several of them.
    prefixes = (registry.PREFIX, f"{name.upper()}_", *(("AWS_",) if needs_aws else ()))
    passed = {
        variable: value
        for variable, value in registry.without_others(name, environ).items()
        if variable in exact or variable.startswith(prefixes)
    }
    return passed | {CHILD: name}


def _mark_ready(path: str, *, is_ready: bool) -> None:
    """Create or remove the file for a probe of Kubernetes; an error is logged: collecting is more important.

    A DaemonSet without a probe is READY whatever its process does. Nothing is done for an empty path.
    """
    try:
        if path and is_ready:
            Path(path).touch()
        elif path:
            Path(path).unlink(missing_ok=True)
    except OSError as error:
        log.error("FLEETGAUGE_READY_FILE: %s: %s", path, error.strerror or error)


# The child.


def work(name: str, options: Options, environ: Mapping[str, str]) -> int:
    """Run a collector for a parent, once or with `--every` again and again; return the exit code.

    Standard output is for outcomes only. The exit code is 0 also for a failed run: the outcome has its
    status.
    """
    # What a collector or a C library prints would break the protocol: descriptor 1 becomes standard error.
    output = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # which writes each line at once: the parent ends this process at its outcome
    # Before the slow imports: the parent may be killed at any time.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from common.run.run import run
    from common.run.session import Cache, node_of

    cache, stamp = Cache(), _stamp(options.config)
    while True:
        outcome = run(name, options, environ, cache=cache)
        os.write(output, outcome.encode())
        if options.every is None:
            return 0
        node = node_of(name, cache.configuration.core) if cache.configuration else None
        error = outcome.error
        # A rotated key or a changed ConfigMap is read without a restart of the pod.
        before, stamp = stamp, _stamp(options.config)
        if stamp != before or (error and (error.configuration or error.status == FORBIDDEN)):
            cache = Cache(document=cache.document)
        time.sleep(pause(time.time(), options.every, node))


def pause(now: float, interval: int, node: str | None = None) -> float:
    """Return the seconds until the next run: at a multiple of the interval, or for a node some time after it.

    Aligned to the wall clock, so that runs do not drift. How long after it is a hash of the node's name, so
    that nodes do not all send at once, and the same after each restart. The result is never 0.
    """
    spread = zlib.crc32((node or "").encode("utf-8", "surrogateescape")) / 2**32  # 0 without a node
    return interval - (now - interval * spread) % interval


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
