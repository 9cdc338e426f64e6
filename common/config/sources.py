"""Find the values of settings: environment, AWS secret, configuration file, default, in this order.

The sources are merged key by key into one model, and each value has the source it was found in. The models
are in `common.config.settings`. `aws.py` reads secrets.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from common import registry
from common.config import aws
from common.config.settings import (
    ALLOW_PLAIN_HTTP,
    IS_NON_BLANK,
    CoreSettings,
    DatadogSettings,
    Settings,
    check_printable,
    is_plain_http,
    secret_variables,
    variables,
)
from common.errors import ConfigurationError, NotConfiguredError
from common.logs import remember_secret
from common.registry import PREFIX, PROVISION, nearest

AWS_CREDENTIALS = (  # which the AWS client reads itself
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)
ENVIRON = "the environment"
DATADOG_TABLE = "datadog"
# A path that names a device or a large file by mistake must not fill the memory.
MAX_FILE_BYTES = 2**18
RENAMED = {"FLEETGAUGE_CHECKPOINTS": "FLEETGAUGE_STATE", "checkpoints": "state"}

# The name of a setting, and not a credential that was pasted instead.
_SETTING_NAME = re.compile(rf"{PREFIX}\w+|[A-Za-z_-]{{1,40}}")
# By exact type, because a bool is an int as well. What is in none of these is a date or time of TOML.
_TYPE_NAMES: dict[type, str] = dict.fromkeys((int, float), "a number")
_TYPE_NAMES |= {bool: "a boolean", str: "text", list: "a list", dict: "a table"}

M = TypeVar("M", bound=Settings)

log = logging.getLogger(__name__)


class Configuration:
    """The settings of a run. Those of Datadog and of a collector, with their secrets, are read on request.

    `core` is read at once. `path` is the configuration file, None for none. Raises ConfigurationError for a
    file that cannot be read, an unknown key or table, and wrong values of `core`.
    """

    def __init__(self, environ: Mapping[str, str], path: str | None) -> None:
        self._environ, self._path = environ, path
        # First, because also errors of what follows are redacted then.
        _check_aws_credentials(environ)
        self._tables = _read_file(path) if path else {}
        self.core = self._load(CoreSettings, None)
        if allowed := self.core.allow_plain_http:
            log.warning(
                "plain http is allowed to %s: keys can be read on the way (%s)", allowed, ALLOW_PLAIN_HTTP
            )

    @cached_property
    def address(self) -> str:
        """The address of Datadog by environment and file, which a dry run knows as well as a push."""
        return self._load(DatadogSettings, DATADOG_TABLE, with_secrets=False).address

    @cached_property
    def datadog(self) -> DatadogSettings:
        """The settings of Datadog, of which both keys are optional.

        Raises ConfigurationError, and SourceError where the secret cannot be read now.
        """
        return self._load(DatadogSettings, DATADOG_TABLE)

    def table(self, model: type[M], table: str) -> M:
        """Return the settings of a collector or a command, which has a table of the file and a secret.

        Raises as `_load`, and ConfigurationError for variables with our prefix that are neither of this model
        nor of another collector: they may be misspelt. They are refused before AWS is contacted.
        """
        models = (CoreSettings, DatadogSettings, model)
        known = [name for each in models for name in variables(each).values()]
        ours = [name for name in registry.without_others(table, self._environ) if name.startswith(PREFIX)]
        _refuse_unknown("variable", ours, known, "")
        return self._load(model, table)

    def _load(self, model: type[M], table: str | None, *, with_secrets: bool = True) -> M:
        """Merge the sources into a model; `table` names its table (None: top level) and its secret.

        Without secrets AWS is not contacted, and all settings that are secrets are left at their defaults.

        Raises:
            NotConfiguredError: required values are missing, and nothing else is wrong.
            ConfigurationError: values are wrong; all of them are named, with their source.
            SourceError: AWS did not answer.
        """
        path, names = self._path, variables(model)
        section = f"[{table}]" if table else "the top level"
        in_file = self._keys_of(table)
        # A misspelt key of the top level may be that of a table.
        known = [*names, *(() if table else registry.names())]
        _refuse_unknown("key", in_file, known, f"{path}: in {section}: ")
        in_secret, secret_text = self._read_secret(model, table) if with_secrets else ({}, "")
        file_text = f"the configuration file {path}" if path else "no configuration file was given"
        searched = [text for text in (ENVIRON, secret_text, file_text) if text]

        candidates = [
            *((names[key], value, f"{path}: {key} in {section}") for key, value in in_file.items()),
            *((name, value, secret_text) for name, value in in_secret.items()),
            *((name, self._environ[name], ENVIRON) for name in names.values() if name in self._environ),
        ]
        values: dict[str, Any] = {}  # Any: text, or a TOML value
        origins: dict[str, str] = {}
        ignored = [] if with_secrets else secret_variables(model)
        not_blank = secret_variables(model, IS_NON_BLANK)
        for name, value, origin in candidates:  # the last one wins
            # A blank value counts as unset: charts and shells set such. The validator of some refuses it
            # instead.
            if name not in ignored and (str(value).strip() or name in not_blank):
                values[name], origins[name] = value, origin
        try:
            settings = model(**values)
        except ValidationError as error:
            raise _explain(error, searched, origins) from None
        allowed = (settings if isinstance(settings, CoreSettings) else self.core).allow_plain_http or ""
        for attribute, name in names.items():
            url = getattr(settings, attribute)
            if isinstance(url, str) and is_plain_http(url, allowed):  # a key would be sent with each request
                raise ConfigurationError(
                    f"{_prefix(origins[name])}{name}: plain http is allowed to loopback and "
                    f"{ALLOW_PLAIN_HTTP} only: use https"
                )
        settings._searched, settings._origins = tuple(searched), origins
        for name, origin in origins.items():
            log.debug("%s is from %s", name, origin)
        return settings

    def _keys_of(self, table: str | None) -> Mapping[str, Any]:  # Any: TOML values
        """Return the keys of a table of the file, or of the top level for None; empty where it has none.

        ConfigurationError where the name of the table has another value.
        """
        if table is None:
            tables = (*registry.names(), DATADOG_TABLE, PROVISION)
            return {key: value for key, value in self._tables.items() if key not in tables}
        content: object = self._tables.get(table, {})
        if not isinstance(content, dict):
            raise ConfigurationError(
                f"{self._path}: {table} is {_type_name(content)}: write it as a table, [{table}]"
            )
        return content

    def _read_secret(self, model: type[Settings], table: str | None) -> tuple[dict[str, Any], str]:
        """Return the values of a model's secret by variable, and a text for messages on whether it was read.

        It is not read where the environment has every variable of the model that is a secret. Raises
        ConfigurationError for an unknown key, and as `aws.read_secret`.
        """
        # No request where nothing is needed: a role without access to AWS works with keys in the environment.
        # CoreSettings has no secrets: their prefix and region are among these settings.
        if all(self._environ.get(name, "").strip() for name in secret_variables(model)):
            return {}, ""
        if not self.core.secret_prefix:
            return {}, "no AWS secret, as FLEETGAUGE_SECRET_PREFIX is not set"
        secret_id = f"{self.core.secret_prefix}/{table}"
        origin = f"the AWS secret {secret_id}"
        content = aws.read_secret(self._secrets_manager, secret_id)
        if content is None:
            region = self._secrets_manager.meta.region_name  # which may be from the configuration of AWS
            return {}, f"{origin} (there is no such secret in {region}: check AWS_REGION)"
        # A misspelt key would otherwise be reported as a missing setting, although the secret appears to have
        # it.
        _refuse_unknown("key", content, [*variables(model).values()], f"{origin}: ")
        # Numbers and booleans are valid JSON values of a secret, but variables are texts.
        return {
            key: str(value) if isinstance(value, int | float) else value
            for key, value in content.items()
            if value is not None
        }, origin

    @cached_property
    def _secrets_manager(self) -> Any:  # Any: as `aws.client`
        """The client for all secrets; ConfigurationError where no region is set."""
        return aws.client("secretsmanager", self.core, f"reading the AWS secrets {self.core.secret_prefix}/*")


def _read_file(path: str) -> dict[str, Any]:  # Any: TOML values
    """Return the content of a TOML file; ConfigurationError names the file and what is wrong with it."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(f"the configuration file {path} is larger than {MAX_FILE_BYTES:,} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigurationError(f"cannot read the configuration file {path}: {error.strerror}") from error
    # `from None`, because a UnicodeDecodeError contains the content of the file.
    except ValueError as error:
        raise ConfigurationError(f"the configuration file {path} is not TOML: {error}") from None


def _explain(error: ValidationError, searched: list[str], origins: Mapping[str, str]) -> ConfigurationError:
    """Return one error that names every wrong value and its source; where none is wrong, what is missing.

    A NotConfiguredError is only returned where nothing but values are missing, because it may become a skip.
    """
    problems = error.errors(include_url=False, include_context=False)
    wrong = [problem for problem in problems if problem["type"] != "missing"]
    if not wrong:
        missing = [str(problem["loc"][0]) if problem["loc"] else problem["msg"] for problem in problems]
        verb = "is" if len(missing) == 1 else "are"
        return NotConfiguredError(f"{', '.join(missing)} {verb} not set; looked in: {'; '.join(searched)}")
    texts = []
    for problem in wrong:
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"].endswith("_type"):
            text += f", not {_type_name(problem['input'])}"
        name = ".".join(map(str, problem["loc"]))
        origin = origins.get(name.partition(".")[0], ENVIRON)
        # An error about several settings names them itself.
        texts.append(f"{_prefix(origin)}{name}: {text}" if name else text)
    return ConfigurationError("; ".join(dict.fromkeys(texts)))


def _prefix(origin: str) -> str:
    """Return the start of a message about a value; a variable of the environment is named by itself."""
    return "" if origin == ENVIRON else f"{origin}: "


def _type_name(value: object) -> str:
    """Return the type of a TOML or JSON value in plain English."""
    return _TYPE_NAMES.get(type(value), "a date or time")


def _refuse_unknown(kind: str, given: Iterable[str], known: list[str], where: str) -> None:
    """Raise ConfigurationError for names that are not known, with a similar name that is.

    `kind` is `variable` or `key`, and `where` its location. What may be a pasted credential is not shown.
    """
    wrong = []
    for name in (name for name in given if name not in known):
        hint = f" (it is {RENAMED[name]} now)" if name in RENAMED else nearest(name, known)
        wrong.append(f"{name if _SETTING_NAME.fullmatch(name) else 'that may be a credential'}{hint}")
    if wrong:
        raise ConfigurationError(f"{where}unknown {kind} {', '.join(wrong)}")


def _check_aws_credentials(environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError for credentials that the AWS client would quote in an error of its own.

    botocore reads these variables itself: they are in no model, but are redacted from now on too.
    """
    for name in AWS_CREDENTIALS:
        remember_secret(environ.get(name, ""))
        try:
            check_printable(environ.get(name, ""))
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from None
