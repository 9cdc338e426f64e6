"""One deadline per run, and retries with backoff within it.

The caller marks what may succeed at another attempt by raising `TransientError`. `http.py` raises it for
requests. Clocks and sleeping are passed in.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from common.errors import DeadlineExceededError
from common.times import parse_http_date

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRIED_STATUSES = frozenset({408, 429}) | frozenset(range(500, 600))
# Bounds of a wait that a server requests (it may be hours), of the attempts, and of a delay of ours.
MAX_WAIT = 60.0
MAX_ATTEMPTS = 12
MAX_BACKOFF = 15.0


class TransientError(Exception):
    """A failure that may not happen again.

    `wait` is the delay the server requested, in seconds, and `status` that of its response; None where there
    is none. It is no FleetgaugeError: callers of `persist` turn the last one into one of these.
    """

    def __init__(self, message: str, wait: float | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.wait = wait
        self.status = status


class Deadline:
    """The instant by which a run must be over, on a monotonic clock.

    It does not change: a part of a run gets a shorter one by `within`. `sleep` is what retries wait with.
    """

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
        """Return the seconds since the deadline was set."""
        return self.seconds - self.remaining()

    def remaining(self) -> float:
        """Return the seconds left; negative once it has passed."""
        return self._end - self._clock()

    def within(self, seconds: float) -> Deadline:
        """Return a deadline after so many seconds, and no later than this one."""
        return Deadline(min(seconds, max(0.0, self.remaining())), self._clock, self.sleep)

    def timeout(self, most: float, awaited: str = "") -> float:
        """Return how long a wait may take: `most`, or what is left.

        DeadlineExceededError once it has passed, which names what was awaited.
        """
        remaining = self.remaining()
        if remaining <= 0:
            purpose = f" while waiting for {awaited}" if awaited else ""
            raise DeadlineExceededError(f"the deadline of {self.seconds:g} s has passed{purpose}")
        return min(most, remaining)


def requested_wait(headers: Mapping[str, str]) -> float | None:
    """Return the delay requested by `Retry-After` or `X-RateLimit-Reset`, up to MAX_WAIT; None without one.

    Seconds may be fractional. `Retry-After` may be a date, which is compared with the server's own `Date`,
    because our clock may differ from it. An unreadable header is ignored.
    """
    now = parse_http_date(headers.get("Date", ""))
    for header in ("Retry-After", "X-RateLimit-Reset", "RateLimit-Reset"):
        text = headers.get(header, "").strip()
        try:
            seconds = float(text)
        except ValueError:
            date = parse_http_date(text)
            seconds = -1.0 if date is None or now is None else date - now
        if seconds >= 0:  # also false for NaN
            return min(seconds, MAX_WAIT)
    return None


def requests_left(headers: Mapping[str, str]) -> int | None:
    """Return how many requests a rate limit still allows; None where no header has a number."""
    for header in ("RateLimit-Remaining", "X-RateLimit-Remaining"):
        with suppress(ValueError):
            return int(headers.get(header, ""))
    return None


def backoff(failures: int) -> float:
    """Return a random delay after so many failures in a row; its bound doubles each time.

    From 0 on ("full jitter"), so that clients that failed at the same time spread out.
    """
    return random.uniform(0, min(MAX_BACKOFF, 0.5 * 2 ** min(failures - 1, 10)))  # noqa: S311


def persist(attempt: Callable[[], T], deadline: Deadline) -> T:
    """Return what `attempt` returns, retrying it after TransientError until the deadline or 12 attempts.

    The last TransientError is raised again with the number of attempts; any other error at once. There is no
    retry whose delay would end after the deadline: its result would be too late.
    """
    from tenacity import RetryCallState, Retrying, before_sleep_log, retry_if_exception_type

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, TransientError) or error.wait is None:
            return backoff(state.attempt_number)
        # A server sends the same delay to a fleet, whose requests would return at the same instant.
        return error.wait + random.uniform(0, 0.5)  # noqa: S311

    def stop(state: RetryCallState) -> bool:
        return state.attempt_number >= MAX_ATTEMPTS or state.upcoming_sleep >= deadline.remaining()

    retrying = Retrying(
        retry=retry_if_exception_type(TransientError),
        wait=wait,
        stop=stop,
        sleep=deadline.sleep,
        before_sleep=before_sleep_log(log, logging.DEBUG),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except TransientError as error:
        tries = int(retrying.statistics["attempt_number"])
        text = f"{error} (tried {tries} time{'s' if tries > 1 else ''})"
        raise TransientError(text, error.wait, error.status) from error
