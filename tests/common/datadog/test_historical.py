"""Which metrics take old points: asked, turned on and refused on the wire."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable

import pytest

from common.datadog.client import DatadogClient
from common.datadog.historical import HistoricalIngestion, visibility_delay
from common.datadog.intake import DatadogSink
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.metric import gauge
from common.net.retry import Deadline
from support.servers.datadog import HISTORICAL, Intake
from support.servers.faults import Fault
from support.standins import APP_KEY, KEY, NOW, Time, core_settings, datadog_settings, everything

LOAD = gauge("host.load", "process", "x")
TAG_CONFIGURATION = "it has a tag configuration, or is a distribution or a standard metric"
NAMES = ("host.load", "jobs.done", "runs.active")

MakeHistory = Callable[..., HistoricalIngestion]


def push_live(intake: Intake, time: Time) -> None:
    settings = datadog_settings(FLEETGAUGE_DD_URL=intake.url, DD_APP_KEY=APP_KEY)
    client = DatadogClient(settings, core_settings(), Deadline(60, time), clock=time)
    sink = DatadogSink(client, core_settings())
    sink.add(LOAD(1, NOW))
    sink.flush()


def enabled(history: HistoricalIngestion) -> object:
    return history.enabled(["host.load", "jobs.done"])


def enable(history: HistoricalIngestion) -> object:
    return history.enable("host.load")


def of_history(path: str) -> bool:
    return path.startswith(HISTORICAL)


def asked(intake: Intake) -> list[tuple[str, str, int | None]]:
    return [(request.method, request.path, request.status) for request in intake.requests]


def test_each_name_is_asked_about_once_on_one_connection(intake: Intake, make_history: MakeHistory) -> None:
    intake.historical = {"jobs.done", "elsewhere"}
    history = make_history()
    with warnings.catch_warnings(record=True) as caught:  # that the operation is a preview
        warnings.simplefilter("always")
        assert history.enabled([*reversed(NAMES), *NAMES]) == {"jobs.done"}
    assert caught == []
    assert asked(intake) == [
        ("GET", f"{HISTORICAL}/host.load", 404),
        ("GET", f"{HISTORICAL}/jobs.done", 200),
        ("GET", f"{HISTORICAL}/runs.active", 404),
    ]
    assert (history.client.requests, intake.connections) == (3, 1)


def test_it_is_on_afterwards_and_stays_on(intake: Intake, make_history: MakeHistory, time: Time) -> None:
    history = make_history()
    assert history.enable("host.load") == (
        "it does not exist yet: push it live once, and then turn it on; "
        "Datadog's message: Metric host.load does not exist"
    )
    push_live(intake, time)
    assert [history.enable("host.load") for _ in range(2)] == [None, None]
    body = {"data": {"id": "host.load", "type": "historical_metrics_configurations"}}
    assert [(one.status, json.loads(one.body)) for one in intake.requests[-2:]] == [(201, body), (200, body)]
    assert intake.historical == history.enabled(NAMES) == {"host.load"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, f"{TAG_CONFIGURATION}; Datadog's message: No."),
        (422, f"{TAG_CONFIGURATION}; Datadog's message: No."),
        (409, "{url} answered 409; response: No."),
    ],
)
def test_what_cannot_be_turned_on_says_why(
    intake: Intake, make_history: MakeHistory, status: int, expected: str
) -> None:
    intake.faults.add(Fault(status=status, body='{"errors": [{"title": "Nope", "detail": "No."}]}'))
    assert make_history().enable("host.load") == expected.format(url=intake.url)


@pytest.mark.parametrize("ask", [enabled, enable])
@pytest.mark.parametrize("status", [307, 400, 404])
@pytest.mark.parametrize("body", ["<html>", "{}", '{"errors": []}', b"\xff\xfe\xfd"])
def test_a_refusal_that_is_not_datadogs_is_no_answer(
    intake: Intake,
    make_history: MakeHistory,
    ask: Callable[[HistoricalIngestion], object],
    status: int,
    body: bytes | str,
) -> None:
    intake.faults.add(Fault(status=status, body=body))
    with pytest.raises(
        RefusedError, match=f"answered {status}; response: .*; this does not look like Datadog"
    ):
        ask(make_history())


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault(status=status) for status in (408, 429, 500, 503)),
        *(Fault(status=500, applied=True), Fault(reset="before"), Fault(reset="after")),
        *(Fault(reset="after", applied=True), Fault(truncate=True)),
        *(Fault(body=body) for body in ("<html>", "", "null", "[]", "{}", '{"data": null}', "7", '"on"')),
        *(Fault(body=body) for body in ('{"data": {}}', '{"data": []}', '{"data": {"id": "a.b"}}')),
        Fault(body=b"\xff\xfe\xfd"),
    ],
    ids=str,
)
def test_what_may_pass_is_asked_again_and_the_answer_is_right(
    intake: Intake, make_history: MakeHistory, time: Time, fault: Fault
) -> None:
    intake.historical.add("host.load")
    history = make_history()
    intake.faults.add(fault, times=2)
    assert history.enabled(["host.load"]) == {"host.load"}
    assert (history.client.requests, len(time.naps)) == (3, 2)
    intake.faults.add(fault, times=2)
    assert history.enable("host.load") is None
    assert (history.client.requests, len(time.naps)) == (6, 4)


def test_an_answer_about_another_metric_never_counts(intake: Intake, make_history: MakeHistory) -> None:
    intake.faults.add(Fault(status=200, body='{"data": {"id": "jobs.done"}}'), times=None)
    with pytest.raises(DeliveryError, match=r"an answer that is not about host.load \(tried 12 times\)$"):
        make_history().enabled(["host.load"])


def test_how_long_points_take_to_be_visible_depends_on_their_age() -> None:
    bounds = [0, 3600, 12 * 3600, 30 * 86_400]
    texts = [visibility_delay(bound + 1) for bound in bounds]
    assert len(set(texts)) == len(bounds)
    assert [visibility_delay(bound) for bound in bounds[1:]] == texts[:-1]


@pytest.mark.parametrize("ask", [enabled, enable])
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_both_keys_and_the_permissions(
    intake: Intake, make_history: MakeHistory, ask: Callable[[HistoricalIngestion], object], status: int
) -> None:
    intake.faults.add(Fault(status=status), times=None, match=of_history)
    try:
        message = str(ask(make_history()))
    except RefusedError as error:
        message = str(error) if error.configuration else ""
    assert message.startswith(f"{intake.url} answered {status}; check that DD_APP_KEY is valid")
    for part in ("metrics_read, late_metrics_config_write", "DD_API_KEY", "DD_SITE", "response: "):
        assert part in message


def test_a_push_never_carries_the_application_key(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, time: Time
) -> None:
    monkeypatch.setenv("DD_APP_KEY", APP_KEY)
    push_live(intake, time)
    settings = datadog_settings(FLEETGAUGE_DD_URL=intake.url, DD_APP_KEY=APP_KEY)
    DatadogClient(settings, core_settings(), Deadline(60, time), clock=time).validate()
    assert [request.status for request in intake.requests] == [202, 200]
    assert not any(APP_KEY in f"{request.headers}{request.target}" for request in intake.requests)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 500])
def test_neither_key_is_in_an_error_or_a_log(
    intake: Intake,
    make_history: MakeHistory,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    status: int,
) -> None:
    caplog.set_level(logging.DEBUG, "common")
    body = json.dumps({"errors": [{"detail": f"{KEY} and {APP_KEY} are odd"}]})
    echoing = Fault(status=status, body=body)
    intake.faults.add(echoing, times=None, match=of_history)
    told = [*capfd.readouterr(), repr(make_history())]
    for ask in (enabled, enable):
        try:
            told.append(str(ask(make_history())))
        except (ConfigurationError, DeliveryError) as error:
            told.append(everything(error))
    seen = "".join([*told, caplog.text, *capfd.readouterr()])
    assert not [key for key in (KEY, APP_KEY) if key in seen]
    assert status == 500 or "[redacted] and [redacted] are odd" in seen
