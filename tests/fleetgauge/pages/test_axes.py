"""Axes of plain numbers and of the clock: round, few, in order and where they belong."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.pages.axes import clock_axis, number_axis


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def distances(since: float, until: float) -> set[float]:
    return {after - before for (before, _), (after, _) in pairwise(clock_axis(since, until).labels)}


def months(length: int) -> list[int]:
    """How many months after the year 2000 began each label stands, of an axis from there on."""
    until = datetime(2000 + length // 12, length % 12 + 1, 1, tzinfo=UTC).timestamp()
    labels = clock_axis(seconds("2000-01-01"), until).labels
    moments = [datetime.fromtimestamp(value, UTC) for value, _ in labels]
    return [(moment.year - 2000) * 12 + moment.month - 1 for moment in moments]


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 0, ["0", "0.5", "1"]),
        (0, 1 / 1e300, ["0", "5e-301", "1e-300"]),
        (3, 17, ["0", "5", "10", "15"]),
        (0, 0.0007, ["0", "0.0002", "0.0004", "0.0006"]),
        (-45_000, 5, ["-40 k", "-30 k", "-20 k", "-10 k", "0"]),
        (0, 1.5e6, ["0", "0.5 M", "1 M", "1.5 M"]),
        (-3, 5, ["-2", "0", "2", "4"]),
        (0, 1e20, ["0", "50 E", "100 E"]),
    ],
)
def test_numbers_start_at_zero_and_have_round_labels(low: float, high: float, labels: list[str]) -> None:
    assert [label for _, label in number_axis(low, high).labels] == labels


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_any_numbers_lie_within_their_axis_and_zero_with_them(one: float, other: float) -> None:
    low, high = sorted((one, other))
    axis = number_axis(low, high)
    values = [value for value, _ in axis.labels]
    assert 2 <= len(values) <= 6
    assert len({label for _, label in axis.labels}) == len(values)
    assert values == sorted(values)
    assert 0 in values
    if low > -1e300 and high < 1e300:
        assert axis.low <= min(low, 0)
        assert max(high, 0) <= axis.high
    assert all(0 <= axis.share(value) <= 1 for value in (low, high, *values))
    assert axis.share(low) <= axis.share(high)


@pytest.mark.parametrize(
    ("since", "until", "labels"),
    [
        ("2026-11-14T10:00", "2026-11-14T10:00:03", ["10:00:00", "10:00:01", "10:00:02", "10:00:03"]),
        ("2026-11-14T10:02", "2026-11-14T10:05:40", ["10:02", "10:03", "10:04", "10:05"]),
        (
            "2026-11-14T22:00",
            "2026-11-15T02:00",
            ["22:00", "22:30", "23:00", "23:30", "15 Nov", "00:30", "01:00", "01:30", "02:00"],
        ),
        ("2026-11-01", "2026-11-30", ["2 Nov", "9 Nov", "16 Nov", "23 Nov", "30 Nov"]),  # Mondays
        ("2026-11-14", "2027-02-14", ["23 Nov", "7 Dec", "21 Dec", "4 Jan", "18 Jan", "1 Feb"]),
        ("2025-11-14", "2026-11-14", ["2026", "Apr", "Jul", "Oct"]),
        ("2016-02-01", "2026-11-14", ["2018", "2020", "2022", "2024", "2026"]),
    ],
)
def test_times_have_labels_at_round_moments_of_utc(since: str, until: str, labels: list[str]) -> None:
    axis = clock_axis(seconds(since), seconds(until))
    assert [label for _, label in axis.labels] == labels


def test_clock_axis_takes_the_smallest_step_with_few_labels() -> None:
    minute, hour, day = 60, 3600, 86400
    steps = [1, 5, 15, 30, minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute, hour, 2 * hour]
    steps += [3 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day, 14 * day]
    for step, larger in pairwise(steps):
        longest = step * (10 if step >= minute else 6)
        assert distances(0, longest) == {step}
        assert distances(0, longest + 1) == {larger}
    assert distances(0, 140 * day) == {14 * day}
    assert distances(0, 140 * day + 1) == {28 * day, 30 * day, 31 * day}


def test_clock_axis_of_years_has_steps_of_months() -> None:
    steps = [1, 3, 6, 12, 24, 60, 120, 600]
    for step, larger in zip(steps, [*steps[1:], 600], strict=True):
        assert months(10 * step) == [*range(0, 10 * step + 1, step)]
        assert months(10 * step + 1) == [*range(0, 10 * step + 1, larger)]


@given(st.integers(0, 2**32), st.integers(0, 10**9))
def test_any_span_has_few_moments_in_order_and_inside(since: int, length: int) -> None:
    values = [value for value, _ in clock_axis(since, since + length).labels]
    assert len(values) <= 11
    assert all(before < after for before, after in pairwise(values))
    assert all(since <= value <= since + max(length, 1) for value in values)
