"""Durations and moments as people write them, and dates as HTTP headers write them.

Pure: the current time is passed in. Times are integer seconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

HOUR = 3600
DAY = 24 * HOUR
# The year 2000. An earlier time is a number in another unit, or zero for unknown.
EARLIEST = 946_684_800

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+)\s*([smhdw])\s*")


def parse_duration(text: str) -> int:
    """Return the seconds of `900`, `15m`, `1h30m`, `7d`; ValueError with the accepted forms otherwise."""
    stripped = text.strip().lower()
    # Plain seconds. `isdecimal` excludes signs, so that no duration is negative.
    if stripped.isdecimal():
        return int(stripped)
    if not stripped or _PART.sub("", stripped):
        raise ValueError(f"{text!r} is not a duration: write seconds (900) or units (15m, 1h30m, 7d)")
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(stripped))


def duration(seconds: int) -> str:
    """Format seconds as `parse_duration` takes them, in the largest unit that divides them.

    Weeks are not used: `7d` is more common than `1w`.
    """
    size, unit = max((size, unit) for unit, size in _UNITS.items() if unit != "w" and seconds % size == 0)
    return f"{seconds // size}{unit}" if seconds else "0s"


def parse_moment(text: str, now: int) -> int:
    """Return the seconds since the epoch of `7d` (so long ago), `now` or `2026-11-14T00:00Z`.

    Raises ValueError for other text, for a time without a zone (it would differ between a laptop and a pod)
    and for a plain number, which could be seconds, a year or a date.
    """
    stripped = text.strip()
    if stripped.lower() == "now":
        return now
    try:
        # A plain number is a duration for `parse_duration`, and since Python 3.11 `20261114` is a date for
        # `fromisoformat`. The empty text makes both refuse it.
        time = now - parse_duration("" if stripped.isdecimal() else stripped)
    except ValueError:
        try:
            date = datetime.fromisoformat("" if stripped.isdecimal() else stripped)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a time: write how long ago (7d, 12h) or a moment (2026-11-14T00:00Z)"
            ) from None
        if date.tzinfo is None:
            time_of_day = f"{stripped}Z" if "T" in stripped or " " in stripped else f"{stripped}T00:00Z"
            raise ValueError(f"{text!r} has no time zone: write {time_of_day} for UTC") from None
        time = int(date.timestamp())
    if not EARLIEST <= time <= now:
        which = "in the future" if time > now else "too long ago"
        raise ValueError(f"{text!r} is {which}: write how long ago (7d) or a moment (2026-11-14T00:00Z)")
    return time


def iso(time: int) -> str:
    """Format seconds since the epoch as `parse_moment` takes them: `2026-11-14T00:00:00Z`."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_http_date(text: str) -> float | None:
    """Return the seconds since the epoch of a header such as `Date`; None where it cannot be parsed.

    A date without a zone is in UTC, as HTTP prescribes.
    """
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    # The header is untrusted, and the parser raises each of these for some text.
    except (ValueError, TypeError, LookupError, OverflowError):
        return None


def tick(now: float, step: int) -> int:
    """Return now, rounded down to a multiple of the step: the instant that a live run answers for.

    All runs of an interval have the same tick, so that a repeated run overwrites the points of the first.
    """
    return int(now) // step * step
