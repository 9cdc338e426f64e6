"""The client on the wire: what is retried, what is final, and what counts as Datadog's own answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from common.datadog import client
from common.datadog.client import DatadogClient
from common.datadog.intake import DatadogSink
from common.datadog.payloads import Encoding
from common.errors import DeliveryError, RefusedError
from common.metric import count, gauge
from common.net.retry import Deadline
from support.servers.datadog import Intake
from support.servers.faults import Fault
from support.sinks import send
from support.standins import KEY, NOW, Time, core_settings, datadog_settings, everything

LOAD = gauge("host.load", "process", "x", "project", "run")
DONE = count("jobs.done", "job", "x", "project")
STRANGE = "this does not look like Datadog: check DD_SITE, FLEETGAUGE_DD_URL and HTTPS_PROXY"
BODIES = ("", "{}", '{"errors": []}', '{"valid": true}', "[]", "null", "7", "<html>Log in", b"\xff\xfe\xfd")

MakeClient = Callable[..., DatadogClient]
MakeSink = Callable[..., DatadogSink]


def statuses(intake: Intake) -> list[int | None]:
    return [request.status for request in intake.requests]


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault(status=status) for status in (408, 429, 500, 502, 503, 504, 599)),
        *(Fault(status=500, applied=True), Fault(reset="before"), Fault(reset="after")),
        *(Fault(reset="after", applied=True), Fault(truncate=True), Fault(body="<html>")),
        *(Fault(body=""), Fault(body="null"), Fault(body="[]"), Fault(body=b"\xff\xfe\xfd")),
        *(Fault(body="[" * 100_000), Fault(status=503, body=b"\xff\xfe\xfd")),
        Fault(body=b"no gzip", headers={"Content-Encoding": "gzip"}),
    ],
    ids=str,
)
def test_what_may_pass_is_tried_again_and_the_state_ends_right(
    intake: Intake, make_sink: MakeSink, time: Time, fault: Fault
) -> None:
    intake.faults.add(fault, times=2)
    sink = make_sink()
    send(sink, [DONE(1, NOW), DONE(2, NOW), LOAD(7, NOW)])
    assert len(intake.requests) == 3
    assert len(time.naps) == 2
    assert (intake.value("jobs.done"), intake.value("host.load")) == (3, 7)
    assert len(intake.points) == sink.points_sent == 2


@pytest.mark.parametrize(
    "fault", [Fault(hang=True), Fault(hang=True, applied=True), Fault(stall=True)], ids=str
)
def test_no_complete_answer_in_time_is_tried_again(
    intake: Intake, make_sink: MakeSink, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(client, "RESPONSE_TIMEOUT", 0.05)
    intake.faults.add(fault)
    sink = make_sink()
    send(sink, [DONE(3, NOW)])
    assert (intake.value("jobs.done"), sink.points_sent, len(intake.requests)) == (3, 1, 2)


def test_the_deadline_is_shared_by_all_payloads(intake: Intake, make_sink: MakeSink, time: Time) -> None:
    intake.faults.add(Fault(status=503, headers={"Retry-After": "50"}))
    intake.faults.add(Fault())
    intake.faults.add(Fault(status=503, headers={"Retry-After": "50"}, body="<html>"), times=None)
    sink = make_sink(seconds=120)
    with pytest.raises(DeliveryError, match=r"answered 503: <html> \(tried 2 times\)$"):
        send(sink, [LOAD(1, NOW - n % 100, project=f"{n}") for n in range(10_001)])
    assert (statuses(intake), sink.points_sent) == ([503, 202, 503, 503], 10_000)


def test_the_servers_time_is_its_last_date_and_what_has_passed_since(
    intake: Intake, make_client: MakeClient, time: Time
) -> None:
    intake.clock = lambda: NOW + 500
    client = make_client()
    with pytest.raises(DeliveryError, match="no Date header"):
        client.server_time()
    client.validate()
    time.sleep(90)
    assert client.server_time() == NOW + 590


STATUSES = (200, 201, 203, 204, 206, 299, 301, 302, 303, 307, 308)
REFUSALS = (400, 401, 403, 404, 407, 418)
LONG = "x" * 170 + f" the key {KEY} and more" + "y" * 100


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        *((Fault(status=status), f"{{url}} answered {status}; check .*DD_API_KEY") for status in (401, 403)),
        (Fault(status=404), "{url} answered 404; check DD_SITE"),
        # Not in Datadog's words: a proxy, a captive portal, another server.
        *(
            (Fault(status=status, body=body), f"{{url}} answered {status}; response: .*{STRANGE}$")
            for status, bodies in (
                *((status, BODIES) for status in STATUSES),
                *((status, ("", "<html>blocked", "{}", b"\xff\xfe\xfd")) for status in REFUSALS),
            )
            for body in bodies
        ),
        (Fault(body="x" * 2**21), "sent more than 1,048,576 bytes; this does not look like"),
        # What the error document says is quoted, without a key in it.
        (Fault(status=400, body='{"errors": ["one", "two"]}'), "answered 400; response: one; two$"),
        (
            Fault(status=400, body='{"errors": [{"title": "Bad", "detail": "no such unit"}]}'),
            "answered 400; response: no such unit$",
        ),
        (Fault(status=400, body='{"errors": [{"title": "Bad"}, {}, ""]}'), "answered 400; response: Bad$"),
        (
            Fault(status=400, body='{"errors": "odd"}'),
            f'answered 400; response: {{{{"errors": "odd"}}}}; {STRANGE}$',
        ),
        (
            Fault(status=400, body=LONG),
            r"response: x{{170}} the key \[redacted\] and morey{{100}}; this does",
        ),
        # A 202 with errors of any shape is no acceptance.
        *(
            (Fault(body=f'{{"errors": {errors}}}'), "{url} answered 202 with errors: ")
            for errors in ("[1]", '"odd"', "{}", "true", "0", '[{"detail": "x"}]')
        ),
        (
            Fault(body=json.dumps({"errors": [f"by {KEY}", "z" * 1000]})),
            r"errors: \['by \[redacted\]', 'z{{200,300}}$",
        ),
    ],
    ids=lambda value: str(value)[:90],
)
def test_refusal_is_final_and_says_what_to_check(
    intake: Intake, make_sink: MakeSink, time: Time, fault: Fault, message: str
) -> None:
    intake.faults.add(fault, times=None)
    sink = make_sink()
    with pytest.raises(RefusedError, match=message.format(url=intake.url)) as caught:
        send(sink, [LOAD(1, NOW)])
    assert (sink.points_sent, len(intake.requests), time.naps) == (0, 1, [])
    assert KEY[:8] not in everything(caught.value)
    assert STRANGE not in str(caught.value) or "DD_API_KEY" not in str(caught.value)


def test_a_202_with_an_object_without_errors_is_acceptance(intake: Intake, make_sink: MakeSink) -> None:
    for body in ("{}", '{"errors": null}', '{"errors": [], "more": 1}'):
        intake.faults.add(Fault(body=body))
        send(make_sink(), [LOAD(1, NOW)])
    assert statuses(intake) == [202, 202, 202]


def test_a_defect_of_ours_is_no_failure_of_the_intake(
    intake: Intake, make_sink: MakeSink, make_client: MakeClient
) -> None:
    host: Any = b"bytes are not JSON"
    nothing: dict[str, None] = {}
    broken = LOAD(1, NOW)._replace(host=host)
    with pytest.raises(TypeError, match="bytes"):
        send(make_sink(), [broken])
    with pytest.raises(KeyError, match="ours"):
        make_client().retry(lambda: nothing["ours"])
    assert intake.requests == []


@pytest.mark.parametrize(
    ("status", "body", "wrong"),
    [
        (403, None, "answered 403; check that DD_API_KEY is valid"),
        (200, '{"valid": false}', "reports that the key is not valid; check that DD_API_KEY is valid"),
        (200, '{"valid": 1}', STRANGE),
        (200, "<html>Log in", STRANGE),
        (202, '{"valid": true}', STRANGE),
        (302, "", STRANGE),
    ],
)
def test_key_is_good_only_where_datadog_confirms_it(
    intake: Intake, make_client: MakeClient, time: Time, status: int, body: str | None, wrong: str
) -> None:
    assert make_client().validate() == f"the API key is valid at {intake.url}"
    intake.faults.add(Fault(status=status, body=body), times=None)
    with pytest.raises(RefusedError, match=wrong) as caught:
        make_client().validate()
    assert time.naps == []
    assert KEY not in everything(caught.value)


def test_a_dns_failure_is_retried_and_names_the_setting(monkeypatch: pytest.MonkeyPatch, time: Time) -> None:
    def getaddrinfo(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "simulated")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(DeliveryError, match=r"cannot reach api.x.invalid \(DNS: simulated\); check DD_SITE"):
        client_of(time, DD_SITE="x.invalid").validate()
    assert len(time.naps) == 11


def client_of(time: Time, **environ: str) -> DatadogClient:
    deadline = Deadline(1000, time, time.sleep)
    return DatadogClient(datadog_settings(**environ), core_settings(), deadline, clock=time)


def test_zstd_is_for_datadogs_own_intake_and_gzip_for_any_other(time: Time) -> None:
    assert client_of(time, DD_SITE="us5.datadoghq.com").encoding == Encoding.ZSTD
    assert client_of(time, FLEETGAUGE_DD_URL="https://relay.example").encoding == Encoding.GZIP


@pytest.mark.parametrize(
    ("date", "skew"),
    [
        *((formatdate(NOW - ahead, usegmt=True), ahead) for ahead in (-120, 0, 120)),
        *((date, None) for date in (None, "yesterday", "Fri, 15 Jan 2027 08:00:00 +99999999999999999999")),
    ],
)
def test_the_skew_is_measured_against_the_date_of_the_answer(
    intake: Intake, make_client: MakeClient, date: str | None, skew: float | None
) -> None:
    intake.faults.add(Fault(headers={"Date": date}))
    client = make_client()
    client.validate()
    assert client.clock_skew == skew
    intake.faults.add(Fault(status=403, headers={"Date": date}))
    refused = make_client()
    with pytest.raises(RefusedError):
        refused.validate()
    assert refused.clock_skew == skew
