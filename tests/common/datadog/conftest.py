"""An intake at a fixed instant, and clients and sinks of it that never really wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from common.datadog.client import DatadogClient
from common.datadog.historical import BACKFILL_PERMISSIONS
from common.datadog.intake import DatadogSink
from common.datadog.payloads import Encoding
from common.net.retry import Deadline
from support.servers.datadog import Intake
from support.standins import APP_KEY, KEY, NOW, Time, core_settings, datadog_settings

MakeClient = Callable[..., DatadogClient]
MakeSink = Callable[..., DatadogSink]


@pytest.fixture
def intake() -> Iterator[Intake]:
    with Intake(KEY, clock=lambda: NOW, app_key=APP_KEY) as running:
        yield running


@pytest.fixture
def make_client(intake: Intake, time: Time) -> MakeClient:
    """Make a client of the intake, or of another address."""

    def make(
        seconds: float = 1000, url: str | None = None, encoding: Encoding | None = None, permissions: str = ""
    ) -> DatadogClient:
        settings = datadog_settings(FLEETGAUGE_DD_URL=url or intake.url, DD_APP_KEY=APP_KEY)
        deadline = Deadline(seconds, time, time.sleep)
        client = DatadogClient(settings, core_settings(), deadline, clock=time, permissions=permissions)
        client.encoding = encoding or client.encoding
        return client

    return make


@pytest.fixture
def make_sink(make_client: MakeClient) -> MakeSink:
    """Make a sink that delivers to the intake, with settings from the variables given."""

    def make(
        seconds: float = 1000,
        url: str | None = None,
        encoding: Encoding | None = None,
        since: int | None = None,
        exact_clock: bool = False,
        **environ: str,
    ) -> DatadogSink:
        client = make_client(seconds, url, encoding)
        return DatadogSink(client, core_settings(**environ), since=since, exact_clock=exact_clock)

    return make


@pytest.fixture
def client(make_client: MakeClient) -> DatadogClient:
    """A client of the intake that may read and enable historical ingestion."""
    return make_client(permissions=BACKFILL_PERMISSIONS)
