"""The parent's loop: starts children, at most two at once, waits for what they say, and ends them in time.

Standard library only.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Mapping

from common.errors import Interrupted
from common.job import Job
from common.outcome import Outcome
from common.process.environment import interpreter
from common.process.protocol import Question
from common.process.questions import Questions, Watcher
from common.process.running_child import RunningChild, failed
from common.signals import shielded

AT_ONCE = 2
INTERRUPT_GRACE = 24.0  # after SIGTERM: the longest request in flight, what waits, and the self-metrics


class Runner:
    """Runs jobs until all have an outcome or it is told to stop."""

    def __init__(self, environ: Mapping[str, str], watcher: Watcher | None = None) -> None:
        self._environ = environ
        self._watcher = watcher
        self._python = interpreter()
        self._questions = Questions(watcher)
        self.interrupted: int | None = None

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
                            running[place] = RunningChild(job, self._environ, self._python)
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

    def _reap(self, child: RunningChild) -> Outcome:
        self._questions.forget(child)
        return child.reap()

    def _pass_on(self, child: RunningChild) -> None:
        """Tell the watcher what a child said."""
        messages, child.messages = child.messages, []
        for told in messages:
            if isinstance(told, Question):
                self._questions.add(child, told)
            elif self._watcher:
                self._watcher.progress(child.job.collector, told)

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
            if self._questions.answers is not None:
                selector.register(self._questions.answers, selectors.EVENT_READ, None)
            soonest = min(child.end_at for child in children) - now
            # A child that closed its answer is about to exit, and nothing tells us when.
            closing = any(child.closed for child in children)
            ready = [key.data for key, _ in selector.select(0.01 if closing else max(0.01, soonest))]
        if None in ready:
            self._questions.answered()
        return [child for child in ready if child is not None]
