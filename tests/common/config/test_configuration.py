"""What is configured, asked for as the child asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from common.config.configuration import Configuration
from common.config.settings import CollectorSettings, Secret, named
from common.errors import ConfigurationError, NotConfiguredError
from support.servers.aws import Aws
from support.standins import KEY, everything


class HostSettings(CollectorSettings):
    """A stand-in for a collector without secrets."""

    model_config = named("FLEETGAUGE_HOST_")
    disks: int = 1


class WandbSettings(CollectorSettings):
    """A stand-in for a collector with a secret."""

    model_config = named("FLEETGAUGE_WANDB_")
    api_key: Secret = Field(validation_alias="WANDB_API_KEY")


@pytest.fixture
def environ(aws: Aws) -> dict[str, str]:
    return {
        "FLEETGAUGE_SECRET_PREFIX": "dev/collectors",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": aws.url,
        "DD_ENV": "test",
    }


def test_the_address_of_datadog_is_known_without_a_key(tmp_path: Path) -> None:
    config = tmp_path / "fleetgauge.toml"
    config.write_text('[datadog]\nsite = "datadoghq.eu"\napi_key = "x"\n')
    assert Configuration({}, None).address == "https://api.datadoghq.com"
    assert Configuration({}, str(config)).address == "https://api.datadoghq.eu"
    elsewhere = {"FLEETGAUGE_DD_URL": "http://127.0.0.1:9"}
    assert Configuration(elsewhere, str(config)).address == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("allowed", "url", "accepted"),
    [
        ("intake.monitoring.svc", "http://intake.monitoring.svc:8080", True),
        ("Intake.monitoring.svc:8080", "http://intake.monitoring.svc:8080/v1", True),
        ("intake:80", "http://intake", True),
        ("[fd00::1]:8080", "http://[fd00::1]:8080", True),
        ("intake:8080", "http://intake:8081", False),
        ("intake", "http://intake.example.com", False),
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
    configuration = Configuration({}, str(config)) if in_file else Configuration(environ, None)
    if accepted:
        assert configuration.address == url
    else:
        with pytest.raises(ConfigurationError, match="use https"):
            assert configuration.address
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [allowed in record.getMessage() for record in warned] == ([True] if allowed else [])


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"])
def test_a_credential_that_no_header_carries_is_refused_before_the_aws_client_quotes_it(name: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Configuration({name: "two words"}, None)
    assert str(raised.value).startswith(f"{name}: it holds a space")
    assert "two words" not in str(raised.value)


class TestAws:
    def test_only_the_secret_of_what_is_asked_for_is_read(self, aws: Aws, environ: dict[str, str]) -> None:
        aws.put_secret("dev/collectors/datadog", {"DD_API_KEY": KEY})
        aws.put_secret("dev/collectors/wandb", {"WANDB_API_KEY": "wandb-key"})
        configuration = Configuration(environ, None)
        assert aws.requests == []
        assert configuration.collector("wandb", WandbSettings).api_key.get_secret_value() == "wandb-key"
        assert [b"dev/collectors/wandb" in request.body for request in aws.requests] == [True]
        for _ in range(2):
            assert configuration.datadog().api_key.get_secret_value() == KEY
        assert aws.asked("secretsmanager") == 2

    def test_a_collector_without_secrets_does_not_ask(self, aws: Aws, environ: dict[str, str]) -> None:
        assert Configuration(environ, None).collector("host", HostSettings).disks == 1
        assert aws.requests == []

    def test_nobody_asks_when_the_environment_has_every_secret(
        self, aws: Aws, environ: dict[str, str]
    ) -> None:
        configuration = Configuration({**environ, "DD_API_KEY": KEY, "WANDB_API_KEY": "w"}, None)
        configuration.datadog()
        configuration.collector("wandb", WandbSettings)
        assert aws.requests == []

    def test_nobody_asks_without_a_prefix(self, aws: Aws) -> None:
        with pytest.raises(
            NotConfiguredError, match=r"was not asked \(FLEETGAUGE_SECRET_PREFIX is not set\)"
        ):
            Configuration({"AWS_ENDPOINT_URL": aws.url}, None).collector("wandb", WandbSettings)
        assert aws.requests == []

    def test_a_misspelt_variable_is_refused_before_aws_is_asked(
        self, aws: Aws, environ: dict[str, str]
    ) -> None:
        configuration = Configuration({**environ, "FLEETGAUGE_WANDB_PAGES": "1"}, None)
        with pytest.raises(ConfigurationError, match=r"^unknown variable FLEETGAUGE_WANDB_PAGES"):
            configuration.collector("wandb", WandbSettings)
        assert aws.requests == []


class TestDatadog:
    def test_lacking_the_key_is_an_error_and_never_a_reason_to_skip(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^DD_API_KEY is not set; looked in: ") as caught:
            Configuration({"DD_ENV": "test"}, None).datadog()
        assert type(caught.value) is ConfigurationError

    @pytest.mark.parametrize("env", ["", " "])
    def test_lacking_the_environments_name_is_one_too(self, env: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^DD_ENV is not set; it becomes the tag") as caught:
            Configuration({"DD_API_KEY": KEY, "DD_ENV": env}, None).datadog()
        assert KEY not in everything(caught.value)


class TestFile:
    def test_each_part_reads_its_own_table(self, tmp_path: Path) -> None:
        path = tmp_path / "f.toml"
        path.write_text('env = "prod"\n[datadog]\nsite = "datadoghq.eu"\n[host]\ndisks = 3\n')
        configuration = Configuration({"DD_API_KEY": KEY}, str(path))
        assert configuration.core.env == "prod"
        assert configuration.datadog().site == "datadoghq.eu"
        assert configuration.collector("host", HostSettings).disks == 3

    def test_the_prefix_may_stand_there(self, aws: Aws, environ: dict[str, str], tmp_path: Path) -> None:
        path = tmp_path / "f.toml"
        path.write_text('secret_prefix = "other"\n')
        aws.put_secret("other/wandb", {"WANDB_API_KEY": "wandb-key"})
        configuration = Configuration({**environ, "FLEETGAUGE_SECRET_PREFIX": ""}, str(path))
        assert configuration.collector("wandb", WandbSettings).api_key.get_secret_value() == "wandb-key"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[hots]\n", r"unknown table \[hots\] \(did you mean 'host'\?\)"),
            ('evn = "x"\n', r"unknown key 'evn' in the top level \(did you mean 'env'\?\)"),
            ("host = 1\n", "unknown key 'host' in the top level"),
        ],
    )
    def test_what_it_should_not_hold_is_refused_at_once(self, tmp_path: Path, text: str, said: str) -> None:
        path = tmp_path / "f.toml"
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=said):
            Configuration({}, str(path))
