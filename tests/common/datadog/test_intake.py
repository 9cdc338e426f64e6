"""Delivery on the wire, against an intake that enforces what the real one does."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable

import pytest

from common.datadog import payloads
from common.datadog.intake import DatadogSink
from common.datadog.payloads import Encoding
from common.errors import DeliveryError, RefusedError
from common.metric import Series, count, gauge
from support.servers.datadog import Intake, PointKey
from support.servers.faults import Fault
from support.servers.series import decoded
from support.sinks import send
from support.standins import KEY, NOW, Time

LOAD = gauge("host.load", "process", "x", "project", "run")
DONE = count("jobs.done", "job", "x", "project")

MakeSink = Callable[..., DatadogSink]


def statuses(intake: Intake) -> list[int | None]:
    return [request.status for request in intake.requests]


def points(intake: Intake) -> list[int]:
    return [request.points for request in intake.requests]


@pytest.mark.parametrize("encoding", Encoding)
def test_what_is_sent_is_stored_and_the_key_is_in_its_header_only(
    intake: Intake, make_sink: MakeSink, encoding: Encoding
) -> None:
    sink = make_sink(encoding=encoding, DD_ENV="Staging", DD_SERVICE="gauges")
    send(sink, [LOAD(0.5, NOW, project="Ants"), DONE(3, NOW - 60), LOAD(1, NOW, on_host="node-1")])
    tags = ("env:staging", "service:gauges")
    assert intake.points == {
        PointKey("host.load", ("env:staging", "project:ants", "service:gauges"), None, NOW): 0.5,
        PointKey("jobs.done", tags, None, NOW - 60): 3,
        PointKey("host.load", tags, "node-1", NOW): 1,
    }
    assert intake.types == {"host.load": "gauge", "jobs.done": "count"}
    assert [one["unit"] for one in intake.payloads[0]["series"]] == ["process", "job", "process"]
    assert (sink.points_sent, sink.dropped, intake.notes) == (3, {}, [])
    [request] = intake.requests
    assert (request.method, request.target) == ("POST", "/api/v2/series")
    assert (request.headers["Content-Encoding"], request.headers["DD-API-KEY"]) == (encoding, KEY)
    assert KEY.encode() not in decoded(request.body, encoding)


def test_every_point_of_series_of_any_length_is_sent(intake: Intake, make_sink: MakeSink) -> None:
    lengths = range(1, 5)
    send(make_sink(), [LOAD.series(range(NOW - n, NOW), range(n), project=str(n)) for n in lengths])
    found = {(key.tags[1], key.second): value for key, value in intake.points.items()}
    assert found == {(f"project:{n}", NOW - n + at): at for n in lengths for at in range(n)}


def test_a_fraction_of_the_clock_does_not_move_the_window(
    intake: Intake, make_sink: MakeSink, time: Time
) -> None:
    time.now = NOW + 0.9
    sink = make_sink()
    send(sink, [LOAD(math.nan, NOW)])
    assert (intake.requests, sink.points_sent) == ([], 0)
    send(sink, [LOAD(1, NOW - 3600), LOAD(1, NOW + 601)])
    assert (sink.points_sent, sink.dropped) == (1, {"in_future": 1, "not_finite": 1})


def noisy(number: int) -> list[Series]:
    """Return series of one point whose tags hardly compress."""
    noise = random.Random(1)
    return [LOAD(1, NOW, project=f"p{n}", run=f"{noise.getrandbits(400):x}") for n in range(number)]


def large(number: int) -> list[Series]:
    """Return series of one point with much to say, which compresses well."""
    many = gauge("a.b", "", "x", *(f"tag_{n}" for n in range(4)))
    filler = {f"tag_{n}": "x" * 190 for n in range(3)}
    return [many(1, NOW, tag_3=f"{n}", **filler) for n in range(number)]


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(
    ("series", "split"),
    [
        ([DONE(1, NOW - n % 100, project=f"p{n // 100}") for n in range(10_000)], [10_000]),
        ([DONE(1, NOW - n % 100, project=f"p{n // 100}") for n in range(20_001)], [10_000, 10_000, 1]),
        ([LOAD(n, NOW - n) for n in range(20_001)], [10_000, 5_000, 5_001]),
        (large(9_000), [4_500, 4_500]),
        (noisy(10_000), [5_000, 5_000]),
    ],
    ids=["points", "one more", "one series", "raw bytes", "wire bytes"],
)
def test_payloads_are_as_large_as_the_intake_takes(
    intake: Intake, make_sink: MakeSink, encoding: Encoding, series: list[Series], split: list[int]
) -> None:
    intake.historical.add("host.load")
    sink = make_sink(encoding=encoding, since=NOW - 30_000)
    send(sink, series)
    assert (points(intake), set(statuses(intake))) == (split, {202})
    assert len(intake.points) == sink.points_sent == sum(split) == len(series)


@pytest.mark.parametrize(
    ("series", "faults", "split"),
    [
        ([LOAD(n, NOW, project=f"p{n}") for n in range(8)], 2, [0, 0, 2, 2, 4]),
        ([LOAD(n, NOW - n, on_host="node-1") for n in range(5)], 1, [0, 2, 3]),
    ],
    ids=["series", "points of one series"],
)
def test_a_413_splits_and_goes_on(
    intake: Intake, make_sink: MakeSink, series: list[Series], faults: int, split: list[int]
) -> None:
    intake.faults.add(Fault(status=413), times=faults)
    sink = make_sink()
    send(sink, series)
    assert (statuses(intake), points(intake)) == ([413 if size == 0 else 202 for size in split], split)
    sent = {(key.host, key.second, value) for key, value in intake.points.items()}
    assert sent == {(one.host, one.times[0], one.values[0]) for one in series}
    assert sink.points_sent == len(series)


def test_a_413_to_a_single_point_is_final_and_what_went_before_is_counted(
    intake: Intake, make_sink: MakeSink
) -> None:
    # The first is a proxy's, which has no error document.
    for fault in (Fault(status=413, body="<html>"), Fault(), Fault(status=413)):
        intake.faults.add(fault)
    sink = make_sink()
    with pytest.raises(RefusedError) as caught:
        send(sink, [DONE(1, NOW), LOAD(1, NOW)])
    assert str(caught.value) == f"{intake.url} answered 413 to a single point of host.load"
    assert (statuses(intake), sink.points_sent) == ([413, 202, 413], 1)


@pytest.mark.parametrize(
    ("ahead", "exact", "series", "fails"),
    [
        (61, False, LOAD(1, NOW - 3600), True),
        (-61, False, LOAD(1, NOW + 600), True),
        (61, True, LOAD(1, NOW), True),
        (-61, True, LOAD(1, NOW), True),
        (61, False, LOAD(1, NOW), False),
        (60, True, LOAD(1, NOW), False),
    ],
)
def test_a_large_skew_is_an_error_where_points_are_lost_or_sums_wrong(
    intake: Intake,
    make_sink: MakeSink,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ahead: int,
    exact: bool,
    series: Series,
    fails: bool,
) -> None:
    intake.clock = lambda: NOW + ahead
    sink = make_sink(exact_clock=exact)
    monkeypatch.setattr(payloads, "POINT_LIMIT", 2)
    every = [series, DONE(1, NOW), LOAD(1, NOW, project="next")]
    problem = f"this machine's clock is {-ahead:+d} s off the intake's; correct the clock"
    if fails:
        with pytest.raises(DeliveryError, match=f"^{re.escape(problem)}: points were dropped or"):
            send(sink, every)
        assert (sink.points_sent, len(intake.requests)) == (2, 1)
        return
    send(sink, every)
    assert (sink.points_sent, len(intake.requests)) == (3, 2)
    assert caplog.messages == ([problem] if ahead > 60 else [])


def test_points_are_sent_from_the_earliest_second_that_was_given(intake: Intake, make_sink: MakeSink) -> None:
    intake.historical.add("host.load")
    intake.clock = lambda: NOW + 61  # which loses nothing of a backfill
    sink = make_sink(since=NOW - 86_400)
    send(sink, [LOAD(age, NOW - age) for age in (0, 3601, 86_400, 86_401)] + [LOAD(1, NOW + 601)])
    assert {NOW - key.second for key in intake.points} == {0, 3601, 86_400}
    assert (sink.points_sent, sink.dropped) == (3, {"too_old": 1, "in_future": 1})
