"""Settings: the models, the types of their fields, and the text that shows a value.

The environment and AWS secrets name a value by its variable, the configuration file by its field.
`common.config.sources` finds the values. The models of collectors are in `collectors/<name>/`, and
`docs/settings.md` is generated from all of them.

Messages about URLs and credentials do not quote the value: it may contain a password.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import (
    AfterValidator,
    AliasGenerator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from common.logs import redact, remember_secret
from common.registry import PREFIX
from common.times import duration, parse_duration

MASK = "********"
ALLOW_PLAIN_HTTP = "FLEETGAUGE_ALLOW_PLAIN_HTTP"


def check_printable(text: str) -> str:
    """Return a text of printable ASCII without spaces; ValueError, which does not quote it, for any other.

    A line break in a header is an error of the HTTP library, which would quote the value.
    """
    if not all("!" <= character <= "~" for character in text):
        raise ValueError("it holds a space, a line break or a character that is not printable ASCII")
    return text


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address; no name is resolved."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def _strip(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _credential(value: object) -> object:
    """Strip and check a credential; it is redacted from now on, whatever becomes of it."""
    if not isinstance(value, str):
        return value
    # Before the check: a value that is refused is a secret too.
    remember_secret(value)
    return check_printable(value.strip())


def _refuse_blank(value: SecretStr) -> SecretStr:
    if not value.get_secret_value():
        raise ValueError("is set but empty: give it a value, or unset it")
    return value


def _split_url(url: str, example: str) -> SplitResult:
    """Split a URL of http or https; ValueError with an example for any other.

    The errors of urlsplit would quote it, and with it a password.
    """
    with suppress(ValueError):
        parts = urlsplit(check_printable(url))
        if parts.hostname and parts.port != 0 and parts.scheme in {"http", "https"}:
            return parts
    raise ValueError(f"write a full URL in ASCII, such as {example}, with other characters as %XX")


def _check_url(url: str) -> str:
    """Return a URL without a trailing slash; ValueError where it has more than an address and a path."""
    parts = _split_url(url, "https://host")
    if "@" in parts.netloc or set("?#") & set(url):
        raise ValueError("write the address alone, without credentials, a query string or a fragment")
    return url.rstrip("/")


def is_plain_http(url: str, allowed: str) -> bool:
    """Return whether a URL is plain http to another host than loopback and `allowed`, a host or host:port."""
    parts = urlsplit(url)
    is_allowed = is_loopback(parts.hostname or "") or allowed.lower() in {
        parts.hostname,
        parts.netloc.lower(),
    }
    return parts.scheme == "http" and not is_allowed


def _remember_proxy_password(value: SecretStr) -> SecretStr:
    """Return the URL of a proxy; its password is redacted from now on, as written and decoded."""
    password = _split_url(value.get_secret_value(), "http://proxy:3128").password or ""
    remember_secret(password)
    remember_secret(unquote(password))
    return value


def _check_site(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", value):
        raise ValueError("write the bare site, such as datadoghq.eu or us5.datadoghq.com")
    return value


def _split_texts(value: object) -> object:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _parse_duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


# `secret_variables` recognises fields by these two objects.
IS_SECRET, IS_NON_BLANK = BeforeValidator(_credential), AfterValidator(_refuse_blank)
Secret = Annotated[SecretStr, IS_SECRET]
NonBlankSecret = Annotated[SecretStr, IS_SECRET, IS_NON_BLANK]  # a blank one is not the same as none
Text = Annotated[str, BeforeValidator(_strip)]
Url = Annotated[Text, AfterValidator(_check_url)]
Site = Annotated[Text, AfterValidator(_check_site)]
ProxyUrl = Annotated[SecretStr, BeforeValidator(_strip), AfterValidator(_remember_proxy_password)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split_texts)]
Duration = Annotated[int, BeforeValidator(_parse_duration)]


def named(prefix: str) -> SettingsConfigDict:
    """Return the configuration of a model whose variables are `<prefix><FIELD>` unless aliased.

    Unknown keys are refused, values cannot be changed, and errors do not quote their input.
    """
    return SettingsConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: prefix + name.upper()),
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )


class Settings(BaseSettings):
    """The base of every model; `common.config.sources` gives it its values, by variable.

    `_origins` has the source of each variable that is not at its default, `_searched` all that were read: for
    messages and `--print-config`.
    """

    model_config = named(PREFIX)
    _origins: Mapping[str, str] = {}
    _searched: tuple[str, ...] = ()

    def not_set(self, variable: str) -> str:
        """Return the message for an optional value that turns out to be needed, with the sources read."""
        return f"{variable} is not set; looked in: {'; '.join(self._searched)}"

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the source of given values alone: `sources.py` has merged all others."""
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean(cls, value: Any, info: ValidationInfo) -> Any:  # Any: of every type
        """Refuse `true` for what is no boolean: pydantic would convert it to the number 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and "bool" not in str(annotation):
            raise ValueError("write a number or text, not a boolean")
        return value


class CollectorSettings(Settings):
    """The base of a collector's settings, whose table has the name of the collector."""

    @property
    def width(self) -> int:
        """The length of the buckets in which the collector adds up, in seconds."""
        return 1


class CoreSettings(Settings):
    """What every run needs to know, whichever collectors it runs: the top level of the configuration file.

    None of these values is a secret but the proxy's password, so that no secret is read before they are
    known.
    """

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
    allow_plain_http: Text | None = Field(
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
        description="Interval of the ticks, whose multiples are the times of W&B points. `--every` sets it.",
    )
    series_cap: int = Field(20_000, ge=1, description="Most series one collector may send in one run.")
    instance: Text = Field(
        "",
        description="Name of this installation, where several share a state store; the chart sets it.",
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


class DatadogSettings(Settings):
    """How to reach Datadog, from the environment, the secret `<prefix>/datadog` or the table [datadog]."""

    site: Site = Field("datadoghq.com", validation_alias="DD_SITE", description="Datadog site.")
    url: Url | None = Field(
        None,
        validation_alias="FLEETGAUGE_DD_URL",
        description="Another intake instead of the site's, for tests and proxies.",
    )
    api_key: Secret | None = Field(
        None, validation_alias="DD_API_KEY", description="API key; required to push, and all it needs."
    )
    app_key: Secret | None = Field(
        None, validation_alias="DD_APP_KEY", description="Application key; never needed by the CronJob."
    )

    @property
    def address(self) -> str:
        """The base URL of the API."""
        return self.url or f"https://api.{self.site}"


def variables(model: type[Settings]) -> dict[str, str]:
    """Return the variable of each field, by the field's name."""
    return {name: str(info.validation_alias) for name, info in model.model_fields.items()}


def secret_variables(model: type[Settings], mark: object = IS_SECRET) -> list[str]:
    """Return the variables of secrets, required or optional; or of fields with another mark.

    `mark` is a validator object such as IS_NON_BLANK.
    """
    return [str(info.validation_alias) for info in model.model_fields.values() if mark in _marks(info)]


def _marks(info: FieldInfo) -> list[object]:
    """Return the metadata of a field's type: of `Secret | None` pydantic leaves it in the annotation."""
    nested = (part for kind in get_args(info.annotation) for part in getattr(kind, "__metadata__", ()))
    return [*info.metadata, *nested]


def written(value: object, info: FieldInfo) -> str:
    """Return a value as a variable contains it (`7d`, `true`, `a,b`), secrets masked; `""` for None.

    `info` is the field of the value: a duration is an int, which only its metadata shows.
    """
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, int) and get_args(Duration)[-1] in _marks(info):
        return duration(value)
    return "" if value is None else str(value).removesuffix(".0")


def in_force(settings: Settings) -> list[dict[str, object]]:
    """Return a row for each setting: its variable, its value and its source, for `--print-config`."""
    rows: list[dict[str, object]] = []
    for name, variable in variables(type(settings)).items():
        # Redacted as well as masked: a person may have written a key into a variable that is not one for
        # secrets.
        value = redact(written(getattr(settings, name), type(settings).model_fields[name]))
        origin = settings._origins.get(variable, "default" if value else "not set")
        rows.append({"setting": variable, "value": value, "from": redact(origin)})
    return rows
