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
    for verb in ("create", "get", "delete"):
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


def deleted(api: MetricsApi, name: str) -> Any:
    return api.delete_historical_metrics_configuration(name)


def refusal(call: Callable[[MetricsApi, str], Any], api: MetricsApi, name: str) -> tuple[int, str]:
    with pytest.raises(ApiException) as caught:
        call(api, name)
    [error] = caught.value.body["errors"]
    assert error["status"] == str(caught.value.status)
    return caught.value.status, error["detail"]


class TestSwitch:
    def test_it_is_off_turned_on_found_on_and_turned_off(self, intake: Intake) -> None:
        api = metrics(intake)
        push(intake, NOW)
        missing = (404, "Historical metrics ingestion is not enabled for host.load")
        assert refusal(found, api, "host.load") == missing
        for call, expected in ((created, 201), (created, 200), (found, 200)):
            content, status, _ = call(api, "host.load")
            assert (status, content.data.id) == (expected, "host.load")
            assert content.data.attributes.created_at == datetime.fromtimestamp(NOW, UTC)
        assert intake.historical == {"host.load"}
        assert deleted(api, "host.load")[1] == 204
        assert deleted(api, "never.there")[1] == 204
        assert refusal(found, api, "host.load") == missing

    def test_only_points_of_names_that_are_on_may_be_old(self, intake: Intake) -> None:
        intake.historical = {"jobs.done"}
        for name in ("host.load", "jobs.done"):
            push(intake, NOW - 86_400, NOW - 3601, NOW - 3600, NOW + 601, name=name)
        assert intake.series("host.load") == {((), None): {NOW - 3600: 1}}
        assert intake.series("jobs.done") == {
            ((), None): dict.fromkeys((NOW - 86_400, NOW - 3601, NOW - 3600), 1)
        }
        assert [request.dropped for request in intake.requests] == [3, 1]


class TestRefusals:
    def test_a_metric_of_which_no_point_was_ever_taken_does_not_exist(self, intake: Intake) -> None:
        push(intake, NOW - 3601)
        assert intake.dropped == 1
        expected = (404, "Metric host.load does not exist")
        assert refusal(created, metrics(intake), "host.load") == expected

    def test_a_tag_configuration_and_a_distribution_are_not_supported(self, intake: Intake) -> None:
        push(intake, NOW)
        intake.tag_configured.add("host.load")
        intake.distributions.add("host.latency")
        api = metrics(intake)
        assert refusal(created, api, "host.load") == (422, "host.load has a tag configuration")
        assert refusal(created, api, "host.latency") == (422, "host.latency is a distribution")
        assert intake.historical == set()

    @pytest.mark.parametrize("call", [created, found, deleted])
    @pytest.mark.parametrize("keys", [{**KEYS, "appKeyAuth": "wrong"}, {"apiKeyAuth": KEYS["apiKeyAuth"]}])
    def test_without_the_application_key_nothing_is_answered(
        self,
        intake: Intake,
        monkeypatch: pytest.MonkeyPatch,
        call: Callable[[MetricsApi, str], Any],
        keys: dict[str, str],
    ) -> None:
        monkeypatch.delenv("DD_APP_KEY", raising=False)
        intake.historical.add("host.load")
        expected = (403, "The application key is missing or invalid")
        assert refusal(call, metrics(intake, keys), "host.load") == expected
        assert intake.historical == {"host.load"}

    def test_api_key_is_checked_before_the_application_key(self, intake: Intake) -> None:
        with pytest.raises(ApiException) as caught:
            found(metrics(intake, {**KEYS, "apiKeyAuth": "wrong"}), "host.load")
        assert (caught.value.status, caught.value.body) == (403, {"errors": ["Forbidden"]})

    @pytest.mark.parametrize(
        ("lacking", "refused", "allowed"),
        [
            ("metrics_read", [found], [created, deleted]),
            ("late_metrics_config_write", [created, deleted], [found]),
        ],
    )
    def test_each_operation_needs_its_permission(
        self,
        intake: Intake,
        lacking: str,
        refused: list[Callable[[MetricsApi, str], Any]],
        allowed: list[Callable[[MetricsApi, str], Any]],
    ) -> None:
        intake.historical.add("host.load")
        intake.permissions.discard(lacking)
        api = metrics(intake)
        for call in refused:
            expected = (403, f"The application key lacks the permission {lacking}")
            assert refusal(call, api, "host.load") == expected
        assert {call(api, "host.load")[1] for call in allowed} <= {200, 204}

    @pytest.mark.parametrize("body", ["{", "[]", '{"data": {"id": "host.load", "type": "metrics"}}'])
    def test_what_is_not_a_configuration_is_a_bad_request(self, intake: Intake, body: str) -> None:
        headers = {"DD-API-KEY": intake.key, "DD-APPLICATION-KEY": intake.app_key}
        with urllib3.PoolManager(retries=False) as pool:
            assert pool.request("POST", intake.url + HISTORICAL, body=body, headers=headers).status == 400
