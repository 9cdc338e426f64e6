"""Everything that is configured, from all sources, read when it is asked for and not before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from common import registry
from common.config.credentials import AwsSecrets
from common.config.settings import (
    CollectorSettings,
    ConfigurationFile,
    CoreSettings,
    DatadogSettings,
    Settings,
    load,
    refuse_unknown_variables,
)
from common.errors import ConfigurationError, NotConfiguredError

M = TypeVar("M", bound=Settings)
S = TypeVar("S", bound=CollectorSettings)


class Configuration:
    """The core settings at once; those of Datadog and of a collector, with their secrets, when asked for."""

    def __init__(self, environ: Mapping[str, str], path: str | None) -> None:
        self._environ = environ
        self._file = ConfigurationFile.read(path)
        self._file.refuse_unknown_tables(registry.names())
        self.core = load(CoreSettings, None, environ=environ, file=self._file)
        self._secrets = AwsSecrets(self.core)
        self._datadog: DatadogSettings | None = None

    def datadog(self) -> DatadogSettings:
        """Settings to deliver with. Lacking them is never a reason to skip: nothing could be sent."""
        if self._datadog is not None:  # a run asks twice, for its data and for its self-metrics
            return self._datadog
        try:
            settings = self._with_secrets(DatadogSettings, "datadog")
        except NotConfiguredError as error:
            raise ConfigurationError(str(error)) from None
        if self.core.env is None:
            raise ConfigurationError(
                "DD_ENV is not set; it becomes the tag `env` of every point, so it has no default"
            )
        self._datadog = settings
        return settings

    def collector(self, name: str, model: type[S]) -> S:
        """Settings of one collector. A misspelt variable is refused before anything is read from AWS."""
        refuse_unknown_variables(self._environ, (CoreSettings, DatadogSettings, model))
        return self._with_secrets(model, name)

    def _with_secrets(self, model: type[M], table: str) -> M:
        prefix = self.core.secret_prefix
        return load(
            model,
            table,
            environ=self._environ,
            file=self._file,
            secrets=self._secrets if prefix else None,
            secret_id=f"{prefix}/{table}" if prefix else None,
        )
