"""From series to payloads: what a series is on the wire, and where payloads are cut."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog import payloads as module
from common.datadog.payloads import Encoding, encode, pack
from common.metric import Metric, Series, count, gauge
from support.servers.series import decoded
from support.standins import NOW

LOAD = gauge("host.load", "process", "x", "project")
DONE = count("jobs.done", "", "x")


def a_series(
    points: int, metric: Metric = LOAD, tags: tuple[str, ...] = (), host: str | None = None
) -> Series:
    return Series(metric, tags, host, range(NOW, NOW + points), [n + 0.123456789 for n in range(points)])


def sent(every: Sequence[Series], tags: tuple[str, ...] = (), encoding: Encoding = Encoding.GZIP) -> Any:
    body = encode(every, tags, encoding)
    assert body is not None
    return json.loads(decoded(body, encoding))["series"]


def count_points(every: Iterable[Series]) -> int:
    return sum(len(series.times) for series in every)


def points_of(payloads: Iterable[Sequence[Series]]) -> list[tuple[Any, ...]]:
    return sorted(
        (one["metric"], tuple(one["tags"]), str(one.get("resources")), point["timestamp"], point["value"])
        for every in payloads
        for one in sent(every)
        for point in one["points"]
    )


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
        made = [*pack(series)]
    sizes = [*map(count_points, made)]
    assert all(0 < size <= most_points for size in sizes)
    # No payload has room for the first series of the next.
    assert all(size + len(after[0].times) > most_points for size, after in zip(sizes, made[1:], strict=False))
    assert points_of(made) == points_of([one] for one in series)


@pytest.mark.parametrize("encoding", Encoding)
def test_there_is_no_body_of_more_bytes_than_the_intake_takes(
    monkeypatch: pytest.MonkeyPatch, encoding: Encoding
) -> None:
    noise = random.Random(7)
    every = [Series(LOAD, ("project:ä",), None, range(2000), [noise.random() for _ in range(2000)])]
    body = encode(every, (), encoding)
    assert body is not None
    assert sent(every, (), encoding) == sent(every)
    for limit, size in (("RAW_LIMIT", len(decoded(body, encoding))), ("WIRE_LIMIT", len(body))):
        monkeypatch.setattr(module, limit, size)
        assert encode(every, (), encoding) == body
        monkeypatch.setattr(module, limit, size - 1)
        assert encode(every, (), encoding) is None
        monkeypatch.undo()
