"""What the tests of the core share: an intake at a fixed instant, sinks that never really wait, an AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from common import logs
from common.datadog import DatadogSink
from common.history import History
from common.retry import Deadline
from servers.aws import Aws
from servers.datadog import Intake
from standins import APP_KEY, KEY, NOW, Time, core_settings, datadog_settings

# A loaded machine, or the first run that builds the tables of Unicode, is not a failure.
settings.register_profile("core", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")

MakeSink = Callable[..., DatadogSink]
MakeHistory = Callable[..., History]


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_secrets", set())


@pytest.fixture
def intake() -> Iterator[Intake]:
    with Intake(KEY, clock=lambda: NOW, app_key=APP_KEY) as running:
        yield running


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def make_sink(intake: Intake, time: Time) -> MakeSink:
    """Make a sink that delivers to the intake, with settings from the variables given."""

    def make(
        seconds: float = 1000, url: str | None = None, oldest: int | None = None, **environ: str
    ) -> DatadogSink:
        datadog = datadog_settings(FLEETGAUGE_DD_URL=url or intake.url)
        core, deadline = core_settings(**environ), Deadline(seconds, clock=time)
        return DatadogSink(datadog, core, deadline, clock=time, sleep=time.sleep, oldest=oldest)

    return make


@pytest.fixture
def make_history(intake: Intake, time: Time) -> MakeHistory:
    """Make one that asks the intake, with both keys unless the variables given say otherwise."""

    def make(seconds: float = 1000, **environ: str) -> History:
        settings = datadog_settings(**{"FLEETGAUGE_DD_URL": intake.url, "DD_APP_KEY": APP_KEY, **environ})
        return History(settings, core_settings(), Deadline(seconds, time), clock=time, sleep=time.sleep)

    return make


@pytest.fixture
def aws(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """An empty AWS account that the process's own environment leads to."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return aws
