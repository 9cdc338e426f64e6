"""Historical Metrics Ingestion: which metrics accept points older than an hour, and enabling it.

It is enabled per metric name. Where it is disabled, Datadog accepts old points and drops them silently, so a
backfill (`common/run/backfill.py`) reads its state before it sends anything. All requests need an application
key.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from common.datadog.client import DatadogClient
from common.errors import RefusedError
from common.net.retry import TransientError
from common.times import DAY, HOUR

# The permissions of the application key, as Datadog's documentation names them.
READING = "metrics_read"
BACKFILL_PERMISSIONS = f"{READING}, late_metrics_config_write"

_CAUSES = {  # by status, as the documentation lists them
    404: "it does not exist yet: push it live once, and then turn it on",
    400: "it has a tag configuration, or is a distribution or a standard metric",
    422: "it has a tag configuration, or is a distribution or a standard metric",
}


def enabled(client: DatadogClient, names: Iterable[str]) -> set[str]:
    """Return the names among these that accept old points, with one request for each.

    Raises RefusedError where a key is refused, DeliveryError and DeadlineExceededError.
    """
    found = set()
    for name in sorted(set(names)):
        try:
            _call(client, "get", name, name)
            found.add(name)
        except RefusedError as refused:
            # Datadog's own 404 is the response for a metric without configuration. One without an error
            # document is from another server, and shows nothing.
            if refused.status != 404 or not refused.problems:
                raise
    return found


def enable(client: DatadogClient, name: str) -> str | None:
    """Enable it for a metric; return None, or why Datadog refused.

    Raises RefusedError for a response that is not Datadog's, and DeliveryError.
    """
    body = {"data": {"id": name, "type": "historical_metrics_configurations"}}
    try:
        _call(client, "create", name, body)
    except RefusedError as refused:
        if not refused.problems:
            raise
        cause = _CAUSES.get(refused.status or 0)
        return f"{cause}; Datadog's message: {'; '.join(refused.problems)}" if cause else str(refused)
    return None


def _call(client: DatadogClient, verb: str, name: str, argument: object) -> None:
    """Get or create the configuration of a metric, which exists where ingestion is enabled.

    `argument` is that of the official client's operation, which our client sends. Raises RefusedError
    where Datadog refuses, which for reading includes that ingestion is not enabled.
    """
    # Imported here, because few runs need it and its import is slow.
    from datadog_api_client import ApiClient, Configuration
    from datadog_api_client.v2.api.metrics_api import MetricsApi

    # Any: the signature is the official client's, which is not typed
    def send(method: str, url: str, *, body: Any = None, **_options: Any) -> SimpleNamespace:
        reply = client.request(method, url.removeprefix(client.address), body)
        return SimpleNamespace(status=reply.status, headers=reply.headers, data=reply.body)

    configuration = Configuration(host=client.address, check_input_type=False)
    # A preview: the official client warns of the operations listed there, or refuses to call them.
    configuration.unstable_operations.values.clear()
    api = ApiClient(configuration)
    api.rest_client = SimpleNamespace(request=send)
    operation = getattr(MetricsApi(api), f"{verb}_historical_metrics_configuration")

    def attempt() -> None:
        # A proxy can send 200 with any JSON: only a document about this metric confirms it.
        if operation(argument).data.id != name:
            raise TransientError(f"{client.address} sent an answer that is not about {name}")

    client.retry(attempt)


def visibility_delay(oldest_age_seconds: float) -> str:
    """Return how long after sending points of this age are visible, as Datadog documents it."""
    if oldest_age_seconds <= HOUR:
        return "at once"
    if oldest_age_seconds <= 12 * HOUR:
        return "within an hour"
    return "within 14 hours" if oldest_age_seconds <= 30 * DAY else "after more than 14 hours"
