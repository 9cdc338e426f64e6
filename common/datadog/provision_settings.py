"""Settings of `scripts/provision.py`: the table [provision] of the configuration file.

It changes monitors of the declarations, and adds recipients and links. `common/config/sources.py` reads it,
`documents.py` makes the documents, `provisioning.py` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat

from common.config.settings import Settings, Texts, Url, named
from common.dashboard import Monitor
from common.errors import ConfigurationError
from common.registry import nearest


class MonitorChange(BaseModel):
    """What differs from a monitor's declaration; None leaves a field as it is declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threshold: FiniteFloat | None = None
    warning: FiniteFloat | None = None
    # A mistyped window is refused here, and not by Datadog after other documents were written.
    window: Literal["30m", "1h", "2h", "4h", "1d"] | None = None
    enabled: bool = True


def _parse_json(value: object) -> object:
    """Return the object that a variable contains as JSON; a table of the file as it is."""
    return json.loads(value) if isinstance(value, str) else value


class ProvisionSettings(Settings):
    """Settings of scripts/provision.py."""

    model_config = named("FLEETGAUGE_PROVISION_")

    notify: Texts = Field((), description="Recipients of every monitor, such as `@slack-ml-fleet`.")
    documents: Url | None = Field(None, description="Where these documents can be read, for links to them.")
    monitors: Annotated[dict[str, MonitorChange] | None, BeforeValidator(_parse_json)] = Field(
        None, description="Changes of monitors by key: `threshold`, `warning`, `window`, `enabled`."
    )

    def changed(self, monitors: Iterable[Monitor]) -> Iterator[Monitor]:
        """Yield the monitors as they are to be, without those that are disabled.

        Raises ConfigurationError for a change of a monitor that is not declared, before any is yielded.
        """
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
