"""The sources of settings: which value is taken, and the errors for values that are missing or wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from common import registry
from common.collector import load_collector
from common.config.settings import (
    CollectorSettings,
    CoreSettings,
    DatadogSettings,
    Duration,
    Secret,
    Settings,
    Text,
    Texts,
    in_force,
    named,
    variables,
)
from common.config.sources import (
    AwsSecrets,
    Configuration,
    ConfigurationFile,
    load,
    read_tables,
)
from common.datadog.provision_settings import ProvisionSettings
from common.errors import ConfigurationError, NotConfiguredError
from common.logs import redact
from support.project import ROOT
from support.standins import KEY, core_settings, everything

CANARY = "canary-secret-value"


class ToySettings(CollectorSettings):
    """A collector with required and optional secrets, and other settings."""

    model_config = named("FLEETGAUGE_TOY_")

    api_key: Secret = Field(validation_alias="TOY_API_KEY")
    app_key: Secret | None = None
    label: Text = "default"
    pages: int = Field(10, ge=1)
    ratio: float = 1.0
    wait: Duration | None = None
    projects: Texts = ()
    enabled: bool = True


class StoredSecrets(AwsSecrets):
    """Secrets Manager with one secret, or none, that counts its readers."""

    region = "us-east-1"

    def __init__(self, content: dict[str, Any] | None) -> None:
        super().__init__(core_settings(FLEETGAUGE_SECRET_PREFIX="dev"))
        self.content = content
        self.reads: list[str] = []

    def read(self, secret_id: str) -> dict[str, Any] | None:
        self.reads.append(secret_id)
        return self.content


def toy(file: dict[str, Any] | None = None, secrets: AwsSecrets | None = None, **environ: str) -> ToySettings:
    values = {"TOY_API_KEY": CANARY, **environ}
    return load(
        ToySettings,
        "toy",
        environ=values,
        file=ConfigurationFile("toy.toml", {"toy": file or {}}),
        secrets=secrets,
    )


def refused(model: type[Settings], table: str | None, tables: dict[str, Any], **environ: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(model, table, environ=environ, file=ConfigurationFile("f.toml", tables))
    assert type(caught.value) is ConfigurationError
    assert CANARY not in everything(caught.value)
    return str(caught.value)


NAMES = variables(ToySettings)
FIELDS = ("api_key", "app_key", "label", "pages")
BLANK = st.sampled_from(["", " ", "\n"])


def values(number: int) -> st.SearchStrategy[dict[str, str]]:
    """Some of the fields, each with the number of its source, or blank."""
    return st.dictionaries(st.sampled_from(FIELDS), st.just(str(number)) | BLANK)


class TestPrecedence:
    @given(values(1), st.none() | values(2), values(3))
    def test_each_key_is_from_the_first_source_that_sets_it(
        self, environment: dict[str, str], secret: dict[str, str] | None, file: dict[str, str]
    ) -> None:
        environ = {NAMES[field]: value for field, value in environment.items()}
        stored = secret and {NAMES[field]: value for field, value in secret.items()}
        secrets = StoredSecrets(stored)
        has_secrets = {"api_key", "app_key"} <= {field for field in environment if environment[field].strip()}
        sources = {
            "the environment": environment,
            "the AWS secret dev/toy": {} if has_secrets else secret or {},
            "f.toml": file,
        }
        expected: dict[str, tuple[str, str]] = {}
        for origin, source in sources.items():
            for field, value in source.items():
                if value.strip():
                    expected.setdefault(field, (value, origin))

        def merge() -> ToySettings:
            parsed = ConfigurationFile("f.toml", {"toy": file})
            return load(ToySettings, "toy", environ=environ, file=parsed, secrets=secrets)

        if "api_key" not in expected:
            with pytest.raises(NotConfiguredError, match=r"^TOY_API_KEY is not set"):
                merge()
            return
        settings = merge()
        origins = {str(row["setting"]): str(row["from"]) for row in in_force(settings)}
        for field in FIELDS:
            found = getattr(settings, field)
            if field in expected:
                text = found.get_secret_value() if isinstance(found, SecretStr) else str(found)
                assert (text, origins[NAMES[field]].partition(":")[0]) == expected[field]
            else:
                assert found == ToySettings.model_fields[field].default
                assert origins[NAMES[field]] in {"default", "not set"}
        assert secrets.reads == ([] if has_secrets else ["dev/toy"])

    def test_file_may_have_lists_and_numbers(self) -> None:
        settings = toy({"projects": ["a", "b"], "pages": 3, "ratio": 2, "wait": 60, "enabled": False})
        assert (settings.projects, settings.pages, settings.ratio) == (("a", "b"), 3, 2.0)
        assert (settings.wait, settings.enabled) == (60, False)
        assert toy({"projects": "a, b"}).projects == ("a", "b")

    def test_variable_of_a_table_is_json(self) -> None:
        environ = {"FLEETGAUGE_PROVISION_MONITORS": '{"down": {"threshold": 3}}'}
        found = load(ProvisionSettings, "provision", environ=environ).monitors
        assert found is not None
        assert found["down"].threshold == 3
        environ = {"FLEETGAUGE_PROVISION_MONITORS": "down"}
        assert refused(ProvisionSettings, "provision", {}, **environ).startswith(next(iter(environ)))


class TestMissing:
    @pytest.mark.parametrize(
        ("secrets", "text"),
        [
            (None, "FLEETGAUGE_SECRET_PREFIX is not set"),
            (StoredSecrets(None), "the AWS secret dev/toy (there is no such secret in us-east-1"),
            (StoredSecrets({}), "; the AWS secret dev/toy; the configuration file toy.toml"),
        ],
    )
    def test_every_source_that_was_searched_is_named(self, secrets: AwsSecrets | None, text: str) -> None:
        with pytest.raises(NotConfiguredError, match=r"^TOY_API_KEY is not set; .*the environment") as caught:
            toy(secrets=secrets, TOY_API_KEY="")
        assert text in str(caught.value)
        assert "toy.toml" in str(caught.value)
        assert text in toy(secrets=secrets).not_set("FLEETGAUGE_TOY_APP_KEY")

    def test_all_missing_settings_are_named(self) -> None:
        class Two(CollectorSettings):
            model_config = named("FLEETGAUGE_TWO_")
            first: str
            second: str

        with pytest.raises(NotConfiguredError, match=r"^FLEETGAUGE_TWO_FIRST, FLEETGAUGE_TWO_SECOND are not"):
            load(Two, "two", environ={})

    def test_wrong_value_beside_a_missing_one_is_not_skipped(self) -> None:
        assert refused(ToySettings, "toy", {"toy": {"pages": 0}}).startswith("f.toml: pages in [toy]: ")


class TestWrongTypes:
    @pytest.mark.parametrize(
        ("key", "value", "type_name"),
        [
            *((key, False, "a boolean") for key in ("pages", "ratio", "wait", "label")),
            *((key, 5, "a number") for key in ("label", "projects", "api_key")),
            ("projects", ["a", 1], "a number"),
            ("pages", tomllib.loads("x = 2026-11-18")["x"], "a date or time"),
            *((key, [CANARY], "a list") for key in ("pages", "enabled", "api_key")),
            *((key, {"nested": CANARY}, "a table") for key in ("label", "api_key")),
        ],
    )
    def test_type_of_a_value_in_the_file_is_named(self, key: str, value: object, type_name: str) -> None:
        error = refused(ToySettings, "toy", {"toy": {"api_key": CANARY, key: value}})
        assert error.startswith(f"f.toml: {key} in [toy]: ")
        assert error.endswith(f"not {type_name}")

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("step = true", "step in the top level: .* not a boolean"),
            ("[env]", "env in the top level: .* not a table"),
            ("datadog = 5", r"datadog is a number: write it as a table, \[datadog\]"),
            ("[[datadog]]", "datadog is a list: "),
        ],
    )
    def test_type_of_a_table_is_named(self, tmp_path: Path, text: str, error: str) -> None:
        path = tmp_path / "f.toml"
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=f"^{path}: {error}"):
            assert Configuration({}, str(path)).address

    def test_all_wrong_values_are_named_with_their_sources(self) -> None:
        secrets = StoredSecrets({"FLEETGAUGE_TOY_PAGES": 0, "FLEETGAUGE_TOY_APP_KEY": f"{CANARY}\n{CANARY}"})
        with pytest.raises(ConfigurationError) as caught:
            toy({"ratio": "x"}, secrets, FLEETGAUGE_TOY_WAIT="soon")
        assert CANARY not in everything(caught.value)
        secret, variable = "the AWS secret dev/toy: FLEETGAUGE_TOY", "FLEETGAUGE_TOY"
        assert [
            text.partition(": Input")[0].partition(": it holds")[0] for text in str(caught.value).split("; ")
        ] == [
            f"{secret}_APP_KEY",
            f"{secret}_PAGES",
            f"toy.toml: ratio in [toy]: {variable}_RATIO",
            f"{variable}_WAIT: 'soon' is not a duration: write seconds (900) or units (15m, 1h30m, 7d)",
        ]


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("table", "keys", "error"),
        [
            (None, ["servce"], "the top level: unknown key servce (did you mean 'service'?)"),
            (None, ["hots"], "the top level: unknown key hots (did you mean 'host'?)"),
            (
                "toy",
                ["page", "lable"],
                "[toy]: unknown key page (did you mean 'pages'?), lable (did you mean 'label'?)",
            ),
            ("toy", ["FLEETGAUGE_TOY_PAGES"], "[toy]: unknown key FLEETGAUGE_TOY_PAGES"),
        ],
    )
    def test_keys_of_the_file(self, table: str | None, keys: list[str], error: str) -> None:
        content: dict[str, Any] = dict.fromkeys(keys, 1)
        model: type[Settings] = ToySettings if table else CoreSettings
        assert refused(model, table, {table: content} if table else content) == f"f.toml: in {error}"

    @pytest.mark.parametrize(
        ("secret", "error"),
        [
            (
                {"TOY_APIKEY": CANARY, "OWNER": "me"},
                "unknown key TOY_APIKEY (did you mean 'TOY_API_KEY'?), OWNER",
            ),
            (
                {"FLEETGAUGE_TOY_LABEL": [CANARY]},
                "FLEETGAUGE_TOY_LABEL: Input should be a valid string, not a list",
            ),
        ],
    )
    def test_keys_and_nested_values_of_a_secret(self, secret: dict[str, Any], error: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            toy(secrets=StoredSecrets(secret))
        assert str(caught.value) == f"the AWS secret dev/toy: {error}"
        assert CANARY not in everything(caught.value)

    @pytest.mark.parametrize("key", ["0f" * 16, "wandb_v1_" + "Zx9" * 20, f"TOY_API_KEY={CANARY}"])
    def test_key_that_may_be_a_credential_is_not_shown(self, key: str) -> None:
        assert key not in refused(ToySettings, "toy", {"toy": {key: "api_key"}})
        with pytest.raises(ConfigurationError, match="may be a credential") as caught:
            toy(secrets=StoredSecrets({key: "TOY_API_KEY"}))
        assert key not in everything(caught.value)

    def test_variables_with_our_prefix(self) -> None:
        known = {"TOY_API_KEY": KEY, "FLEETGAUGE_TOY_PAGES": "1", "FLEETGAUGE_STEP": "1", "FLEET": "1"}
        known |= {"FLEETGAUGE_HOST_X": "1"}  # which another collector refuses
        assert Configuration(known, None).table(ToySettings, "toy").pages == 1
        other = "FLEETGAUGE_QUEUES"  # which is close to others only by its prefix
        wrong = dict.fromkeys(("FLEETGAUGE_TOY_PAGE", other), "1")
        with pytest.raises(ConfigurationError) as caught:
            Configuration(wrong, None).table(ToySettings, "toy")
        hint = "(did you mean 'FLEETGAUGE_TOY_PAGES'?)"
        assert str(caught.value) == f"unknown variable FLEETGAUGE_TOY_PAGE {hint}, {other}"


class TestConfiguration:
    def test_each_model_reads_its_table(self, tmp_path: Path) -> None:
        path = tmp_path / "f.toml"
        path.write_text('env = "prod"\n[datadog]\nsite = "datadoghq.eu"\n[host]\npages = 3\n')
        (tmp_path / "link").symlink_to(path)  # as Kubernetes mounts a ConfigMap
        configuration = Configuration({"DD_API_KEY": KEY, "TOY_API_KEY": KEY}, str(tmp_path / "link"))
        assert configuration.core.env == "prod"
        assert configuration.address == "https://api.datadoghq.eu"
        assert configuration.datadog().site == "datadoghq.eu"
        assert configuration.datadog() is configuration.datadog_alone
        assert configuration.table(ToySettings, "host").pages == 3

    def test_address_needs_no_key(self, tmp_path: Path) -> None:
        path = tmp_path / "f.toml"
        path.write_text('[datadog]\nsite = "datadoghq.eu"\napi_key = "x"\n')
        assert Configuration({}, None).address == "https://api.datadoghq.com"
        environ = {"FLEETGAUGE_DD_URL": "http://127.0.0.1:9"}
        assert Configuration(environ, str(path)).address == "http://127.0.0.1:9"

    def test_push_without_key_or_env_is_an_error_and_not_skipped(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^DD_API_KEY is not set; .*; DD_ENV is not") as caught:
            Configuration({"DD_ENV": " "}, None).datadog()
        assert type(caught.value) is ConfigurationError
        with pytest.raises(NotConfiguredError, match=r"^DD_API_KEY is not set"):
            assert Configuration({}, None).datadog_alone
        with pytest.raises(ConfigurationError, match=r"^DD_ENV is not set"):
            Configuration({"DD_API_KEY": KEY}, None).datadog()

    @pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"])
    def test_aws_credential_is_checked_before_it_is_used(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=f"^{name}: it holds a space") as caught:
            Configuration({name: "two words"}, None)
        assert (redact("two words"), "two words" in str(caught.value)) == ("[redacted]", False)


class TestFile:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "cannot read the configuration file {}: No such file"),
            (b"\xff\xfe", "the configuration file {} is not TOML: "),
            (b'api_key = "canary-secret-value\n', "the configuration file {} is not TOML: .*line 1"),
            (b"#" * 262_145, "the configuration file {} is larger than 262,144 bytes"),
        ],
    )
    def test_file_that_cannot_be_read_is_named(
        self, tmp_path: Path, content: bytes | None, message: str
    ) -> None:
        path = tmp_path / "f.toml"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=f"^{message.format(path)}") as caught:
            read_tables(str(path))
        assert CANARY not in everything(caught.value)

    def test_file_of_the_largest_size_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "f.toml"
        path.write_text("#" * 262_144)
        assert read_tables(str(path)) == {}

    def test_example_has_every_setting_with_its_default(self) -> None:
        path = ROOT / "docs" / "fleetgauge.example.toml"
        assert Configuration({}, str(path)).core.model_dump() == CoreSettings().model_dump()
        tables = tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", path.read_text(), flags=re.MULTILINE))
        assert tables["wandb"].pop("user_hash_key") == ""  # set, but empty, it is an error
        models: dict[str | None, type[Settings]] = {None: CoreSettings, "datadog": DatadogSettings}
        models |= {name: load_collector(name).settings for name in registry.names()}
        for table, model in models.items():
            required = [info for info in model.model_fields.values() if info.is_required()]
            environ = {str(info.validation_alias): "a-value" for info in required}
            environ |= {"WANDB_PROJECTS": "a/b"} if table == "wandb" else {}
            settings = load(model, table, environ=environ, file=ConfigurationFile("example", tables))
            for name, info in model.model_fields.items():
                if info.validation_alias not in environ:
                    assert (name, getattr(settings, name)) == (name, info.default)
            assert {*(tables[table] if table else tables)} >= {*model.model_fields} - {"user_hash_key"}


@pytest.mark.parametrize(
    ("allowed", "url", "accepted"),
    [
        ("intake.monitoring.svc", "http://intake.monitoring.svc:8080", True),
        ("Intake.monitoring.svc:8080", "http://intake.monitoring.svc:8080/v1", True),
        ("[fd00::1]:8080", "http://[fd00::1]:8080", True),
        ("intake:8080", "http://intake:8081", False),
        ("", "http://intake", False),
    ],
)
@pytest.mark.parametrize("in_file", [False, True])
def test_plain_http_reaches_only_the_host_that_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, allowed: str, url: str, accepted: bool, in_file: bool
) -> None:
    config = tmp_path / "fleetgauge.toml"
    config.write_text(f'allow_plain_http = "{allowed}"\n[datadog]\nurl = "{url}"\n')
    environ = {"FLEETGAUGE_ALLOW_PLAIN_HTTP": allowed, "FLEETGAUGE_DD_URL": url}
    blank = {"FLEETGAUGE_ALLOW_PLAIN_HTTP": " "}  # which counts as unset
    configuration = Configuration(blank, str(config)) if in_file else Configuration(environ, None)
    if accepted:
        assert configuration.address == url
    else:
        with pytest.raises(ConfigurationError, match="use https"):
            assert configuration.address
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [allowed in record.getMessage() for record in warned] == ([True] if allowed else [])
