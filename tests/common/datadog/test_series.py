"""From samples to series: what is kept, merged, refused and counted."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog import series as module
from common.datadog.series import Series, SeriesTable
from common.metric import Sample, count, gauge
from support.standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "job", "x", "project")


def table(cap: int = 1000) -> SeriesTable:
    return SeriesTable((), cap)


def taken(*samples: Sample, into: SeriesTable | None = None) -> list[Series]:
    return list((into or table()).take(samples, NOW - 3600, NOW + 600))


def values(series: Series) -> dict[int, float]:
    return dict(series[3])


class TestMerging:
    def test_the_points_of_one_series_are_grouped_and_in_order(self) -> None:
        (series,) = taken(LOAD(2, NOW, project="a"), LOAD(1, NOW - 60, project="a"))
        assert series == (LOAD, None, ("project:a",), [(NOW - 60, 1.0), (NOW, 2.0)])

    def test_of_a_gauge_the_last_value_of_a_second_stands(self) -> None:
        (series,) = taken(LOAD(1, NOW), LOAD(3, NOW), LOAD(2, NOW))
        assert values(series) == {NOW: 2}

    def test_the_counts_of_a_second_add_up(self) -> None:
        (series,) = taken(DONE(1, NOW), DONE(2, NOW), DONE(4, NOW - 1))
        assert series == (DONE, None, (), [(NOW - 1, 4.0), (NOW, 3.0)])

    def test_hosts_and_tags_make_different_series(self) -> None:
        series = taken(
            LOAD(1, NOW), LOAD(2, NOW, on_host="n"), LOAD(3, NOW, project="a"), LOAD(4, NOW, project="b")
        )
        assert [one[1] for one in series] == [None, "n", None, None]
        assert [values(one) for one in series] == [{NOW: 1}, {NOW: 2}, {NOW: 3}, {NOW: 4}]

    @given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-3, 3), st.sampled_from("ab")), max_size=40))
    def test_every_second_holds_the_sum_of_its_counts_and_the_last_of_its_gauges(
        self, events: list[tuple[int, int, str]]
    ) -> None:
        sums: dict[tuple[str, int], float] = {}
        lasts: dict[tuple[str, int], float] = {}
        for value, second, project in events:
            sums[project, NOW + second] = sums.get((project, NOW + second), 0) + value
            lasts[project, NOW + second] = value
        samples = [
            metric(value, NOW + second, project=project)
            for value, second, project in events
            for metric in (LOAD, DONE)
        ]
        found: dict[str, dict[tuple[str, int], float]] = {"host.load": {}, "jobs.done": {}}
        for one in taken(*samples):
            for second, number in values(one).items():
                found[one[0].name][one[2][0].removeprefix("project:"), second] = number
        assert found == {"host.load": lasts, "jobs.done": sums}


class TestDropping:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
    def test_what_is_not_finite_is_dropped_and_counted(self, value: float) -> None:
        into = table()
        (series,) = taken(LOAD(value, NOW), LOAD(1, NOW - 1), into=into)
        assert values(series) == {NOW - 1: 1}
        assert into.dropped == {"not_finite": 1}

    def test_counts_that_only_together_are_infinite_are_dropped_and_counted_as_one_point(self) -> None:
        into = table()
        (series,) = taken(
            *[DONE(1.5e308, NOW)] * 3, DONE(2, NOW - 1), DONE(10**308, NOW, project="whole"), into=into
        )[:1]
        assert values(series) == {NOW - 1: 2}
        assert taken(*[DONE(10**308, NOW, project="b")] * 2, into=into) == []
        assert into.dropped == {"not_finite": 2}

    def test_an_int_beyond_what_a_float_counts_exactly_is_sent_as_a_float(self) -> None:
        exact, beyond, _ = taken(
            LOAD(2**53, NOW), LOAD(-(2**53) - 1, NOW, project="a"), LOAD(10**300, NOW, project="b")
        )
        assert [type(value) for one in (exact, beyond) for value in values(one).values()] == [int, float]

    def test_the_window_is_exact_at_both_ends(self) -> None:
        into = table()
        seconds = (NOW - 3601, NOW - 3600, NOW + 600, NOW + 601, NOW + 602)
        (series,) = taken(*[LOAD(1, second) for second in seconds], into=into)
        assert list(values(series)) == [NOW - 3600, NOW + 600]
        assert into.dropped == {"too_old": 1, "in_future": 2}


class TestTags:
    @pytest.mark.parametrize(
        "tags", [("project:A",), ("env:dev", "project:a"), ("project:a", "9", "env:DEV")]
    )
    def test_common_tags_are_on_every_series_once(self, tags: tuple[str, ...]) -> None:
        into = SeriesTable(("service:Fleet Gauge", "env:dev"), 10)
        for _ in range(2):
            (series,) = into.take([Sample(LOAD, 1, NOW, tags, None)], NOW, NOW)
            assert series[2] == ("project:a", "env:dev", "service:fleet_gauge")

    def test_the_order_of_tags_makes_no_other_series(self) -> None:
        into = table()
        orders = [("project:a", "run:b"), ("run:b", "project:a"), ("project:a", "project:a", "run:b")]
        assert taken(*[Sample(LOAD, 1, NOW, tags, None) for tags in orders], into=into) == []
        assert into.dropped == {"tag_collision": 3}

    def test_tags_are_judged_alike_however_many_were_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_PLAIN", 1)
        into = table()
        for project in ("a", "b", "c", "a"):
            assert len(taken(LOAD(1, NOW, project=project), into=into)) == 1
        assert taken(LOAD(1, NOW, project="B"), into=into) == []

    def test_two_tag_sets_that_become_one_are_refused_and_their_points_counted(self) -> None:
        into = table()
        samples = [LOAD(1, NOW, project="A"), LOAD(2, NOW, project="a"), LOAD(3, NOW - 1, project="a")]
        (series,) = taken(*samples, LOAD(4, NOW, project="b"), into=into)
        assert series[2] == ("project:b",)
        assert into.dropped == {"tag_collision": 3}

    def test_a_collision_is_seen_across_sends_and_stays_refused(self) -> None:
        into = table()
        assert len(taken(LOAD(1, NOW, project="a"), into=into)) == 1
        assert len(taken(LOAD(1, NOW - 1, project="a"), into=into)) == 1
        assert taken(LOAD(2, NOW, project="A"), into=into) == []
        assert taken(LOAD(3, NOW, project="a"), LOAD(3, NOW - 1, project="a"), into=into) == []
        assert into.dropped == {"tag_collision": 3}

    def test_a_collision_in_one_send_stays_refused_in_the_next(self) -> None:
        into = table()
        taken(LOAD(1, NOW, project="a"), LOAD(1, NOW, project="A"), into=into)
        assert taken(LOAD(1, NOW, project="a"), into=into) == []
        assert into.dropped == {"tag_collision": 3}

    def test_the_same_tags_on_two_hosts_or_two_metrics_do_not_collide(self) -> None:
        into = table()
        taken(
            LOAD(1, NOW, project="a", on_host="n"),
            LOAD(1, NOW, project="A", on_host="m"),
            DONE(1, NOW, project="A"),
            into=into,
        )
        assert into.dropped == {}


class TestHosts:
    BAD = (
        "",
        " ",
        "two words",
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
    def test_a_host_that_is_none_costs_the_host_and_not_the_point(self, host: str) -> None:
        into = table()
        (series,) = taken(LOAD(1, NOW, on_host=host), LOAD(2, NOW - 1, on_host=host), into=into)
        assert series == (LOAD, None, (), [(NOW - 1, 2.0), (NOW, 1.0)])
        assert into.dropped == {"bad_host": 2}

    @pytest.mark.parametrize("host", ["n", "node-1", "ip-10-0-0-1.ec2.internal", "gpu_07", "10.0.0.1", "A1"])
    def test_a_host_is_kept_as_it_is(self, host: str) -> None:
        into = table()
        (series,) = taken(LOAD(1, NOW, on_host=host), into=into)
        assert (series[1], into.dropped) == (host, {})

    def test_two_hosts_that_are_none_would_share_a_series_and_are_refused(self) -> None:
        into = table()
        assert taken(LOAD(1, NOW, on_host="a b"), LOAD(2, NOW, on_host="a c"), into=into) == []
        assert into.dropped == {"bad_host": 2, "tag_collision": 2}


class TestCap:
    def test_a_full_table_drops_nothing_and_one_series_more_is_counted_by_its_points(self) -> None:
        into = table(cap=3)
        assert len(taken(*[LOAD(1, NOW, project=str(n)) for n in range(3)], into=into)) == 3
        assert into.dropped == {}
        assert taken(LOAD(1, NOW, project="new"), LOAD(1, NOW - 1, project="new"), into=into) == []
        assert into.dropped == {"series_cap": 2}

    def test_series_already_kept_go_on_when_the_table_is_full(self) -> None:
        into = table(cap=2)
        taken(LOAD(1, NOW, project="a"), LOAD(1, NOW, project="b"), into=into)
        series = taken(LOAD(2, NOW, project="c"), LOAD(2, NOW, project="b"), into=into)
        assert [one[2] for one in series] == [("project:b",)]
        assert into.dropped == {"series_cap": 1}

    def test_of_what_is_dropped_the_first_is_an_example_of_each_reason(self) -> None:
        into = table()
        odd = [LOAD(math.nan, NOW, project="a", on_host="n"), LOAD(math.nan, NOW - 1), LOAD(1, NOW - 3601)]
        assert taken(*odd, into=into) == []
        assert into.examples == {
            "not_finite": f"host.load project:a host:n at {NOW}",
            "too_old": f"host.load at {NOW - 3601}",
        }

    def test_the_cap_holds_over_several_sends(self) -> None:
        into = table(cap=3)
        kept = [
            len(taken(*[LOAD(1, NOW, project=f"{n}-{m}") for m in range(2)], into=into)) for n in range(3)
        ]
        assert kept == [2, 1, 0]
        assert into.dropped == {"series_cap": 3}

    def test_the_same_series_are_kept_whatever_the_order_and_the_process(self) -> None:
        samples = [LOAD(n, NOW, project=f"p{n}") for n in range(50)]
        kept = set()
        for seed in range(10):
            random.Random(seed).shuffle(samples)
            into = table(cap=5)
            kept.add(frozenset(one[2][0] for one in taken(*samples, into=into)))
            assert into.dropped == {"series_cap": 45}
        # the literal guards against a hash that differs from process to process
        assert kept == {frozenset({"project:p4", "project:p21", "project:p25", "project:p46", "project:p49"})}

    def test_a_colliding_series_takes_no_place_under_the_cap(self) -> None:
        into = table(cap=1)
        series = taken(
            LOAD(1, NOW, project="a"), LOAD(1, NOW, project="A"), LOAD(1, NOW, project="b"), into=into
        )
        assert [one[2] for one in series] == [("project:b",)]
        assert into.dropped == {"tag_collision": 2}


class TestATableOfThePast:
    def take(
        self, *samples: Sample, many_ticks: bool = True
    ) -> tuple[dict[str, dict[int, float]], Counter[str]]:
        table = SeriesTable((), 100, many_ticks=many_ticks)
        found = {" ".join(series[2]): dict(series[3]) for series in table.take(samples, 0, 10)}
        return found, table.dropped

    def test_a_name_that_was_respelt_along_the_way_is_one_series(self) -> None:
        found, dropped = self.take(
            Sample(LOAD, 1, 1, ("kind:Arena",), None), Sample(LOAD, 2, 2, ("kind:arena",), None)
        )
        assert found == {"kind:arena": {1: 1, 2: 2}}
        assert not dropped

    def test_two_spellings_of_one_second_are_both_refused_for_it(self) -> None:
        found, dropped = self.take(
            Sample(LOAD, 1, 1, ("kind:Arena",), None),
            Sample(LOAD, 2, 2, ("kind:arena",), None),
            Sample(LOAD, 3, 2, ("kind:ARENA",), None),
        )
        assert found == {"kind:arena": {1: 1}}
        assert dropped == {"tag_collision": 2}

    def test_a_live_tick_refuses_them_wherever_they_stand(self) -> None:
        found, dropped = self.take(
            Sample(LOAD, 1, 1, ("kind:Arena",), None),
            Sample(LOAD, 2, 2, ("kind:arena",), None),
            many_ticks=False,
        )
        assert found == {}
        assert dropped == {"tag_collision": 2}
