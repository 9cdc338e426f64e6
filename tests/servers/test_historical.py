"""Historical ingestion of the intake, asked by the real client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import urllib3
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.exceptions import ApiException
from datadog_api_client.v2.api.metrics_api import MetricsApi
from datadog_api_client.v2.model.historical_metrics_configuration_create_data import (
    HistoricalMetricsConfigurationCreateData,
)
from datadog_api_client.v2.model.historical_metrics_configuration_create_request import (
    HistoricalMetricsConfigurationCreateRequest,
)
from datadog_api_client.v2.model.historical_metrics_configuration_type import (
    HistoricalMetricsConfigurationType,
)

from support.servers.datadog import HISTORICAL, Intake

NOW = 1_800_000_000
KEYS = {"apiKeyAuth": "test-api-key", "appKeyAuth": "test-app-key"}

pytestmark = pytest.mark.filterwarnings("ignore:Using unstable operation")


@pytest.fixture
def intake() -> Iterator[Intake]:
    with Intake(clock=lambda: NOW) as running:
        yield running


def metrics(intake: Intake, keys: dict[str, str] = KEYS) -> MetricsApi:
    configuration = Configuration(host=intake.url, api_key=dict(keys), return_http_data_only=False)
    for verb in ("create", "get"):
        configuration.unstable_operations[f"{verb}_historical_metrics_configuration"] = True
    return MetricsApi(ApiClient(configuration))


def push(intake: Intake, *seconds: int, name: str = "host.load") -> None:
    points = [{"timestamp": second, "value": 1} for second in seconds]
    body = json.dumps({"series": [{"metric": name, "type": 3, "points": points}]})
    with urllib3.PoolManager(retries=False) as pool:
        url = f"{intake.url}/api/v2/series"
        assert pool.request("POST", url, body=body, headers={"DD-API-KEY": intake.key}).status == 202


# Any: with return_http_data_only=False the client returns content, status and headers, which it does not say
def created(api: MetricsApi, name: str) -> Any:
    kind = HistoricalMetricsConfigurationType.HISTORICAL_METRICS_CONFIGURATIONS
    data = HistoricalMetricsConfigurationCreateData(id=name, type=kind)
    return api.create_historical_metrics_configuration(HistoricalMetricsConfigurationCreateRequest(data=data))


def found(api: MetricsApi, name: str) -> Any:
    return api.get_historical_metrics_configuration(name)


def refusal(call: Callable[[MetricsApi, str], Any], api: MetricsApi, name: str) -> tuple[int, str]:
    with pytest.raises(ApiException) as caught:
        call(api, name)
    [error] = caught.value.body["errors"]
    assert error["status"] == str(caught.value.status)
    return caught.value.status, error["detail"]


def test_it_is_off_turned_on_and_found_on(intake: Intake) -> None:
    api = metrics(intake)
    push(intake, NOW - 3601)
    assert refusal(created, api, "host.load") == (404, "Metric host.load does not exist")
    push(intake, NOW)
    missing = (404, "Historical metrics ingestion is not enabled for host.load")
    assert refusal(found, api, "host.load") == missing
    for call, expected in ((created, 201), (created, 200), (found, 200)):
        content, status, _ = call(api, "host.load")
        assert (status, content.data.id) == (expected, "host.load")
        assert content.data.attributes.created_at == datetime.fromtimestamp(NOW, UTC)
    assert intake.historical == {"host.load"}


def test_only_points_of_names_that_are_on_may_be_old(intake: Intake) -> None:
    intake.historical = {"jobs.done"}
    for name in ("host.load", "jobs.done"):
        push(intake, NOW - 86_400, NOW - 3601, NOW - 3600, NOW + 601, name=name)
    assert intake.series("host.load") == {((), None): {NOW - 3600: 1}}
    assert [request.dropped for request in intake.requests] == [3, 1]


def test_a_tag_configuration_is_not_supported(intake: Intake) -> None:
    intake.tag_configured.add("host.load")
    assert refusal(created, metrics(intake), "host.load") == (422, "host.load has a tag configuration")
    assert intake.historical == set()


@pytest.mark.parametrize("call", [created, found])
def test_keys_and_permissions_are_checked(
    intake: Intake, monkeypatch: pytest.MonkeyPatch, call: Callable[[MetricsApi, str], Any]
) -> None:
    monkeypatch.delenv("DD_APP_KEY", raising=False)
    intake.historical.add("host.load")
    for keys in ({**KEYS, "appKeyAuth": "wrong"}, {"apiKeyAuth": KEYS["apiKeyAuth"]}):
        expected = (403, "The application key is missing or invalid")
        assert refusal(call, metrics(intake, keys), "host.load") == expected
    with pytest.raises(ApiException) as caught:
        call(metrics(intake, {**KEYS, "apiKeyAuth": "wrong"}), "host.load")
    assert (caught.value.status, caught.value.body) == (403, {"errors": ["Forbidden"]})
    lacking = "metrics_read" if call is found else "late_metrics_config_write"
    intake.permissions.discard(lacking)
    expected = (403, f"The application key lacks the permission {lacking}")
    assert refusal(call, metrics(intake), "host.load") == expected


@pytest.mark.parametrize("body", ["{", "[]", '{"data": {"id": "host.load", "type": "metrics"}}'])
def test_what_is_not_a_configuration_is_a_bad_request(intake: Intake, body: str) -> None:
    headers = {"DD-API-KEY": intake.key, "DD-APPLICATION-KEY": intake.app_key}
    with urllib3.PoolManager(retries=False) as pool:
        assert pool.request("POST", intake.url + HISTORICAL, body=body, headers=headers).status == 400
