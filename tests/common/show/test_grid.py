"""Series along a span, and several of them as the lines of a chart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.dashboard import Widget, line
from common.metric import Combine, Series, count, gauge
from common.show.grid import MAX_INTERVALS, ChartLine, Grid, chart_lines
from common.show.points import Points
from common.window import Window
from support.sinks import send

SPAN = Window(0, 3600, 900)
LEVEL = gauge("a", "", "x")


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 5000), st.integers(1, 10**4))
def test_grid_covers_the_span_and_no_interval_is_narrower_than_a_step(
    since: int, seconds: int, step: int, spacing: int
) -> None:
    regular = LEVEL.series((since, since + spacing, since + 2 * spacing), (1, 2, 3))
    grid = Grid.over(Window(since, since + seconds, step), [regular])
    assert 1 <= grid.size <= MAX_INTERVALS
    assert grid.width >= min(step, 2 * spacing)
    assert grid.start <= since
    assert grid.end(grid.size - 1) >= since + seconds


@given(st.dictionaries(st.integers(0, 3600), st.floats(-1e308, 1e308), min_size=1, max_size=40))
def test_every_point_of_a_span_is_in_one_interval(points: dict[int, float]) -> None:
    seconds = sorted(points)
    found = Grid(0, 900, 4).values(LEVEL.series(seconds, [points[second] for second in seconds]))
    assert found == [
        [points[second] for second in seconds if max(0, (second - 1) // 900) == number] for number in range(4)
    ]


def lines(widget: Widget, samples: list[Series], most: int = 6) -> tuple[list[ChartLine], int]:
    """Return the lines of a widget over points at seconds of SPAN."""
    points = Points(100, 0, 3600)
    send(points, samples)
    found: dict[str, list[Series]] = {}
    for series in points:
        found.setdefault(series.metric.name, []).append(series)
    _, drawn, total = chart_lines(widget, found, SPAN, most)
    return drawn, total


def values(widget: Widget, samples: list[Series]) -> dict[tuple[str, ...], list[float | None]]:
    return {one.labels: [*one.values] for one in lines(widget, samples)[0]}


LOAD = gauge("jobs.load", "", "x", "team", "job", combines=Combine.SUM)
DONE = count("jobs.done", "", "x", "job")
FAILED = count("jobs.failed", "", "x", "job")


@pytest.mark.parametrize(
    ("combines", "expected"),
    [(Combine.SUM, 14), (Combine.MAX, 9), (Combine.MIN, 5), (Combine.MEAN, 7)],
)
def test_series_of_a_line_combine_as_their_metric_declares(combines: Combine, expected: float) -> None:
    load = gauge("load", "", "x", "job", combines=combines)
    samples = [load(4, 100, job="a"), load(6, 800, job="a"), load(9, 100, job="b")]
    assert values(line("Load", load), samples) == {(): [expected, None, None, None]}


def test_counts_of_an_interval_add_up_over_its_points_and_series() -> None:
    samples = [DONE(2, 10, job="a"), DONE(3, 20, job="a"), DONE(4, 20, job="b"), DONE(1, 2000, job="a")]
    assert values(line("Done", DONE), samples) == {(): [9, None, 1, None]}
    assert values(line("Done", DONE), [DONE(2, 10), DONE(3, 890)]) == {(): [5, None, None, None]}


def test_series_of_different_spacings_all_count_in_every_interval() -> None:
    often, seldom = (LOAD.series(range(0, 3601, n), [1] * (3600 // n + 1), job=str(n)) for n in (10, 60))
    found = values(line("Load", LOAD), [often, seldom])
    assert found == {(): pytest.approx([2] * 30)}


def test_lines_are_separated_by_the_tags_of_the_widget() -> None:
    samples = [
        LOAD(1, 100, team="x", job="a"),
        LOAD(2, 100, team="y", job="a"),
        LOAD(4, 100, team="x", job="b"),
    ]
    assert values(line("Load", LOAD, by=("job",)), samples) == {
        ("job:a",): [3, None, None, None],
        ("job:b",): [4, None, None, None],
    }


def test_series_that_do_not_combine_are_a_line_each_and_filtered() -> None:
    speed = gauge("speed", "", "x", "config", "ref")
    pairs = [("a", "main"), ("b", "main"), ("a", "pr")]
    samples = [speed(1, 100, config=config, ref=ref) for config, ref in pairs]
    widget = line("Speed", speed, by=("config",), where=("ref:main",))
    assert {*values(widget, samples)} == {("config:a", "ref:main"), ("config:b", "ref:main")}


def test_share_is_of_sums_and_unknown_where_a_part_is() -> None:
    good, bad = (gauge(name, "", "x", "job", combines=Combine.SUM) for name in ("good", "bad"))
    samples = [good(1, 100, job="a"), bad(0, 100, job="a"), good(1, 100, job="b"), bad(8, 100, job="b")]
    samples += [good(5, 1000, job="a")]
    widget = line("Good", good, share_of=(good, bad))
    assert values(widget, samples) == {(): [20, None, None, None]}  # not the mean of 100 % and 11 %
    assert lines(widget, [good(1, 100), bad(1, 1000)]) == ([], 1)
    assert lines(widget, [good(1e308, 100), bad(1e308, 100)]) == ([], 1)


def test_share_takes_a_count_that_is_absent_for_zero() -> None:
    samples = [DONE(4, 10), FAILED(1, 10), DONE(5, 1000)]
    assert values(line("Failed", FAILED, share_of=(DONE, FAILED)), samples) == {(): [20, 0, None, None]}


def test_lines_that_reach_highest_are_drawn_and_all_are_counted() -> None:
    samples = [LOAD(value, 100, job=f"job-{value}") for value in (0, 0.1, 0.2, 0.3, 0.4)]
    drawn, total = lines(line("Load", LOAD, by=("job",)), samples, most=2)
    assert ([one.labels for one in drawn], total) == ([("job:job-0.3",), ("job:job-0.4",)], 5)


def test_metrics_of_one_chart_are_told_apart_by_name() -> None:
    assert {*values(line("Jobs", DONE, FAILED), [DONE(1, 10), FAILED(2, 10)])} == {("done",), ("failed",)}
