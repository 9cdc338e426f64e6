"""From samples to payloads: what is kept, merged, refused and counted, and where payloads are cut."""

from __future__ import annotations

import gzip
import json
import math
import random
import zlib
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog import payloads as module
from common.datadog.payloads import (
    POINT_LIMIT,
    RAW_LIMIT,
    WIRE_LIMIT,
    Payload,
    Series,
    SeriesTable,
    normalise_tag,
    payloads,
    raw_size,
)
from common.metric import Sample, count, gauge
from servers.series import normalised
from standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "job", "x", "project")


def table(cap: int = 1000) -> SeriesTable:
    return SeriesTable((), cap)


def taken(*samples: Sample, into: SeriesTable | None = None) -> list[Series]:
    return list((into or table()).take(samples, NOW - 3600, NOW + 600))


def values(series: Series) -> dict[int, float]:
    return {point["timestamp"]: point["value"] for point in series["points"]}


def a_series(points: int, name: str = "a.b", tags: tuple[str, ...] = (), host: str | None = None) -> Series:
    series: Series = {
        "metric": name,
        "type": 3,
        "points": [{"timestamp": NOW + n, "value": n + 0.123456789} for n in range(points)],
        "tags": list(tags),
    }
    if host is not None:
        series["resources"] = [{"type": "host", "name": host}]
    return series


class TestMerging:
    def test_the_points_of_one_series_are_grouped_and_in_order(self) -> None:
        (series,) = taken(LOAD(2, NOW, project="a"), LOAD(1, NOW - 60, project="a"))
        assert series == {
            "metric": "host.load",
            "type": 3,
            "points": [{"timestamp": NOW - 60, "value": 1}, {"timestamp": NOW, "value": 2}],
            "tags": ["project:a"],
        }

    def test_of_a_gauge_the_last_value_of_a_second_stands(self) -> None:
        (series,) = taken(LOAD(1, NOW), LOAD(3, NOW), LOAD(2, NOW))
        assert values(series) == {NOW: 2}

    def test_the_counts_of_a_second_add_up(self) -> None:
        (series,) = taken(DONE(1, NOW), DONE(2, NOW), DONE(4, NOW - 1))
        assert (values(series), series["type"]) == ({NOW: 3, NOW - 1: 4}, 1)

    def test_hosts_and_tags_make_different_series(self) -> None:
        series = taken(
            LOAD(1, NOW), LOAD(2, NOW, on_host="n"), LOAD(3, NOW, project="a"), LOAD(4, NOW, project="b")
        )
        assert [one.get("resources") for one in series] == [None, [{"type": "host", "name": "n"}], None, None]
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
                found[one["metric"]][one["tags"][0].removeprefix("project:"), second] = number
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
        ("tag", "stored"),
        [
            ("project:Ants", "project:ants"),
            ("project:a b+c", "project:a_b_c"),
            ("project:", "project"),
            ("project:é", "project:_"),
            ("_1:a", "a"),
            ("p:" + "x" * 300, "p:" + "x" * 198),
            ("p" + ":" * 300, "p"),
            ("9", ""),
        ],
    )
    def test_a_tag_is_spelled_as_datadog_stores_it(self, tag: str, stored: str) -> None:
        assert normalise_tag(tag) == stored

    @given(st.text() | st.text("aZ9:_-./ é", max_size=250))
    def test_spelling_it_is_idempotent_and_what_the_intake_does(self, tag: str) -> None:
        assert normalise_tag(tag) == normalised(tag) == normalise_tag(normalise_tag(tag))

    def test_common_tags_are_on_every_series_once_and_sorted(self) -> None:
        into = SeriesTable(("service:Fleet Gauge", "env:dev"), 10)
        (series,) = into.take([LOAD(1, NOW, project="A")], NOW, NOW)
        assert series["tags"] == ["env:dev", "project:a", "service:fleet_gauge"]

    def test_two_tag_sets_that_become_one_are_refused_and_their_points_counted(self) -> None:
        into = table()
        samples = [LOAD(1, NOW, project="A"), LOAD(2, NOW, project="a"), LOAD(3, NOW - 1, project="a")]
        (series,) = taken(*samples, LOAD(4, NOW, project="b"), into=into)
        assert series["tags"] == ["project:b"]
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
        assert [one["tags"] for one in series] == [["project:b"]]
        assert into.dropped == {"series_cap": 1}

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
            kept.add(frozenset(one["tags"][0] for one in taken(*samples, into=into)))
            assert into.dropped == {"series_cap": 45}
        # the literal guards against a hash that differs from process to process
        assert kept == {frozenset({"project:p4", "project:p21", "project:p25", "project:p46", "project:p49"})}

    def test_a_colliding_series_takes_no_place_under_the_cap(self) -> None:
        into = table(cap=1)
        series = taken(
            LOAD(1, NOW, project="a"), LOAD(1, NOW, project="A"), LOAD(1, NOW, project="b"), into=into
        )
        assert [one["tags"] for one in series] == [["project:b"]]
        assert into.dropped == {"tag_collision": 2}


class TestSplitting:
    def test_nothing_makes_no_payload(self) -> None:
        assert list(payloads([])) == []

    def test_ten_thousand_points_are_one_payload_and_one_more_are_two(self) -> None:
        half = POINT_LIMIT // 2
        assert [len(one.series) for one in payloads([a_series(half), a_series(half)])] == [2]
        assert [len(one.series) for one in payloads([a_series(half), a_series(half + 1)])] == [1, 1]

    @pytest.mark.parametrize(
        ("points", "pieces"), [(10_000, [10_000]), (10_001, [10_000, 1]), (25_000, [10_000, 10_000, 5_000])]
    )
    def test_one_series_whose_points_do_not_fit_is_cut(self, points: int, pieces: list[int]) -> None:
        made = list(payloads([a_series(points)]))
        assert [[len(one["points"]) for one in payload.series] for payload in made] == [
            [piece] for piece in pieces
        ]
        seconds = [
            point["timestamp"] for payload in made for one in payload.series for point in one["points"]
        ]
        assert seconds == list(range(NOW, NOW + points))

    def test_the_raw_limit_is_exact(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one = a_series(1, tags=("project:ants",))
        exactly_three = len('{"series": []}') + 3 * raw_size(one)
        monkeypatch.setattr(module, "RAW_LIMIT", exactly_three)
        assert [len(payload.series) for payload in payloads([one] * 6)] == [3, 3]
        monkeypatch.setattr(module, "RAW_LIMIT", exactly_three - 1)
        assert [len(payload.series) for payload in payloads([one] * 6)] == [2, 2, 2]

    def test_the_limits_are_the_ones_datadog_documents(self) -> None:
        assert (WIRE_LIMIT, RAW_LIMIT, POINT_LIMIT) == (512_000, 5_242_880, 10_000)

    @given(
        st.lists(
            st.builds(
                a_series,
                points=st.integers(1, 25),
                name=st.text("abc._", min_size=1, max_size=20),
                tags=st.lists(st.text("abc:_", max_size=20), max_size=4).map(tuple),
                host=st.none() | st.text(max_size=10),
            ),
            max_size=20,
        ),
        st.integers(1, 12),
        st.integers(1500, 4000),
    )
    def test_every_point_leaves_exactly_once_within_the_limits(
        self, series: list[Series], most_points: int, most_bytes: int
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "POINT_LIMIT", most_points)
            patch.setattr(module, "RAW_LIMIT", most_bytes)
            made = list(payloads(series))
        for payload in made:
            assert payload.series
            assert payload.size == Payload.of(payload.series).size
            assert sum(len(one["points"]) for one in payload.series) <= most_points
            assert len(json.dumps({"series": payload.series})) <= most_bytes
        assert points_of([one for payload in made for one in payload.series]) == points_of(series)
        for first, second in pairwise(made):  # and no payload could have taken the next piece
            joined = sum(len(one["points"]) for one in [*first.series, second.series[0]])
            size = len('{"series": []}') + sum(map(raw_size, [*first.series, second.series[0]]))
            assert joined > most_points or size > most_bytes

    @given(
        st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53), min_size=1),
        st.none() | st.text(),
    )
    def test_no_series_takes_more_bytes_than_reckoned(self, numbers: list[float], host: str | None) -> None:
        series = a_series(0, tags=("project:ants", "entity"), host=host)
        series["points"] = [{"timestamp": 4294967295, "value": number} for number in numbers]
        assert len(json.dumps(series)) + len(", ") <= raw_size(series)


def points_of(series: list[Series]) -> list[tuple[Any, ...]]:
    return sorted(
        (one["metric"], tuple(one["tags"]), str(one.get("resources")), point["timestamp"], point["value"])
        for one in series
        for point in one["points"]
    )


class TestWire:
    def test_a_small_body_fits_without_being_compressed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one = a_series(3)
        size = len('{"series": []}') + raw_size(one)
        monkeypatch.setattr(module, "WIRE_LIMIT", size)
        monkeypatch.setattr(zlib, "compress", None)
        assert Payload.of([one]).fits_the_wire()
        monkeypatch.setattr(module, "WIRE_LIMIT", size - 1)
        with pytest.raises(TypeError):
            Payload.of([one]).fits_the_wire()

    def test_a_large_body_that_compresses_well_fits(self) -> None:
        one = a_series(10_000)
        one["points"] = [{"timestamp": NOW + n, "value": 1} for n in range(10_000)]
        assert raw_size(one) > WIRE_LIMIT
        assert Payload.of([one]).fits_the_wire()

    def test_the_compressed_size_is_compared_exactly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        payload = [a_series(100)]
        size = next(limit for limit in range(100, 100_000) if fits_at(payload, limit))
        assert not fits_at(payload, size - 1)
        text = json.dumps({"series": payload}, separators=(",", ":")).encode()
        assert size == len(zlib.compress(text, level=1))

    def test_no_body_judged_to_fit_is_larger_as_the_client_makes_it(self) -> None:
        noise = random.Random(7)
        payload = [a_series(10_000, tags=(f"run:{n}",)) for n in range(5)]
        for one in payload:
            for point in one["points"]:
                point["value"] = noise.random()
        part = Payload.of(payload)
        assert not part.fits_the_wire()
        while not part.fits_the_wire():
            halves = part.halves()
            assert halves is not None
            part = halves[0]
        assert len(gzip.compress(json.dumps({"series": part.series}).encode(), 6)) <= WIRE_LIMIT


def fits_at(payload: list[Series], limit: int) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WIRE_LIMIT", limit)
        return Payload.of(payload).fits_the_wire()


class TestHalving:
    def test_series_are_halved_then_points_and_a_single_point_cannot_be(self) -> None:
        halves = Payload.of([a_series(1), a_series(2), a_series(3)]).halves()
        assert halves == (Payload.of([a_series(1)]), Payload.of([a_series(2), a_series(3)]))
        for points, parts in ((2, [[1], [1]]), (3, [[1], [2]])):
            halves = Payload.of([a_series(points)]).halves()
            assert halves is not None
            assert [[len(one["points"]) for one in half.series] for half in halves] == parts
            assert points_of([*halves[0].series, *halves[1].series]) == points_of([a_series(points)])
        assert Payload.of([a_series(1)]).halves() is None


class TestATableOfThePast:
    def take(
        self, *samples: Sample, many_ticks: bool = True
    ) -> tuple[dict[str, dict[int, float]], Counter[str]]:
        table = SeriesTable((), 100, many_ticks=many_ticks)
        found = {
            " ".join(series["tags"]): {point["timestamp"]: point["value"] for point in series["points"]}
            for series in table.take(samples, 0, 10)
        }
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
