"""The settings of a collector with a field of every type."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from common.config.settings import (
    CollectorSettings,
    Duration,
    NonBlankSecret,
    Secret,
    Text,
    Texts,
    Url,
    named,
)
from common.config.sources import Configuration
from common.errors import ConfigurationError
from support.standins import everything

CANARY = "canary-secret-value"


class ToySettings(CollectorSettings):
    """One required setting, which is a secret; in the table [host], because a file has no unknown table."""

    model_config = named("FLEETGAUGE_TOY_")

    api_key: Secret = Field(validation_alias="TOY_API_KEY")
    hash_key: NonBlankSecret | None = None
    projects: Texts = ()
    base_url: Url = "https://toy.example"
    pages: int = Field(10, ge=1)
    ratio: float = 5.0
    wait: Duration | None = None
    grid: Duration = 900
    label: Text = "default"
    enabled: bool = True


def toy(path: Path | None = None, /, **environ: str) -> ToySettings:
    """Return the settings by a file and the environment, which has the required key."""
    environ = {"TOY_API_KEY": CANARY, **environ}
    return Configuration(environ, str(path) if path else None).table(ToySettings, "host")


def refused(path: Path | None = None, /, **environ: str) -> str:
    """Return the error for settings that are wrong; it has no secret."""
    with pytest.raises(ConfigurationError) as caught:
        toy(path, **environ)
    assert type(caught.value) is ConfigurationError
    assert CANARY not in everything(caught.value)
    return str(caught.value)
