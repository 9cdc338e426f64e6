"""Secrets from AWS Secrets Manager: which are read, and the errors, which never quote them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import SecretStr

from common.config import aws as clients
from common.config.settings import DatadogSettings
from common.config.sources import Configuration
from common.errors import ConfigurationError, SourceError
from support.servers.aws import Aws, secrets_fault
from support.servers.faults import Fault
from support.standins import KEY, everything
from support.toy_settings import CANARY, ToySettings

SECRET = "dev/datadog"

Read = Callable[..., DatadogSettings]


@pytest.fixture
def read(aws: Aws) -> Read:
    """Return a function that reads Datadog's settings with the given variables and the secret."""

    def reading(**environ: str) -> DatadogSettings:
        more = {"FLEETGAUGE_SECRET_PREFIX": "dev", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": aws.url}
        return Configuration({**more, **environ}, None).datadog

    return reading


def refused(read: Read, error: type[Exception] = ConfigurationError) -> str:
    with pytest.raises(error) as caught:
        read()
    assert type(caught.value) is error
    assert CANARY not in everything(caught.value)
    return str(caught.value)


def revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


class TestReading:
    def test_numbers_are_text_and_null_is_unset(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": 12345, "DD_APP_KEY": " ", "DD_SITE": None})
        settings = read()
        assert revealed(settings.api_key) == "12345"
        assert (settings.app_key, settings.site) == (None, "datadoghq.com")

    def test_each_secret_is_read_once_and_when_it_is_needed(self, aws: Aws) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": KEY})
        aws.put_secret("dev/host", {"TOY_API_KEY": "toy-key"})
        environ = {"FLEETGAUGE_SECRET_PREFIX": "dev", "AWS_ENDPOINT_URL": aws.url}
        with pytest.raises(ConfigurationError, match=r"^unknown variable FLEETGAUGE_TOY_X"):
            Configuration({**environ, "FLEETGAUGE_TOY_X": "1"}, None).table(ToySettings, "host")
        configuration = Configuration(environ, None)
        assert configuration.address == "https://api.datadoghq.com"
        assert aws.requests == []
        assert revealed(configuration.table(ToySettings, "host").api_key) == "toy-key"
        assert [b"dev/host" in request.body for request in aws.requests] == [True]
        for _ in range(2):
            assert revealed(configuration.datadog.api_key) == KEY
        assert aws.asked("secretsmanager") == 2

    def test_region_of_a_missing_secret_is_named(
        self, aws: Aws, read: Read, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "dev/datadog (there is no such secret in us-east-1" in read().not_set("DD_API_KEY")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")  # which only the AWS client reads
        missing = read(AWS_REGION="").not_set("DD_API_KEY")
        assert "no such secret in eu-west-1: check AWS_REGION" in missing


class TestBadSecrets:
    @pytest.mark.parametrize(
        "content",
        [
            *(f'{{"DD_API_KEY": "{CANARY}"', CANARY, f'["{CANARY}"]', "null"),
            *('{"a":' * 10_000, f'{{"DD_API_KEY": 1{"0" * 5000}}}'),
        ],
        ids=range(6),
    )
    def test_secret_that_is_no_json_object(self, aws: Aws, read: Read, content: str) -> None:
        aws.put_secret(SECRET, content)
        message = "reading the AWS secret dev/datadog: the answer is not a JSON object; store"
        assert refused(read).startswith(message)
        aws.put_secret(SECRET, content.encode())  # binary
        assert refused(read).startswith(message)

    @pytest.mark.parametrize(
        ("secret", "error"),
        [
            (
                {"DD_APIKEY": CANARY, "OWNER": "me"},
                "unknown key DD_APIKEY (did you mean 'DD_API_KEY'?), OWNER",
            ),
            ({"0f" * 16: "DD_API_KEY"}, "unknown key that may be a credential"),
            ({"DD_SITE": [CANARY]}, "DD_SITE: Input should be a valid string, not a list"),
        ],
    )
    def test_keys_and_nested_values_of_a_secret(
        self, aws: Aws, read: Read, secret: dict[str, object], error: str
    ) -> None:
        aws.put_secret(SECRET, secret)
        assert refused(read) == f"the AWS secret dev/datadog: {error}"


class TestAwsFails:
    @pytest.mark.parametrize("code", ["AccessDeniedException", "ExpiredTokenException", "DecryptionFailure"])
    def test_refusal_names_the_permission_and_is_final(self, aws: Aws, read: Read, code: str) -> None:
        aws.faults.add(secrets_fault(code))
        assert refused(read) == (
            f"reading the AWS secret dev/datadog: AWS answered {code}; "
            "check the secret, and that the role has secretsmanager:GetSecretValue on it"
        )
        assert len(aws.requests) == 1

    @pytest.mark.parametrize("code", ["ThrottlingException", "InternalServiceError"])
    def test_temporary_error_is_tried_three_times(self, aws: Aws, read: Read, code: str) -> None:
        aws.faults.add(secrets_fault(code), times=None)
        assert f"AWS answered {code} 3 times" in refused(read, SourceError)
        assert len(aws.requests) == 3

    def test_timeout(self, aws: Aws, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (clients.CONNECT_TIMEOUT, clients.READ_TIMEOUT, clients.ATTEMPTS) == (3, 5, 3)
        monkeypatch.setattr(clients, "READ_TIMEOUT", 0.05)
        monkeypatch.setattr(clients, "ATTEMPTS", 1)
        aws.faults.add(Fault(hang=True), times=None)
        assert "timeout on endpoint URL" in refused(read, SourceError)

    def test_answer_of_another_service(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": CANARY})
        aws.faults.add(Fault(body=f"<html>{CANARY}"))
        assert refused(read).endswith("check AWS_ENDPOINT_URL")

    def test_no_credentials(self, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        assert "Partial cred" in refused(read)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        assert "Unable to locate credentials; check AWS_REGION" in refused(read)
