"""From series as collectors yield them to series as Datadog stores them: merged, refused and counted."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog.series import SeriesTable
from common.metric import Series, count, gauge
from support.standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "job", "x", "project")


def table(cap: int = 1000, *, many_ticks: bool = False) -> SeriesTable:
    return SeriesTable((), cap, NOW - 3600, NOW + 600, many_ticks=many_ticks)


def drained(*series: Series, into: SeriesTable | None = None) -> list[Series]:
    into = into or table()
    for one in series:
        into.add(one)
    return list(into.drain())


def values(series: Series) -> dict[int, float]:
    return dict(zip(series[3], series[4], strict=True))


def projects(series: Iterable[Series]) -> list[str]:
    return [one[1][0].removeprefix("project:") for one in series]


def test_parts_of_one_series_are_joined_in_order_of_time() -> None:
    [series] = drained(LOAD(2, NOW, project="a"), LOAD.series((NOW - 60, NOW - 30), (1, 5), project="a"))
    assert series == (LOAD, ("project:a",), None, [NOW - 60, NOW - 30, NOW], [1, 5, 2])


@given(
    st.lists(
        st.tuples(st.dictionaries(st.integers(-5, 5), st.integers(-3, 3), min_size=1), st.sampled_from("ab")),
        max_size=20,
    )
)
def test_every_second_has_the_sum_of_its_counts_and_the_last_of_its_gauges(
    parts: list[tuple[dict[int, int], str]],
) -> None:
    sums: dict[tuple[str, int], float] = {}
    lasts: dict[tuple[str, int], float] = {}
    into = table()
    for points, project in parts:
        times = sorted(points)
        for second in times:
            lasts[project, NOW + second] = points[second]
            sums[project, NOW + second] = sums.get((project, NOW + second), 0) + points[second]
        for metric in (LOAD, DONE):
            into.add(metric.series([NOW + at for at in times], [points[at] for at in times], project=project))
    found: dict[str, dict[tuple[str, int], float]] = {"host.load": {}, "jobs.done": {}}
    for one in into.drain():
        assert list(one[3]) == sorted(set(one[3]))
        for second, number in values(one).items():
            found[one[0].name][projects([one])[0], second] = number
    assert found == {"host.load": lasts, "jobs.done": sums}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_a_value_that_is_not_finite_costs_its_point_alone(value: float) -> None:
    into = table()
    [series] = drained(LOAD.series((NOW - 1, NOW, NOW + 1), (1, value, 2)), into=into)
    assert values(series) == {NOW - 1: 1, NOW + 1: 2}
    assert into.dropped == {"not_finite": 1}


def test_counts_whose_sum_is_not_finite_are_one_dropped_point() -> None:
    into = table()
    [series] = drained(*[DONE(1.5e308, NOW)] * 3, DONE(2, NOW - 1), into=into)
    assert values(series) == {NOW - 1: 2}
    assert drained(*[DONE(10**308, NOW, project="b")] * 2, into=into) == []
    assert into.dropped == {"not_finite": 2}


def test_an_int_beyond_what_a_float_counts_exactly_is_sent_as_a_float() -> None:
    exact, beyond, huge = drained(
        LOAD(2**53, NOW), LOAD(-(2**53) - 1, NOW, project="a"), LOAD(10**300, NOW, project="b")
    )
    assert [type(one[4][0]) for one in (exact, beyond, huge)] == [int, float, float]


def test_the_accepted_time_is_exact_at_both_ends() -> None:
    into = table()
    seconds = (NOW - 3601, NOW - 3600, NOW + 600, NOW + 601, NOW + 602)
    [series] = drained(LOAD.series(seconds, [1] * 5), into=into)
    assert list(series[3]) == [NOW - 3600, NOW + 600]
    assert into.dropped == {"too_old": 1, "in_future": 2}


def test_a_series_without_points_is_none() -> None:
    into = table()
    assert drained(LOAD.series((), ()), into=into) == []
    assert into.dropped == {}


def test_the_first_dropped_point_is_the_example_of_its_reason() -> None:
    into = table()
    odd = [LOAD(math.nan, NOW, project="a", on_host="n"), LOAD(math.nan, NOW - 1), LOAD(1, NOW - 3601)]
    assert drained(*odd, into=into) == []
    assert into.examples == {
        "not_finite": f"host.load project:a host:n at {NOW}",
        "too_old": f"host.load at {NOW - 3601}",
    }


@pytest.mark.parametrize("tags", [("project:A",), ("env:dev", "project:a"), ("9", "env:DEV", "project:a")])
def test_common_tags_are_stated_once_for_all_series(tags: tuple[str, ...]) -> None:
    into = SeriesTable(("service:Fleet Gauge", "env:dev"), 10, NOW, NOW)
    for _ in range(2):
        [series] = drained(Series(LOAD, tags, None, (NOW,), (1,)), into=into)
        assert series.tags == ("project:a",)
    assert into.common_tags == ("env:dev", "service:fleet_gauge")


def test_seconds_of_two_series_that_are_stored_as_one_are_dropped() -> None:
    into = table()
    collide = [LOAD(1, NOW, project="A"), LOAD(2, NOW, project="a"), LOAD(3, NOW - 1, project="a")]
    merged, other = drained(*collide, LOAD(4, NOW, project="b"), into=into)
    assert (merged.tags, values(merged), values(other)) == (("project:a",), {NOW - 1: 3}, {NOW: 4})
    assert into.dropped == {"tag_collision": 2}


def test_the_same_tags_on_two_hosts_or_two_metrics_do_not_collide() -> None:
    into = table()
    every = [
        LOAD(1, NOW, project="a", on_host="n"),
        LOAD(1, NOW, project="A", on_host="m"),
        DONE(1, NOW, project="A"),
    ]
    assert (len(drained(*every, into=into)), into.dropped) == (3, {})


class TestHosts:
    BAD = (
        "",
        " ",
        "a b",
        "a\nb",
        "\x1b[2J",
        "-a",
        "a-",
        "ä.example",
        "a" * 256,
        "localhost",
        "a/b",
        "\ud800",
    )

    @pytest.mark.parametrize("host", BAD)
    def test_a_bad_host_costs_the_host_and_not_the_point(self, host: str) -> None:
        into = table()
        [series] = drained(LOAD.series((NOW - 1, NOW), (2, 1), on_host=host), into=into)
        assert (series[2], values(series)) == (None, {NOW - 1: 2, NOW: 1})
        assert into.dropped == {"bad_host": 2}

    @pytest.mark.parametrize("host", ["n", "node-1", "ip-10-0-0-1.ec2.internal", "gpu_07", "10.0.0.1", "A1"])
    def test_a_good_host_is_sent_unchanged(self, host: str) -> None:
        into = table()
        [series] = drained(LOAD(1, NOW, on_host=host), into=into)
        assert (series[2], into.dropped) == (host, {})

    def test_two_bad_hosts_collide(self) -> None:
        into = table()
        assert drained(LOAD(1, NOW, on_host="a b"), LOAD(2, NOW, on_host="a c"), into=into) == []
        assert into.dropped == {"bad_host": 2, "tag_collision": 2}


def test_series_beyond_the_cap_are_counted_by_their_points() -> None:
    into = table(cap=3)
    every = [LOAD.series((NOW - 1, NOW), (1, 1), project=str(n)) for n in range(3)]
    assert (len(drained(*every, into=into)), into.dropped) == (3, {})
    one_more = LOAD.series((NOW - 1, NOW), (1, 1), project="3")
    assert len(drained(*every, one_more, into=into)) == 3
    assert into.dropped == {"series_cap": 2}


def test_the_same_series_are_sent_whatever_the_order_and_the_process() -> None:
    every = [LOAD(n, NOW, project=f"p{n}") for n in range(50)]
    sent = set()
    for seed in range(10):
        random.Random(seed).shuffle(every)
        into = table(cap=5)
        sent.add(frozenset(projects(drained(*every, into=into))))
        assert into.dropped == {"series_cap": 45}
    # the literal guards against a hash that differs from process to process
    assert sent == {frozenset({"p4", "p21", "p25", "p46", "p49"})}


def test_of_a_backfill_the_cap_holds_for_all_of_it() -> None:
    into = table(cap=3, many_ticks=True)
    parts = [[LOAD(1, NOW, project=f"{n}-{m}") for m in range(2)] for n in range(3)]
    assert [len(drained(*part, into=into)) for part in parts] == [2, 1, 0]
    assert len(drained(LOAD(2, NOW + 1, project="0-0"), into=into)) == 1
    assert into.dropped == {"series_cap": 3}


def drain_all(*parts: list[Series]) -> tuple[dict[int, float], Counter[str]]:
    into = table(many_ticks=True)
    found: dict[int, float] = {}
    for part in parts:
        for series in drained(*part, into=into):
            assert series[1] == ("project:arena",)
            assert not found.keys() & values(series).keys(), "no second is sent twice"
            found |= values(series)
    return found, into.dropped


def test_a_name_that_was_respelt_along_the_way_is_one_series() -> None:
    old, new = LOAD(1, NOW, project="Arena"), LOAD(2, NOW + 1, project="arena")
    assert drain_all([old, new]) == ({NOW: 1, NOW + 1: 2}, {})
    assert drain_all([old], [new]) == ({NOW: 1, NOW + 1: 2}, {})


def test_two_spellings_of_one_second_are_dropped_for_that_second() -> None:
    spellings = [
        LOAD(1, NOW, project="Arena"),
        LOAD(2, NOW + 1, project="arena"),
        LOAD(3, NOW + 1, project="ARENA"),
    ]
    assert drain_all(spellings) == ({NOW: 1}, {"tag_collision": 2})


def test_a_second_that_another_spelling_was_sent_for_is_not_overwritten() -> None:
    found, dropped = drain_all(
        [LOAD.series((NOW, NOW + 1), (1, 2), project="Arena")],
        [LOAD.series((NOW + 1, NOW + 2), (8, 9), project="arena")],
    )
    assert (found, dropped) == ({NOW: 1, NOW + 1: 2, NOW + 2: 9}, {"tag_collision": 1})
