"""Several series become one line as their metric declares."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from common.metric import Combine, Series, count, gauge
from common.show.page_lines import Drawn, Plan
from common.show.points import Chart, Points, SeriesKey
from common.show.summaries import Summary
from common.window import Window
from support.sinks import send

HOURS = Window(-900, 3 * 900, 900)


def drawn(
    chart: Chart, samples: Sequence[Series], span: Window = HOURS
) -> dict[tuple[str, ...], list[float | None]]:
    """Each line of a chart by what tells it apart: the values of its stretches."""
    lines = planned(chart, samples, span)
    return {line.labels: [one and one.mean for one in line.stretches()] for line in lines}


def planned(chart: Chart, samples: Sequence[Series], span: Window = HOURS) -> list[Drawn]:
    metrics = dict.fromkeys(sample.metric for sample in samples)
    points = Points(metrics, 1000, span.since, span.until, many_ticks=True)
    for sample in samples:
        send(points, [sample])
    summaries: dict[SeriesKey, Summary] = {}
    for part in points:
        summaries.setdefault(part.series, Summary()).add(part)
    plan = Plan(points.metrics, summaries, span)
    lines, _ = plan.lines(chart)
    plan.fill(points)
    return lines


@pytest.mark.parametrize(
    ("how", "value"), [("sum", 14.0), ("max", 8.0), ("min", 2.0), ("mean", 14 / 3), ("none", 2.0)]
)
def test_series_combine_in_each_stretch_as_declared(how: str, value: float) -> None:
    load = gauge("load", "", "x", "user", "job", combines=Combine(how))
    samples = [
        load(number, at, user="ann", job=job)
        for at in (0, 1800, HOURS.until + 1)
        for job, number in (("a", 2), ("b", 4), ("c", 8))
    ]
    found = drawn(Chart("Load", ("load",), ("user",)), samples)
    assert found == {("user:ann",): [pytest.approx(value), None, pytest.approx(value), None]}


def test_a_series_that_speaks_often_weighs_no_more_than_one_that_does_not() -> None:
    load = gauge("load", "", "x", "job", combines=Combine.SUM)
    often = [load(3, at, job="a") for at in range(0, 900, 10)]
    found = drawn(
        Chart("Load", ("load",), ()),
        [*often, load(4, 0, job="b"), load(4, 890, job="b")],
    )
    assert [value for value in found[()] if value is not None][:1] == [7.0]


def test_counts_of_a_stretch_add_up_over_time_as_well() -> None:
    done = count("done", "", "x", "job")
    samples = [done(1, at, job=job) for job in ("a", "b") for at in (900, 1800, 2700, 3600)]
    found = drawn(Chart("Done", ("done",), ()), samples, Window(0, 3600, 3600))
    assert found == {(): [4.0, 4.0]}  # of half an hour each


def test_a_share_is_that_of_the_sums_and_unknown_where_a_gauge_is() -> None:
    good, bad = (gauge(name, "", "x", "job", combines=Combine.SUM) for name in ("good", "bad"))
    samples = [
        good(1, 0, job="a"),
        bad(0, 0, job="a"),
        good(1, 0, job="b"),
        bad(8, 0, job="b"),
        good(5, 900, job="a"),
    ]
    found = drawn(Chart("Good", ("good",), (), ("good", "bad")), samples)
    assert found == {(): [20.0, None, None, None]}  # not the mean of 100 % and 11 %


def test_where_nothing_failed_none_did() -> None:
    done, failed = count("done", "", "x"), count("failed", "", "x")
    samples = [done(4, 0), failed(1, 0), done(5, 900)]
    found = drawn(Chart("Failed", ("failed",), (), ("done", "failed")), samples)
    assert found == {(): [20.0, 0.0, None, None]}


def test_series_that_do_not_combine_are_each_a_line_and_others_are_left_out() -> None:
    speed = gauge("speed", "", "x", "config", "ref")
    samples = [
        speed(n, 0, config=config, ref=ref)
        for n, (config, ref) in enumerate([("a", "m"), ("b", "m"), ("a", "p")], start=1)
    ]
    chart = Chart("Speed", ("speed",), None, (), ("ref:m",))
    assert {*drawn(chart, samples)} == {("config:a", "ref:m"), ("config:b", "ref:m")}


def test_several_metrics_are_told_apart_by_what_their_names_do_not_share() -> None:
    done, failed = (
        gauge(f"runs.{name}_24h", "", "x", combines=Combine.SUM) for name in ("completed", "failed")
    )
    chart = Chart("Runs", ("runs.completed_24h", "runs.failed_24h"), ())
    assert {*drawn(chart, [done(1, 0), failed(2, 0)])} == {
        ("completed 24h",),
        ("failed 24h",),
    }


def test_metrics_whose_names_share_nothing_are_told_apart_by_all_of_them() -> None:
    done, failed = (gauge(name, "", "x", combines=Combine.SUM) for name in ("done", "failed.badly"))
    found = drawn(Chart("Runs", ("done", "failed.badly"), ()), [done(1, 0), failed(2, 0)])
    assert {*found} == {("done",), ("failed badly",)}


def test_a_line_that_stays_at_nothing_is_left_out_before_one_that_hardly_moves() -> None:
    load = gauge("load", "", "x", "job", combines=Combine.SUM)
    samples = [load(value, 0, job=f"job-{value}") for value in (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    found = drawn(Chart("Load", ("load",), ("job",)), samples)
    assert [labels[0] for labels in found] == [f"job:job-0.{value}" for value in range(1, 7)]


def test_a_share_of_which_nothing_is_known_has_no_figures() -> None:
    good, bad = (gauge(name, "", "x", combines=Combine.SUM) for name in ("good", "bad"))
    [line] = planned(Chart("Good", ("good",), (), ("good", "bad")), [good(1, 0), bad(1, 900)])
    assert line.figures(line.stretches()) == (0, 0, 0, 0, 0, 2)


def test_figures_of_one_series_are_those_of_its_points_and_of_several_those_of_the_line() -> None:
    load = gauge("load", "", "x", "job", combines=Combine.SUM)
    points = [load(value, at, job="a") for at, value in ((0, 1), (100, 5), (900, 2))]
    [one] = planned(Chart("Load", ("load",), ()), points)
    alone = one.figures(one.stretches())
    figures = [alone.first, alone.last, alone.low, alone.mean, alone.high, alone.points]
    assert figures == pytest.approx([1, 2, 1, 8 / 3, 5, 3])
    [two] = planned(
        Chart("Load", ("load",), ()),
        [load(1, 0, job="a"), load(2, 0, job="b"), load(9, 900, job="a")],
    )
    assert two.figures(two.stretches()) == (3, 9, 3, 6, 9, 3)
