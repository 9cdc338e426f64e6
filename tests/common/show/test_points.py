"""A dry run keeps what a push would send, and refuses more than there is memory for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datadog.series import SeriesTable
from common.errors import ConfigurationError
from common.metric import Metric, Series, count, gauge
from common.show import points as points_module
from common.show.points import Points
from support.sinks import send
from support.standins import NOW

LOAD = gauge("host.load", "process", "Processes that wait.", "project")
DONE = count("jobs.done", "job", "Jobs that ended.", "project")

Key = tuple[Metric, tuple[str, ...], str | None]
Found = dict[Key, list[tuple[int, float]]]


def open_points(cap: int = 10) -> Points:
    return Points(cap, NOW - 3600, NOW + 600)


def found(points: Points) -> Found:
    """Return the points by series; each series is there once."""
    series = [*points]
    assert len({one[:3] for one in series}) == len(series)
    return {one[:3]: [*zip(one.times, one.values, strict=True)] for one in series}


values = st.integers(-(2**70), 2**70) | st.floats()
added = st.builds(
    lambda metric, value, second, project, host: metric(value, second, on_host=host, project=project),
    st.sampled_from([LOAD, DONE]),
    values,
    st.integers(NOW - 3602, NOW + 602),
    st.sampled_from(["ants", "Ants", "bees", "c d", "", "x" * 300]),
    st.sampled_from([None, "node-1", "no host"]),
)


@given(st.lists(st.lists(added, max_size=8), max_size=4), st.integers(1, 5))
def test_what_a_push_would_send_is_kept_and_the_rest_counted(batches: list[list[Series]], cap: int) -> None:
    points = open_points(cap)
    table = SeriesTable((), cap, NOW - 3600, NOW + 600)
    expected: Found = {}
    for batch in batches:
        send(points, batch)
        for series in batch:
            table.add(series)
        for metric, tags, host, times, numbers in table.drain():
            expected.setdefault((metric, tags, host), []).extend(zip(times, numbers, strict=True))
    assert found(points) == expected
    assert points.points_sent == sum(map(len, expected.values()))
    assert (points.dropped, points.examples, points.lost) == (
        table.dropped,
        table.examples,
        table.lost,
    )


def test_more_points_than_the_limit_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points_module, "MAX_POINTS", 3)
    points = open_points()
    send(points, [LOAD(1, NOW - second, project="ants") for second in range(2)])
    send(points, [LOAD(1, NOW, project="bees")])
    with pytest.raises(ConfigurationError, match=r"more than 3 points.*--since.*--step"):
        send(points, [LOAD(1, NOW, project="cats")])
    assert sum(map(len, found(points).values())) == 3


def test_present_values_of_what_a_backfill_lacks_are_added() -> None:
    past = Points(10, NOW - 3600, NOW)
    send(past, [DONE(1, NOW - 900)])
    present = open_points()
    send(present, [DONE(5, NOW), LOAD(2, NOW)])
    past.add_present(present, {LOAD})
    assert found(past) == {
        (DONE, (), None): [(NOW - 900, 1)],
        (LOAD, (), None): [(NOW, 2)],
    }
