"""Which metrics take points older than an hour, and how more of them come to.

Historical Metrics Ingestion is a switch per metric name. Where it is off Datadog accepts old points and drops
them without a word, so it is asked about before a backfill and never assumed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from common.datadog.client import ApplicationClient
from common.errors import RefusedError
from common.net.retry import TransientError

if TYPE_CHECKING:
    from datadog_api_client import ApiClient
    from datadog_api_client.v2.api.metrics_api import MetricsApi

READING = "metrics_read"
WRITING = "late_metrics_config_write"

_TYPE = "historical_metrics_configurations"
KEPT = 456 * 86_400  # seconds that Datadog keeps a metric for by default: 15 months

_HOUR = 3600
_DAY = 24 * _HOUR


class HistoricalIngestion(ApplicationClient):
    """Asks about the switch of each metric, and turns it on; only this sends the application key."""

    previews = ("get_historical_metrics_configuration", "create_historical_metrics_configuration")

    purpose = "Datadog says only to an application key which metrics take points older than an hour"

    def enabled(self, names: Iterable[str]) -> set[str]:
        """The names among these that take old points, each asked about once."""
        return {name for name in sorted(set(names)) if self._is_on(name)}

    def enable(self, name: str) -> str | None:
        """Turn it on for one name; None when it is on now, otherwise why it was refused."""
        body: Any = {"data": {"id": name, "type": _TYPE}}  # declared as a model class; this does as well
        try:
            self._ask_about(name, lambda api: api.create_historical_metrics_configuration(body))
        except RefusedError as refused:
            return self._reason(refused)
        return None

    def _is_on(self, name: str) -> bool:
        try:
            self._ask_about(name, lambda api: api.get_historical_metrics_configuration(name))
        except RefusedError as refused:
            if refused.status == 404 and refused.problems:
                return False
            raise self.blame(refused, READING) from None
        return True

    def _ask_about(self, name: str, operation: Callable[[MetricsApi], object]) -> None:
        """Ask for the configuration of a metric: that there is one means that it is on."""

        def call(client: ApiClient) -> None:
            from datadog_api_client.v2.api.metrics_api import MetricsApi

            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Using unstable operation")
                answer: Any = operation(MetricsApi(client))
            if getattr(getattr(answer[0], "data", None), "id", None) != name:
                raise TransientError(f"an answer that is not about {name}")

        self.ask(call)

    def _reason(self, refused: RefusedError) -> str:
        """A refusal in plain words; raises what is no answer to the question at all."""
        blamed = self.blame(refused, WRITING)
        if blamed is not refused:
            return str(blamed)
        if not refused.problems:
            raise refused
        said = f"; Datadog said: {'; '.join(refused.problems)}"
        if refused.status == 404:
            return f"it does not exist yet: push it live once, and then turn it on{said}"
        if refused.status in {400, 422}:
            return f"it has a tag configuration, or is a distribution or a standard metric{said}"
        return str(refused)


def refusal(missing: int, command: str) -> str:
    """Why nothing is sent of so many metrics, and what to do."""
    return (
        f"Historical Metrics Ingestion is off for {missing} of the metrics: Datadog would drop every "
        f"point of theirs that is older than an hour, without a word; to turn it on: {command}"
    )


def visible(oldest_age_seconds: float) -> str:
    """When points up to this old are on a dashboard, after they were sent."""
    if oldest_age_seconds <= _HOUR:
        return "at once"
    if oldest_age_seconds <= 12 * _HOUR:
        return "within an hour"
    if oldest_age_seconds <= 30 * _DAY:
        return "within 14 hours"
    late = "after more than 14 hours: for points older than 30 days Datadog promises no time"
    if oldest_age_seconds <= KEPT:
        return late
    return f"{late}, and those older than 15 months it keeps only where the contract says so"
