"""A few connections: threads that carry requests, and what all of them together keep to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from collectors.wandb.api import Answer, Ask, UnknownPartsError
from common.errors import FleetgaugeError, SourceError
from common.net.retry import TransientError

JOIN = 2.0  # seconds for all threads to end once their connections are cut

log = logging.getLogger(__name__)

O = TypeVar("O")  # noqa: E741


class Gate:
    """How many requests may be under way together, and when the next one may start."""

    def __init__(self, connections: int, pause: float) -> None:
        self.allowed = connections
        self.opens = 0.0
        self.reason: Exception | None = None
        self._pause = pause

    def start(self, now: float) -> None:
        """A request starts."""
        self.opens, self.reason = now + self._pause, None

    def hold(self, until: float, why: Exception) -> None:
        """Nobody is to ask before then."""
        if until > self.opens:
            self.opens, self.reason = until, why

    def halve(self) -> None:
        """The server could not take so many at once."""
        self.allowed = max(1, self.allowed // 2)

    def heard(self, now: float, answer: Answer, under_way: int) -> None:
        """What the server will still take may have been used up by those under way."""
        if answer.left is not None and answer.left <= under_way and answer.reset is not None:
            self.hold(now + answer.reset, SourceError(f"it takes no request for {answer.reset:g} s"))


class Lines(Generic[O]):
    """Threads that carry requests to the server; daemons, so that none keeps the process from ending."""

    def __init__(self, number: int, work: Callable[[Ask], Answer]) -> None:
        self._jobs: SimpleQueue[tuple[O, Ask] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[O, Ask, Answer | Exception]] = SimpleQueue()
        self._work = work
        self._ending = False
        self._threads = [
            threading.Thread(target=self._carry, name=f"wandb-{place}", daemon=True)
            for place in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, owner: O, ask: Ask) -> None:
        self._jobs.put((owner, ask))

    def receive(self, timeout: float) -> tuple[O, Ask, Answer | Exception] | None:
        """What came of a request, and for whom it was; None where nothing did in time."""
        try:
            return self._done.get(timeout=max(0.0, timeout))
        except Empty:
            return None

    def end(self, cut_off: Callable[[], None]) -> None:
        """Cut the connections, and wait for the threads."""
        self._ending = True
        cut_off()
        for _ in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + JOIN
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _carry(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._done.put((*job, self._result(job[1])))
            del job  # and with it what becomes of it

    def _result(self, ask: Ask) -> Answer | Exception:
        try:
            return self._work(ask)
        except Exception as error:
            expected = isinstance(error, FleetgaugeError | TransientError | UnknownPartsError)
            if not expected and not self._ending:
                log.exception("unexpected error while reading %s", ask.project)
            # What it was raised in holds on to the answer, which may be long.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            return error
