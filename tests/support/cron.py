"""What a line of cron means, worked out instant by instant: what the chart reckons is compared with it."""

from __future__ import annotations

import re

WEEK = 7 * 24 * 60


def field(text: str, low: int, high: int) -> set[int]:
    """The numbers that one field of a cron line stands for."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(?:[*?]|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        assert match, f"{part} is not cron"
        first, last, step = (int(number) if number else None for number in match.groups())
        start = low if first is None else first
        end = high if first is None or (step and last is None) else (last if last is not None else first)
        assert low <= start <= end <= high, part
        found.update(range(start, end + 1, step or 1))
    return found


def interval(schedule: str) -> int:
    """The fewest seconds between two runs, for schedules that do not depend on the month."""
    minute, hour, day, month, weekday = schedule.split(" ")
    assert (day, month) == ("*", "*")
    minutes, hours, days = field(minute, 0, 59), field(hour, 0, 23), field(weekday, 0, 7)
    fires = sorted({(day % 7 * 24 + hour) * 60 + at for day in days for hour in hours for at in minutes})
    gaps = [later - earlier for earlier, later in zip(fires, [*fires[1:], fires[0] + WEEK], strict=True)]
    return 60 * min(gaps)
