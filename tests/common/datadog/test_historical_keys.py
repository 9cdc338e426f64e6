"""The two keys of historical ingestion: which is missing, which is wrong, and neither ever seen."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from common.datadog.client import DatadogClient
from common.datadog.historical import HistoricalIngestion
from common.datadog.intake import DatadogSink
from common.errors import ConfigurationError, DeliveryError, RefusedError
from common.metric import gauge
from common.net.retry import Deadline
from support.servers.datadog import HISTORICAL, Intake
from support.servers.faults import Fault
from support.standins import APP_KEY, KEY, NOW, Time, core_settings, datadog_settings, everything

LOAD = gauge("host.load", "process", "x")

MakeHistory = Callable[..., HistoricalIngestion]


def enabled(history: HistoricalIngestion) -> object:
    return history.enabled(["host.load", "jobs.done"])


def enable(history: HistoricalIngestion) -> object:
    return history.enable("host.load")


def of_history(path: str) -> bool:
    return path.startswith(HISTORICAL)


def test_without_an_application_key_it_is_said_where_it_was_looked_for(make_history: MakeHistory) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_history(DD_APP_KEY="")
    assert "DD_APP_KEY is not set; looked in: the environment; " in str(caught.value)
    assert type(caught.value) is ConfigurationError


@pytest.mark.parametrize(
    ("ask", "permission"),
    [
        (enabled, "metrics_read"),
        (enable, "late_metrics_config_write"),
    ],
)
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("body", [None, "", b"\xff\xfe\xfd"])
def test_a_wrong_api_key_is_told_from_a_wrong_application_key(
    intake: Intake,
    make_history: MakeHistory,
    ask: Callable[[HistoricalIngestion], object],
    permission: str,
    status: int,
    body: bytes | None,
) -> None:
    forbidden = Fault(status=status, body=body)
    intake.faults.add(forbidden, times=None, match=of_history)
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


def test_a_wrong_application_key_is_a_matter_of_configuration(
    intake: Intake, make_history: MakeHistory
) -> None:
    with pytest.raises(ConfigurationError, match=r"DD_APP_KEY is valid.*message: The application key is"):
        make_history(DD_APP_KEY="wrong-key").enabled(["host.load"])
    assert [(request.path, request.status) for request in intake.requests] == [
        (f"{HISTORICAL}/host.load", 403),
        ("/api/v1/validate", 200),
    ]


def test_a_missing_permission_is_a_reason_and_asking_still_works(
    intake: Intake, make_history: MakeHistory
) -> None:
    intake.permissions.discard("late_metrics_config_write")
    intake.historical.add("jobs.done")
    history = make_history()
    assert enabled(history) == {"jobs.done"}
    assert str(history.enable("host.load")).endswith(
        "has the permission late_metrics_config_write; "
        "Datadog's message: The application key lacks the permission late_metrics_config_write"
    )


def test_a_push_never_carries_the_application_key(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, time: Time
) -> None:
    monkeypatch.setenv("DD_APP_KEY", APP_KEY)
    settings = datadog_settings(FLEETGAUGE_DD_URL=intake.url, DD_APP_KEY=APP_KEY)
    client = DatadogClient(settings, core_settings(), Deadline(60, time), clock=time)
    sink = DatadogSink(client, core_settings())
    sink.add(LOAD(1, NOW))
    sink.flush()
    client.validate()
    assert [request.status for request in intake.requests] == [202, 200]
    for request in intake.requests:
        assert "DD-APPLICATION-KEY" not in request.headers
        assert APP_KEY not in str(request.headers)
        assert APP_KEY not in request.target


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
