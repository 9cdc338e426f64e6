"""The parent: starts one child per collector, each in a process group of its own, and waits for outcomes.

Standard library only. What a child needs of the environment is passed on, and nothing else; a child that
hangs past its deadline is ended with its whole group, and reported on by another child.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TextIO

from common import registry
from common.errors import Interrupted
from common.job import DATADOG, Job, Mode
from common.outcome import Failure, Outcome, Status
from common.process.protocol import Progress, Question, decode_outcome, encode_job, message
from common.signals import shielded

AT_ONCE = 2
DEADLINE_GRACE = 5.0  # after its deadline a child has this long to report and end
INTERRUPT_GRACE = 24.0  # after SIGTERM: the longest request in flight, what waits, and the self-metrics
REPORT_TIMEOUT = 10.0
MAX_REPORT_BYTES = 1_000_000

_PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "DD_ENV", "DD_SERVICE", "DD_VERSION", "DD_SITE", "AWS_REGION"),
)
_PROXY = ("HTTPS_PROXY", "NO_PROXY")

_SILENT = frozenset({"GarbledReport", "Ended", "Crashed", "NotStarted"})

log = logging.getLogger(__name__)


def child_environment(job: Job, environ: Mapping[str, str]) -> dict[str, str]:
    """What one child may see: no other collector's settings, and only credentials it can need."""
    secrets: list[str] = []
    more: tuple[str, ...] = ()
    own: str | None = None
    if job.collector != DATADOG and job.mode is not Mode.REPORT:
        own = job.collector
        _, declared, more = registry.declaration(own)
        secrets.extend(declared)
    if job.collector == DATADOG or job.mode in {Mode.PUSH, Mode.REPORT}:
        secrets.append("DD_API_KEY")
    if job.backfill and (job.mode is Mode.PUSH or job.collector == DATADOG):
        secrets.append("DD_APP_KEY")
    asks_aws = any(not environ.get(name) for name in secrets) and configured(job, environ, "secret_prefix")
    needs_aws = bool(asks_aws) or configured(job, environ, "checkpoints").startswith("s3://")
    # Whoever talks to a service may do so through a proxy, whose address may hold a password.
    exact = {*_PASSED, *secrets, *more, *(_PROXY if secrets or needs_aws else ())}
    shared = (registry.PREFIX, "AWS_") if needs_aws else (registry.PREFIX,)
    known = registry.names()
    passed = {
        name: value
        for name, value in environ.items()
        if name in exact
        or (owner == own if (owner := registry.owner(name, known)) else name.startswith(shared))
    }
    return passed | {"PYTHONPATH": str(registry.ROOT)}


def configured(job: Job, environ: Mapping[str, str], name: str) -> str:
    """One core setting, as the child will see it. A file that cannot be read is the child's to report."""
    text = environ.get(f"FLEETGAUGE_{name.upper()}", "").strip()
    if text or job.config is None:
        return text
    with suppress(OSError, ValueError):
        return str(tomllib.loads(Path(job.config).read_text(encoding="utf-8")).get(name, ""))
    return ""


def interpreter() -> str:
    """This Python, or the project's own where this one lacks the service's dependencies."""
    own = registry.ROOT / ".venv" / "bin" / "python"
    if importlib.util.find_spec("pydantic_settings") is None and own.exists():
        return str(own)
    return sys.executable


class Watcher(Protocol):
    """Whoever sees what children say on their way."""

    def progress(self, collector: str, progress: Progress) -> None:
        """A child is so far."""

    def ask(self, collector: str, question: Question) -> bool | None:
        """A child asks: the answer, or None where a person will give it, on `answers`."""

    @property
    def answers(self) -> TextIO:
        """Where a person answers."""

    def answer(self) -> bool:
        """What the person said, once something is there to read."""


class _Child:
    """One running child and what it has said so far."""

    def __init__(self, job: Job, environ: Mapping[str, str]) -> None:
        # It may have waited for others: what it answers for, and what is too old, is judged from now on.
        self.job = job = replace(job, now=int(time.time()))
        self.said = b""
        self.messages: list[Progress | Question] = []
        self.closed = False
        self.why_ended: str | None = None
        self.started = time.monotonic()
        self.end_at = self.started + job.timeout
        self.process = subprocess.Popen(
            [interpreter(), "-P", "-m", "common.process.child", job.collector],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(job, environ),
            start_new_session=True,
        )
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the child has no pipes")
        self.lifeline = self.process.stdin
        self.answer = self.process.stdout
        with suppress(BrokenPipeError):  # it died at once; its exit code will say so
            self.lifeline.write(encode_job(job).encode() + b"\n")
            self.lifeline.flush()

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
        """Whether it has exited. It is not reaped: while its pid is taken its group cannot be another's."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.closed and os.waitid(os.P_PID, self.process.pid, flags) is not None

    def ask_to_end(self, why: str, grace: float) -> None:
        self.why_ended = why
        self.end_at = time.monotonic() + grace
        self._signal(signal.SIGTERM)

    def time_is_over(self) -> None:
        """Ask first, so that it can report by itself; then end it and everything it started."""
        if self.why_ended is None:
            self.ask_to_end(f"its deadline of {self.job.timeout:g} s passed", DEADLINE_GRACE)
        else:
            self._signal(signal.SIGKILL)

    def reap(self) -> Outcome:
        """End what is left of the group, and say what became of the collector."""
        self._signal(signal.SIGKILL)
        code = self.process.wait()
        with suppress(BrokenPipeError):
            self.lifeline.close()
        self.answer.close()
        seconds = round(time.monotonic() - self.started, 3)
        if self.said:
            try:
                return decode_outcome(self.said.decode())
            except (ValueError, TypeError, KeyError) as error:
                what = f"the child's report cannot be read: {error}"
                return failed(self.job, "GarbledReport", what, seconds)
        if self.why_ended:
            return failed(
                self.job, "Ended", f"{self.why_ended}, and the child did not end by itself", seconds
            )
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return failed(self.job, "Crashed", f"the child {how} without a report", seconds)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
            os.killpg(self.process.pid, number)


def failed(job: Job, kind: str, message: str, seconds: float = 0.0) -> Outcome:
    """The outcome of a collector that could not speak for itself."""
    return Outcome(job.collector, Status.FAILED, seconds=seconds, error=Failure(kind, message))


class Runner:
    """Runs jobs, at most two at once, until all have an outcome or it is told to stop."""

    def __init__(self, environ: Mapping[str, str], watcher: Watcher | None = None) -> None:
        self._environ = environ
        self._watcher = watcher
        self._questions: list[tuple[_Child, Question]] = []  # the first one is being asked
        self.interrupted: int | None = None

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """One outcome per job, in order. After a signal, what did not finish has failed."""
        outcomes = self._run(jobs)
        reports = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome.error and outcome.error.type in _SILENT:
                log.error("%s: %s", job.collector, outcome.error.message)
                if job.mode is Mode.PUSH and job.backfill is None:
                    said = outcome
                    reports.append(replace(job, mode=Mode.REPORT, outcome=said, timeout=REPORT_TIMEOUT))
        self._run(reports)
        return outcomes

    def _run(self, jobs: list[Job]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        waiting = list(enumerate(jobs))
        running: dict[int, _Child] = {}
        while waiting or running:
            try:
                with shielded():  # a signal must not come between starting a child and knowing it
                    while waiting and len(running) < AT_ONCE:
                        place, job = waiting.pop(0)
                        running[place] = _Child(job, self._environ)
                ready = self._wait(list(running.values()))
                with shielded():
                    for child in ready:
                        child.read()
                for child in ready:
                    self._pass_on(child)
                with shielded():
                    for place in [place for place, child in running.items() if child.over()]:
                        outcomes[place] = self._reap(running.pop(place))
            except Interrupted as error:
                self.interrupted = error.signal_number
                for child in running.values():
                    child.ask_to_end(f"signal {error.signal_number} asked it to stop", INTERRUPT_GRACE)
                for place, job in waiting:
                    outcomes[place] = failed(job, "NotStarted", f"signal {error.signal_number} came first")
                waiting.clear()
        return [outcomes[place] for place in range(len(jobs))]

    def _reap(self, child: _Child) -> Outcome:
        """A child that has ended waits for no answer."""
        asked = [place for place, (one, _) in enumerate(self._questions) if one is child]
        for place in reversed(asked):
            del self._questions[place]
        if 0 in asked:
            self._ask()
        return child.reap()

    def _pass_on(self, child: _Child) -> None:
        """Tell the watcher what a child said."""
        messages, child.messages = child.messages, []
        for told in messages:
            if isinstance(told, Question):
                self._questions.append((child, told))
                if len(self._questions) == 1:
                    self._ask()
            elif self._watcher:
                self._watcher.progress(child.job.collector, told)

    def _ask(self) -> None:
        """Have the first question answered, at once where nobody has to think about it."""
        while self._questions:
            child, question = self._questions[0]
            agreed = self._watcher.ask(child.job.collector, question) if self._watcher else True
            if agreed is None:
                return
            self._answered(agreed)

    def _answered(self, agreed: bool) -> None:
        child, _ = self._questions.pop(0)
        child.reply(agreed)

    def _wait(self, children: list[_Child]) -> list[_Child]:
        """End those whose time is over, then wait; the children that have something to say.

        While a person thinks, time goes on for all, and for the child that asked.
        """
        now = time.monotonic()
        for child in children:
            if child.end_at <= now:
                child.time_is_over()
        with selectors.DefaultSelector() as selector:
            for child in children:
                if not child.closed:
                    selector.register(child.answer, selectors.EVENT_READ, child)
            if self._questions and self._watcher:
                selector.register(self._watcher.answers, selectors.EVENT_READ, None)
            soonest = min(child.end_at for child in children) - now
            # A child that closed its answer is about to exit, and nothing tells us when.
            closing = any(child.closed for child in children)
            ready = [key.data for key, _ in selector.select(0.01 if closing else max(0.01, soonest))]
        if None in ready and self._watcher:
            self._answered(self._watcher.answer())
            self._ask()
        return [child for child in ready if child is not None]
