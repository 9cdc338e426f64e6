"""Everything that is configured, from all sources, read when it is asked for and not before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from common import registry
from common.config.characters import flaw
from common.config.credentials import AwsSecrets
from common.config.file import DATADOG_TABLE, ConfigurationFile
from common.config.settings import (
    CollectorSettings,
    CoreSettings,
    DatadogAddress,
    DatadogSettings,
    Settings,
    load,
    refuse_unknown_variables,
)
from common.errors import ConfigurationError
from common.logs import remember_secret

# Read by the AWS client itself, as they are.
AWS_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Settings)
S = TypeVar("S", bound=CollectorSettings)


class Configuration:
    """The core settings at once; those of Datadog and of a collector, with their secrets, when asked for."""

    def __init__(self, environ: Mapping[str, str], path: str | None) -> None:
        self._environ = environ
        _check_aws_credentials(environ)
        self._file = ConfigurationFile.read(path)
        self._file.refuse_unknown_tables(registry.names())
        self.core = load(CoreSettings, None, environ=environ, file=self._file)
        if self.core.allow_plain_http:
            log.warning(
                "plain http is allowed to %s: keys can be read on the way (FLEETGAUGE_ALLOW_PLAIN_HTTP)",
                self.core.allow_plain_http,
            )
        self._secrets = AwsSecrets(self.core)
        self._datadog: DatadogSettings | None = None

    @property
    def address(self) -> str:
        """Where Datadog is by the environment and the file, which a dry run sees as a push does."""
        table = self._file.tables.get(DATADOG_TABLE, {})
        said = {key: value for key, value in table.items() if key in DatadogAddress.model_fields}
        file = ConfigurationFile(self._file.path, {**self._file.tables, DATADOG_TABLE: said})
        return load(DatadogAddress, DATADOG_TABLE, environ=self._environ, file=file).address

    def datadog(self) -> DatadogSettings:
        """Settings to deliver with. Lacking them is never a reason to skip: nothing could be sent."""
        if self._datadog is not None:  # a run asks twice, for its data and for its self-metrics
            return self._datadog
        problems = []
        try:
            self._datadog = self.datadog_alone()
        except ConfigurationError as error:
            problems.append(str(error))
        if self.core.env is None:
            problems.append(
                "DD_ENV is not set; it becomes the tag `env` of every point, so it has no default"
            )
        if problems or self._datadog is None:
            self._datadog = None
            raise ConfigurationError("; ".join(problems)) from None
        return self._datadog

    def datadog_alone(self) -> DatadogSettings:
        """The same, where nothing is to be sent."""
        return self._with_secrets(DatadogSettings, DATADOG_TABLE)

    def collector(self, name: str, model: type[S], others: Callable[[], Iterable[str]] = tuple) -> S:
        """Settings of one collector. A misspelt variable is refused before anything is read from AWS.

        `others` gives the variables of other collectors, one of which may be meant.
        """
        refuse_unknown_variables(self._environ, (CoreSettings, DatadogSettings, model), others)
        return self._with_secrets(model, name)

    def table(self, model: type[M], table: str) -> M:
        """Settings of a table that no collector runs by, with its secrets."""
        return self._with_secrets(model, table)

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


def _check_aws_credentials(environ: Mapping[str, str]) -> None:
    """Refuse what the AWS client would quote in an error of its own."""
    given = {name: environ[name] for name in AWS_CREDENTIALS if environ.get(name)}
    for value in given.values():
        remember_secret(value)
    wrong = [f"{name}: {problem}" for name, value in given.items() if (problem := flaw(value))]
    if wrong:
        raise ConfigurationError("; ".join(wrong))
