"""The sources of settings: which value is taken, and the errors for values that are missing or wrong."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from common import registry
from common.collector import load_collector
from common.config.settings import CollectorSettings, CoreSettings, Settings, in_force, named, variables
from common.config.sources import Configuration
from common.datadog.provision_settings import ProvisionSettings
from common.errors import ConfigurationError, NotConfiguredError
from common.logs import redact
from support.project import ROOT
from support.servers.aws import Aws
from support.standins import KEY
from support.toy_settings import CANARY, ToySettings, refused, toy

NAMES = variables(ToySettings)
FIELDS = ("api_key", "label", "pages")
BLANK = st.sampled_from(["", " ", "\n"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.toml"


def values(number: int) -> st.SearchStrategy[dict[str, str]]:
    """Some of the fields, each with the number of its source, or blank."""
    return st.dictionaries(st.sampled_from(FIELDS), st.just(str(number)) | BLANK)


class TestPrecedence:
    @given(values(1), st.none() | values(2), values(3), st.booleans())
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
    def test_each_key_is_from_the_first_source_that_sets_it(
        self,
        path: Path,
        aws: Aws,
        environment: dict[str, str],
        secret: dict[str, str] | None,
        file: dict[str, str],
        has_hash_key: bool,
    ) -> None:
        path.write_text("[host]\n" + "".join(f"{key} = {json.dumps(text)}\n" for key, text in file.items()))
        aws.reset()
        if secret is not None:
            aws.put_secret("dev/host", {NAMES[field]: value for field, value in secret.items()})
        environ = {NAMES[field]: value for field, value in environment.items()}
        environ |= {NAMES["hash_key"]: KEY} if has_hash_key else {}
        # Where the environment has every secret, AWS is not needed.
        is_complete = has_hash_key and environment.get("api_key", "").strip() != ""
        sources = {
            "the environment": environment,
            "the AWS secret dev/host": {} if is_complete else secret or {},
            str(path): file,
        }
        expected: dict[str, tuple[str, str]] = {}
        for origin, source in sources.items():
            for field, value in source.items():
                if value.strip():
                    expected.setdefault(field, (value, origin))
        aws_settings = {"FLEETGAUGE_SECRET_PREFIX": "dev", "AWS_ENDPOINT_URL": aws.url}
        configuration = Configuration({**environ, **aws_settings}, str(path))
        if "api_key" not in expected:
            with pytest.raises(NotConfiguredError, match=r"^TOY_API_KEY is not set"):
                configuration.table(ToySettings, "host")
            return
        found = configuration.table(ToySettings, "host")
        origins = {str(row["setting"]): str(row["from"]) for row in in_force(found)}
        for field in FIELDS:
            value = getattr(found, field)
            if field in expected:
                text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
                assert (text, origins[NAMES[field]].partition(":")[0]) == expected[field]
            else:
                assert (value, origins[NAMES[field]]) == (ToySettings.model_fields[field].default, "default")
        assert len(aws.requests) == (0 if is_complete else 1)

    def test_variable_of_a_table_is_json(self) -> None:
        variable = "FLEETGAUGE_PROVISION_MONITORS"
        environ = {variable: '{"down": {"threshold": 3}}'}
        found = Configuration(environ, None).table(ProvisionSettings, "provision").monitors
        assert found is not None
        assert found["down"].threshold == 3
        with pytest.raises(ConfigurationError, match=f"^{variable}"):
            Configuration({variable: "down"}, None).table(ProvisionSettings, "provision")


class TestMissing:
    def test_all_missing_settings_and_sources_are_named(self, path: Path) -> None:
        class Two(CollectorSettings):
            model_config = named("FLEETGAUGE_TWO_")
            first: str
            second: str

        path.write_text("")
        with pytest.raises(NotConfiguredError) as caught:
            Configuration({}, str(path)).table(Two, "host")
        names, _, sources = str(caught.value).partition("; looked in: ")
        assert names == "FLEETGAUGE_TWO_FIRST, FLEETGAUGE_TWO_SECOND are not set"
        assert sources == f"the environment; the configuration file {path}"
        missing = Configuration({}, None).datadog.not_set("DD_APP_KEY")
        assert missing == (
            "DD_APP_KEY is not set; looked in: the environment; "
            "no AWS secret, as FLEETGAUGE_SECRET_PREFIX is not set; no configuration file was given"
        )

    def test_wrong_value_beside_a_missing_one_is_not_skipped(self, path: Path) -> None:
        path.write_text("[host]\npages = 0\n")
        assert refused(path, TOY_API_KEY="").startswith(f"{path}: pages in [host]: ")


class TestWrongTypes:
    @pytest.mark.parametrize(
        ("key", "value", "type_name"),
        [
            *((key, "false", "a boolean") for key in ("pages", "ratio", "wait", "label")),
            *((key, "5", "a number") for key in ("label", "projects", "api_key")),
            ("projects", '["a", 1]', "a number"),
            ("pages", "2026-11-18", "a date or time"),
            *((key, f'["{CANARY}"]', "a list") for key in ("pages", "enabled", "api_key")),
            *((key, f'{{nested = "{CANARY}"}}', "a table") for key in ("label", "api_key")),
        ],
    )
    def test_type_of_a_value_in_the_file_is_named(
        self, path: Path, key: str, value: str, type_name: str
    ) -> None:
        path.write_text(f"[host]\n{key} = {value}\n")
        error = refused(path, TOY_API_KEY="")
        assert error.startswith(f"{path}: {key} in [host]: ")
        assert error.endswith(f"not {type_name}")

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("step = true", "step in the top level: .* not a boolean"),
            ("[env]", "env in the top level: .* not a table"),
            ("host = 5", r"host is a number: write it as a table, \[host\]"),
            ("[[host]]", "host is a list: "),
        ],
    )
    def test_type_of_a_table_is_named(self, path: Path, text: str, error: str) -> None:
        path.write_text(text)
        assert re.match(f"{path}: {error}", refused(path))

    def test_all_wrong_values_are_named_with_their_sources(self, path: Path) -> None:
        path.write_text(f'[host]\napi_key = "{CANARY}\\n{CANARY}"\nratio = "x"\n')
        errors = refused(path, TOY_API_KEY="", FLEETGAUGE_TOY_WAIT="soon").split("; ")
        assert [error.partition(": Input")[0].partition(": it holds")[0] for error in errors] == [
            f"{path}: api_key in [host]: TOY_API_KEY",
            f"{path}: ratio in [host]: FLEETGAUGE_TOY_RATIO",
            "FLEETGAUGE_TOY_WAIT: 'soon' is not a duration: write seconds (900) or units (15m, 1h30m, 7d)",
        ]

    def test_blank_value_of_a_file_is_refused_where_it_differs_from_none(self, path: Path) -> None:
        path.write_text('[host]\nhash_key = " "\n')
        assert refused(path).endswith("is set but empty: give it a value, or unset it")


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("servce = 1", "the top level: unknown key servce (did you mean 'service'?)"),
            ("[hots]", "the top level: unknown key hots (did you mean 'host'?)"),
            ("checkpoints = 1", "the top level: unknown key checkpoints (it is state now)"),
            (
                "[host]\npage = 1\nlable = 1",
                "[host]: unknown key page (did you mean 'pages'?), lable (did you mean 'label'?)",
            ),
            ("[host]\nwandb = 1", "[host]: unknown key wandb"),
            ("[host]\nFLEETGAUGE_TOY_PAGES = 1", "[host]: unknown key FLEETGAUGE_TOY_PAGES"),
            *(
                (f"[host]\n{json.dumps(key)} = 1", "[host]: unknown key that may be a credential")
                for key in ("0f" * 16, "wandb_v1_" + "Zx9" * 20, f"TOY_API_KEY={CANARY}")
            ),
        ],
    )
    def test_keys_of_the_file(self, path: Path, text: str, error: str) -> None:
        path.write_text(text)
        assert refused(path) == f"{path}: in {error}"

    def test_variables_with_our_prefix(self) -> None:
        # Another collector refuses its own variables.
        known = {"FLEETGAUGE_TOY_PAGES": "1", "FLEETGAUGE_STEP": "1", "FLEET": "1", "FLEETGAUGE_XENNA_X": "1"}
        assert toy(**known).pages == 1
        other = "FLEETGAUGE_QUEUES"  # which is close to others only by its prefix
        hint = "(did you mean 'FLEETGAUGE_TOY_PAGES'?)"
        error = refused(**dict.fromkeys(("FLEETGAUGE_TOY_PAGE", other), "1"))
        assert error == f"unknown variable FLEETGAUGE_TOY_PAGE {hint}, {other}"


class TestConfiguration:
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
    def test_file_that_cannot_be_read_is_named(self, path: Path, content: bytes | None, message: str) -> None:
        if content is not None:
            path.write_bytes(content)
        assert re.match(message.format(path), refused(path))

    def test_example_has_every_setting_with_its_default(self, path: Path) -> None:
        example = ROOT / "docs" / "fleetgauge.example.toml"
        assert Configuration({}, str(example)).core.model_dump() == CoreSettings().model_dump()
        text = re.sub(r"^# (\w+ = )", r"\1", example.read_text(), flags=re.MULTILINE)
        path.write_text(text.replace('user_hash_key = ""\n', ""))  # set, but empty, it is an error
        tables = tomllib.loads(text)
        models: dict[str, type[Settings]] = {name: load_collector(name).settings for name in registry.names()}
        models["provision"] = ProvisionSettings
        required = {
            str(info.validation_alias): "a-value"
            for model in models.values()
            for info in model.model_fields.values()
            if info.is_required()
        }
        configuration = Configuration({**required, "WANDB_PROJECTS": "a/b"}, str(path))
        found = {name: configuration.table(model, name) for name, model in models.items()}
        assert configuration.core.model_dump() == CoreSettings().model_dump()
        for table, each in {**found, "datadog": configuration.datadog}.items():
            assert {*tables[table]} == {*type(each).model_fields}
            defaults = {name: info.default for name, info in type(each).model_fields.items()}
            given = {name for name, value in each.model_dump().items() if value != defaults[name]}
            assert given <= {"api_key", "paths", "projects"}


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
    path: Path, caplog: pytest.LogCaptureFixture, allowed: str, url: str, accepted: bool, in_file: bool
) -> None:
    path.write_text(f'allow_plain_http = "{allowed}"\n[datadog]\nurl = "{url}"\n')
    environ = {"FLEETGAUGE_ALLOW_PLAIN_HTTP": allowed, "FLEETGAUGE_DD_URL": url}
    blank = {"FLEETGAUGE_ALLOW_PLAIN_HTTP": " "}  # which counts as unset
    configuration = Configuration(blank, str(path)) if in_file else Configuration(environ, None)
    if accepted:
        assert configuration.address == url
    else:
        with pytest.raises(ConfigurationError, match="use https"):
            assert configuration.address
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [allowed in record.getMessage() for record in warned] == ([True] if allowed else [])
