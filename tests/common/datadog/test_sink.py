"""Delivery on the wire, against an intake that enforces what the real one does."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from email.utils import formatdate
from typing import Any

import pytest

from common.datadog import client
from common.datadog.sink import DatadogSink
from common.errors import ConfigurationError, DeadlineExceededError, DeliveryError, RefusedError
from common.metric import Series, count, gauge
from support.servers.datadog import Intake, PointKey
from support.servers.faults import Fault
from support.sinks import send
from support.standins import KEY, NOW, Time, everything

LOAD = gauge("host.load", "process", "x", "project", "run")
DONE = count("jobs.done", "job", "x", "project")
COMMON = ("env:test", "service:fleetgauge")
STRANGE = "this does not look like Datadog: check DD_SITE, FLEETGAUGE_DD_URL and HTTPS_PROXY"
BODIES = ("", "{}", '{"errors": []}', '{"valid": true}', "[]", "null", "7", "<html>Log in", b"\xff\xfe\xfd")

MakeSink = Callable[..., DatadogSink]


def statuses(intake: Intake) -> list[int | None]:
    return [request.status for request in intake.requests]


def points(intake: Intake) -> list[int]:
    return [request.points for request in intake.requests]


class TestPoints:
    def test_every_point_carries_env_and_service_and_the_value_it_was_given(
        self, intake: Intake, make_sink: MakeSink
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
        assert (sink.points_sent, sink.dropped, sink.requests) == (3, {}, 1)

    def test_the_body_is_gzip_and_the_key_travels_in_its_header_only(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        send(make_sink(), [LOAD(1, NOW)])
        (request,) = intake.requests
        assert request.headers["Content-Encoding"] == "gzip"
        assert json.loads(gzip.decompress(request.body)) == intake.payloads[0]
        assert request.headers["DD-API-KEY"] == KEY
        assert (request.method, request.target) == ("POST", "/api/v2/series")
        assert KEY not in gzip.decompress(request.body).decode()

    def test_points_of_one_series_are_one_series_on_the_wire(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        send(make_sink(), [LOAD(second, NOW - second) for second in range(3)])
        (payload,) = intake.payloads
        assert [one["points"] for one in payload["series"]] == [
            [{"timestamp": NOW - second, "value": second} for second in (2, 1, 0)]
        ]

    def test_gauges_of_a_second_are_the_last_and_counts_the_sum(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        sink = make_sink()
        send(sink, [LOAD(1, NOW), LOAD(2, NOW), DONE(1, NOW), DONE(2, NOW)])
        assert (intake.value("host.load"), intake.value("jobs.done")) == (2, 3)
        assert sink.points_sent == 2

    def test_each_point_that_must_not_leave_is_counted_by_its_reason_and_the_rest_leaves(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        sink = make_sink()
        send(
            sink,
            [
                *(LOAD(value, NOW) for value in (math.nan, math.inf, 10**400)),
                *(LOAD(1, NOW - age) for age in (3600, 3601)),
                *(LOAD(1, NOW + ahead) for ahead in (600, 601)),
                *(LOAD(1, NOW, project=project) for project in "aA"),
            ],
        )
        assert set(intake.points) == {
            PointKey("host.load", COMMON, None, NOW - 3600),
            PointKey("host.load", COMMON, None, NOW + 600),
        }
        assert sink.dropped == {
            "not_finite": 3,
            "too_old": 1,
            "in_future": 1,
            "tag_collision": 2,
        }
        assert (sink.points_sent, intake.dropped) == (2, 0)

    def test_a_live_run_sends_what_the_cap_allows_and_counts_the_rest(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        sink = make_sink(FLEETGAUGE_SERIES_CAP="2")
        send(sink, [LOAD(1, NOW, project=f"p{n}") for n in range(5)])
        assert (len(intake.points), sink.points_sent, sink.dropped) == (2, 2, {"series_cap": 3})

    def test_nothing_to_send_asks_nothing(self, intake: Intake, make_sink: MakeSink) -> None:
        sink = make_sink()
        send(sink, [LOAD(math.nan, NOW)])
        assert (intake.requests, sink.requests, sink.points_sent) == ([], 0, 0)

    def test_a_fraction_of_the_clock_does_not_move_the_window(
        self, intake: Intake, make_sink: MakeSink, time: Time
    ) -> None:
        time.now = NOW + 0.9
        sink = make_sink()
        send(sink, [LOAD(1, NOW - 3600), LOAD(1, NOW + 601)])
        assert (sink.points_sent, sink.dropped) == (1, {"in_future": 1})


def one_point_series(number: int, filler: Callable[[int], str]) -> list[Series]:
    return [LOAD(1, NOW, project=f"p{n}", run=filler(n)) for n in range(number)]


class TestLimits:
    """The intake answers 413 to whatever exceeds a limit: only 202 means that we kept to them."""

    @pytest.mark.parametrize(("number", "split"), [(10_000, [10_000]), (10_001, [10_000, 1])])
    def test_points(
        self, intake: Intake, make_sink: MakeSink, time: Time, number: int, split: list[int]
    ) -> None:
        sink = make_sink()
        send(sink, [DONE(1, NOW - n % 100, project=f"p{n // 100}") for n in range(number)])
        assert (points(intake), set(statuses(intake))) == (split, {202})
        assert (sink.points_sent, len(intake.points)) == (number, number)

    def test_points_of_one_series(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.historical.add("host.load")
        sink = make_sink(since=NOW - 30_000)
        send(sink, [LOAD(n, NOW - n) for n in range(20_001)])
        assert (points(intake), set(statuses(intake))) == ([10_000, 10_000, 1], {202})
        assert intake.points == {PointKey("host.load", COMMON, None, NOW - n): n for n in range(20_001)}

    def test_raw_bytes(self, intake: Intake, make_sink: MakeSink) -> None:
        sink = make_sink()
        many = gauge("a.b", "", "x", *(f"tag_{n}" for n in range(4)))
        filler = {f"tag_{n}": "x" * 190 for n in range(3)}
        send(sink, [many(1, NOW, tag_3=f"{n}", **filler) for n in range(9_000)])
        assert (points(intake), set(statuses(intake))) == ([4_500, 4_500], {202})
        assert all(2_621_440 < request.raw_size <= 5_242_880 for request in intake.requests)
        assert (sink.points_sent, len(intake.points)) == (9_000, 9_000)

    def test_wire_bytes(self, intake: Intake, make_sink: MakeSink) -> None:
        noise = random.Random(1)
        sink = make_sink()
        send(sink, one_point_series(10_000, lambda _: f"{noise.getrandbits(400):x}"))
        assert (points(intake), set(statuses(intake))) == ([5_000, 5_000], {202})
        assert all(256_000 < request.wire_size <= 512_000 for request in intake.requests)
        assert len(intake.points) == 10_000


class TestRequests:
    def test_many_series_take_no_more_requests_than_they_fill(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        number = 50_000
        seconds = range(NOW - 29, NOW + 1)
        send(make_sink(), [LOAD.series(seconds, [n] * 30, project=f"p{n}") for n in range(-(-number // 30))])
        assert points(intake)[:-1] == [pytest.approx(10_000, abs=30)] * (len(intake.requests) - 1)
        assert len(intake.requests) <= 6
        assert len(intake.points) == pytest.approx(number, abs=30)


class TestTooLarge:
    def test_a_413_splits_and_goes_on(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.faults.add(Fault(status=413), times=2)
        sink = make_sink()
        send(sink, [LOAD(n, NOW, project=f"p{n}") for n in range(8)])
        assert statuses(intake) == [413, 413, 202, 202, 202]
        assert points(intake) == [0, 0, 2, 2, 4]
        assert [write.value for write in intake.write_log] == list(range(8))
        assert sink.points_sent == 8

    def test_a_413_to_a_single_series_splits_its_points(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.faults.add(Fault(status=413))
        sink = make_sink()
        send(sink, [LOAD(n, NOW - n) for n in range(5)])
        assert (statuses(intake), points(intake)) == ([413, 202, 202], [0, 2, 3])
        assert {key.second: value for key, value in intake.points.items()} == {NOW - n: n for n in range(5)}

    def test_a_413_to_a_single_point_is_final_and_what_went_before_is_counted(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        for fault in (Fault(status=413), Fault(), Fault(status=413)):
            intake.faults.add(fault)
        sink = make_sink()
        with pytest.raises(RefusedError) as caught:
            send(sink, [DONE(1, NOW), LOAD(1, NOW)])
        assert str(caught.value) == f"{intake.url} answered 413 to a single point of host.load"
        assert (statuses(intake), sink.points_sent) == ([413, 202, 413], 1)

    def test_a_413_with_a_body_that_is_not_text_splits_all_the_same(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        intake.faults.add(Fault(status=413, body=b"\xff\xfe\xfd"))
        send(make_sink(), [LOAD(1, NOW), DONE(1, NOW)])
        assert statuses(intake) == [413, 202, 202]


class TestTryingAgain:
    @pytest.mark.parametrize(
        "fault",
        [
            *(Fault(status=status) for status in (408, 429, 500, 502, 503, 504, 599)),
            *(Fault(status=500, applied=True), Fault(reset="before"), Fault(reset="after")),
            *(Fault(reset="after", applied=True), Fault(truncate=True), Fault(body="<html>")),
            *(Fault(body=""), Fault(body="null"), Fault(body="[]"), Fault(body=b"\xff\xfe\xfd")),
            *(Fault(body="[" * 100_000), Fault(status=503, body=b"\xff\xfe\xfd")),
        ],
        ids=str,
    )
    def test_what_may_pass_is_tried_again_and_the_state_ends_right(
        self, intake: Intake, make_sink: MakeSink, time: Time, fault: Fault
    ) -> None:
        intake.faults.add(fault, times=2)
        sink = make_sink()
        send(sink, [DONE(1, NOW), DONE(2, NOW), LOAD(7, NOW)])
        assert len(intake.requests) == 3
        assert len(time.naps) == 2
        assert (intake.value("jobs.done"), intake.value("host.load")) == (3, 7)
        assert len(intake.points) == sink.points_sent == 2

    @pytest.mark.parametrize("applied", [False, True])
    def test_no_answer_in_time_is_tried_again(
        self, intake: Intake, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch, applied: bool
    ) -> None:
        monkeypatch.setattr(client, "READ_TIMEOUT", 0.05)
        intake.faults.add(Fault(hang=True, applied=applied))
        sink = make_sink()
        send(sink, [DONE(3, NOW)])
        assert (intake.value("jobs.done"), sink.points_sent) == (3, 1)
        assert (statuses(intake)[0], statuses(intake)[-1]) == (None, 202)

    @pytest.mark.parametrize("status", [None, 200, 503])
    def test_an_answer_that_stops_behind_its_head_is_tried_again(
        self, intake: Intake, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch, status: int | None
    ) -> None:
        monkeypatch.setattr(client, "READ_TIMEOUT", 0.05)
        intake.faults.add(Fault(stall=True, status=status))
        sink = make_sink()
        send(sink, [DONE(3, NOW)])
        assert (intake.value("jobs.done"), sink.points_sent, len(intake.requests)) == (3, 1, 2)

    def test_a_refused_connection_is_tried_again_until_attempts_run_out(
        self, make_sink: MakeSink, time: Time
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        sink = make_sink(url=url)
        with pytest.raises(DeliveryError, match=r"NewConnectionError.*\(tried 12 times\)$") as caught:
            send(sink, [LOAD(1, NOW)])
        assert str(caught.value).startswith(f"{url}: no answer: ")
        assert type(caught.value) is DeliveryError
        assert (len(time.naps), sink.points_sent) == (11, 0)
        assert KEY not in everything(caught.value)

    @pytest.mark.parametrize(
        ("headers", "wait"),
        [
            ({"Retry-After": "7"}, 7),
            ({"Retry-After": "7.5"}, 7.5),
            ({"Retry-After": formatdate(NOW + 9, usegmt=True)}, 9),
            ({"X-RateLimit-Reset": "8"}, 8),
            ({"X-RateLimit-Reset": "8.25"}, 8.25),
            ({"X-RateLimit-Reset": "21600"}, 60),
        ],
    )
    @pytest.mark.parametrize("body", [None, b"\xff\xfe\xfd"])
    def test_the_wait_is_what_the_intake_asked_for(
        self,
        intake: Intake,
        make_sink: MakeSink,
        time: Time,
        headers: dict[str, str],
        wait: float,
        body: bytes | None,
    ) -> None:
        intake.faults.add(Fault(status=429, headers=headers, body=body))
        send(make_sink(), [LOAD(1, NOW)])
        (nap,) = time.naps
        assert wait <= nap <= wait + 0.5

    def test_waits_differ_so_that_a_fleet_does_not_come_back_as_one(
        self, intake: Intake, make_sink: MakeSink, time: Time
    ) -> None:
        intake.faults.add(Fault(status=429, headers={"Retry-After": "7"}), times=6)
        send(make_sink(), [LOAD(1, NOW)])
        assert len(set(time.naps)) == 6

    def test_everything_stays_under_one_deadline(
        self, intake: Intake, make_sink: MakeSink, time: Time
    ) -> None:
        intake.faults.add(Fault(status=503, headers={"Retry-After": "50"}), times=None)
        sink = make_sink(seconds=120)
        with pytest.raises(DeliveryError, match=r": answered 503 \(tried 3 times\)$"):
            send(sink, [LOAD(1, NOW)])
        assert NOW + 100 <= time.now <= NOW + 120

    def test_the_deadline_is_shared_by_all_payloads(
        self, intake: Intake, make_sink: MakeSink, time: Time
    ) -> None:
        intake.faults.add(Fault(status=503, headers={"Retry-After": "50"}))
        intake.faults.add(Fault())
        intake.faults.add(Fault(status=503, headers={"Retry-After": "50"}), times=None)
        sink = make_sink(seconds=120)
        with pytest.raises(DeliveryError, match=r"\(tried 2 times\)$"):
            send(sink, [LOAD(1, NOW - n % 100, project=f"{n}") for n in range(10_001)])
        assert (statuses(intake), sink.points_sent) == ([503, 202, 503, 503], 10_000)

    def test_a_delivery_that_must_end_soon_waits_no_longer_than_told(
        self, intake: Intake, make_sink: MakeSink, time: Time
    ) -> None:
        intake.faults.add(Fault(status=503, headers={"Retry-After": "5"}), times=None)
        sink = make_sink(seconds=120)
        with pytest.raises(DeliveryError, match=r": answered 503 \(tried 1 time\)$"):
            send(sink, [LOAD(1, NOW)], within=2)
        assert (time.now, sink.points_sent) == (NOW, 0)
        assert sink.deadline.seconds == 120, "the next flush has all of the remaining time"

    def test_past_the_deadline_nothing_is_asked(self, intake: Intake, make_sink: MakeSink) -> None:
        with pytest.raises(DeadlineExceededError, match="the deadline of 0 s has passed"):
            send(make_sink(seconds=0), [LOAD(1, NOW)])
        assert intake.requests == []

    def test_a_request_waits_no_longer_than_the_deadline(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.faults.add(Fault(hang=True), times=None)
        with pytest.raises(DeliveryError, match=r"ReadTimeoutError: .*read timeout=0\."):
            send(make_sink(seconds=0.2), [LOAD(1, NOW)])

    def test_a_connection_takes_no_longer_than_the_deadline(self, make_sink: MakeSink) -> None:
        with ExitStack() as opened:
            full = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            for _ in range(2):  # fill the queue of connections nobody accepts
                waiting = opened.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            sink = make_sink(seconds=0.2, url=f"http://127.0.0.1:{full.getsockname()[1]}")
            with pytest.raises(DeliveryError, match=r"ConnectTimeoutError: .*connect timeout=0\."):
                send(sink, [LOAD(1, NOW)])

    def test_without_a_deadline_in_sight_a_request_has_explicit_timeouts(self) -> None:
        assert (client.CONNECT_TIMEOUT, client.READ_TIMEOUT) == (5, 15)


class TestFailingAtOnce:
    @pytest.mark.parametrize(
        ("status", "hint"),
        [
            (401, "check that DD_API_KEY is valid and belongs to this site (DD_SITE)"),
            (403, "check that DD_API_KEY is valid and belongs to this site (DD_SITE)"),
            (404, "check DD_SITE or FLEETGAUGE_DD_URL"),
        ],
    )
    def test_the_key_or_the_site_is_wrong(
        self, intake: Intake, make_sink: MakeSink, time: Time, status: int, hint: str
    ) -> None:
        intake.faults.add(Fault(status=status), times=None)
        sink = make_sink()
        with pytest.raises(RefusedError) as caught:
            send(sink, [LOAD(1, NOW)])
        assert str(caught.value) == f"{intake.url} answered {status}; {hint}"
        assert (statuses(intake), time.naps, sink.points_sent) == ([status], [], 0)
        assert KEY not in everything(caught.value)

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 407, 418])
    @pytest.mark.parametrize("body", ["", "<html>blocked", "{}", b"\xff\xfe\xfd"])
    def test_a_refusal_that_is_not_in_datadogs_words_blames_no_key(
        self, intake: Intake, make_sink: MakeSink, status: int, body: bytes | str
    ) -> None:
        intake.faults.add(Fault(status=status, body=body), times=None)
        with pytest.raises(RefusedError) as caught:
            send(make_sink(), [LOAD(1, NOW)])
        assert str(caught.value).startswith(f"{intake.url} answered {status}; it said: ")
        assert str(caught.value).endswith(STRANGE)
        assert "DD_API_KEY" not in str(caught.value)

    @pytest.mark.parametrize("status", [200, 201, 203, 204, 206, 299, 301, 302, 303, 307, 308])
    @pytest.mark.parametrize("body", BODIES)
    def test_a_strangers_answer_is_no_acceptance_whatever_it_says(
        self, intake: Intake, make_sink: MakeSink, time: Time, status: int, body: bytes | str
    ) -> None:
        intake.faults.add(Fault(status=status, body=body), times=None)
        sink = make_sink()
        with pytest.raises(RefusedError) as caught:
            send(sink, [LOAD(1, NOW)])
        assert str(caught.value).startswith(f"{intake.url} answered {status}")
        assert str(caught.value).endswith(STRANGE)
        assert sink.points_sent == 0
        assert (len(intake.requests), time.naps) == (1, [])

    @pytest.mark.parametrize("body", ["{}", '{"errors": null}', '{"errors": [], "more": 1}'])
    def test_a_202_with_an_object_without_errors_is_acceptance(
        self, intake: Intake, make_sink: MakeSink, body: str
    ) -> None:
        intake.faults.add(Fault(body=body))
        sink = make_sink()
        send(sink, [LOAD(1, NOW)])
        assert (sink.points_sent, len(intake.points)) == (1, 1)

    @pytest.mark.parametrize("errors", ["[1]", '"odd"', "{}", "true", "0", '[{"detail": "x"}]'])
    def test_errors_of_any_shape_are_errors(self, intake: Intake, make_sink: MakeSink, errors: str) -> None:
        intake.faults.add(Fault(body=f'{{"errors": {errors}}}'), times=None)
        sink = make_sink()
        with pytest.raises(RefusedError, match="answered 202 with errors: "):
            send(sink, [LOAD(1, NOW)])
        assert (sink.points_sent, len(intake.requests)) == (0, 1)

    def test_a_202_that_stays_garbled_is_said_to_be_a_strangers(
        self, intake: Intake, make_sink: MakeSink, time: Time
    ) -> None:
        intake.faults.add(Fault(status=202, body="<html>"), times=None)
        sink = make_sink()
        with pytest.raises(DeliveryError) as caught:
            send(sink, [LOAD(1, NOW)])
        assert str(caught.value) == (
            f"{intake.url}: answered 202 and said: <html>; {STRANGE} (tried 12 times)"
        )
        assert sink.points_sent == 0

    def test_an_endless_answer_is_cut_off(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.faults.add(Fault(body="x" * 2**21), times=None)
        with pytest.raises(RefusedError, match=r"sent more than 1,048,576 bytes; this does not look like"):
            send(make_sink(), [LOAD(1, NOW)])
        assert len(intake.requests) == 1

    def test_what_a_server_says_reaches_no_terminal_raw(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.faults.add(Fault(status=400, body="\x1b[2J\x9b31m\r\nall is well\u202e"))
        with pytest.raises(RefusedError) as caught:
            send(make_sink(), [LOAD(1, NOW)])
        assert r"it said: \x1b[2J\x9b31m all is well\u202e; " in str(caught.value)
        assert str(caught.value).isprintable()

    def test_a_bad_request_says_what_the_intake_said_without_a_key_it_may_quote(
        self, intake: Intake, make_sink: MakeSink, time: Time
    ) -> None:
        said = "x" * 170 + f" the key {KEY} and more" + "y" * 100
        intake.faults.add(Fault(status=400, body=said))
        with pytest.raises(RefusedError) as caught:
            send(make_sink(), [LOAD(1, NOW)])
        expected = ("x" * 170 + " the key [redacted] and more" + "y" * 100)[:200]
        assert str(caught.value) == f"{intake.url} answered 400; it said: {expected}; {STRANGE}"
        assert (statuses(intake), time.naps) == ([400], [])
        assert KEY[:8] not in everything(caught.value)

    def test_a_bad_request_without_a_readable_body_is_still_one(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        intake.faults.add(Fault(status=400, body=b"\xff\xfe\xfd"))
        with pytest.raises(RefusedError) as caught:
            send(make_sink(), [LOAD(1, NOW)])
        assert str(caught.value) == f"{intake.url} answered 400; it said: \ufffd\ufffd\ufffd; {STRANGE}"

    @pytest.mark.parametrize(
        ("errors", "said"),
        [
            (["one", "two"], "one; two"),
            ([{"title": "Bad Request", "detail": "no such unit", "status": "400"}], "no such unit"),
            ([{"title": "Bad Request"}, {}, ""], "Bad Request"),
            ([], f'{{"errors": []}}; {STRANGE}'),
            ("odd", f'{{"errors": "odd"}}; {STRANGE}'),
        ],
    )
    def test_an_error_document_is_quoted_by_what_it_says(
        self, intake: Intake, make_sink: MakeSink, errors: object, said: str
    ) -> None:
        intake.faults.add(Fault(status=400, body=json.dumps({"errors": errors})))
        with pytest.raises(RefusedError) as caught:
            send(make_sink(), [LOAD(1, NOW)])
        assert str(caught.value) == f"{intake.url} answered 400; it said: {said}"

    def test_a_redirect_is_not_followed_with_the_key(self, intake: Intake, make_sink: MakeSink) -> None:
        with Intake(KEY) as elsewhere:
            intake.faults.add(Fault(status=307, headers={"Location": f"{elsewhere.url}/api/v2/series"}))
            with pytest.raises(RefusedError, match="answered 307"):
                send(make_sink(), [LOAD(1, NOW)])
            assert (len(intake.requests), elsewhere.requests) == (1, [])

    def test_a_202_with_errors_is_not_success(self, intake: Intake, make_sink: MakeSink, time: Time) -> None:
        intake.accepted_errors = ["one series was\nodd", f"by {KEY}", "z" * 1000]
        sink = make_sink()
        with pytest.raises(RefusedError) as caught:
            send(sink, [LOAD(1, NOW)])
        said = ("one series was odd; by [redacted]; " + "z" * 1000)[:500]
        assert str(caught.value) == f"{intake.url} answered 202 with errors: {said}"
        assert (sink.points_sent, len(intake.requests), time.naps) == (0, 1, [])

    def test_a_defect_of_ours_is_no_failure_of_the_intake(self, intake: Intake, make_sink: MakeSink) -> None:
        host: Any = b"bytes are not JSON"
        nothing: dict[str, None] = {}
        broken = LOAD(1, NOW)._replace(host=host)
        with pytest.raises(TypeError, match="bytes"):
            send(make_sink(), [broken])
        with pytest.raises(KeyError, match="ours"):
            make_sink().ask(lambda client: nothing["ours"])
        assert intake.requests == []


class TestClocks:
    @pytest.mark.parametrize("skew", [-120, 0, 0.25, 120])
    def test_the_skew_is_measured_against_the_date_of_the_answer(
        self, intake: Intake, make_sink: MakeSink, time: Time, skew: float
    ) -> None:
        time.now = NOW + skew
        sink = make_sink()
        send(sink, [LOAD(1, NOW)])
        assert (sink.clock_skew, sink.points_sent, sink.dropped) == (skew, 1, {})

    @pytest.mark.parametrize("body", [None, b"\xff\xfe\xfd"])
    def test_it_is_measured_in_a_refusal_too(
        self, intake: Intake, make_sink: MakeSink, time: Time, body: bytes | None
    ) -> None:
        intake.faults.add(Fault(status=403, body=body))
        time.now = NOW + 30
        sink = make_sink()
        with pytest.raises(RefusedError):
            send(sink, [LOAD(1, NOW)])
        assert sink.clock_skew == 30

    @pytest.mark.parametrize("date", [None, "yesterday", "Fri, 15 Jan 2027 08:00:00 +99999999999999999999"])
    def test_without_a_date_that_can_be_read_it_is_unknown_and_all_points_count(
        self, intake: Intake, make_sink: MakeSink, date: str | None
    ) -> None:
        intake.faults.add(Fault(headers={"Date": date}))
        intake.clock = lambda: NOW + 100
        sink = make_sink()
        send(sink, [LOAD(1, NOW), LOAD(1, NOW - 3600)])
        assert (sink.clock_skew, sink.points_sent, sink.dropped) == (None, 2, {})

    @pytest.mark.parametrize(
        ("ahead", "series", "reason"),
        [(60, LOAD(1, NOW - 3600), "too_old"), (-60, LOAD(1, NOW + 600), "in_future")],
    )
    def test_what_a_small_skew_makes_the_intake_drop_is_counted(
        self, intake: Intake, make_sink: MakeSink, ahead: int, series: Series, reason: str
    ) -> None:
        intake.clock = lambda: NOW + ahead
        sink = make_sink()
        send(sink, [series, DONE(1, NOW)])
        assert (sink.points_sent, sink.dropped) == (1, {reason: 1})
        assert (intake.dropped, intake.names()) == (1, ["jobs.done"])

    @pytest.mark.parametrize(
        ("ahead", "series", "reason", "skew"),
        [(61, LOAD(1, NOW - 3600), "too_old", "-61"), (-61, LOAD(1, NOW + 600), "in_future", r"\+61")],
    )
    def test_what_a_large_skew_makes_the_intake_drop_is_an_error_as_well(
        self, intake: Intake, make_sink: MakeSink, ahead: int, series: Series, reason: str, skew: str
    ) -> None:
        intake.clock = lambda: NOW + ahead
        sink = make_sink()
        error = f"this machine's clock is {skew} s off the intake's, which silently dropped 1 of 2 points"
        with pytest.raises(DeliveryError, match=error):
            send(sink, [series, DONE(1, NOW)])
        assert (sink.points_sent, sink.dropped, intake.dropped) == (1, {reason: 1}, 1)

    @pytest.mark.parametrize("ahead", [-61, 61])
    def test_with_an_exact_clock_a_large_skew_is_an_error_after_one_payload(
        self, intake: Intake, make_sink: MakeSink, ahead: int
    ) -> None:
        intake.clock = lambda: NOW + ahead
        sink = make_sink(exact_clock=True)
        skew = re.escape(f"{-ahead:+d}")
        with pytest.raises(DeliveryError, match=f"clock is {skew} s off the intake's: points would"):
            send(sink, [LOAD(1, NOW - n % 100, project=f"{n}") for n in range(10_001)])
        assert (sink.points_sent, len(intake.requests), sink.clock_skew) == (10_000, 1, -ahead)

    @pytest.mark.parametrize("ahead", [-60, 60])
    def test_with_an_exact_clock_a_small_skew_is_none(
        self, intake: Intake, make_sink: MakeSink, caplog: pytest.LogCaptureFixture, ahead: int
    ) -> None:
        intake.clock = lambda: NOW + ahead
        sink = make_sink(exact_clock=True)
        send(sink, [LOAD(1, NOW)])
        assert (sink.points_sent, caplog.text) == (1, "")

    def test_without_an_exact_clock_a_large_skew_is_logged_once(
        self, intake: Intake, make_sink: MakeSink, caplog: pytest.LogCaptureFixture
    ) -> None:
        intake.clock = lambda: NOW + 61
        sink = make_sink()
        send(sink, [LOAD(1, NOW - n % 100, project=f"{n}") for n in range(10_001)])
        assert (sink.points_sent, len(intake.requests)) == (10_001, 2)
        assert caplog.messages == ["this machine's clock is -61 s off the intake's; correct the clock"]

    def test_a_point_at_the_very_edge_of_the_intakes_window_is_counted_as_sent(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        intake.clock = lambda: NOW + 5
        sink = make_sink()
        send(sink, [LOAD(1, NOW - 3595), LOAD(1, NOW - 3596)])
        intake.clock = lambda: NOW - 5
        send(sink, [LOAD(1, NOW + 595), LOAD(1, NOW + 596)])
        assert (sink.points_sent, sink.dropped, intake.dropped) == (2, {"too_old": 1, "in_future": 1}, 2)


class TestHistory:
    def test_points_are_sent_from_the_earliest_second_that_was_given(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        intake.historical.add("host.load")
        sink = make_sink(since=NOW - 86_400)
        send(sink, [LOAD(age, NOW - age) for age in (0, 3601, 86_400, 86_401)] + [LOAD(1, NOW + 601)])
        assert {key.second: value for key, value in intake.points.items()} == {
            NOW - age: age for age in (0, 3601, 86_400)
        }
        assert (sink.points_sent, sink.dropped) == (3, {"too_old": 1, "in_future": 1})

    @pytest.mark.parametrize("ahead", [-120, 0, 120])
    def test_old_points_are_counted_as_sent_whatever_the_clock_of_the_intake(
        self, intake: Intake, make_sink: MakeSink, ahead: int
    ) -> None:
        intake.historical.add("host.load")
        intake.clock = lambda: NOW + ahead
        sink = make_sink(since=NOW - 86_400)
        send(sink, [LOAD(1, NOW - 86_400), LOAD(1, NOW - 3600)])
        assert (sink.points_sent, sink.dropped, intake.dropped) == (2, {}, 0)

    def test_points_too_far_ahead_for_the_intake_are_still_found_out(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        intake.historical.add("host.load")
        intake.clock = lambda: NOW - 60
        sink = make_sink(since=NOW - 86_400)
        send(sink, [LOAD(1, NOW - 86_400), LOAD(1, NOW + 600)])
        assert (sink.points_sent, sink.dropped, intake.dropped) == (1, {"in_future": 1}, 1)

    def test_series_beyond_the_cap_are_an_error_and_nothing_is_sent(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        intake.historical.add("host.load")
        sink = make_sink(since=NOW - 86_400, FLEETGAUGE_SERIES_CAP="2")
        send(sink, [LOAD(1, NOW - 86_400, project=project) for project in "ab"])
        with pytest.raises(ConfigurationError, match=r"more than 2 series \(FLEETGAUGE_SERIES_CAP\)"):
            send(sink, [LOAD(1, NOW - 80_000, project=project) for project in "bc"])
        assert (len(intake.points), len(intake.requests)) == (2, 1)


class TestValidate:
    def test_a_good_key_is_said_to_be_good_and_where(self, intake: Intake, make_sink: MakeSink) -> None:
        assert make_sink().validate() == f"the API key is valid at {intake.url}"
        assert [(one.method, one.target) for one in intake.requests] == [("GET", "/api/v1/validate")]

    def test_a_bad_key_is_refused(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.key = "another"
        with pytest.raises(RefusedError, match="answered 403; check that DD_API_KEY") as caught:
            make_sink().validate()
        assert KEY not in everything(caught.value)

    def test_an_answer_that_denies_the_key_is_a_refusal(self, intake: Intake, make_sink: MakeSink) -> None:
        intake.faults.add(Fault(body='{"valid": false}'))
        with pytest.raises(RefusedError) as caught:
            make_sink().validate()
        assert str(caught.value) == (
            f"{intake.url} says that the key is not valid; check that DD_API_KEY is valid and belongs to "
            "this site (DD_SITE)"
        )

    @pytest.mark.parametrize("status", [200, 202, 204, 302])
    @pytest.mark.parametrize("body", [body for body in BODIES if body != '{"valid": true}'])
    def test_a_key_is_good_only_where_datadog_says_so(
        self, intake: Intake, make_sink: MakeSink, time: Time, status: int, body: bytes | str
    ) -> None:
        intake.faults.add(Fault(status=status, body=body), times=None)
        with pytest.raises(RefusedError) as caught:
            make_sink().validate()
        assert str(caught.value).startswith(f"{intake.url} answered {status}")
        assert str(caught.value).endswith(STRANGE)
        assert time.naps == []

    def test_a_413_to_the_question_is_a_refusal_like_any_other(
        self, intake: Intake, make_sink: MakeSink
    ) -> None:
        intake.faults.add(Fault(status=413))
        with pytest.raises(RefusedError, match="answered 413; it said: "):
            make_sink().validate()
