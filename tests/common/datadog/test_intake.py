"""Delivery on the wire, against an intake that enforces what the real one does."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable

import pytest

from common.datadog.intake import DatadogSink
from common.datadog.payloads import Encoding
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.metric import Series, count, gauge
from support.servers.datadog import Intake, PointKey
from support.servers.faults import Fault
from support.servers.series import decoded
from support.sinks import send
from support.standins import KEY, NOW, Time

LOAD = gauge("host.load", "process", "x", "project", "run")
DONE = count("jobs.done", "job", "x", "project")
COMMON = ("env:test", "service:fleetgauge")

MakeSink = Callable[..., DatadogSink]


def statuses(intake: Intake) -> list[int | None]:
    return [request.status for request in intake.requests]


def points(intake: Intake) -> list[int]:
    return [request.points for request in intake.requests]


def test_every_point_carries_env_and_service_and_the_value_it_was_given(
    intake: Intake, make_sink: MakeSink
) -> None:
    sink = make_sink(DD_ENV="Staging", DD_SERVICE="gauges")
    send(sink, [LOAD(0.5, NOW, project="Ants"), DONE(3, NOW - 60), LOAD(1, NOW, on_host="node-1")])
    tags = ("env:staging", "service:gauges")
    assert intake.points == {
        PointKey("host.load", ("env:staging", "project:ants", "service:gauges"), None, NOW): 0.5,
        PointKey("jobs.done", tags, None, NOW - 60): 3,
        PointKey("host.load", tags, "node-1", NOW): 1,
    }
    assert intake.types == {"host.load": "gauge", "jobs.done": "count"}
    assert intake.units == {"host.load": "process", "jobs.done": "job"}
    assert intake.notes == []
    assert (sink.points_sent, sink.dropped, len(intake.requests)) == (3, {}, 1)


@pytest.mark.parametrize("encoding", Encoding)
def test_the_body_is_encoded_and_the_key_is_in_its_header_only(
    intake: Intake, make_sink: MakeSink, encoding: Encoding
) -> None:
    send(make_sink(encoding=encoding), [LOAD(1, NOW)])
    (request,) = intake.requests
    raw = decoded(request.body, encoding)
    assert request.headers["Content-Encoding"] == encoding
    assert json.loads(raw) == intake.payloads[0]
    assert request.headers["DD-API-KEY"] == KEY
    assert (request.method, request.target) == ("POST", "/api/v2/series")
    assert KEY not in raw.decode()


def test_nothing_to_send_asks_nothing(intake: Intake, make_sink: MakeSink) -> None:
    sink = make_sink()
    send(sink, [LOAD(math.nan, NOW)])
    assert (intake.requests, sink.points_sent) == ([], 0)


def test_a_fraction_of_the_clock_does_not_move_the_window(
    intake: Intake, make_sink: MakeSink, time: Time
) -> None:
    time.now = NOW + 0.9
    sink = make_sink()
    send(sink, [LOAD(1, NOW - 3600), LOAD(1, NOW + 601)])
    assert (sink.points_sent, sink.dropped) == (1, {"in_future": 1})


def one_point_series(number: int, filler: Callable[[int], str]) -> list[Series]:
    return [LOAD(1, NOW, project=f"p{n}", run=filler(n)) for n in range(number)]


@pytest.mark.parametrize(("number", "split"), [(10_000, [10_000]), (10_001, [10_000, 1])])
def test_points(intake: Intake, make_sink: MakeSink, time: Time, number: int, split: list[int]) -> None:
    sink = make_sink()
    send(sink, [DONE(1, NOW - n % 100, project=f"p{n // 100}") for n in range(number)])
    assert (points(intake), set(statuses(intake))) == (split, {202})
    assert (sink.points_sent, len(intake.points)) == (number, number)


def test_points_of_one_series(intake: Intake, make_sink: MakeSink) -> None:
    intake.historical.add("host.load")
    sink = make_sink(since=NOW - 30_000)
    send(sink, [LOAD(n, NOW - n) for n in range(20_001)])
    assert (points(intake), set(statuses(intake))) == ([10_000, 5_000, 5_001], {202})
    assert intake.points == {PointKey("host.load", COMMON, None, NOW - n): n for n in range(20_001)}


def test_raw_bytes(intake: Intake, make_sink: MakeSink) -> None:
    sink = make_sink()
    many = gauge("a.b", "", "x", *(f"tag_{n}" for n in range(4)))
    filler = {f"tag_{n}": "x" * 190 for n in range(3)}
    send(sink, [many(1, NOW, tag_3=f"{n}", **filler) for n in range(9_000)])
    assert (points(intake), set(statuses(intake))) == ([4_500, 4_500], {202})
    assert all(2_621_440 < request.raw_size <= 5_242_880 for request in intake.requests)
    assert (sink.points_sent, len(intake.points)) == (9_000, 9_000)


@pytest.mark.parametrize("encoding", Encoding)
def test_wire_bytes(intake: Intake, make_sink: MakeSink, encoding: Encoding) -> None:
    noise = random.Random(1)
    sink = make_sink(encoding=encoding)
    send(sink, one_point_series(10_000, lambda _: f"{noise.getrandbits(400):x}"))
    assert (points(intake), set(statuses(intake))) == ([5_000, 5_000], {202})
    assert all(256_000 < request.wire_size <= 512_000 for request in intake.requests)
    assert len(intake.points) == 10_000


def test_a_413_splits_and_goes_on(intake: Intake, make_sink: MakeSink) -> None:
    intake.faults.add(Fault(status=413), times=2)
    sink = make_sink()
    send(sink, [LOAD(n, NOW, project=f"p{n}") for n in range(8)])
    assert statuses(intake) == [413, 413, 202, 202, 202]
    assert points(intake) == [0, 0, 2, 2, 4]
    assert [write.value for write in intake.write_log] == list(range(8))
    assert sink.points_sent == 8


def test_a_413_to_a_single_series_splits_its_points(intake: Intake, make_sink: MakeSink) -> None:
    intake.faults.add(Fault(status=413))
    sink = make_sink()
    send(sink, [LOAD(n, NOW - n) for n in range(5)])
    assert (statuses(intake), points(intake)) == ([413, 202, 202], [0, 2, 3])
    assert {key.second: value for key, value in intake.points.items()} == {NOW - n: n for n in range(5)}


def test_a_413_to_a_single_point_is_final_and_what_went_before_is_counted(
    intake: Intake, make_sink: MakeSink
) -> None:
    for fault in (Fault(status=413), Fault(), Fault(status=413)):
        intake.faults.add(fault)
    sink = make_sink()
    with pytest.raises(RefusedError) as caught:
        send(sink, [DONE(1, NOW), LOAD(1, NOW)])
    assert str(caught.value) == f"{intake.url} answered 413 to a single point of host.load"
    assert (statuses(intake), sink.points_sent) == ([413, 202, 413], 1)


@pytest.mark.parametrize("skew", [-120, 0, 0.25, 120])
def test_the_skew_is_measured_against_the_date_of_the_answer(
    intake: Intake, make_sink: MakeSink, time: Time, skew: float
) -> None:
    time.now = NOW + skew
    sink = make_sink()
    send(sink, [LOAD(1, NOW)])
    assert (sink.clock_skew, sink.points_sent, sink.dropped) == (skew, 1, {})


@pytest.mark.parametrize("date", [None, "yesterday", "Fri, 15 Jan 2027 08:00:00 +99999999999999999999"])
def test_skew_is_unknown_without_a_readable_date_and_all_points_count(
    intake: Intake, make_sink: MakeSink, date: str | None
) -> None:
    intake.faults.add(Fault(headers={"Date": date}))
    intake.clock = lambda: NOW + 100
    sink = make_sink()
    send(sink, [LOAD(1, NOW), LOAD(1, NOW - 3600)])
    assert (sink.clock_skew, sink.points_sent, sink.dropped) == (None, 2, {})


@pytest.mark.parametrize(
    ("ahead", "series", "skew"),
    [(61, LOAD(1, NOW - 3600), "-61"), (-61, LOAD(1, NOW + 600), r"\+61")],
)
def test_what_a_large_skew_makes_the_intake_drop_is_an_error(
    intake: Intake, make_sink: MakeSink, ahead: int, series: Series, skew: str
) -> None:
    intake.clock = lambda: NOW + ahead
    error = f"this machine's clock is {skew} s off the intake's, which silently dropped points"
    with pytest.raises(DeliveryError, match=error):
        send(make_sink(), [series, DONE(1, NOW)])
    assert intake.dropped == 1


@pytest.mark.parametrize("ahead", [-61, 61])
def test_with_an_exact_clock_a_large_skew_is_an_error_after_one_payload(
    intake: Intake, make_sink: MakeSink, ahead: int
) -> None:
    intake.clock = lambda: NOW + ahead
    sink = make_sink(exact_clock=True)
    skew = re.escape(f"{-ahead:+d}")
    with pytest.raises(DeliveryError, match=f"clock is {skew} s off the intake's: points would"):
        send(sink, [LOAD(1, NOW - n % 100, project=f"{n}") for n in range(10_001)])
    assert (sink.points_sent, len(intake.requests), sink.clock_skew) == (10_000, 1, -ahead)


def test_without_an_exact_clock_a_large_skew_is_logged_once(
    intake: Intake, make_sink: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    intake.clock = lambda: NOW + 61
    sink = make_sink()
    send(sink, [LOAD(1, NOW - n % 100, project=f"{n}") for n in range(10_001)])
    assert (sink.points_sent, len(intake.requests)) == (10_001, 2)
    assert caplog.messages == ["this machine's clock is -61 s off the intake's; correct the clock"]


def test_points_are_sent_from_the_earliest_second_that_was_given(intake: Intake, make_sink: MakeSink) -> None:
    intake.historical.add("host.load")
    sink = make_sink(since=NOW - 86_400)
    send(sink, [LOAD(age, NOW - age) for age in (0, 3601, 86_400, 86_401)] + [LOAD(1, NOW + 601)])
    assert {key.second: value for key, value in intake.points.items()} == {
        NOW - age: age for age in (0, 3601, 86_400)
    }
    assert (sink.points_sent, sink.dropped) == (3, {"too_old": 1, "in_future": 1})


@pytest.mark.parametrize("projects", ["bc", "cd"], ids=["some", "all"])
def test_series_beyond_the_cap_are_an_error_and_nothing_is_sent(
    intake: Intake, make_sink: MakeSink, projects: str
) -> None:
    intake.historical.add("host.load")
    sink = make_sink(since=NOW - 86_400, FLEETGAUGE_SERIES_CAP="2")
    send(sink, [LOAD(1, NOW - 86_400, project=project) for project in "ab"])
    with pytest.raises(ConfigurationError, match=r"more than 2 series \(FLEETGAUGE_SERIES_CAP\)"):
        send(sink, [LOAD(1, NOW - 80_000, project=project) for project in projects])
    assert (len(intake.points), len(intake.requests)) == (2, 1)
