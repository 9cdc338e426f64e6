"""Projects read side by side over a few connections, within one deadline.

Threads only ask and answer. Everything is decided in the thread that iterates: what is asked for next, what
is tried again and when, and that all connections together keep to what the server asks for. Whoever
answers first, what is read is the same.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from collectors.wandb.api import (
    Answer,
    Api,
    Ask,
    FailedPageError,
    OverloadedError,
    RateLimitedError,
    RefusedKeyError,
    RefusedProjectError,
    UnknownPartsError,
)
from collectors.wandb.connections import Gate, Lines
from collectors.wandb.listing import Listing
from collectors.wandb.pages import Span
from collectors.wandb.query import WIDE, Extra
from collectors.wandb.settings import Project, WandbSettings
from collectors.wandb.walk import Walk
from common.errors import DeadlineExceededError, FleetgaugeError, SourceError
from common.net.http import MAX_ANSWER_BYTES, Http, TooLargeError
from common.net.retry import MAX_ATTEMPTS, Deadline, TransientError, backoff

WIDE_PAGE = 50  # whole configs and summaries are a hundred kilobytes a run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """Which runs of a project are wanted, as a filter, and without which parts of the query."""

    project: Project
    filters: str
    page_size: int | None = None  # None for that of the settings
    unasked: frozenset[Extra] = frozenset()


Result = tuple[Project, Listing | Exception]


@dataclass(eq=False)
class _Reading:
    """One project on its way, which is not to be asked about before `due`."""

    request: Request
    walk: Walk
    due: float = 0.0
    trouble: Exception | None = None
    ended: bool = False


_Lines = Lines[tuple[_Reading, Span]]


@dataclass
class Schedule:
    """Reads the runs of projects; `missing` is what the server turned out not to know."""

    api: Api
    http: Http
    settings: WandbSettings
    deadline: Deadline
    sleep: Callable[[float], None]
    progress: Callable[[str, int, int | None], None]
    missing: frozenset[Extra] = frozenset()
    _readings: deque[_Reading] = field(default_factory=deque)  # whoever was asked about last comes last
    _ended: list[Result] = field(default_factory=list)
    _under_way: int = 0
    _asked_for_key: bool = False

    def read(self, requests: list[Request]) -> Iterator[Result]:
        """The listing of each project, or why there is none, as they end."""
        settings = self.settings
        self._gate = Gate(settings.connections, settings.pause)
        self._readings.extend(
            _Reading(
                request, Walk(request.project, request.page_size or settings.page_size, settings.max_runs)
            )
            for request in requests
        )
        lines: _Lines = Lines(settings.connections, lambda ask: self.api.page(ask, self.deadline))
        try:
            while self._readings:
                self._start(lines)
                if not self._ended:
                    self._wait(lines)
                while self._ended:
                    yield self._ended.pop(0)
        finally:
            lines.end(self.http.close)

    def _start(self, lines: _Lines) -> None:
        """Ask for what may be asked for now: first pages first, then each project in its turn."""
        now = self.deadline.elapsed()
        while self._under_way < self._gate.allowed and self._gate.opens <= now < self.deadline.seconds:
            found = self._next(now)
            if found is None:
                return
            reading, span = found
            ask = Ask(
                reading.request.project,
                reading.request.filters,
                span.begin,
                span.asked,
                span.after,
                self.missing | reading.request.unasked,
                MAX_ANSWER_BYTES // self.settings.connections,
            )
            self._gate.start(now)
            self._under_way += 1
            lines.send((reading, span), ask)

    def _next(self, now: float) -> tuple[_Reading, Span] | None:
        """The next project that has something to ask, which then goes to the end."""
        limit = WIDE_PAGE if self.missing & WIDE else self.settings.page_size
        for begun in (False, True):
            for _ in range(len(self._readings)):
                reading = self._readings[0]
                self._readings.rotate(-1)
                if reading.due > now or reading.walk.begun is not begun:
                    continue
                try:
                    span = reading.walk.next(limit)
                except SourceError as error:
                    self._end(reading, error)
                    return None  # there are others now; whoever else waits is next
                if span is not None:
                    return reading, span
        return None

    def _wait(self, lines: _Lines) -> None:
        """Until an answer comes, or something may be asked for, or the time is over."""
        now, end = self.deadline.elapsed(), self.deadline.seconds
        later = [reading.due for reading in self._readings if reading.due > now]
        wake = self._gate.opens if self._gate.opens > now else min(later, default=end)
        if now >= end or (not self._under_way and wake >= end):
            self._give_up(now)
        elif self._under_way:
            done = lines.receive(min(wake if self._under_way < self._gate.allowed else end, end) - now)
            if done is not None:
                self._under_way -= 1
                (reading, span), ask, result = done
                if not reading.ended:
                    self._take(reading, span, ask, result)
        else:
            self.sleep(wake - now)

    def _take(self, reading: _Reading, span: Span, ask: Ask, result: Answer | Exception) -> None:
        """Enter an answer, or see what its failure is worth. Whatever goes wrong is this project's loss."""
        try:
            if isinstance(result, Answer):
                self._gate.heard(self.deadline.elapsed(), result, self._under_way)
                reading.trouble = None
                reading.walk.served(span, result.page)
                self._progress(reading)
            elif isinstance(result, UnknownPartsError):
                self._do_without(result, ask)
                span.under_way = False
            else:
                self._failed(reading, span, result)
            if reading.walk.done:
                self._end(reading, reading.walk.listing())
        except RefusedKeyError:
            raise
        except Exception as error:
            if not isinstance(error, FleetgaugeError):
                log.exception("unexpected error while reading %s", reading.request.project)
            self._end(reading, error)

    def _failed(self, reading: _Reading, span: Span, error: Exception) -> None:
        if isinstance(error, TooLargeError):
            reading.walk.too_large(span, error)
            return
        if isinstance(error, RefusedProjectError) and not self._asked_for_key:
            self._ask_for_key()
        if isinstance(error, DeadlineExceededError):
            error = self._why(reading, self.deadline.elapsed())
        if not isinstance(error, TransientError):
            raise error
        reading.trouble = error
        span.failures += 1
        if isinstance(error, OverloadedError):
            reading.walk.too_many(span)
        elif isinstance(error, FailedPageError):
            reading.walk.failed(span, error)
        else:
            span.under_way = False
            span.unanswered += not isinstance(error, RateLimitedError)
            if span.unanswered >= MAX_ATTEMPTS:
                raise SourceError(f"W&B could not be read: {error} (tried {span.unanswered} times)")
        self._put_off(reading, error, span.failures)

    def _put_off(self, reading: _Reading, error: TransientError, failures: int) -> None:
        """Wait before the next try: all together where the server says how long, this project otherwise."""
        now = self.deadline.elapsed()
        log.debug("%s is to be asked again (failure %d): %s", reading.request.project, failures, error)
        if isinstance(error, RateLimitedError):
            self._gate.halve()
            log.debug("requests under way together: %d at most from now on", self._gate.allowed)
        if error.wait is not None:
            # A little jitter on top of what was asked keeps a fleet from coming back as one.
            self._gate.hold(now + error.wait + random.uniform(0, 0.5), error)  # noqa: S311
        elif isinstance(error, RateLimitedError):
            self._gate.hold(now + backoff(failures), error)
        elif isinstance(error, FailedPageError):
            reading.due = now + backoff(min(failures, 2))  # looking for a row takes many tries
        else:
            reading.due = now + backoff(failures)

    def _do_without(self, error: UnknownPartsError, ask: Ask) -> None:
        if error.parts <= ask.missing:
            raise SourceError(f"{self.api.url} rejects what it was not asked for: {error}")
        for part in sorted(error.parts - self.missing, key=lambda part: part.name):
            log.warning("%s does not know %s", self.api.url, part.value)
        self.missing |= error.parts

    def _ask_for_key(self) -> None:
        """Once: a key that is refused is refused for all projects. Where nobody says so, it is not."""
        self._asked_for_key = True
        try:
            self.api.ask_for_key(self.deadline)
        except RefusedKeyError:
            raise
        except (FleetgaugeError, TransientError, UnknownPartsError) as error:
            log.info("whether the key is good could not be asked: %s", error)

    def _progress(self, reading: _Reading) -> None:
        walk = reading.walk
        reached = walk.reached if walk.total is None else min(walk.reached, walk.total)
        self.progress(f"listing the runs of {reading.request.project}", reached, walk.total)

    def _end(self, reading: _Reading, result: Listing | Exception) -> None:
        reading.ended = True
        self._readings.remove(reading)
        self._ended.append((reading.request.project, result))

    def _give_up(self, now: float) -> None:
        """No time is left: what is not whole by now is not sent."""
        for reading in [*self._readings]:
            self._end(reading, self._why(reading, now))

    def _why(self, reading: _Reading, now: float) -> FleetgaugeError:
        walk = reading.walk
        why = self._gate.reason if self._gate.opens > now else reading.trouble
        if isinstance(why, OverloadedError):
            return SourceError(
                f"W&B could not be read in time: {why}; lower FLEETGAUGE_WANDB_PAGE_SIZE (it was down "
                f"to {walk.size.fits} runs by itself), or raise --timeout"
            )
        if why is not None:
            return SourceError(f"W&B could not be read in time: {why}")
        of = "" if walk.total is None else f" of {walk.total:,}"
        return DeadlineExceededError(
            f"the deadline of {self.deadline.seconds:g} s came after {walk.reached:,}{of} rows; raise "
            "--timeout or FLEETGAUGE_WANDB_CONNECTIONS"
        )
