"""From series to payloads: what a series is on the wire, and where payloads are cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog import payloads as module
from common.datadog.payloads import POINT_LIMIT, Encoding, Payload, payloads
from common.metric import Metric, Series, count, gauge
from support.servers.series import decoded
from support.standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "", "x")


def a_series(
    points: int, metric: Metric = LOAD, tags: tuple[str, ...] = (), host: str | None = None
) -> Series:
    return Series(metric, tags, host, range(NOW, NOW + points), [n + 0.123456789 for n in range(points)])


def payload_of(*series: Series, common_tags: tuple[str, ...] = ()) -> Payload:
    [payload] = payloads(series, common_tags)
    return payload


def raw(payload: Payload, encoding: Encoding = Encoding.GZIP) -> bytes:
    body = payload.body(encoding)
    assert body is not None
    return decoded(body, encoding)


def points_of(made: list[Payload]) -> list[tuple[Any, ...]]:
    return sorted(
        (one["metric"], tuple(one["tags"]), str(one.get("resources")), point["timestamp"], point["value"])
        for payload in made
        for one in json.loads(raw(payload))["series"]
        for point in one["points"]
    )


def test_a_series_has_its_points_in_order_and_unit_and_host_where_known() -> None:
    payload = payload_of(
        Series(LOAD, ("project:ä", "run:b"), "node-1", [NOW, NOW + 1], [1.0, 2.5]),
        Series(DONE, (), None, (NOW,), (1,)),
        common_tags=("env:dev",),
    )
    assert json.loads(raw(payload))["series"] == [
        {
            "metric": "host.load",
            "type": 3,
            "unit": "process",
            "tags": ["project:ä", "run:b", "env:dev"],
            "resources": [{"type": "host", "name": "node-1"}],
            "points": [{"timestamp": NOW, "value": 1}, {"timestamp": NOW + 1, "value": 2.5}],
        },
        {"metric": "jobs.done", "type": 1, "tags": ["env:dev"], "points": [{"timestamp": NOW, "value": 1}]},
    ]


def test_ten_thousand_points_are_one_payload_and_one_more_are_two() -> None:
    half = POINT_LIMIT // 2
    for second, packed in ((half, [2]), (half + 1, [1, 1])):
        made = payloads([a_series(half), a_series(second)])
        assert [len(one.series) for one in made] == packed


def test_a_series_with_too_many_points_must_be_halved() -> None:
    small, large, last = payloads([a_series(1), a_series(POINT_LIMIT + 1), a_series(1)])
    assert large.body(Encoding.GZIP) is None
    halves = large.halves()
    assert [half.points for half in halves] == [5_000, 5_001]
    assert [point[3] for point in points_of(halves)] == [*range(NOW, NOW + POINT_LIMIT + 1)]
    assert small.points == last.points == 1


@given(
    st.lists(
        st.builds(
            a_series,
            points=st.integers(1, 12),
            metric=st.sampled_from([LOAD, DONE]),
            tags=st.lists(st.text("abc:_ä一", max_size=20), max_size=4).map(tuple),
            host=st.none() | st.text("abc", min_size=1, max_size=10),
        ),
        max_size=20,
    ),
    st.integers(12, 40),
)
def test_every_point_is_in_one_payload_within_the_limit(series: list[Series], most_points: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "POINT_LIMIT", most_points)
        made = [*payloads(series)]
    assert all(0 < payload.points <= most_points for payload in made)
    assert points_of(made) == points_of([payload_of(one) for one in series])


def test_series_are_halved_then_points_and_a_single_point_cannot_be() -> None:
    payload = payload_of(a_series(1), a_series(2), a_series(3))
    assert [[len(one[3]) for one in half.series] for half in payload.halves()] == [[1], [2, 3]]
    assert points_of(payload.halves()) == points_of([payload])
    for points, halves in ((2, [1, 1]), (3, [1, 2])):
        payload = payload_of(a_series(points, tags=("a:ä",), host="n"))
        assert [half.points for half in payload.halves()] == halves
        assert points_of(payload.halves()) == points_of([payload])
    assert payload_of(a_series(1)).halves() == []


@given(st.integers(-3, 8), st.integers(-3, 8))
def test_points_before_and_behind_a_window_are_noticed(oldest: int, newest: int) -> None:
    payload = payload_of(a_series(5), a_series(3, DONE))
    assert payload.exceeds(NOW + oldest, NOW + newest) is (oldest > 0 or newest < 4)


def a_noisy_payload() -> Payload:
    noise = random.Random(7)
    return payload_of(
        Series(LOAD, ("project:ä",), None, range(NOW, NOW + 2000), [noise.random() for _ in range(2000)])
    )


@pytest.mark.parametrize("encoding", Encoding)
class TestBody:
    def test_each_encoding_carries_the_same_document(self, encoding: Encoding) -> None:
        payload = a_noisy_payload()
        assert raw(payload, encoding) == raw(payload)
        assert len(payload.body(encoding) or b"") < len(raw(payload)) / 2

    @pytest.mark.parametrize("limit", ["RAW_LIMIT", "WIRE_LIMIT"])
    def test_there_is_none_of_more_bytes_than_the_intake_takes(
        self, monkeypatch: pytest.MonkeyPatch, limit: str, encoding: Encoding
    ) -> None:
        payload = a_noisy_payload()
        size = len(raw(payload) if limit == "RAW_LIMIT" else payload.body(encoding) or b"")
        monkeypatch.setattr(module, limit, size)
        assert payload.body(encoding) is not None
        monkeypatch.setattr(module, limit, size - 1)
        assert payload.body(encoding) is None
