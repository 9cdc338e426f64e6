"""Find the values of settings: environment, AWS secret, configuration file, default, in this order.

The sources are merged key by key into one model, and each value has the source it was found in. The models
are in `common.config.settings`. `Configuration` is what a run uses; `load` merges the sources of one model.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from common import registry
from common.config import aws
from common.config.settings import (
    IS_NON_BLANK,
    CollectorSettings,
    CoreSettings,
    DatadogAddress,
    DatadogSettings,
    Settings,
    credential_flaw,
    is_plain_http,
    secret_variables,
    variables,
)
from common.errors import ConfigurationError, NotConfiguredError, SourceError
from common.logs import remember_secret
from common.registry import PREFIX, nearest

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from types_boto3_secretsmanager import SecretsManagerClient

AWS_CREDENTIALS = (  # which the AWS client reads itself
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)
DATADOG_TABLE = "datadog"
PROVISION_TABLE = "provision"
# A path that names a device or a large file by mistake must not fill the memory.
MAX_FILE_BYTES = 2**18
ALLOW_PLAIN_HTTP = "FLEETGAUGE_ALLOW_PLAIN_HTTP"
RENAMED = {"FLEETGAUGE_CHECKPOINTS": "FLEETGAUGE_STATE", "checkpoints": "state"}

# What a person must correct: a policy, or credentials that are wrong or have expired.
_ACCESS_DENIED = {
    *("AccessDeniedException", "UnrecognizedClientException"),
    *("InvalidSignatureException", "ExpiredTokenException"),
}
# The name of a setting, and not a credential that was pasted instead.
_SETTING_NAME = re.compile(r"[A-Za-z]{1,12}(?:[_-][A-Za-z]{1,12}){0,4}")
# By exact type, because a bool is an int as well. What is in none of these is a date or time of TOML.
_TYPE_NAMES: dict[type, str] = dict.fromkeys((int, float), "a number")
_TYPE_NAMES |= {bool: "a boolean", str: "text", list: "a list", dict: "a table"}

M = TypeVar("M", bound=Settings)
S = TypeVar("S", bound=CollectorSettings)
V = TypeVar("V")

log = logging.getLogger(__name__)


class Configuration:
    """The settings of a run. Those of Datadog and of a collector, with their secrets, are read on request.

    `core` is read at once. `path` is the configuration file, None for none. Raises ConfigurationError for a
    file that cannot be read, an unknown table, and wrong values of `core`.
    """

    def __init__(self, environ: Mapping[str, str], path: str | None) -> None:
        self._environ = environ
        # First, because also errors of what follows are redacted then.
        _check_aws_credentials(environ)
        self._file = ConfigurationFile(path, read_tables(path) if path else {})
        _check_tables(self._file, registry.names())
        # Without secrets: their prefix and region are among these settings.
        self.core = load(CoreSettings, None, environ=environ, file=self._file)
        if self.core.allow_plain_http:
            log.warning(
                "plain http is allowed to %s: keys can be read on the way (%s)",
                self.core.allow_plain_http,
                ALLOW_PLAIN_HTTP,
            )
        self._secrets = AwsSecrets(self.core) if self.core.secret_prefix else None

    @cached_property
    def address(self) -> str:
        """The address of Datadog by environment and file, which a dry run knows as well as a push."""
        table = self._file.tables.get(DATADOG_TABLE, {})
        # The table has keys as well, which this model would refuse as unknown.
        fields = {key: value for key, value in table.items() if key in DatadogAddress.model_fields}
        file = ConfigurationFile(self._file.path, {**self._file.tables, DATADOG_TABLE: fields})
        return load(DatadogAddress, DATADOG_TABLE, environ=self._environ, file=file).address

    def datadog(self) -> DatadogSettings:
        """Return the settings to push with; ConfigurationError names all that is missing, also DD_ENV.

        Raises SourceError where the secret cannot be read now.
        """
        no_env = "DD_ENV is not set; it becomes the tag `env` of every point, so it has no default"
        problems = [no_env] if self.core.env is None else []
        try:
            settings = self._datadog
        except ConfigurationError as error:
            problems.insert(0, str(error))
        # Never a NotConfiguredError: under `all` that is a skip, and a run that cannot push must fail.
        if problems:
            raise ConfigurationError("; ".join(problems))
        return settings

    def datadog_alone(self) -> DatadogSettings:
        """Return the settings of Datadog where nothing is sent, so that DD_ENV may be missing.

        Raises NotConfiguredError without an API key, ConfigurationError and SourceError.
        """
        return self._datadog

    @cached_property
    def _datadog(self) -> DatadogSettings:
        return self.table(DatadogSettings, DATADOG_TABLE)

    def collector(self, name: str, model: type[S], others: Callable[[], Iterable[str]] = tuple) -> S:
        """Return the settings of a collector. Unknown variables are refused before AWS is contacted.

        `others` returns the variables of other collectors, of which a misspelt variable may be one. Raises as
        `load`.
        """
        refuse_unknown_variables(self._environ, (CoreSettings, DatadogSettings, model), others)
        return self.table(model, name)

    def table(self, model: type[M], table: str) -> M:
        """Return the settings of a table of the file, with its secret; raises as `load`."""
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


class _Value(NamedTuple):
    """A value, its source as `--print-config` shows it, and its name in an error."""

    content: Any  # text, or a TOML value
    origin: str
    label: str


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
    from_environment = _variable_values(model, environ, "the environment", "")
    from_secret, secret_text = _read_secret(model, table, from_environment, secrets)
    from_file = _file_values(model, table, file)
    file_text = f"the configuration file {file.path}" if file.path else "no configuration file was given"
    searched = [text for text in ("the environment", secret_text, file_text) if text]

    # The last one wins. Values are by variable here, also those of the file.
    values = {**from_file, **from_secret, **from_environment}
    try:
        settings = model(**{name: value.content for name, value in values.items()})
    except ValidationError as error:
        raise _explain(error, searched, values) from None
    # Read directly and not from CoreSettings, which is itself loaded by this function.
    _refuse_plain_http(settings, values, environ.get(ALLOW_PLAIN_HTTP) or file.tables.get("allow_plain_http"))
    settings._searched = tuple(searched)
    settings._origins = {name: value.origin for name, value in values.items()}
    for name, value in values.items():
        log.debug("%s is from %s", name, value.origin)
    return settings


def _refuse_plain_http(settings: Settings, values: Mapping[str, _Value], allowed: object) -> None:
    """Raise ConfigurationError for URLs with plain http to hosts that are not allowed by name.

    Only values that were given are checked: defaults are https. A key would be sent with each request.
    """
    wrong = [
        f"{values[variable].label}: plain http is allowed to loopback and {ALLOW_PLAIN_HTTP} only: use https"
        for name, variable in variables(type(settings)).items()
        if variable in values
        and isinstance(url := getattr(settings, name), str)
        and url.startswith("http://")
        and is_plain_http(url, str(allowed or "").strip())
    ]
    if wrong:
        raise ConfigurationError("; ".join(wrong))


class _Variables(EnvSettingsSource):
    """The source of pydantic-settings for environment variables, over any mapping.

    It parses JSON for fields that are tables. Secrets in AWS are read with it too: they have the same names.
    """

    def __init__(self, model: type[Settings], values: Mapping[str, str]) -> None:
        self._values = values
        super().__init__(model, case_sensitive=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._values

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # Any: as inherited
        """Parse the JSON of a table; the model refuses what is not JSON, in an error with its variable."""
        with suppress(ValueError):
            return super().decode_complex_value(field_name, field, value)
        return value


def _variable_values(
    model: type[Settings], values: Mapping[str, str], origin: str, label: str
) -> dict[str, _Value]:
    """Return the values of a model among variables, of the environment or of a secret."""
    decoded = _Variables(model, _without_blanks(model, values))()
    return {name: _Value(value, origin, label + name) for name, value in decoded.items()}


def _without_blanks(model: type[Settings], values: Mapping[str, V]) -> dict[str, V]:
    """Return values by variable without blank ones, which count as unset: charts and shells set such.

    A NonBlankSecret is the exception: its validator refuses a blank value.
    """
    exact = secret_variables(model, IS_NON_BLANK)
    return {
        name: value
        for name, value in values.items()
        if not isinstance(value, str) or value.strip() or name in exact
    }


def _read_secret(
    model: type[Settings], table: str | None, environment: Mapping[str, _Value], secrets: AwsSecrets | None
) -> tuple[dict[str, _Value], str]:
    """Return the values of a model's secret, and a text for messages on whether it was read.

    Raises ConfigurationError for an unknown key or a value that is a list or an object, and as
    `AwsSecrets.read`.
    """
    names = secret_variables(model)
    missing = [name for name in names if name not in environment]
    if secrets is None or not names:
        return {}, "no AWS secret, as FLEETGAUGE_SECRET_PREFIX is not set" if missing else ""
    secret_id = f"{secrets.prefix}/{table}"
    origin = f"the AWS secret {secret_id}"
    # No request where nothing is needed: a role without access to AWS works with keys in the environment.
    if not missing:
        return {}, f"not {origin}, as the environment has {', '.join(names)}"
    content = secrets.read(secret_id)
    if content is None:
        return {}, f"{origin} (there is no such secret in {secrets.region}: check AWS_REGION)"
    # A misspelt key would otherwise be reported as a missing setting, although the secret appears to have it.
    known = [*variables(model).values()]
    wrong = [_unknown("key", key, known) for key in content if key not in known]
    wrong += [
        f"{key} is {_type_name(value)}: store text or a number"
        for key, value in content.items()
        if key in known and isinstance(value, dict | list)
    ]
    if wrong:
        raise ConfigurationError(f"{origin}: {', '.join(wrong)}")
    # Numbers and booleans are valid JSON values of a secret, but variables are texts.
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in content.items()
        if value is not None
    }
    return _variable_values(model, texts, origin, f"{origin}: "), origin


def _file_values(model: type[Settings], table: str | None, file: ConfigurationFile) -> dict[str, _Value]:
    """Return the values of a table of the file by variable; ConfigurationError for a key of no field."""
    names = variables(model)
    section = f"[{table}]" if table else "the top level"
    content = file.tables.get(table, {}) if table else _top_level(file)
    wrong = [_unknown("key", key, [*names], f" in {section}") for key in content if key not in names]
    if wrong:
        raise ConfigurationError(f"{file.path}: {', '.join(wrong)}")
    labels = {names[key]: f"{file.path}: {key} in {section}" for key in content}
    values = _without_blanks(model, {names[key]: value for key, value in content.items()})
    return {name: _Value(value, labels[name], labels[name]) for name, value in values.items()}


def _top_level(file: ConfigurationFile) -> dict[str, Any]:
    """Return the keys outside of tables, and tables with the name of such a key, which the model refuses."""
    fields = CoreSettings.model_fields
    return {key: value for key, value in file.tables.items() if key in fields or not isinstance(value, dict)}


def _check_tables(file: ConfigurationFile, collectors: list[str]) -> None:
    """Raise ConfigurationError for unknown tables, and for other values where a table belongs.

    `collectors` are the names that have a table.
    """
    known = [*collectors, DATADOG_TABLE, PROVISION_TABLE]
    wrong = [
        f"{name} is {_type_name(file.tables[name])}: write it as a table, [{name}]"
        for name in known
        if not isinstance(file.tables.get(name, {}), dict)
    ]
    wrong += [
        _unknown("table", name, known) for name in file.tables if name not in (*known, *_top_level(file))
    ]
    if wrong:
        raise ConfigurationError(f"{file.path}: {', '.join(wrong)}")


def _type_name(value: object) -> str:
    """Return the type of a TOML or JSON value in plain English."""
    return _TYPE_NAMES.get(type(value), "a date or time")


class AwsSecrets:
    """Secrets `<prefix>/<table>` of AWS Secrets Manager, through a client made for the first of them."""

    def __init__(self, core: CoreSettings) -> None:
        self.prefix = core.secret_prefix
        self._core = core

    @cached_property
    def _client(self) -> SecretsManagerClient:
        """The client; ConfigurationError where no region is set."""
        client: SecretsManagerClient = aws.client(
            "secretsmanager", self._core, f"reading the AWS secrets {self.prefix}/*"
        )
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
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError

        purpose = f"reading the AWS secret {secret_id}"
        log.debug("%s from %s", purpose, self._client.meta.endpoint_url)
        try:
            response: Mapping[str, object] = self._client.get_secret_value(SecretId=secret_id)
        except NoCredentialsError:
            fix = "give the pod a role or set AWS_ACCESS_KEY_ID"
            raise ConfigurationError(f"{purpose}: no AWS credentials were found; {fix}") from None
        except ClientError as error:
            _raise_unless_missing(error, purpose)
            return None
        # A subclass of BotoCoreError, so that its clause must be first: timeouts and refused connections.
        except HTTPClientError as error:
            reason = f"no answer within the time allowed ({type(error).__name__})"
            raise SourceError(f"{purpose}: {reason}; check the network path to AWS Secrets Manager") from None
        except BotoCoreError as error:
            raise ConfigurationError(f"{purpose}: {error}; check AWS_REGION and AWS_ENDPOINT_URL") from None
        if "SecretBinary" in response:
            raise ConfigurationError(f"{purpose}: it is binary; store a JSON object as text")
        text = response.get("SecretString")
        if not isinstance(text, str):
            raise SourceError(f"{purpose}: the answer is not one of Secrets Manager; check AWS_ENDPOINT_URL")
        # The error of json contains the text, so that it is not chained.
        with suppress(ValueError, RecursionError):
            if isinstance(content := json.loads(text), dict):
                return content
        raise ConfigurationError(
            f'{purpose}: it is not a JSON object; store {{"NAME": "value", ...}} as text'
        )


def _raise_unless_missing(error: ClientError, purpose: str) -> None:
    """Return where AWS has no such secret; raise for any other refusal.

    ConfigurationError where access is denied or the request is wrong, SourceError for temporary failures.
    """
    code = error.response["Error"].get("Code", "unknown")
    if code == "ResourceNotFoundException":
        return
    if code in _ACCESS_DENIED:
        fix = "the role needs secretsmanager:GetSecretValue on it"
        raise ConfigurationError(f"{purpose}: access denied ({code}); {fix}") from None
    attempts = 1 + error.response["ResponseMetadata"].get("RetryAttempts", 0)
    # botocore retries all that is temporary, so that an error at the first attempt is final.
    if attempts == 1:
        raise ConfigurationError(f"{purpose}: AWS answered {code}; look at the secret in AWS") from None
    raise SourceError(f"{purpose}: AWS answered {code} {attempts} times; the next run tries again") from None


def _check_aws_credentials(environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError for credentials that the AWS client would quote in an error of its own.

    botocore reads these variables itself: they are in no model, but are redacted from now on too.
    """
    credentials = {name: environ[name] for name in AWS_CREDENTIALS if environ.get(name)}
    for value in credentials.values():
        remember_secret(value)
    wrong = [f"{name}: {flaw}" for name, value in credentials.items() if (flaw := credential_flaw(value))]
    if wrong:
        raise ConfigurationError("; ".join(wrong))


def refuse_unknown_variables(
    environ: Mapping[str, str], models: Iterable[type[Settings]], others: Callable[[], Iterable[str]] = tuple
) -> None:
    """Raise ConfigurationError for variables with our prefix that no model has: they may be misspelt.

    `models` are those that this process reads. `others` returns the variables of other collectors. They only
    serve as suggestions: the process of a collector does not get them.
    """
    known = [name for model in models for name in variables(model).values()]
    wrong = [name for name in environ if name.startswith(PREFIX) and name not in known]
    if wrong:
        names = [*known, *others()]
        raise ConfigurationError("; ".join(_unknown("variable", name, names) for name in wrong))


def _unknown(kind: str, name: str, known: list[str], where: str = "") -> str:
    """Return the error for an unknown name, without the name itself where it may be a pasted credential.

    `kind` is `variable`, `key` or `table`, and `where` its location. A similar known name is suggested.
    """
    if name in RENAMED:
        return f"{name} is no longer read: set {RENAMED[name]} instead"
    hint = nearest(name, known)
    if kind != "variable" and not _SETTING_NAME.fullmatch(name):
        return f"an unknown {kind}{where} that is not shown, because it may be a credential{hint}"
    text = {"key": repr(name), "table": f"[{name}]"}.get(kind, name)
    return f"unknown {kind} {text}{where}{hint}"


def _explain(error: ValidationError, searched: list[str], values: Mapping[str, _Value]) -> ConfigurationError:
    """Return one error that names every wrong value and its source; where none is wrong, what is missing.

    A NotConfiguredError is only returned where nothing but values are missing, because it may become a skip.
    """
    problems = error.errors(include_url=False, include_context=False)
    wrong = [problem for problem in problems if problem["type"] != "missing"]
    if not wrong:
        missing = ", ".join(
            str(problem["loc"][0]) if problem["loc"] else problem["msg"] for problem in problems
        )
        verb = "is" if len(problems) == 1 else "are"
        return NotConfiguredError(f"{missing} {verb} not set; looked in: {'; '.join(searched)}")
    texts = []
    for problem in wrong:
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"].endswith("_type"):
            text += f", not {_type_name(problem['input'])}"
        variable, *path = map(str, problem["loc"]) if problem["loc"] else ("",)
        label = values[variable].label if variable in values else variable
        # Keys of a table are part of the location, and could be a pasted credential.
        nested = ".".join(part for part in path if _SETTING_NAME.fullmatch(part))
        texts.append(": ".join(part for part in (label, nested, text) if part))
    return ConfigurationError("; ".join(dict.fromkeys(texts)))
