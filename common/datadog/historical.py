"""Historical Metrics Ingestion: which metrics accept points older than an hour, and enabling it.

It is enabled per metric name. Where it is disabled, Datadog accepts old points and drops them silently, so a
backfill (`common/run/backfill.py`) reads its state before it sends anything. All requests need an application
key.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from common.datadog.client import DatadogClient
from common.errors import RefusedError
from common.net.retry import TransientError
from common.times import DAY, HOUR

if TYPE_CHECKING:
    from datadog_api_client.v2.api.metrics_api import MetricsApi

# The permissions of the application key, as Datadog's documentation names them.
READING = "metrics_read"
WRITING = "late_metrics_config_write"
PURPOSE = "an application key is needed to read which metrics accept points older than an hour"

_TYPE = "historical_metrics_configurations"


class HistoricalIngestion:
    """Reads and enables historical ingestion, through a client that has an application key.

    It has no state of its own: Datadog is queried each time.
    """

    def __init__(self, client: DatadogClient) -> None:
        self.client = client

    def enabled(self, names: Iterable[str]) -> set[str]:
        """Return the names among these that accept old points, with one request for each.

        Raises ConfigurationError where a key is refused, DeliveryError and DeadlineExceededError.
        """
        return {name for name in sorted(set(names)) if self._is_enabled(name)}

    def enable(self, name: str) -> str | None:
        """Enable it for a metric; return None, or why Datadog refused.

        Raises RefusedError for a response that is not Datadog's, or where the API key is bad, and
        DeliveryError.
        """
        body: Any = {"data": {"id": name, "type": _TYPE}}  # declared as a model, a dict is accepted
        try:
            self._configuration(name, lambda api: api.create_historical_metrics_configuration(body))
        except RefusedError as refused:
            return self._explain(refused)
        return None

    def _is_enabled(self, name: str) -> bool:
        """Return whether a metric has a configuration; raises as `enabled`."""
        try:
            self._configuration(name, lambda api: api.get_historical_metrics_configuration(name))
        except RefusedError as refused:
            # Datadog's own 404 is the response for a metric without configuration. One without an error
            # document is from another server, and shows nothing.
            if refused.status == 404 and refused.problems:
                return False
            raise self.client.explain_refusal(refused, READING) from None
        return True

    def _configuration(self, name: str, operation: Callable[[MetricsApi], object]) -> None:
        """Request the configuration of a metric: it exists where ingestion is enabled.

        Raises RefusedError where Datadog refuses, which for reading includes that it is not enabled.
        """
        from datadog_api_client.v2.api.metrics_api import MetricsApi

        api = self.client.official()
        # Preview operations: the official client refuses to call them unless they are enabled, and then
        # warns.
        for verb in ("get", "create"):
            api.configuration.unstable_operations[f"{verb}_historical_metrics_configuration"] = True

        def call() -> None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Using unstable operation")
                response: Any = operation(MetricsApi(api))
            # A proxy can send 200 with any JSON: only a document about this metric confirms it.
            if getattr(getattr(response[0], "data", None), "id", None) != name:
                raise TransientError(f"{self.client.address} sent an answer that is not about {name}")

        self.client.retry(call)

    def _explain(self, refused: RefusedError) -> str:
        """Return why enabling was refused; raises a response that is not Datadog's, and a refused API key.

        404, 400 and 422 have causes that the documentation lists; Datadog's own message follows.
        """
        explained = self.client.explain_refusal(refused, WRITING)
        if explained is not refused:
            return str(explained)
        if not refused.problems:
            raise refused
        quoted = f"; Datadog's message: {'; '.join(refused.problems)}"
        if refused.status == 404:
            return f"it does not exist yet: push it live once, and then turn it on{quoted}"
        if refused.status in {400, 422}:
            return f"it has a tag configuration, or is a distribution or a standard metric{quoted}"
        return str(refused)


def visibility_delay(oldest_age_seconds: float) -> str:
    """Return how long after sending points of this age are visible, as Datadog documents it."""
    if oldest_age_seconds <= HOUR:
        return "at once"
    if oldest_age_seconds <= 12 * HOUR:
        return "within an hour"
    if oldest_age_seconds <= 30 * DAY:
        return "within 14 hours"
    return "after more than 14 hours: for points older than 30 days Datadog promises no time"
