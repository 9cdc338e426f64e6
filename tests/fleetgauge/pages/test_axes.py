"""Axes of plain numbers and of the clock: round, few, in order and where they belong."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.pages.axes import Axis, byte_axis, clock_axis, number_axis, time_axis


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (number_axis(0, 0), ["0", "0.5", "1"]),
        (number_axis(0, 1 / 1e300), ["0", "5e-301", "1e-300"]),
        (number_axis(3, 17), ["0", "5", "10", "15"]),
        (number_axis(0, 0.0007), ["0", "0.0002", "0.0004", "0.0006"]),
        (number_axis(-45_000, 5), ["-40 k", "-30 k", "-20 k", "-10 k", "0"]),
        (number_axis(0, 1.5e6), ["0", "0.5 M", "1 M", "1.5 M"]),
        (number_axis(-3, 5), ["-2", "0", "2", "4"]),
        (number_axis(0, 1e20), ["0", "50 E", "100 E"]),
        (byte_axis(0), ["0 B", "0.5 B", "1 B"]),
        (byte_axis(16 * 2**30), ["0 GiB", "5 GiB", "10 GiB", "15 GiB"]),
        (byte_axis(2**20), ["0 MiB", "0.5 MiB", "1 MiB"]),
        (byte_axis(2**70), ["0 EiB", "500 EiB", "1000 EiB"]),
        (time_axis(0), ["0 ms", "200 ms", "400 ms", "600 ms", "800 ms", "1000 ms"]),
        (time_axis(9), [f"{second} s" for second in range(10)]),
        (time_axis(119), ["0 s", "20 s", "40 s", "60 s", "80 s", "100 s"]),
        (time_axis(120), ["0 min", "0.5 min", "1 min", "1.5 min", "2 min"]),
        (time_axis(1e-9), ["0 ms", "2e-07 ms", "4e-07 ms", "6e-07 ms", "8e-07 ms", "1e-06 ms"]),
    ],
)
def test_axes_have_round_labels_in_one_unit(axis: Axis, labels: list[str]) -> None:
    assert [label for _, label in axis.labels] == labels


@given(st.floats(1e-6, 1e18))
def test_labels_are_few_even_and_within_the_axis(high: float) -> None:
    for axis in (byte_axis(high), time_axis(high)):
        values = [value for value, _ in axis.labels]
        assert 2 <= len(values) <= 10
        assert len({label for _, label in axis.labels}) == len(values)
        assert axis.low <= values[0] == 0
        assert values[-1] <= axis.high * 1.0001
        steps = [after - before for before, after in pairwise(values)]
        assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)


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


@given(st.integers(0, 2**32), st.integers(0, 10**9))
def test_any_span_has_few_moments_in_order_and_inside(since: int, length: int) -> None:
    values = [value for value, _ in clock_axis(since, since + length).labels]
    assert (2 if length >= 10 else 0) <= len(values) <= 11
    assert all(before < after for before, after in pairwise(values))
    assert all(since <= value <= since + max(length, 1) for value in values)
