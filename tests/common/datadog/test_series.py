"""From series as collectors yield them to series as Datadog stores them: merged, refused and counted."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog.series import SeriesTable
from common.metric import Series, count, gauge
from support.standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "job", "x", "project")


def table(cap: int = 1000) -> SeriesTable:
    return SeriesTable((), cap, NOW - 3600, NOW + 600)


def drained(*series: Series, into: SeriesTable | None = None) -> list[Series]:
    into = into or table()
    for one in series:
        into.add(one)
    return list(into.drain())


def values(series: Series) -> dict[int, float]:
    return dict(zip(series[3], series[4], strict=True))


def projects(series: Iterable[Series]) -> list[str]:
    return [one[1][0].removeprefix("project:") for one in series]


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


HUGE = float(2**53 + 2)
OFF = "not_finite"


@pytest.mark.parametrize(
    ("series", "expected", "dropped"),
    [
        *(
            ([LOAD.series((NOW - 1, NOW, NOW + 1), (1, value, 2))], {NOW - 1: 1, NOW + 1: 2}, {OFF: 1})
            for value in (math.nan, math.inf, -math.inf, 10**400, -(10**400))
        ),
        ([*[DONE(1.5e308, NOW)] * 3, DONE(2, NOW - 1)], {NOW - 1: 2}, {OFF: 1}),
        ([DONE(10**308, NOW)] * 2, {}, {OFF: 1}),
        ([LOAD(2**53, NOW)], {NOW: 2**53}, {}),
        ([LOAD(2**53 + 2, NOW)], {NOW: HUGE}, {}),
        ([LOAD(10**300, NOW)], {NOW: 1e300}, {}),
        (
            [LOAD.series([NOW + at for at in (-3601, -3600, 600, 601, 602)], [1] * 5)],
            {NOW - 3600: 1, NOW + 600: 1},
            {"too_old": 1, "in_future": 2},
        ),
        ([LOAD.series((), ())], {}, {}),
    ],
)
def test_points_that_cannot_be_stored_cost_themselves(
    series: list[Series], expected: dict[int, float], dropped: dict[str, int]
) -> None:
    into = table()
    found = drained(*series, into=into)
    points = values(found[0]) if found else {}
    assert (points, into.dropped) == (expected, dropped)
    # An int that a float does not represent is sent as the float it would become.
    assert {*map(type, points.values())} <= {type(value) for value in expected.values()}


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


@pytest.mark.parametrize(("host", "stored"), [("node-1", "node-1"), ("a b", None), ("", None)])
def test_a_bad_host_costs_the_host_and_not_the_points(host: str, stored: str | None) -> None:
    into = table()
    [series] = drained(LOAD.series((NOW - 1, NOW), (2, 1), on_host=host), into=into)
    assert (series.host, values(series)) == (stored, {NOW - 1: 2, NOW: 1})
    assert into.dropped == ({} if stored else {"bad_host": 2})


def test_two_bad_hosts_collide() -> None:
    into = table()
    assert drained(LOAD(1, NOW, on_host="a b"), LOAD(2, NOW, on_host="a c"), into=into) == []
    assert into.dropped == {"bad_host": 2, "tag_collision": 2}


def test_the_same_series_are_sent_whatever_the_order_and_the_process() -> None:
    every = [LOAD.series((NOW - 1, NOW), (n, n), project=f"p{n}") for n in range(50)]
    sent = set()
    for seed in range(10):
        random.Random(seed).shuffle(every)
        into = table(cap=5)
        sent.add(frozenset(projects(drained(*every, into=into))))
        assert into.dropped == {"series_cap": 90}
    # the literal guards against a hash that differs from process to process
    assert sent == {frozenset({"p4", "p21", "p25", "p46", "p49"})}


def test_of_a_backfill_the_cap_holds_for_all_of_it() -> None:
    into = table(cap=3)
    parts = [[LOAD(1, NOW, project=f"{n}-{m}") for m in range(2)] for n in range(3)]
    assert [len(drained(*part, into=into)) for part in parts] == [2, 1, 0]
    assert len(drained(LOAD(2, NOW + 1, project="0-0"), into=into)) == 1
    assert into.dropped == {"series_cap": 3}


@pytest.mark.parametrize(
    ("drains", "expected", "dropped"),
    [
        ((("Ants",), ("Ants", "Bees")), [["ants"], ["ants", "bees"]], 0),
        ((("Ants", "ants", "ANTS"), ("bees",)), [[], ["bees"]], 3),
        ((("Ants",), ("ants", "bees"), ("Ants",)), [["ants"], ["bees"], ["ants"]], 1),
        ((("ants",), ("bees",), ("Ants",)), [["ants"], ["bees"], []], 1),
    ],
    ids=["respelt", "of one drain", "of a later drain", "respelt later"],
)
def test_series_that_datadog_stores_as_one_are_dropped(
    drains: tuple[tuple[str, ...], ...], expected: list[list[str]], dropped: int
) -> None:
    into = table()
    found = [
        projects(drained(*(LOAD(1, NOW - 9 + number, project=name) for name in names), into=into))
        for number, names in enumerate(drains)
    ]
    assert (found, into.dropped["tag_collision"]) == (expected, dropped)
