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
    assert history.enabled([*reversed(NAMES), *NAMES]) == {"jobs.done"}
    assert asked(intake) == [
        ("GET", f"{HISTORICAL}/host.load", 404),
        ("GET", f"{HISTORICAL}/jobs.done", 200),
        ("GET", f"{HISTORICAL}/runs.active", 404),
    ]
    assert (history.client.requests, intake.connections) == (3, 1)


def test_nobody_is_warned_that_the_operation_is_a_preview(intake: Intake, make_history: MakeHistory) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_history().enabled(["host.load"])
    assert caught == []


def test_a_404_of_a_stranger_is_no_answer(intake: Intake, make_history: MakeHistory) -> None:
    for body in ("<html>", "{}", '{"errors": []}', b"\xff\xfe\xfd"):
        intake.faults.add(Fault(status=404, body=body))
        with pytest.raises(RefusedError) as caught:
            make_history().enabled(["host.load"])
        assert str(caught.value).startswith(f"{intake.url} answered 404; response: ")
        assert "this does not look like Datadog" in str(caught.value)


def test_it_is_on_afterwards_and_stays_on(intake: Intake, make_history: MakeHistory, time: Time) -> None:
    push_live(intake, time)
    history = make_history()
    assert [history.enable("host.load") for _ in range(2)] == [None, None]
    assert [request.status for request in intake.requests[1:]] == [201, 200]
    body = {"data": {"id": "host.load", "type": "historical_metrics_configurations"}}
    assert [json.loads(request.body) for request in intake.requests[1:]] == [body, body]
    assert intake.historical == history.enabled(NAMES) == {"host.load"}


def test_a_metric_that_never_had_a_point_has_to_be_pushed_first(
    intake: Intake, make_history: MakeHistory, time: Time
) -> None:
    history = make_history()
    assert history.enable("host.load") == (
        "it does not exist yet: push it live once, and then turn it on; "
        "Datadog's message: Metric host.load does not exist"
    )
    push_live(intake, time)
    assert history.enable("host.load") is None


@pytest.mark.parametrize("status", [400, 422])
def test_what_cannot_be_turned_on_says_why(intake: Intake, make_history: MakeHistory, status: int) -> None:
    body = json.dumps({"errors": [{"title": "Nope", "detail": "host.load has\na tag configuration"}]})
    intake.faults.add(Fault(status=status, body=body))
    assert make_history().enable("host.load") == (
        "it has a tag configuration, or is a distribution or a standard metric; "
        "Datadog's message: host.load has a tag configuration"
    )


def test_any_other_refusal_says_what_datadog_said(intake: Intake, make_history: MakeHistory) -> None:
    intake.faults.add(Fault(status=409, body='{"errors": ["somebody else is at it"]}'))
    expected = f"{intake.url} answered 409; response: somebody else is at it"
    assert make_history().enable("host.load") == expected


@pytest.mark.parametrize("status", [307, 400, 404])
def test_what_is_not_datadogs_own_answer_is_an_error(
    intake: Intake, make_history: MakeHistory, status: int
) -> None:
    intake.faults.add(Fault(status=status, body="<html>"))
    with pytest.raises(RefusedError, match=f"answered {status}; "):
        make_history().enable("host.load")


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


@pytest.mark.parametrize(
    ("ask", "permission"),
    [
        (enabled, "metrics_read"),
        (enable, "late_metrics_config_write"),
    ],
)
@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_api_key_is_told_from_a_wrong_application_key(
    intake: Intake,
    make_history: MakeHistory,
    ask: Callable[[HistoricalIngestion], object],
    permission: str,
    status: int,
) -> None:
    intake.faults.add(Fault(status=status), times=None, match=of_history)
    expected = (
        f"{intake.url} answered {status}, though DD_API_KEY is good: check that DD_APP_KEY is valid, is "
        f"of the same organisation and has the permission {permission}"
    )
    try:
        said = ask(make_history())
    except ConfigurationError as error:
        said = str(error)
    assert str(said).startswith(expected)
    intake.key = "another"
    with pytest.raises(RefusedError, match="answered 403; check that DD_API_KEY is valid and belongs"):
        ask(make_history())


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
