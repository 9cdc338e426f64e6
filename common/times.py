"""Durations as people write them."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+)([smhdw])")


def parse_duration(text: str) -> int:
    """Whole seconds from `900`, `15m`, `1h30m`, `7d`; raises ValueError with the accepted forms."""
    compact = text.strip().lower().replace(" ", "")
    if compact.isdecimal():
        return int(compact)
    if not compact or _PART.sub("", compact):
        raise ValueError(f"{text!r} is not a duration: write seconds (900) or units (15m, 1h30m, 7d)")
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(compact))


def tick(now: float, step: int) -> int:
    """The instant a pushed run answers for: now, floored to the step, so that a repetition is the same."""
    return int(now) // step * step
