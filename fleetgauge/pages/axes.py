"""Axes with round labels, and values as a person reads them: bytes, durations, plain numbers, the clock.

Pure functions; `charts` draws the axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_NUMBER_UNITS = ("", "k", "M", "G", "T", "P", "E")
_TIME_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
# Not `strftime`, whose names depend on the locale.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86400, 604800
_CLOCK_STEPS = (
    *(1, 5, 15, 30, _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, _WEEK, 2 * _WEEK),
)
_MONTH_STEPS = (1, 3, 6, 12, 24, 60, 120, 600)
_MONDAY = 4 * _DAY  # the first one there was
_MAX_LABELS = 10  # of a time axis; where there is no room for all, every second one is shown
_MAX_LONG_LABELS = 6  # those with seconds
_MAX_MAGNITUDE = 1e300  # beyond this, differences overflow


@dataclass(frozen=True)
class Axis:
    """A range of values and the labels along it, each with its value."""

    low: float
    high: float
    labels: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, 0 to 1; values outside lie at an end."""
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.0


def byte_axis(high: float) -> Axis:
    """Return an axis from zero to a little above a number of bytes, with round labels in one unit."""
    # Room above the highest line, so that it does not touch the frame.
    high = max(high, 1.0) * 1.06
    unit = _byte_unit(high)
    size = 1024.0**unit
    steps = _round_steps(0.0, high / size, 5)
    return Axis(0.0, high, tuple((step * size, f"{step:g} {_BYTE_UNITS[unit]}") for step in steps))


def time_axis(seconds: float) -> Axis:
    """Return an axis from zero to a number of seconds, with round labels in one unit.

    There is room for a mark at either end.
    """
    high = seconds if seconds > 0 else 1.0
    size, unit = next(((size, unit) for size, unit in _TIME_UNITS if high >= 2 * size), _TIME_UNITS[-1])
    steps = _round_steps(0.0, high / size, _MAX_LABELS - 1)
    room = high * 0.015
    return Axis(-room, high + room, tuple((step * size, f"{step:g} {unit}") for step in steps))


def number_axis(low: float, high: float) -> Axis:
    """Return an axis from zero to a little beyond these values, on either side of it, with round labels."""
    low, high = max(min(low, 0.0), -_MAX_MAGNITUDE), min(max(high, 0.0), _MAX_MAGNITUDE)
    # All values are 0, or too small to divide by.
    if high - low < 1 / _MAX_MAGNITUDE:
        high = 1.0
    low, high = low * 1.06, high * 1.06
    size, unit = _number_unit(max(-low, high))
    steps = _round_steps(low / size, high / size, 5)
    return Axis(low, high, tuple((step * size, f"{step:,g}{unit if step else ''}") for step in steps))


def clock_axis(since: float, until: float) -> Axis:
    """Return an axis of real time in UTC, with labels at round hours, days or months.

    `since` and `until` are epoch seconds; there is room for a mark at either end.
    """
    span = max(until - since, 1.0)
    labels = tuple(_clock_labels(since, since + span))
    return Axis(since - span * 0.015, since + span * 1.015, labels)


def _clock_labels(since: float, until: float) -> Iterator[tuple[float, str]]:
    """Yield the labels at multiples of the smallest step that needs few enough of them."""
    most = {step: _MAX_LABELS if step >= _MINUTE else _MAX_LONG_LABELS for step in _CLOCK_STEPS}
    step = next((step for step in _CLOCK_STEPS if until - since <= most[step] * step), None)
    if step is None:
        yield from _month_labels(since, until)
        return
    # The epoch began on a Thursday: weeks are counted from a Monday.
    origin = _MONDAY if step >= _WEEK else 0
    first = math.ceil((since - origin) / step) * step + origin
    for second in range(first, math.floor(until) + 1, step):
        at = datetime.fromtimestamp(second, UTC)
        if second % _DAY == 0:
            yield second, f"{at.day} {_MONTHS[at.month - 1]}"
        else:
            yield second, f"{at:%H:%M}" if step >= _MINUTE else f"{at:%H:%M:%S}"


def _month_labels(since: float, until: float) -> Iterator[tuple[float, str]]:
    """Yield the labels at the first day of months; January has the year instead of its name."""
    begin, end = (datetime.fromtimestamp(second, UTC) for second in (since, until))
    first, last = (moment.year * 12 + moment.month - 1 for moment in (begin, end))
    step = next((step for step in _MONTH_STEPS if last - first <= _MAX_LABELS * step), _MONTH_STEPS[-1])
    # Months counted from the year 0, so that steps of a quarter or a year begin where the calendar does.
    for month in range(-(-first // step) * step, last + 1, step):
        second = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()
        if second >= since:
            yield second, _MONTHS[month % 12] if month % 12 else str(month // 12)


def format_bytes(value: float | None) -> str:
    """Return bytes for a person, in binary units; `unknown` for None."""
    if value is None:
        return "unknown"
    unit = _byte_unit(abs(value))
    return f"{value:,.0f} B" if unit == 0 else f"{value / 1024.0**unit:,.2f} {_BYTE_UNITS[unit]}"


def format_duration(seconds: float | None) -> str:
    """Return a duration for a person: two units at most; `unknown` for None."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.2f} s"
    rounded = round(seconds)
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if rounded >= size:
            rest = rounded % size // smaller
            return f"{rounded // size:,} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{rounded} s"


def plural(count: int, word: str) -> str:
    """Return a number of things, such as `3 runs`."""
    return f"{count:,} {word}{'' if count == 1 or word == 'series' else 's'}"


def _round_steps(low: float, high: float, count: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, about `count` of them, from `low` to `high`."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    # A tolerance, because a bound that is itself a multiple may be off by a rounding error.
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{step * number:.12g}") for number in numbers]


def _byte_unit(value: float) -> int:
    return _power(value, 1024.0, 1024.0)


def _number_unit(value: float) -> tuple[float, str]:
    """Return a power of a thousand and its sign, once plain numbers would be long."""
    power = _power(value, 1000.0, 10_000.0)
    return 1000.0**power, f" {_NUMBER_UNITS[power]}" if power else ""


def _power(value: float, base: float, first: float) -> int:
    """Return which power of the base a value is written in; the first one only from `first` on."""
    power = 0
    while value >= (base if power else first) and power < len(_BYTE_UNITS) - 1:
        value /= base
        power += 1
    return power
