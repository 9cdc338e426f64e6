"""Durations as people write them, and dates as HTTP headers write them."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+)\s*([smhdw])\s*")


def parse_duration(text: str) -> int:
    """Whole seconds from `900`, `15m`, `1h30m`, `7d`; raises ValueError with the accepted forms."""
    plain = text.strip().lower()
    if plain.isdecimal():
        return int(plain)
    if not plain or _PART.sub("", plain):
        raise ValueError(f"{text!r} is not a duration: write seconds (900) or units (15m, 1h30m, 7d)")
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(plain))


def parse_http_date(text: str) -> float | None:
    """Seconds since the epoch of a header such as `Date`, or None where it cannot be read."""
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, LookupError, OverflowError):  # a peer may write anything there
        return None


def tick(now: float, step: int) -> int:
    """The instant a pushed run answers for: now, floored to the step, so that a repetition is the same."""
    return int(now) // step * step
