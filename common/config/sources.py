"""Find the values of settings: environment, AWS secret, configuration file, default, in this order.

The sources are merged key by key into one model, and each value has the source it was found in. The models
are in `common.config.settings`. `Configuration` is what a run uses; `load` merges the sources of one model.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from common import registry
from common.config import aws
from common.config.settings import (
    ALLOW_PLAIN_HTTP,
    IS_NON_BLANK,
    CoreSettings,
    DatadogAddress,
    DatadogSettings,
    Settings,
    check_printable,
    is_plain_http,
    secret_variables,
    variables,
)
from common.errors import ConfigurationError, NotConfiguredError, SourceError
from common.logs import remember_secret
from common.registry import PREFIX, PROVISION, nearest

if TYPE_CHECKING:
    from types_boto3_secretsmanager import SecretsManagerClient

AWS_CREDENTIALS = (  # which the AWS client reads itself
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)
ENVIRONMENT = "the environment"
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
        self._environ = environ
        # First, because also errors of what follows are redacted then.
        _check_aws_credentials(environ)
        self._file = ConfigurationFile(path, read_tables(path) if path else {})
        # Without secrets: their prefix and region are among these settings.
        self.core = load(CoreSettings, None, environ=environ, file=self._file)
        if allowed := self.core.allow_plain_http:
            log.warning(
                "plain http is allowed to %s: keys can be read on the way (%s)", allowed, ALLOW_PLAIN_HTTP
            )
        self._secrets = AwsSecrets(self.core) if self.core.secret_prefix else None

    @cached_property
    def address(self) -> str:
        """The address of Datadog by environment and file, which a dry run knows as well as a push."""
        return load(DatadogAddress, DATADOG_TABLE, environ=self._environ, file=self._file).address

    def datadog(self) -> DatadogSettings:
        """Return the settings to push with; ConfigurationError names all that is missing, also DD_ENV.

        Raises SourceError where the secret cannot be read now.
        """
        no_env = "DD_ENV is not set; it becomes the tag `env` of every point, so it has no default"
        problems = [no_env] if self.core.env is None else []
        try:
            settings = self.datadog_alone
        except ConfigurationError as error:
            problems.insert(0, str(error))
        # Never a NotConfiguredError: under `all` that is a skip, and a run that cannot push must fail.
        if problems:
            raise ConfigurationError("; ".join(problems))
        return settings

    @cached_property
    def datadog_alone(self) -> DatadogSettings:
        """The settings of Datadog where nothing is sent, so that DD_ENV may be missing.

        Raises NotConfiguredError without an API key, ConfigurationError and SourceError.
        """
        return self._load(DatadogSettings, DATADOG_TABLE)

    def table(self, model: type[M], table: str) -> M:
        """Return the settings of a collector or a command, which has a table of the file and a secret.

        Raises as `load`, and ConfigurationError for variables with our prefix that are neither of this model
        nor of another collector: they may be misspelt. They are refused before AWS is contacted.
        """
        models = (CoreSettings, DatadogSettings, model)
        known = [name for each in models for name in variables(each).values()]
        ours = [name for name in registry.without_others(table, self._environ) if name.startswith(PREFIX)]
        _refuse_unknown("variable", ours, known, "")
        return self._load(model, table)

    def _load(self, model: type[M], table: str) -> M:
        return load(model, table, environ=self._environ, file=self._file, secrets=self._secrets)


def read_tables(path: str) -> dict[str, Any]:  # Any: TOML values
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


@dataclass(frozen=True)
class ConfigurationFile:
    """The parsed configuration file, or an empty one: keys of the top level, and tables as dicts."""

    path: str | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)  # Any: TOML values

    def table(self, name: str | None) -> Mapping[str, Any]:
        """Return the keys of a table, or of the top level for None; empty where there is no such table.

        ConfigurationError where its name has another value.
        """
        if name is None:
            tables = (*registry.names(), DATADOG_TABLE, PROVISION)
            return {key: value for key, value in self.tables.items() if key not in tables}
        content: object = self.tables.get(name, {})
        if not isinstance(content, dict):
            raise ConfigurationError(
                f"{self.path}: {name} is {_type_name(content)}: write it as a table, [{name}]"
            )
        return content


def load(
    model: type[M],
    table: str | None,
    *,
    environ: Mapping[str, str],
    file: ConfigurationFile = ConfigurationFile(),  # noqa: B008 (it is frozen)
    secrets: AwsSecrets | None = None,
) -> M:
    """Merge the sources into a model; `table` names its table of the file (None: top level) and its secret.

    The secret is read unless the environment has every variable of the model that is a secret. Without
    `secrets` AWS is not contacted.

    Raises:
        NotConfiguredError: required values are missing, and nothing else is wrong.
        ConfigurationError: values are wrong; all of them are named, with their source.
        SourceError: AWS did not answer.
    """
    names = variables(model)
    section = f"[{table}]" if table else "the top level"
    in_file = file.table(table)
    known = [*names]
    if table is None:
        known += registry.names()  # tables, of which a misspelt key may be one
    if model is DatadogAddress:
        known += DatadogSettings.model_fields  # of the same table
    _refuse_unknown("key", in_file, known, f"{file.path}: in {section}: ")
    in_secret, secret_text = _read_secret(model, table, environ, secrets)
    file_text = f"the configuration file {file.path}" if file.path else "no configuration file was given"
    searched = [text for text in (ENVIRONMENT, secret_text, file_text) if text]

    candidates = [
        *((names[key], in_file[key], f"{file.path}: {key} in {section}") for key in names if key in in_file),
        *((name, value, secret_text) for name, value in in_secret.items()),
        *((name, environ[name], ENVIRONMENT) for name in names.values() if name in environ),
    ]
    values: dict[str, Any] = {}  # Any: text, or a TOML value
    origins: dict[str, str] = {}
    not_blank = secret_variables(model, IS_NON_BLANK)
    for name, value, origin in candidates:  # the last one wins
        # A blank value counts as unset: charts and shells set such. The validator of some refuses it instead.
        if str(value).strip() or name in not_blank:
            values[name], origins[name] = value, origin
    try:
        settings = model(**values)
    except ValidationError as error:
        raise _explain(error, searched, origins) from None
    # Read directly and not from CoreSettings, which is itself loaded by this function.
    given = (environ.get(ALLOW_PLAIN_HTTP, ""), str(file.tables.get("allow_plain_http", "")))
    allowed = next((host.strip() for host in given if host.strip()), "")
    for attribute, name in names.items():
        url = getattr(settings, attribute)
        if isinstance(url, str) and is_plain_http(url, allowed):  # a key would be sent with each request
            where = "" if origins[name] == ENVIRONMENT else f"{origins[name]}: "
            raise ConfigurationError(
                f"{where}{name}: plain http is allowed to loopback and {ALLOW_PLAIN_HTTP} only: use https"
            )
    settings._searched, settings._origins = tuple(searched), origins
    for name, origin in origins.items():
        log.debug("%s is from %s", name, origin)
    return settings


def _read_secret(
    model: type[Settings], table: str | None, environ: Mapping[str, str], secrets: AwsSecrets | None
) -> tuple[dict[str, Any], str]:
    """Return the values of a model's secret by variable, and a text for messages on whether it was read.

    Raises ConfigurationError for an unknown key, and as `AwsSecrets.read`.
    """
    # No request where nothing is needed: a role without access to AWS works with keys in the environment.
    if all(environ.get(name, "").strip() for name in secret_variables(model)):
        return {}, ""
    if secrets is None:
        return {}, "no AWS secret, as FLEETGAUGE_SECRET_PREFIX is not set"
    secret_id = f"{secrets.prefix}/{table}"
    origin = f"the AWS secret {secret_id}"
    content = secrets.read(secret_id)
    if content is None:
        return {}, f"{origin} (there is no such secret in {secrets.region}: check AWS_REGION)"
    # A misspelt key would otherwise be reported as a missing setting, although the secret appears to have it.
    _refuse_unknown("key", content, [*variables(model).values()], f"{origin}: ")
    # Numbers and booleans are valid JSON values of a secret, but variables are texts.
    return {
        key: str(value) if isinstance(value, int | float) else value
        for key, value in content.items()
        if value is not None
    }, origin


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
        origin = origins.get(name.partition(".")[0], ENVIRONMENT)
        where = "" if origin == ENVIRONMENT else f"{origin}: "
        # An error about several settings names them itself.
        texts.append(f"{where}{name}: {text}" if name else text)
    return ConfigurationError("; ".join(dict.fromkeys(texts)))


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


class AwsSecrets:
    """Secrets `<prefix>/<table>` of AWS Secrets Manager, through a client made for the first of them."""

    def __init__(self, core: CoreSettings) -> None:
        self.prefix = core.secret_prefix
        self._core = core

    @cached_property
    def _client(self) -> SecretsManagerClient:
        """The client; ConfigurationError where no region is set."""
        purpose = f"reading the AWS secrets {self.prefix}/*"
        client: SecretsManagerClient = aws.client("secretsmanager", self._core, purpose)
        return client

    @property
    def region(self) -> str:
        """The region of the client, which may be from the configuration of AWS."""
        return self._client.meta.region_name

    def read(self, secret_id: str) -> dict[str, Any] | None:  # Any: JSON
        """Return the JSON object of a secret, None where there is no such secret.

        No error quotes the secret. Raises ConfigurationError for what a person must correct: access, region,
        credentials, content; SourceError for what a later run may not see.
        """
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        purpose = f"reading the AWS secret {secret_id}"
        log.debug("%s from %s", purpose, self._client.meta.endpoint_url)
        try:
            text = self._client.get_secret_value(SecretId=secret_id).get("SecretString")
        except ClientError as error:
            code = error.response["Error"].get("Code", "unknown")
            if code == "ResourceNotFoundException":
                return None
            # botocore retries all that is temporary, so that an error at the first attempt is final.
            if retries := error.response["ResponseMetadata"].get("RetryAttempts", 0):
                raise SourceError(f"{purpose}: AWS answered {code} {1 + retries} times") from None
            fix = "check the secret, and that the role has secretsmanager:GetSecretValue on it"
            raise ConfigurationError(f"{purpose}: AWS answered {code}; {fix}") from None
        except BotoCoreError as error:
            fix = "check AWS_REGION and AWS_ENDPOINT_URL, and the role of the pod or AWS_ACCESS_KEY_ID"
            # Timeouts and connections that were closed may not happen again; wrong credentials do.
            kind = SourceError if isinstance(error, HTTPClientError) else ConfigurationError
            raise kind(f"{purpose}: {error}; {fix}") from None
        # The error of json contains the text, so that it is not chained. A binary secret has no text.
        with suppress(ValueError, TypeError, RecursionError):
            if isinstance(content := json.loads(text), dict):
                return content
        fix = 'store {"NAME": "value", ...} as text, or check AWS_ENDPOINT_URL'
        raise ConfigurationError(f"{purpose}: the answer is not a JSON object; {fix}")
