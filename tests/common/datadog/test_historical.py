"""Which metrics take old points: asked, turned on and refused on the wire."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable

import pytest

from common.datadog.client import DatadogClient
from common.datadog.historical import enable, enabled, visibility_delay
from common.datadog.intake import DatadogSink
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.metric import gauge
from support.servers.datadog import HISTORICAL, Intake
from support.servers.faults import Fault
from support.sinks import send
from support.standins import APP_KEY, KEY, NOW, Time, everything

LOAD = gauge("host.load", "process", "x")
TAG_CONFIGURATION = "it has a tag configuration, or is a distribution or a standard metric"
NAMES = ("host.load", "jobs.done", "runs.active")

Ask = Callable[[DatadogClient], object]
on_both_requests = pytest.mark.parametrize(
    "ask", [lambda client: enabled(client, ["host.load"]), lambda client: enable(client, "host.load")]
)


def test_each_name_is_asked_about_once_on_one_connection(intake: Intake, client: DatadogClient) -> None:
    intake.historical = {"jobs.done", "elsewhere"}
    with warnings.catch_warnings(record=True) as caught:  # that the operation is a preview
        warnings.simplefilter("always")
        assert enabled(client, [*reversed(NAMES), *NAMES]) == {"jobs.done"}
    assert caught == []
    assert [(request.method, request.path, request.status) for request in intake.requests] == [
        ("GET", f"{HISTORICAL}/host.load", 404),
        ("GET", f"{HISTORICAL}/jobs.done", 200),
        ("GET", f"{HISTORICAL}/runs.active", 404),
    ]
    assert intake.connections == 1


def test_it_is_on_afterwards_and_stays_on(
    intake: Intake, client: DatadogClient, make_sink: Callable[..., DatadogSink]
) -> None:
    assert enable(client, "host.load") == (
        "it does not exist yet: push it live once, and then turn it on; "
        "Datadog's message: Metric host.load does not exist"
    )
    send(make_sink(), [LOAD(1, NOW)])
    assert [enable(client, "host.load") for _ in range(2)] == [None, None]
    body = {"data": {"id": "host.load", "type": "historical_metrics_configurations"}}
    assert [(one.status, json.loads(one.body)) for one in intake.requests[-2:]] == [(201, body), (200, body)]
    assert intake.historical == enabled(client, NAMES) == {"host.load"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, f"{TAG_CONFIGURATION}; Datadog's message: No."),
        (422, f"{TAG_CONFIGURATION}; Datadog's message: No."),
        (409, "{url} answered 409; response: No."),
    ],
)
def test_what_cannot_be_turned_on_says_why(
    intake: Intake, client: DatadogClient, status: int, expected: str
) -> None:
    intake.faults.add(Fault(status=status, body='{"errors": [{"title": "Nope", "detail": "No."}]}'))
    assert enable(client, "host.load") == expected.format(url=intake.url)


@on_both_requests
def test_a_refusal_that_is_not_datadogs_is_no_answer(intake: Intake, client: DatadogClient, ask: Ask) -> None:
    for status in (307, 400, 404):
        for body in ("<html>", "{}", '{"errors": []}', b"\xff\xfe\xfd"):
            intake.faults.add(Fault(status=status, body=body))
            with pytest.raises(RefusedError, match=f"answered {status}; .*this does not look like Datadog"):
                ask(client)


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault(status=503), Fault(status=500, applied=True), Fault(reset="after", applied=True)),
        *(Fault(body=body) for body in ("<html>", "", "null", "[]", "{}", '{"data": null}', '"on"')),
        *(Fault(body=body) for body in ('{"data": {}}', '{"data": []}', '{"data": {"id": "a.b"}}')),
    ],
    ids=str,
)
def test_what_may_pass_is_asked_again_and_the_answer_is_right(
    intake: Intake, client: DatadogClient, time: Time, fault: Fault
) -> None:
    intake.historical.add("host.load")
    intake.faults.add(fault, times=2)
    assert enabled(client, ["host.load"]) == {"host.load"}
    intake.faults.add(fault, times=2)
    assert enable(client, "host.load") is None
    assert (len(intake.requests), len(time.naps)) == (6, 4)


def test_how_long_points_take_to_be_visible_depends_on_their_age() -> None:
    bounds = [0, 3600, 12 * 3600, 30 * 86_400]
    texts = [visibility_delay(bound + 1) for bound in bounds]
    assert len(set(texts)) == len(bounds)
    assert [visibility_delay(bound) for bound in bounds[1:]] == texts[:-1]


@on_both_requests
def test_a_refused_key_names_both_keys_and_no_key_is_in_an_error_or_a_log(
    intake: Intake, client: DatadogClient, caplog: pytest.LogCaptureFixture, ask: Ask
) -> None:
    caplog.set_level(logging.DEBUG, "common")
    body = json.dumps({"errors": [{"detail": f"{KEY} and {APP_KEY} are odd"}]})
    for status in (400, 401, 403, 404, 500):
        intake.faults.add(Fault(status=status, body=body), times=12 if status == 500 else 1)
        try:
            message = text = f"{ask(client)} {client!r}"
        except (ConfigurationError, DeliveryError) as error:
            message, text = str(error), everything(error)
        assert not [key for key in (KEY, APP_KEY) if key in text + caplog.text]
        if status in {401, 403}:
            assert message.startswith(f"{intake.url} answered {status}; check that DD_APP_KEY is valid")
            for part in ("metrics_read, late_metrics_config_write", "DD_API_KEY", "DD_SITE"):
                assert part in message
            assert "[redacted] and [redacted] are odd" in message


def test_a_push_never_carries_the_application_key(
    intake: Intake, make_sink: Callable[..., DatadogSink]
) -> None:
    send(make_sink(), [LOAD(1, NOW)])  # whose settings have one
    [request] = intake.requests
    assert request.status == 202
    assert APP_KEY not in f"{request.headers}{request.target}"
