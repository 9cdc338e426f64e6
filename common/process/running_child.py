"""One child that runs, in a process group of its own: what it says, how it is ended and what became of it.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from common import registry, signals
from common.job import Job
from common.outcome import Failure, Outcome, Status
from common.process.environment import child_environment
from common.process.protocol import Progress, Question, decode_outcome, encode, message

DEADLINE_GRACE = 5.0  # after its deadline a child has this long to report and end
MAX_REPORT_BYTES = 1_000_000
MAX_AGE = 86_400.0  # seconds after which a child that stays is replaced all the same
CHILD = str(registry.ROOT / "common" / "process" / "child.py")

SILENT = frozenset({"GarbledReport", "Ended", "Crashed", "NotStarted"})  # said by the parent in its place


class RunningChild:
    """One running child and what it has said so far."""

    def __init__(self, job: Job, environ: Mapping[str, str], python: str) -> None:
        self.messages: list[Progress | Question] = []
        self.closed = False
        self._born, self._configured = time.monotonic(), _stamp(job.config)
        self.process = subprocess.Popen(
            [python, "-P", CHILD, job.collector],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(job, environ),
            start_new_session=True,
        )
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the child has no pipes")
        self.lifeline = self.process.stdin
        self.answer = self.process.stdout
        self.give(job)

    def give(self, job: Job) -> None:
        """Have it do a job, within the job's own deadline."""
        self.job = job
        self.said = b""
        self.why_ended: str | None = None
        self._killed = self._given_up = False
        self.started = time.monotonic()
        self.end_at = self.started + job.timeout
        with suppress(BrokenPipeError):  # it died at once; its exit code will say so
            self.lifeline.write(encode(job))
            self.lifeline.flush()

    def is_fresh(self, job: Job) -> bool:
        """Whether one that stayed may go on: it lives, is not too old, and would read the same file."""
        young = time.monotonic() - self._born < MAX_AGE
        return young and not self._exited() and _stamp(job.config) == self._configured

    def stays(self) -> bool:
        """Whether it has said its outcome and waits for another job."""
        if not self.said.endswith(b"\n"):
            return False
        with suppress(ValueError, TypeError, KeyError):
            return decode_outcome(self.said).stays
        return False

    def read(self) -> None:
        """Take what it says: messages on its way, and in the end its outcome."""
        chunk = os.read(self.answer.fileno(), 65536)
        self.closed = not chunk
        *lines, rest = (self.said + chunk).split(b"\n")
        others = []
        for line in lines:
            if told := message(line):
                self.messages.append(told)
            else:
                others.append(line + b"\n")
        self.said = b"".join([*others, rest])[:MAX_REPORT_BYTES]

    def reply(self, agreed: bool) -> None:
        with suppress(BrokenPipeError):
            self.lifeline.write(b"y" if agreed else b"n")
            self.lifeline.flush()

    def over(self) -> bool:
        """Whether it is done with its job."""
        return self._given_up or self.stays() or (self.closed and self._exited())

    def _exited(self) -> bool:
        """It is not reaped: while its pid is taken its group cannot be another's."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, flags) is not None

    def ask_to_end(self, number: int, why: str, grace: float) -> None:
        """Send a signal that says why, and wait a little."""
        self.why_ended = why
        self.end_at = time.monotonic() + grace
        self._signal(number)

    def time_is_over(self) -> None:
        """Ask first, so that it can report by itself; then end it and everything it started."""
        if self.why_ended is None:
            why = f"its deadline of {self.job.timeout:g} s passed"
            self.ask_to_end(signals.TIME_IS_OVER, why, DEADLINE_GRACE)
        else:
            self._signal(signal.SIGKILL)
            self._given_up, self._killed = self._killed, True  # it sits in the kernel: nobody can end it
            self.end_at = time.monotonic() + DEADLINE_GRACE

    def reap(self) -> Outcome:
        """Say what became of the collector, and end what is left of the group."""
        self._signal(signal.SIGKILL)
        try:
            code = self.process.wait(DEADLINE_GRACE)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        with suppress(BrokenPipeError):
            self.lifeline.close()
        self.answer.close()
        seconds = round(time.monotonic() - self.started, 3)
        if self.said:
            try:
                return decode_outcome(self.said)
            except (ValueError, TypeError, KeyError) as error:
                what = f"the child's report cannot be read: {error}"
                return failed(self.job, "GarbledReport", what, seconds)
        if self.why_ended:
            stuck = code == -signal.SIGKILL
            how = "and the child did not end by itself" if stuck else "before the child had begun"
            return failed(self.job, "Ended", f"{self.why_ended}, {how}", seconds)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return failed(self.job, "Crashed", f"the child {how} without a report", seconds)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
            os.killpg(self.process.pid, number)


def _stamp(config: str | None) -> tuple[int, ...]:
    """What changes with the configuration file, also where Kubernetes swaps the directory it is in."""
    with suppress(OSError):
        if config:
            status = Path(config).stat()
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return ()


def failed(job: Job, kind: str, message: str, seconds: float = 0.0) -> Outcome:
    """The outcome of a collector that could not speak for itself."""
    return Outcome(job.collector, Status.FAILED, seconds=seconds, error=Failure(kind, message))
