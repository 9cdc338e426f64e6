"""What a child does: takes a job from its parent, runs it, reports one outcome, and may wait for the next.

A job comes as one line on standard input, which then stays open: the answers to questions come there too,
and its end means that the parent is gone, and the child ends as well. Messages and the outcome leave on what
was standard output; anything printed goes to stderr, and no exception leaves but through the log, which
knows what is secret.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from common import logs, registry, signals
from common.errors import DeliveryError, Interrupted
from common.job import Job, Mode
from common.outcome import Failure, Outcome, Status
from common.parent import Parent
from common.process.protocol import Progress, Question, decode_job, encode

TELL_EVERY = 0.2  # seconds: more often than an eye can follow would only cost
MAX_STAYING_BYTES = 96_000_000  # of memory after a job; a child that has more is replaced

log = logging.getLogger(__name__)


class _ParentProcess(Parent):
    """The parent at the other ends of the pipes."""

    def __init__(self, answer: int) -> None:
        self._answer = answer
        self._replies: SimpleQueue[bytes] = SimpleQueue()
        self._told = 0.0
        self.gone = False

    def next_job(self) -> Job | None:
        """Wait for a job; None where the parent is gone."""
        line = b""
        while not line.endswith(b"\n"):
            part = self._replies.get()
            if not part:
                return None
            line += part
        return decode_job(line)

    def listen(self) -> None:
        """Take jobs and replies until the parent is gone, then end."""
        while reply := os.read(0, 65536):
            self._replies.put(reply)
        self.gone = True
        self._replies.put(b"")
        os.kill(os.getpid(), signal.SIGTERM)
        from common.process.runner import INTERRUPT_GRACE  # what the parent would have allowed

        time.sleep(INTERRUPT_GRACE)
        end_group()

    def progress(self, doing: str, done: int, total: int | None) -> None:
        if time.monotonic() - self._told >= TELL_EVERY or done == total:
            self._told = time.monotonic()
            self.say(encode(Progress(doing, done, total)))

    def agrees(self, text: str) -> bool:
        self.say(encode(Question(text)))
        with signals.doing("waiting for somebody to agree"):
            return self._replies.get() == b"y"

    def say(self, line: bytes) -> None:
        """One line; where the parent is gone, the log has it."""
        try:
            os.write(self._answer, line)
        except BrokenPipeError:
            self.gone = True
            log.warning("the parent is gone, and does not hear: %s", logs.redact(line.decode()))


def end_group() -> None:
    """End this process and everything it started, as the parent would."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


def _execute(job: Job, parent: Parent) -> Outcome:
    """Do what the job is for, importing no more than that takes."""
    if job.mode in {Mode.CHECK, Mode.SETTINGS}:
        from common.execution.inspection import InspectionRun

        return InspectionRun(job, os.environ, parent).run()
    if job.mode is Mode.EXPLAIN:
        from common.execution.explanation import ExplainRun

        return ExplainRun(job, os.environ, parent).run()
    if job.backfill is not None:
        from common.execution.backfill import BackfillRun

        return BackfillRun(job, os.environ, parent).run()
    from common.execution.live import LiveRun

    run = LiveRun(job, os.environ, parent)
    return run.run() if job.outcome is None else run.report_on(job.outcome)


def _log_what_nobody_catches() -> None:
    """Python would print it as it is, and with it a secret."""

    def in_thread(told: threading.ExceptHookArgs) -> None:
        name = told.thread.name if told.thread else "one that is gone"
        log.error("unexpected error in thread %s", name, exc_info=told.exc_value)

    def in_finaliser(told: sys.UnraisableHookArgs) -> None:
        log.error("unexpected error while an object was finalised", exc_info=told.exc_value)

    threading.excepthook = in_thread
    sys.unraisablehook = in_finaliser
    logging.captureWarnings(capture=True)


def _outcome(job: Job, parent: _ParentProcess) -> Outcome:
    """What came of the job, whatever is raised."""
    try:
        with signals.interruptible(job.timeout):
            return _execute(job, parent)
    except Interrupted as error:  # while it was still importing
        failure = Failure(type(error).__name__, logs.redact(str(error)))
    except ModuleNotFoundError as error:
        what = f"{error}; this Python ({sys.executable}) lacks it: run {registry.ROOT}/scripts/setup once"
        failure = Failure("ConfigurationError", what, configuration=True)
    except BaseException as error:  # also SystemExit: a collector does not end the process
        log.exception("%s: unexpected error", job.collector)
        failure = Failure(type(error).__name__, logs.redact(str(error)))
    return Outcome(job.collector, Status.FAILED, error=failure)


def _may_stay(job: Job, outcome: Outcome) -> bool:
    """Whether the child is as good as a new one; what the intake does not take for now is no fault of it."""
    if not job.stays or (outcome.error and outcome.error.type != DeliveryError.__name__):
        return False
    if any(thread.name == "fleetgauge-nvml" for thread in threading.enumerate()):  # it hangs in the driver
        return False
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # of a system where nobody can say
        return False
    return pages * os.sysconf("SC_PAGE_SIZE") <= MAX_STAYING_BYTES


def work() -> int:
    """Do the jobs that come down standard input; the process's exit code."""
    # A life that makes values in bulk and hardly a cycle: looking for cycles often is wasted.
    gc.set_threshold(100_000)
    logs.guard_streams()
    parent = _ParentProcess(os.dup(1))
    os.dup2(2, 1)
    threading.Thread(target=parent.listen, daemon=True).start()
    job = parent.next_job()
    if job is None:  # the parent was gone before it said what to do
        return 1
    logs.set_up(job.collector, verbose=job.verbose)
    _log_what_nobody_catches()
    while job is not None:
        outcome = _outcome(job, parent)
        outcome = replace(outcome, stays=_may_stay(job, outcome))
        parent.say(encode(outcome))
        if parent.gone:
            end_group()
        if not outcome.stays:
            break
        for number in signals.STOPPING:  # as at the start: it does nothing that could be cut in half
            signal.signal(number, lambda number, _: end_group() if parent.gone else os._exit(128 + number))
        gc.collect()
        gc.freeze()  # what is left lives as long as the process: it is not looked at again
        job = parent.next_job()
    if parent.gone:
        end_group()
    return 0
