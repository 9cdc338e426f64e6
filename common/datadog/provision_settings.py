"""What of dashboards and monitors can be changed in the table [provision] of the configuration file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from common.config.settings import DatadogSettings, Secret, Settings, Texts, Url, named
from common.dashboard import Monitor
from common.errors import ConfigurationError
from common.registry import nearest


class ProvisioningKeys(DatadogSettings):
    """Settings of Datadog with both keys, so that the second is looked for wherever the first is."""

    app_key: Secret = Field(validation_alias="DD_APP_KEY")


class MonitorChange(BaseModel):
    """What differs from a monitor's declaration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threshold: FiniteFloat | None = None
    warning: FiniteFloat | None = None
    window: Literal["30m", "1h", "2h", "4h", "1d"] | None = None
    enabled: bool = True


class ProvisionSettings(Settings):
    """Settings of scripts/provision.py."""

    model_config = named("FLEETGAUGE_PROVISION_")

    notify: Texts = Field((), description="Recipients of every monitor, such as `@slack-ml-fleet`.")
    documents: Url | None = Field(None, description="Where these documents can be read, for links to them.")
    monitors: dict[str, MonitorChange] | None = Field(
        None, description="Changes of monitors by key: `threshold`, `warning`, `window`, `enabled`."
    )

    def changed(self, monitors: Iterable[Monitor]) -> Iterator[Monitor]:
        """The monitors as they are to be; raises ConfigurationError for a change of one that is not there."""
        declared = {monitor.key: monitor for monitor in monitors}
        changes = self.monitors or {}
        for key in changes:
            if key not in declared:
                raise ConfigurationError(
                    f"[provision.monitors.{key}]: there is no such monitor{nearest(key, [*declared])}"
                )
        for key, monitor in declared.items():
            change = changes.get(key, MonitorChange())
            given = change.model_dump(include={"threshold", "warning", "window"}, exclude_none=True)
            if change.enabled:
                yield replace(monitor, condition=replace(monitor.condition, **given))
