"""Axes of plain numbers and of the clock: round, few, in order and where they belong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.pages.axes import Axis, byte_axis, clock_axis, number_axis, time_axis

CASES = yaml.safe_load((Path(__file__).parents[2] / "data" / "axes.yaml").read_text())


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize("case", CASES["units"], ids=str)
def test_axes_have_round_labels_in_one_unit(case: dict[str, Any]) -> None:
    axes: dict[str, Callable[..., Axis]] = {"number": number_axis, "byte": byte_axis, "time": time_axis}
    assert [label for _, label in axes[case["axis"]](*case["of"]).labels] == case["labels"]


@given(st.floats(1e-6, 1e18))
def test_labels_are_few_even_and_within_the_axis(high: float) -> None:
    for axis in (byte_axis(high), time_axis(high)):
        values = [value for value, _ in axis.labels]
        assert 2 <= len(values) <= 10
        assert len({label for _, label in axis.labels}) == len(values)
        assert axis.low <= values[0] == 0
        assert values[-1] <= axis.high * 1.0001
        steps = [after - before for before, after in pairwise(values)]
        assert values[-1] + steps[0] >= axis.high * 0.98
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


@pytest.mark.parametrize("case", CASES["clock"], ids=str)
def test_times_have_labels_at_round_moments_of_utc(case: dict[str, Any]) -> None:
    axis = clock_axis(*map(seconds, case["between"]))
    assert [label for _, label in axis.labels] == case["labels"]


@given(st.integers(0, 2**32), st.integers(0, 10**9))
def test_any_span_has_few_moments_in_order_and_inside(since: int, length: int) -> None:
    values = [value for value, _ in clock_axis(since, since + length).labels]
    assert (2 if length >= 10 else 0) <= len(values) <= 11
    assert all(before < after for before, after in pairwise(values))
    assert all(since <= value <= since + max(length, 1) for value in values)
