"""One deadline per collector, and one way to try again within it.

Knows when waiting can help and how long; the caller decides what is worth another try by raising
`TransientError`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from common.errors import DeadlineExceededError
from common.times import parse_http_date

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRIED_STATUSES = frozenset({408, 429}) | frozenset(range(500, 600))
MAX_WAIT = 60.0
MAX_ATTEMPTS = 12
MAX_BACKOFF = 15.0


class TransientError(Exception):  # it is handled, never reported
    """Something that may well succeed next time; `wait` is what the server asked for, in seconds."""

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.wait = wait


class Deadline:
    """The instant by which everything a collector does must be over."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self.sleep = sleep
        self._clock = clock
        self._end = clock() + seconds

    def elapsed(self) -> float:
        """Seconds since it was set: the clock of everything that keeps to it."""
        return self.seconds - self.remaining()

    def remaining(self) -> float:
        """Seconds left; negative once it has passed."""
        return self._end - self._clock()

    def within(self, seconds: float) -> Deadline:
        """The same deadline, but no further away than this."""
        return Deadline(min(seconds, max(0.0, self.remaining())), self._clock, self.sleep)

    def timeout(self, most: float) -> float:
        """How long one request may wait: `most`, or what is left of the deadline."""
        remaining = self.remaining()
        if remaining <= 0:
            raise DeadlineExceededError(f"the deadline of {self.seconds:g} s has passed")
        return min(most, remaining)


def requested_wait(headers: Mapping[str, str], now: float) -> float | None:
    """What a server asked for by `Retry-After` or `X-RateLimit-Reset`, in seconds, capped; None if nothing.

    Seconds may be whole or fractional; `Retry-After` may be a date. What cannot be read is ignored.
    """
    lowered = {key.lower(): value for key, value in headers.items()}
    for header in ("retry-after", "x-ratelimit-reset", "ratelimit-reset"):
        text = lowered.get(header, "").strip()
        try:
            seconds = float(text)
        except ValueError:
            date = parse_http_date(text)
            if date is None:
                continue
            seconds = date - now
        if seconds >= 0:  # also false for NaN
            return min(seconds, MAX_WAIT)
    return None


def requests_left(headers: Mapping[str, str]) -> int | None:
    """How many requests a server still takes until its limit is reset; None where it does not say."""
    lowered = {key.lower(): value for key, value in headers.items()}
    for header in ("ratelimit-remaining", "x-ratelimit-remaining"):
        with suppress(ValueError):
            return int(lowered.get(header, ""))
    return None


def backoff(failures: int) -> float:
    """How long to wait after so many failures in a row: at random, up to twice as long each time."""
    return random.uniform(0, min(MAX_BACKOFF, 0.5 * 2 ** min(failures - 1, 10)))  # noqa: S311


def persist(attempt: Callable[[], T], deadline: Deadline, sleep: Callable[[float], None] = time.sleep) -> T:
    """Call `attempt` until it returns, raises anything but `TransientError`, or has no time left.

    The last `TransientError` is raised when giving up; its text then says how often it was tried.
    """
    from tenacity import Retrying, retry_if_exception_type

    error: BaseException | None = None

    def wait(state: RetryCallState) -> float:
        nonlocal error
        error = state.outcome.exception() if state.outcome else None
        asked = error.wait if isinstance(error, TransientError) else None
        # A little jitter on top of what was asked keeps a fleet from coming back as one.
        return backoff(state.attempt_number) if asked is None else asked + random.uniform(0, 0.5)  # noqa: S311

    def stop(state: RetryCallState) -> bool:
        return state.attempt_number >= MAX_ATTEMPTS or state.upcoming_sleep >= deadline.remaining()

    def pause(seconds: float) -> None:
        log.debug("trying again in %.1f s: %s", seconds, error)
        sleep(seconds)

    retrying = Retrying(
        retry=retry_if_exception_type(TransientError), wait=wait, stop=stop, sleep=pause, reraise=True
    )
    try:
        return retrying(attempt)
    except TransientError as last:
        tries = int(retrying.statistics.get("attempt_number", 1))
        raise TransientError(f"{last} (tried {tries} time{'s' if tries > 1 else ''})", last.wait) from last
