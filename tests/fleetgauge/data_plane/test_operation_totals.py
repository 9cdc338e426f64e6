"""Totals of operations, and percentiles from their histogram."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from fleetgauge.data_plane.operation_totals import BUCKET_ENDS_MS, OperationTotals, percentiles


def totals(rows: list[tuple[int, int, float]]) -> OperationTotals:
    total = OperationTotals()
    for row in rows:
        total.add(*row)
    return total


@example([3.0] * 10, 50)
@given(
    st.lists(st.floats(0.01, BUCKET_ENDS_MS[-1]), min_size=1, max_size=60),
    st.sampled_from([0, 1, 50, 90, 95, 99, 100]),
)
def test_a_percentile_is_within_a_bucket_of_the_true_one(walls: list[float], percent: int) -> None:
    true = sorted(walls)[max(1, math.ceil(len(walls) * percent / 100)) - 1]
    estimate = totals([(0, 0, wall) for wall in walls]).wall_ms_percentile(percent)
    width = 2**0.25 * (1 + 1e-9)
    assert true / width <= estimate <= true * width
    assert min(walls) <= estimate <= max(walls)


def test_a_count_that_its_buckets_do_not_add_up_to_reads_the_last_of_them() -> None:
    assert percentiles((50, 100), 4, 0.0, 0.01, [(0, 1)]) == [0.02, 0.04]


def test_times_beyond_the_buckets_at_either_end_stay_finite() -> None:
    total = totals([(0, 0, 0.0), (0, 0, 1e9)])
    assert total.buckets == {0: 1, len(BUCKET_ENDS_MS): 1}
    assert total.wall_ms_percentile(100) == 1e9
    assert 0.0 <= total.wall_ms_percentile(1) <= 0.01


def test_the_buckets_are_fixed_because_records_name_them_by_index() -> None:
    assert len(BUCKET_ENDS_MS) == 116
    assert [BUCKET_ENDS_MS[index] for index in (0, 4, 8, 40)] == [0.01, 0.02, 0.04, 10.24]
    assert BUCKET_ENDS_MS[-1] > 3_600_000
    assert list(BUCKET_ENDS_MS) == sorted(BUCKET_ENDS_MS)
