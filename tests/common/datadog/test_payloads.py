"""From series to payloads: what a series is on the wire, and where payloads are cut."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog import payloads as module
from common.datadog.payloads import POINT_LIMIT, RAW_LIMIT, WIRE_LIMIT, Payload, Queue, documents
from common.datadog.series import Series
from common.metric import Metric, count, gauge
from support.standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "", "x")


def a_series(
    points: int, metric: Metric = LOAD, tags: tuple[str, ...] = (), host: str | None = None
) -> Series:
    return metric, host, tags, [(NOW + n, n + 0.123456789) for n in range(points)]


def queue_of(*series: Series) -> Queue:
    queue = Queue()
    queue.extend(documents(series))
    return queue


def cut(queue: Queue, *, everything: bool = True) -> list[Payload]:
    made = []
    while payload := queue.next_payload(everything=everything):
        made.append(payload)
        queue.settle()
    return made


def raw(payload: Payload) -> bytes:
    body = payload.body()
    assert body is not None
    return gzip.decompress(body)


def points_of(payloads: list[Payload]) -> list[tuple[Any, ...]]:
    return sorted(
        (one["metric"], tuple(one["tags"]), str(one.get("resources")), point["timestamp"], point["value"])
        for payload in payloads
        for one in json.loads(raw(payload))["series"]
        for point in one["points"]
    )


class TestOnTheWire:
    def test_a_series_carries_its_unit_its_host_and_its_points_in_order(self) -> None:
        series: Series = (LOAD, "node-1", ("project:ä", "run:b"), [(NOW, 1.0), (NOW + 1, 2.5)])
        (payload,) = cut(queue_of(series))
        assert json.loads(raw(payload)) == {
            "series": [
                {
                    "metric": "host.load",
                    "type": 3,
                    "unit": "process",
                    "tags": ["project:ä", "run:b"],
                    "resources": [{"type": "host", "name": "node-1"}],
                    "points": [{"timestamp": NOW, "value": 1}, {"timestamp": NOW + 1, "value": 2.5}],
                }
            ]
        }

    def test_a_series_without_unit_and_host_says_neither(self) -> None:
        (payload,) = cut(queue_of((DONE, None, (), [(NOW, 1)])))
        (one,) = json.loads(raw(payload))["series"]
        assert one == {
            "metric": "jobs.done",
            "type": 1,
            "tags": [],
            "points": [{"timestamp": NOW, "value": 1}],
        }


class TestCutting:
    def test_nothing_makes_no_payload(self) -> None:
        assert cut(queue_of()) == []

    def test_ten_thousand_points_are_one_payload_and_one_more_are_two(self) -> None:
        half = POINT_LIMIT // 2
        assert [len(one.series()) for one in cut(queue_of(a_series(half), a_series(half)))] == [2]
        assert [len(one.series()) for one in cut(queue_of(a_series(half), a_series(half + 1)))] == [1, 1]

    @pytest.mark.parametrize(
        ("points", "pieces"), [(10_000, [10_000]), (10_001, [10_000, 1]), (25_000, [10_000, 10_000, 5_000])]
    )
    def test_one_series_whose_points_do_not_fit_is_cut(self, points: int, pieces: list[int]) -> None:
        made = cut(queue_of(a_series(points)))
        assert [payload.points for payload in made] == pieces
        assert [point[3] for point in points_of(made)] == list(range(NOW, NOW + points))

    def test_what_does_not_fill_a_payload_waits_for_more(self) -> None:
        queue = queue_of(a_series(POINT_LIMIT), a_series(POINT_LIMIT - 1))
        assert [payload.points for payload in cut(queue, everything=False)] == [POINT_LIMIT]
        assert (queue.taken, queue.settled) == (2 * POINT_LIMIT - 1, POINT_LIMIT)
        assert queue.next_payload(everything=False) is None
        queue.extend(documents([a_series(2, DONE)]))
        (second,) = cut(queue, everything=False)
        assert second.points == POINT_LIMIT - 1  # a series is not cut to fill the last place
        assert [payload.points for payload in cut(queue)] == [2]
        assert queue.settled == queue.taken == 2 * POINT_LIMIT + 1

    def test_a_payload_stays_in_front_until_it_is_settled(self) -> None:
        queue = queue_of(a_series(1), a_series(1, DONE))
        assert queue.next_payload(everything=True) == queue.next_payload(everything=True)
        assert queue.settled == 0

    def test_the_limits_are_the_ones_datadog_documents(self) -> None:
        assert (WIRE_LIMIT, RAW_LIMIT, POINT_LIMIT) == (512_000, 5_242_880, 10_000)

    @given(
        st.lists(
            st.builds(
                a_series,
                points=st.integers(1, 25),
                metric=st.sampled_from([LOAD, DONE]),
                tags=st.lists(st.text("abc:_ä一", max_size=20), max_size=4).map(tuple),
                host=st.none() | st.text("abc", min_size=1, max_size=10),
            ),
            max_size=20,
        ),
        st.integers(1, 12),
        st.booleans(),
    )
    def test_every_point_leaves_exactly_once_in_order_within_the_limit(
        self, series: list[Series], most_points: int, at_once: bool
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "POINT_LIMIT", most_points)
            queue, made = Queue(), []
            for one in series:
                queue.extend(documents([one]))
                made += [] if at_once else cut(queue, everything=False)
            made += cut(queue)
        for payload in made:
            assert 0 < payload.points <= most_points
        assert points_of(made) == points_of([Payload([one]) for one in documents(series)])
        assert queue.taken == queue.settled == sum(len(points) for *_, points in series)


class TestHalving:
    def test_series_are_halved_then_points_and_a_single_point_cannot_be(self) -> None:
        whole = Payload(documents([a_series(1), a_series(2), a_series(3)]))
        assert [[len(one["points"]) for one in half.series()] for half in whole.halves()] == [[1], [2, 3]]
        assert points_of(whole.halves()) == points_of([whole])
        for points, halves in ((2, [1, 1]), (3, [1, 2])):
            whole = Payload(documents([a_series(points, tags=("a:ä",), host="n")]))
            assert [half.points for half in whole.halves()] == halves
            assert points_of(whole.halves()) == points_of([whole])
        assert Payload(documents([a_series(1)])).halves() == []

    @pytest.mark.parametrize("closed", [False, True])
    def test_a_closed_payload_is_the_same(self, closed: bool) -> None:
        whole, same = (Payload(documents([a_series(2), a_series(3, DONE)])) for _ in range(2))
        if closed:
            whole.close()
        assert (whole.json(), whole.body(), whole.points) == (same.json(), same.body(), 5)
        assert points_of(whole.halves()) == points_of([same])


class TestOutside:
    @given(st.integers(-3, 8), st.integers(-3, 8))
    def test_points_before_and_behind_a_window_are_counted(self, oldest: int, newest: int) -> None:
        payload = Payload(documents([a_series(5), a_series(3, DONE)]))
        seconds = [*range(5), *range(3)]
        assert payload.outside(NOW + oldest, NOW + newest) == (
            sum(n < oldest for n in seconds),
            sum(n > newest for n in seconds),
        )


def a_noisy_payload() -> Payload:
    noise = random.Random(7)
    return Payload(
        documents([(LOAD, None, ("project:ä",), [(NOW + n, noise.random()) for n in range(2000)])])
    )


class TestBody:
    def test_it_is_compressed_as_the_floor_of_the_benchmark_is(self) -> None:
        payload = a_noisy_payload()
        assert len(gzip.compress(raw(payload), 6)) >= len(payload.body() or b"") > 0

    @pytest.mark.parametrize("limit", ["RAW_LIMIT", "WIRE_LIMIT"])
    def test_there_is_none_of_more_bytes_than_the_intake_takes(
        self, monkeypatch: pytest.MonkeyPatch, limit: str
    ) -> None:
        payload = a_noisy_payload()
        size = len(raw(payload) if limit == "RAW_LIMIT" else payload.body() or b"")
        monkeypatch.setattr(module, limit, size)
        assert payload.body() is not None
        monkeypatch.setattr(module, limit, size - 1)
        assert payload.body() is None
