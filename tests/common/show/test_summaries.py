"""Figures and shapes of series, taken in piece by piece, against a plain model of them."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.metric import gauge
from common.show.points import SeriesKey, SeriesPoints
from common.show.summaries import Grid, Shape, Stretch, Summary, in_order, shared_labels
from common.window import Window

from .given import series_points

ONE = SeriesKey("m", (), None)
Points = dict[int, float]

values = st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9)
points = st.dictionaries(st.integers(0, 10_000), values, min_size=1, max_size=60)


@st.composite
def cut(draw: st.DrawFn) -> tuple[Points, list[SeriesPoints]]:
    """Points of a series, and the same in pieces in any order."""
    whole: Points = draw(points)
    shuffled = draw(st.permutations(list(whole.items())))
    ends = sorted({0, len(shuffled), *draw(st.lists(st.integers(0, len(shuffled)), max_size=4))})
    parts = [shuffled[start:end] for start, end in pairwise(ends)]
    return whole, [piece(*part) for part in parts]


def piece(*some: tuple[int, float]) -> SeriesPoints:
    return series_points(ONE, "", some)


@given(cut())
def test_the_figures_of_a_series_are_those_of_all_its_points(made: tuple[Points, list[SeriesPoints]]) -> None:
    whole, pieces = made
    summary = Summary()
    for one in pieces:
        summary.add(one)
    assert summary.points == len(whole)
    assert (summary.first, summary.last) == (whole[min(whole)], whole[max(whole)])
    assert (summary.low, summary.high) == (min(whole.values()), max(whole.values()))
    largest = max(map(abs, whole.values()))
    assert summary.mean == pytest.approx(math.fsum(whole.values()) / len(whole), abs=1e-12 * largest)
    assert summary.low <= summary.mean <= summary.high
    if len(whole) > 1:
        assert summary.spacing == (max(whole) - min(whole)) / (len(whole) - 1)


def test_a_constant_has_itself_as_mean_and_huge_values_have_one() -> None:
    constant, huge = Summary(), Summary()
    constant.add(piece(*((at, 0.1) for at in range(7))))
    assert constant.mean == 0.1
    huge.add(piece((0, 1.7e308), (1, 1.7e308)))
    huge.add(piece((2, -1.7e308)))
    assert huge.mean == pytest.approx(1.7e308 / 3)


def test_a_single_point_has_no_spacing_and_two_have_one() -> None:
    summary = Summary()
    summary.add(piece((5, 1.0)))
    assert summary.spacing == math.inf
    summary.add(piece((15, 1.0)))
    assert summary.spacing == 10


def test_of_a_second_that_two_parts_hold_the_later_part_tells_the_value() -> None:
    summary = Summary()
    summary.add(piece((5, 1.0)))
    summary.add(piece((5, 2.0)))
    assert (summary.first, summary.last) == (2.0, 2.0)


def stretch_of(at: int, grid: Grid) -> int:
    """The stretch that a second is in: one ends with its last second, and the first has its start, too."""
    return 0 if at == grid.start else (at - grid.start - 1) // grid.width


@given(cut(), st.integers(0, 5000), st.integers(1, 5000), st.integers(1, 1000), st.integers(1, 50))
def test_a_shape_holds_what_a_plain_grouping_would(
    made: tuple[Points, list[SeriesPoints]], since: int, length: int, step: int, most: int
) -> None:
    whole, pieces = made
    grid = Grid.over(Window(since, since + length, step), most)
    shape = Shape(grid)
    for one in pieces:
        shape.add(one)
    grouped: dict[int, list[float]] = defaultdict(list)
    for at, value in whole.items():
        grouped[stretch_of(at, grid)].append(value)
    stretches = shape.stretches()
    assert len(stretches) == grid.count
    for number, stretch in enumerate(stretches):
        if number not in grouped:
            assert stretch is None
            continue
        found = grouped[number]
        assert stretch is not None
        assert (stretch.low, stretch.high) == (min(found), max(found))
        mean, largest = math.fsum(found) / len(found), max(map(abs, found))
        assert stretch.mean == pytest.approx(mean, abs=1e-12 * largest)
        assert stretch.low <= stretch.mean <= stretch.high


@given(st.integers(0, 10**9), st.integers(1, 10**4), st.integers(1, 2000), st.data())
def test_a_grid_covers_its_span_and_a_series_without_gaps_leaves_nothing_empty(
    since: int, step: int, most: int, data: st.DataObject
) -> None:
    span = Window(since, since + data.draw(st.integers(1, 2000 * step)), step)
    grid = Grid.over(span, most)
    assert 1 <= grid.count <= most
    assert grid.start <= since
    assert span.until <= grid.start + grid.count * grid.width
    filled = {stretch_of(tick, grid) for tick in span.ticks}
    assert filled == {*range(len(filled))}
    assert len(filled) >= grid.count - 1, "only what follows the last tick may be empty"


def test_ticks_have_a_stretch_each_where_there_is_room_and_share_one_where_not() -> None:
    week = Window(0, 7 * 86_400, 900)
    assert Grid.over(week, 672) == Grid(0, 900, 900, 672)
    assert Grid.over(week, 671) == Grid(0, 900, 1800, 336)
    assert Grid.over(week, 336).middle(1) == 2700 + 450
    assert Grid.over(week, 672).middle(1) == 1800


def test_records_closer_than_the_step_are_seen_as_closely_without_being_torn_apart() -> None:
    hour = Window(0, 3600, 900)
    assert Grid.over(hour, 672, spacing=10.0) == Grid(0, 20, 20, 180)
    assert Grid.over(hour, 100, spacing=10.0) == Grid(0, 20, 40, 90)
    assert Grid.over(hour, 672, spacing=0.0) == Grid(0, 1, 6, 600)
    assert Grid.over(hour, 672, spacing=1800.0) == Grid(0, 900, 900, 4)
    jittered = Shape(Grid.over(hour, 672, spacing=10.0))
    jittered.add(piece(*((10 * at + at % 3 * 4, 1.0) for at in range(360) if not 100 <= at < 110)))
    unknown = [number for number, stretch in enumerate(jittered.stretches()) if stretch is None]
    assert unknown == [50, 51, 52, 53, 54]


def test_a_spike_stays_and_a_gap_is_not_zero() -> None:
    shape = Shape(Grid.over(Window(0, 100, 1), 10))
    shape.add(piece(*((at, 1.0) for at in range(51)), *((at, 1.0) for at in range(61, 101))))
    shape.add(piece((25, 111.0)))  # of the same second as another: both count
    shape.add(piece((35, -10.0)))
    shape.add(piece((-1, 7.0), (101, 7.0)))  # not of the span
    stretches = shape.stretches()
    assert stretches[2] == Stretch(1.0, 11.0, 111.0)
    assert stretches[3] == Stretch(-10.0, 0.0, 1.0)
    assert stretches[5] is None
    assert [stretches[at] for at in (0, 1, 4, 6, 7, 8, 9)] == [Stretch(1.0, 1.0, 1.0)] * 7


def test_series_are_listed_as_the_catalogue_lists_their_metrics() -> None:
    declared = [gauge(name, "", "x") for name in ("b", "a")]
    series = [
        SeriesKey("a", (), None),
        SeriesKey("b", ("p:2",), None),
        SeriesKey("b", ("p:1",), "node"),
        SeriesKey("b", ("p:1",), None),
    ]
    assert in_order(series, declared) == [series[3], series[2], series[1], series[0]]


def test_labels_that_all_series_have_are_shared() -> None:
    series = [SeriesKey("m", ("a:1", "b:1", "c:1"), "n"), SeriesKey("m", ("a:1", "c:1"), "n")]
    assert shared_labels(series) == ("a:1", "c:1", "host:n")
    assert shared_labels([*series, SeriesKey("m", (), None)]) == ()
    assert shared_labels([]) == ()
