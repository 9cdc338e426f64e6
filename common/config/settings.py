"""Settings: where a value may come from, in which order, and what is said when it is wrong.

Precedence is the environment, AWS Secrets Manager, the configuration file, the default. Every field has
one name, its environment variable; secrets use the same names, and the file the field's own name.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any, Protocol, TypeVar, cast, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator, AliasGenerator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from common.config.characters import flaw
from common.config.file import NAME, unknown
from common.config.file import ConfigurationFile as ConfigurationFile  # what `load` takes
from common.errors import ConfigurationError, NotConfiguredError
from common.logs import remember_secret
from common.registry import PREFIX, nearest
from common.times import parse_duration

RENAMED = {"FLEETGAUGE_CHECKPOINTS": "FLEETGAUGE_STATE"}

log = logging.getLogger(__name__)


class _FromSecret:
    """Marks a field that a secret usually holds: only a missing one that is required makes us ask AWS."""


def _strip(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _credential(value: object) -> object:
    """A credential without the white space around it, and remembered before anybody can quote it."""
    if not isinstance(value, str):
        return value
    remember_secret(value)
    if problem := flaw(value.strip()):
        raise ValueError(problem)
    return value.strip()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(url: str, example: str) -> SplitResult:
    """Split a URL; the errors of urlsplit quote it, and with it a password."""
    try:
        parts = urlsplit(url)
        complete = bool(parts.hostname) and parts.port != 0 and parts.scheme in {"http", "https"}
    except ValueError:
        complete = False
    if not complete:
        raise ValueError(f"write a full URL, such as {example}, with odd characters of a password as %XX")
    return parts


def _require_tls(url: str) -> str:
    parts = _parts(url, "https://host")
    if parts.username or parts.password:
        raise ValueError("credentials do not belong in a URL")
    if set("?#") & set(url):
        raise ValueError("a query string or fragment does not belong here: write the address alone")
    if not url.isprintable() or " " in url:
        raise ValueError("it holds a space, a line break or a character that cannot be seen")
    if parts.scheme == "http" and not (is_loopback(parts.hostname or "") or _allows_plain_http(parts)):
        raise ValueError("plain http is allowed to loopback and FLEETGAUGE_ALLOW_PLAIN_HTTP only: use https")
    return url.rstrip("/")


def _allows_plain_http(parts: SplitResult) -> bool:
    """Whether FLEETGAUGE_ALLOW_PLAIN_HTTP, a host or host:port, names the host of this URL."""
    host, port = parts.hostname or "", parts.port or 80
    return _plain_http.get().lower() in {host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"}


def _host_and_port(value: str) -> str:
    if _parts(f"http://{value}", "http://host").netloc != value or "@" in value:
        raise ValueError("write a host or host:port, such as proxy.monitoring.svc:8080")
    return value


def _remember_proxy_password(value: SecretStr) -> SecretStr:
    password = _parts(value.get_secret_value(), "http://proxy:3128").password or ""
    remember_secret(password)
    remember_secret(unquote(password))
    if problem := flaw(value.get_secret_value()):
        raise ValueError(f"{problem}: write others as %XX")
    return value


def _split(value: object) -> object:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _site(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", value):
        raise ValueError("write the bare site, such as datadoghq.eu or us5.datadoghq.com")
    return value


Secret = Annotated[SecretStr, BeforeValidator(_credential), _FromSecret()]
Text = Annotated[str, BeforeValidator(_strip)]
Url = Annotated[Text, AfterValidator(_require_tls)]
Site = Annotated[Text, AfterValidator(_site)]
HostAndPort = Annotated[Text, AfterValidator(_host_and_port)]
ProxyUrl = Annotated[SecretStr, BeforeValidator(_strip), AfterValidator(_remember_proxy_password)]
Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Duration = Annotated[
    int, BeforeValidator(lambda value: parse_duration(value) if isinstance(value, str) else value)
]


def named(prefix: str) -> SettingsConfigDict:
    """The configuration of a settings class whose variables are `<prefix><FIELD>` unless aliased."""
    return SettingsConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: prefix + name.upper()),
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )


class Settings(BaseSettings):
    """The base of every settings class; built by `load`, which supplies the sources."""

    model_config = named(PREFIX)
    _looked: tuple[str, ...] = ()
    _origins: Mapping[str, str] = {}

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each variable that is not at its default was found."""
        return self._origins

    def not_set(self, variable: str) -> str:
        """What to say where an optional value turns out to be needed."""
        return f"{variable} is not set; looked in: {'; '.join(self._looked)}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, *_sources.get())


class CollectorSettings(Settings):
    """The base of a collector's settings."""


class CoreSettings(Settings):
    """What every run needs to know, whichever collectors it runs."""

    env: Text | None = Field(
        None, validation_alias="DD_ENV", description="Tag `env` of every point; required to push."
    )
    service: Text = Field(
        "fleetgauge", validation_alias="DD_SERVICE", description="Tag `service` of every point."
    )
    version: Text | None = Field(
        None, validation_alias="DD_VERSION", description="Version shown in log lines; never a tag."
    )
    secret_prefix: Text | None = Field(
        None,
        description="Where secrets live in AWS Secrets Manager: `<prefix>/datadog`, `<prefix>/<collector>`.",
    )
    aws_region: Text | None = Field(
        None,
        validation_alias="AWS_REGION",
        description="Region of the secrets, and of state and records in S3.",
    )
    aws_endpoint_url: Url | None = Field(
        None, validation_alias="AWS_ENDPOINT_URL", description="Another AWS endpoint, for tests and proxies."
    )
    allow_plain_http: HostAndPort | None = Field(
        None,
        description="A host, or host:port, inside the cluster that URLs may name with plain http; "
        "warned of at each start.",
    )
    state: Text | None = Field(
        None,
        description="Where runs leave a small document for the next one: a directory, or "
        "`s3://bucket/prefix`. Not required.",
    )
    step: Duration = Field(
        900,
        ge=1,
        le=3600,
        description="Grid on which a pushed run answers: its points stand at whole steps.",
    )
    series_cap: int = Field(20_000, ge=1, description="Most series one collector may send in one run.")
    instance: Text = Field(
        "",
        description="Tells this installation from others that keep state in the same place; "
        "the chart sets it.",
    )
    node_name: Text | None = Field(
        None, description="Host of metrics that belong to a node; the hostname when unset."
    )
    node_local: bool = Field(
        False,
        description="Whether records are on each node's own disks, and every node reads its own: state is "
        "kept per node, and points carry the node as host.",
    )
    ready_file: Text | None = Field(
        None,
        description="With `--every`: a file that is there from the first good tick on, "
        "and not after three bad ones in a row; for a probe of Kubernetes.",
    )
    proxy: ProxyUrl | None = Field(
        None, validation_alias="HTTPS_PROXY", description="Proxy for everything outside loopback."
    )
    no_proxy: Text = Field("", validation_alias="NO_PROXY", description="Hosts reached without the proxy.")


class DatadogAddress(Settings):
    """Where Datadog is; known without a key, so that a dry run knows it too."""

    site: Site = Field("datadoghq.com", validation_alias="DD_SITE", description="Datadog site.")
    url: Url | None = Field(
        None,
        validation_alias="FLEETGAUGE_DD_URL",
        description="Another intake instead of the site's, for tests and proxies.",
    )

    @property
    def address(self) -> str:
        """The base URL of the API."""
        return self.url or f"https://api.{self.site}"


class DatadogSettings(DatadogAddress):
    """How to reach Datadog, from the environment, the secret `<prefix>/datadog` or the table [datadog]."""

    api_key: Secret = Field(validation_alias="DD_API_KEY", description="API key; all that pushing needs.")
    app_key: Secret | None = Field(
        None, validation_alias="DD_APP_KEY", description="Application key; never needed by the CronJob."
    )


class SecretReader(Protocol):
    """Reads secrets for a settings class."""

    @property
    def region(self) -> str:
        """Where they are read."""

    def source(self, model: type[Settings], secret_id: str) -> EnvSettingsSource | None:
        """The secret's values as a source, or None where there is no such secret."""


M = TypeVar("M", bound=Settings)
_sources: ContextVar[tuple[PydanticBaseSettingsSource, ...]] = ContextVar("_sources", default=())
_plain_http: ContextVar[str] = ContextVar("_plain_http", default="")


class _Environment(EnvSettingsSource):
    def __init__(self, model: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._environ = environ
        super().__init__(model, case_sensitive=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        # A variable set to nothing is an unset one: charts and shells leave such behind.
        return {name: value for name, value in self._environ.items() if value.strip()}


def variables(model: type[Settings]) -> dict[str, str]:
    """The fields of a settings class and the variable that sets each."""
    return {name: str(info.validation_alias) for name, info in model.model_fields.items()}


def secret_variables(model: type[Settings]) -> list[str]:
    """The variables that a secret usually holds. Of `Secret | None`, the marks are one level down."""
    return [
        str(info.validation_alias)
        for info in model.model_fields.values()
        for holder in (info, *get_args(info.annotation))
        for mark in getattr(holder, "metadata", getattr(holder, "__metadata__", ()))
        if isinstance(mark, _FromSecret)
    ]


def load(
    model: type[M],
    table: str | None,
    *,
    environ: Mapping[str, str],
    file: ConfigurationFile,
    secrets: SecretReader | None = None,
    secret_id: str | None = None,
) -> M:
    """Build one settings object from every source, or say in one error all that is wrong with it."""
    names = variables(model)
    looked = ["the environment"]
    found: EnvSettingsSource | None = None
    required = [names[key] for key, info in model.model_fields.items() if info.is_required()]
    held = [name for name in secret_variables(model) if name in required]
    wanted = [name for name in held if not environ.get(name, "").strip()]
    if wanted and secrets is not None and secret_id is not None:
        found = secrets.source(model, secret_id)
        looked.append(f"the AWS secret {secret_id}")
        if found is None:
            looked[-1] += f" (there is no such secret in {secrets.region}: check AWS_REGION)"
    elif wanted:
        looked.append("AWS Secrets Manager was not asked (FLEETGAUGE_SECRET_PREFIX is not set)")
    elif held and secret_id is not None:
        looked.append(f"the AWS secret {secret_id} was not asked ({', '.join(held)} being set)")
    given = _table(model, table, file)
    looked.append(f"the configuration file {file.path}" if file.path else "no configuration file was given")
    origins = {names[key]: f"{file.path}: {key} in {_place(table)}" for key in given}
    origins |= {name: f"the AWS secret {secret_id}: {name}" for name in (found.env_vars if found else ())}
    origins |= {name: name for name, value in environ.items() if value.strip()}

    in_file = InitSettingsSource(model, {names[key]: value for key, value in given.items()})
    sources = (_Environment(model, environ), found, in_file)
    token = _sources.set(tuple(source for source in sources if source is not None))
    allowed = environ.get("FLEETGAUGE_ALLOW_PLAIN_HTTP") or file.tables.get("allow_plain_http") or ""
    allowing = _plain_http.set(str(allowed).strip())
    try:
        settings = model()
        settings._looked = tuple(looked)
        settings._origins = {
            name: "the environment" if origin == name else origin.removesuffix(f": {name}")
            for name, origin in origins.items()
            if name in names.values()
        }
        for name, origin in settings._origins.items():
            log.debug("%s is from %s", name, origin)
        return settings
    except ValidationError as error:
        raise _explain(error, looked, origins) from None
    finally:
        _sources.reset(token)
        _plain_http.reset(allowing)


# Any: TOML values
def _table(model: type[Settings], table: str | None, file: ConfigurationFile) -> dict[str, Any]:
    """The file's keys for this model; a key that no field has is an error."""
    if table is None:
        given = {key: value for key, value in file.tables.items() if not isinstance(value, dict)}
    else:
        given = dict(cast("Mapping[str, Any]", file.tables.get(table, {})))
    known = list(model.model_fields)
    renamed = {} if table else {old.removeprefix(PREFIX).lower(): new for old, new in RENAMED.items()}
    wrong = [
        _renamed(key, renamed[key].removeprefix(PREFIX).lower())
        if key in renamed
        else unknown("key", key, known, f" in {_place(table)}")
        for key in given
        if key not in known
    ]
    if wrong:
        raise ConfigurationError(f"{file.path}: {', '.join(wrong)}")
    # As in the environment, what is set to nothing is not set.
    return {key: value for key, value in given.items() if not (isinstance(value, str) and not value.strip())}


def _place(table: str | None) -> str:
    return f"[{table}]" if table else "the top level"


def _explain(error: ValidationError, looked: list[str], origins: Mapping[str, str]) -> ConfigurationError:
    """What is wrong with every value, and where it comes from; or else what is missing."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    wrong = [problem for problem in problems if problem["type"] != "missing"]
    if not wrong:
        missing = ", ".join(
            str(problem["loc"][0]) if problem["loc"] else problem["msg"] for problem in problems
        )
        verb = "is" if len(problems) == 1 else "are"
        return NotConfiguredError(f"{missing} {verb} not set; looked in: {'; '.join(looked)}")
    texts = []
    for problem in wrong:
        name = str(problem["loc"][0]) if problem["loc"] else ""
        inside = ".".join(part for part in map(str, problem["loc"][1:]) if NAME.fullmatch(part))
        where = f"{origins.get(name, name)}: {inside and f'{inside}: '}" if name else ""
        texts.append(where + problem["msg"].removeprefix("Value error, "))
    return ConfigurationError("; ".join(dict.fromkeys(texts)))


def refuse_unknown_variables(
    environ: Mapping[str, str], models: Iterable[type[Settings]], others: Callable[[], Iterable[str]] = tuple
) -> None:
    """A misspelt variable under our prefix is an error: silently ignoring it would run on a default.

    `others` are the variables of other collectors. They are looked for only to give a hint: the process of
    one collector is not given them.
    """
    known = [name for model in models for name in variables(model).values()]
    wrong = [name for name in environ if name.startswith(PREFIX) and name not in known]
    if wrong:
        names = [*known, *others()]
        raise ConfigurationError(
            "; ".join(
                _renamed(name, RENAMED[name])
                if name in RENAMED
                else f"unknown variable {name}{nearest(name, names)}"
                for name in wrong
            )
        )


def _renamed(old: str, new: str) -> str:
    return f"{old} is no longer read: set {new} instead"
