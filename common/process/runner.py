"""The parent's loop: starts children, at most two at once, waits for what they say, and ends them in time.

What children ask of a person is asked one at a time, in the order in which it came. Standard library only.
"""

from __future__ import annotations

import logging
import selectors
import signal
import time
from collections.abc import Mapping
from dataclasses import replace

from common.errors import Interrupted
from common.job import Job, Mode
from common.outcome import Outcome
from common.process.environment import interpreter
from common.process.progress import Lines
from common.process.protocol import Question, decode_outcome
from common.process.running_child import SILENT, RunningChild, failed
from common.signals import shielded

AT_ONCE = 2
REPORT_TIMEOUT = 10.0
INTERRUPT_GRACE = 24.0  # after SIGTERM: the longest request in flight, what waits, and the self-metrics

log = logging.getLogger(__name__)


class Runner:
    """Runs jobs until all have an outcome or it is told to stop."""

    def __init__(self, environ: Mapping[str, str], watcher: Lines) -> None:
        self._environ = environ
        self._watcher = watcher
        self._python = interpreter()
        self._staying: dict[str, RunningChild] = {}  # by their collector
        self._asking: list[tuple[RunningChild, Question]] = []  # the first is before the person
        self.interrupted: int | None = None

    def run_and_report(self, jobs: list[Job]) -> list[Outcome]:
        """Run jobs; for each child that pushed and could not say so, another one says `collector.up = 0`."""
        outcomes = self.run(jobs)
        reports = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome.error and outcome.error.type in SILENT:
                log.error("%s: %s", job.collector, outcome.error.message)
                if job.mode is Mode.PUSH and job.backfill is None:
                    told = replace(job, mode=Mode.REPORT, outcome=outcome, stays=False)
                    reports.append(replace(told, timeout=REPORT_TIMEOUT))
        self.run(reports)
        return outcomes

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """One outcome per job, in order. After a signal, what did not finish has failed."""
        outcomes: dict[int, Outcome] = {}
        waiting = list(enumerate(jobs))
        running: dict[int, RunningChild] = {}
        while waiting or running:
            try:
                with shielded():  # a signal must not come between starting a child and knowing it
                    while waiting and len(running) < AT_ONCE:
                        place, job = waiting.pop(0)
                        try:
                            running[place] = self._child(job)
                        except OSError as error:  # too few descriptors, processes or memory
                            why = f"the child could not be started: {error.strerror or error}"
                            outcomes[place] = failed(job, "NotStarted", why)
                ready = self._wait(list(running.values())) if running else []
                with shielded():
                    for child in ready:
                        child.read()
                for child in ready:
                    self._pass_on(child)
                with shielded():
                    for place in [place for place, child in running.items() if child.over()]:
                        self._watcher.ended(running[place].job.collector)
                        outcomes[place] = self._reap(running.pop(place))
            except Interrupted as error:
                self.interrupted = number = error.signal_number
                name = signal.Signals(number).name
                for child in running.values():
                    child.ask_to_end(number, f"{name} asked it to stop", INTERRUPT_GRACE)
                for place, job in waiting:
                    outcomes[place] = failed(job, "NotStarted", f"{name} came first")
                waiting.clear()
        return [outcomes[place] for place in range(len(jobs))]

    def _child(self, job: Job) -> RunningChild:
        """The one that stayed for such jobs, or a new one."""
        child = self._staying.pop(job.collector, None) if job.stays else None
        if child and child.is_fresh(job):
            child.give(job)
            return child
        if child:
            child.reap()
        return RunningChild(job, self._environ, self._python)

    def close(self) -> None:
        """End those that stayed: they do nothing."""
        while self._staying:
            self._staying.popitem()[1].reap()

    def _reap(self, child: RunningChild) -> Outcome:
        """One that has ended waits for no answer."""
        if child.stays():
            self._staying[child.job.collector] = child
            return decode_outcome(child.said)
        asked = self._asking[:1]
        self._asking = [(one, question) for one, question in self._asking if one is not child]
        if self._asking[:1] != asked:
            self._ask()
        return child.reap()

    def _pass_on(self, child: RunningChild) -> None:
        """Tell the watcher what a child said."""
        messages, child.messages = child.messages, []
        for told in messages:
            if isinstance(told, Question):
                self._asking.append((child, told))
                if len(self._asking) == 1:
                    self._ask()
            else:
                self._watcher.progress(child.job.collector, told)

    def _ask(self) -> None:
        """Have the first question answered, at once where nobody has to think about it."""
        while self._asking:
            child, question = self._asking[0]
            agreed = self._watcher.ask(child.job.collector, question)
            if agreed is None:
                return
            self._reply(agreed)

    def _reply(self, agreed: bool) -> None:
        child, _ = self._asking.pop(0)
        child.reply(agreed)

    def _wait(self, children: list[RunningChild]) -> list[RunningChild]:
        """End those whose time is over, then wait; the children that have something to say.

        While a person thinks, time goes on for all, and for the child that asked.
        """
        now = time.monotonic()
        for child in children:
            if child.end_at <= now:
                child.time_is_over()
        with selectors.PollSelector() as selector:  # which needs no descriptor of its own
            for child in children:
                if not child.closed:
                    selector.register(child.answer, selectors.EVENT_READ, child)
            if self._asking:
                selector.register(self._watcher.answers, selectors.EVENT_READ, None)
            soonest = min(child.end_at for child in children) - now
            # A child that closed its answer is about to exit, and nothing tells us when.
            closing = any(child.closed for child in children)
            ready = [key.data for key, _ in selector.select(0.01 if closing else max(0.01, soonest))]
        if None in ready:
            self._reply(self._watcher.answer())
            self._ask()
        return [child for child in ready if child is not None]
