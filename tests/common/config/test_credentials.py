"""Secrets from AWS: every way one can be bad is one sentence that names it and never its content."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from common.config import aws as clients
from common.config.credentials import AwsSecrets
from common.config.file import ConfigurationFile
from common.config.settings import CoreSettings, DatadogSettings, load
from common.errors import ConfigurationError, NotConfiguredError, SourceError
from support.servers.aws import Aws, secrets_fault
from support.servers.faults import Fault
from support.standins import core_settings, everything

CANARY = "canary-secret-value"
SECRET = "dev/datadog"

Read = Callable[..., DatadogSettings]


@pytest.fixture
def read(aws: Aws) -> Read:
    """Load Datadog's settings from the secret `dev/datadog` and the variables given."""

    def reading(file: dict[str, object] | None = None, **environ: str) -> DatadogSettings:
        places = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": aws.url}
        core = load(CoreSettings, None, environ=places, file=ConfigurationFile())
        return load(
            DatadogSettings,
            "datadog",
            environ=environ,
            file=ConfigurationFile("f.toml", {"datadog": file or {}}),
            secrets=AwsSecrets(core),
            secret_id=SECRET,
        )

    return reading


class TestPrecedence:
    def test_the_secret_beats_the_file_and_the_environment_the_secret(self, aws: Aws, read: Read) -> None:
        file = {"site": "from.file", "api_key": "file-key", "app_key": "file-app"}
        aws.put_secret(SECRET, {"DD_API_KEY": CANARY, "DD_SITE": "from.secret"})
        settings = read(file)
        assert settings.api_key.get_secret_value() == CANARY
        assert settings.site == "from.secret"
        assert settings.app_key is not None
        assert settings.app_key.get_secret_value() == "file-app"
        assert read(file, DD_SITE="from.environment").site == "from.environment"

    def test_aws_is_not_asked_when_the_environment_has_the_key(self, aws: Aws, read: Read) -> None:
        assert read(DD_API_KEY="from-environment").api_key.get_secret_value() == "from-environment"
        assert aws.requests == []

    def test_an_empty_variable_does_not_hide_the_secret(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": CANARY})
        assert read(DD_API_KEY=" ").api_key.get_secret_value() == CANARY
        assert aws.asked("secretsmanager") == 1

    def test_values_are_stripped_and_empty_ones_are_not_set(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": f"{CANARY}\n", "DD_SITE": " ", "DD_APP_KEY": None})
        settings = read()
        assert settings.api_key.get_secret_value() == CANARY
        assert (settings.site, settings.app_key) == ("datadoghq.com", None)

    def test_a_number_is_read_as_its_text(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": 12345})
        assert read().api_key.get_secret_value() == "12345"

    def test_a_secret_that_is_elsewhere_names_the_region_that_was_asked(
        self, aws: Aws, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": CANARY})
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")  # which only the AWS client reads
        core = load(CoreSettings, None, environ={"AWS_ENDPOINT_URL": aws.url}, file=ConfigurationFile())
        with pytest.raises(NotConfiguredError, match="no such secret in eu-west-1: check AWS_REGION"):
            load(
                *(DatadogSettings, "datadog"),
                environ={},
                file=ConfigurationFile(),
                secrets=AwsSecrets(core),
                secret_id=SECRET,
            )

    def test_what_describes_the_services_is_read_once_for_all_clients(self, aws: Aws) -> None:
        core = load(CoreSettings, None, environ={"AWS_ENDPOINT_URL": aws.url}, file=ConfigurationFile())
        one, other = (clients.client("s3", core, "trying") for _ in range(2))
        assert one is not other
        assert one.meta.service_model.metadata["serviceId"] == "S3"
        assert one.meta.service_model.metadata is other.meta.service_model.metadata
        places = clients.models(None).search_paths
        assert len(places) == len({*places}), "a process that stays looks in no more of them each time"

    def test_one_client_serves_every_secret(self, aws: Aws) -> None:
        core = load(CoreSettings, None, environ={"AWS_ENDPOINT_URL": aws.url}, file=ConfigurationFile())
        secrets = AwsSecrets(core)
        assert [secrets.source(DatadogSettings, name) for name in ("a/datadog", "b/datadog")] == [None, None]
        assert aws.asked("secretsmanager") == 2


class TestMissing:
    def test_a_missing_secret_leaves_the_value_to_the_file(self, aws: Aws, read: Read) -> None:
        assert read({"api_key": "file-key"}).api_key.get_secret_value() == "file-key"
        assert aws.asked("secretsmanager") == 1

    def test_a_missing_secret_is_named_among_the_places_tried(self, read: Read) -> None:
        with pytest.raises(NotConfiguredError) as caught:
            read()
        assert str(caught.value) == (
            "DD_API_KEY is not set; looked in: the environment; the AWS secret dev/datadog "
            "(there is no such secret in us-east-1: check AWS_REGION); the configuration file f.toml"
        )

    def test_a_secret_without_the_key_is_named_too(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_SITE": "from.secret"})
        with pytest.raises(NotConfiguredError, match="the environment; the AWS secret dev/datadog; the conf"):
            read()


class TestBadSecrets:
    @pytest.mark.parametrize(
        "content",
        [
            *(f'{{"DD_API_KEY": "{CANARY}"', CANARY, f'["{CANARY}"]', f'"{CANARY}"', "null", "5"),
            *('{"DD_API_KEY": ' + "[" * 10_000, '{"a":' * 10_000, f'{{"DD_API_KEY": 1{"0" * 5000}}}'),
        ],
    )
    def test_one_that_is_not_a_json_object(self, aws: Aws, read: Read, content: str) -> None:
        aws.put_secret(SECRET, content)
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            'the AWS secret dev/datadog is not a JSON object; store {"NAME": "value", ...} as text'
        )
        assert type(caught.value) is ConfigurationError
        assert CANARY not in everything(caught.value)

    def test_a_binary_one(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, f'{{"DD_API_KEY": "{CANARY}"}}'.encode())
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            "reading the AWS secret dev/datadog: it is binary; store a JSON object as text"
        )
        assert CANARY not in everything(caught.value)

    @pytest.mark.parametrize("nested", [{"value": CANARY}, [CANARY]])
    def test_one_with_a_nested_value(self, aws: Aws, read: Read, nested: object) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": nested})
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == "the AWS secret dev/datadog: DD_API_KEY must be text or a number"
        assert CANARY not in everything(caught.value)

    def test_one_with_an_unknown_key(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_APIKEY": CANARY})
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            "the AWS secret dev/datadog: unknown key 'DD_APIKEY' (did you mean 'DD_API_KEY'?)"
        )
        assert CANARY not in everything(caught.value)

    @pytest.mark.parametrize("kind", ["0f" * 16, "0F" * 20, "wandb_v1_" + "Zx9" * 20, f"DD_API_KEY={CANARY}"])
    def test_one_whose_key_may_be_a_credential(self, aws: Aws, read: Read, kind: str) -> None:
        aws.put_secret(SECRET, {kind: "DD_API_KEY"})
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value).startswith(
            "the AWS secret dev/datadog: an unknown key that is not shown, because it may be a credential"
        )
        assert kind not in everything(caught.value)
        assert CANARY not in everything(caught.value)

    def test_all_that_is_wrong_with_one_is_said_at_once(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_APIKEY": CANARY, "OWNER": "me", "DD_SITE": ["a.b"]})
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            "the AWS secret dev/datadog: unknown key 'DD_APIKEY' (did you mean 'DD_API_KEY'?), "
            "unknown key 'OWNER', DD_SITE must be text or a number"
        )

    def test_a_credential_in_it_that_no_header_can_carry(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": f"{CANARY}\n{CANARY}", "DD_APP_KEY": f"{CANARY}\u200b"})
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            "the AWS secret dev/datadog: DD_API_KEY: it holds a line break; a credential is printable ASCII "
            "without spaces; the AWS secret dev/datadog: DD_APP_KEY: it holds an invisible character, such "
            "as a zero-width space; a credential is printable ASCII without spaces"
        )
        assert CANARY not in everything(caught.value)

    def test_one_with_a_wrong_value(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": CANARY, "DD_SITE": "https://x"})
        with pytest.raises(
            ConfigurationError, match=r"^the AWS secret dev/datadog: DD_SITE: write the bare site"
        ) as caught:
            read()
        assert CANARY not in everything(caught.value)


class TestAwsFails:
    @pytest.mark.parametrize(
        "code",
        [
            "AccessDeniedException",
            "UnrecognizedClientException",
            "InvalidSignatureException",
            "ExpiredTokenException",
        ],
    )
    def test_access_denied_is_for_a_person_to_mend(self, aws: Aws, read: Read, code: str) -> None:
        aws.faults.add(secrets_fault(code))
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            f"reading the AWS secret dev/datadog: access denied ({code}); "
            "the role needs secretsmanager:GetSecretValue on it"
        )
        assert not isinstance(caught.value, NotConfiguredError)

    @pytest.mark.parametrize("code", ["DecryptionFailure", "InvalidRequestException"])
    def test_what_would_not_pass_is_for_a_person_too(self, aws: Aws, read: Read, code: str) -> None:
        aws.faults.add(secrets_fault(code))
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            f"reading the AWS secret dev/datadog: AWS answered {code}; look at the secret in AWS"
        )
        assert len(aws.requests) == 1

    @pytest.mark.parametrize("code", ["ThrottlingException", "InternalServiceError"])
    def test_what_may_pass_is_tried_three_times(self, aws: Aws, read: Read, code: str) -> None:
        aws.faults.add(secrets_fault(code), times=None)
        with pytest.raises(SourceError) as caught:
            read()
        assert str(caught.value) == (
            f"reading the AWS secret dev/datadog: AWS answered {code} 3 times; the next run tries again"
        )
        assert len(aws.requests) == 3

    def test_a_throttle_that_ends_is_not_noticed(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": CANARY})
        aws.faults.add(secrets_fault("ThrottlingException"))
        assert read().api_key.get_secret_value() == CANARY

    def test_no_answer_in_time(self, aws: Aws, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (clients.CONNECT_TIMEOUT, clients.READ_TIMEOUT, clients.ATTEMPTS) == (3, 5, 3)
        monkeypatch.setattr(clients, "READ_TIMEOUT", 0.05)
        monkeypatch.setattr(clients, "ATTEMPTS", 1)
        aws.faults.add(Fault(hang=True), times=None)
        with pytest.raises(SourceError) as caught:
            read()
        assert str(caught.value) == (
            "reading the AWS secret dev/datadog: no answer within the time allowed (ReadTimeoutError); "
            "check the network path to AWS Secrets Manager"
        )

    def test_an_answer_of_something_else(self, aws: Aws, read: Read) -> None:
        aws.put_secret(SECRET, {"DD_API_KEY": CANARY})
        aws.faults.add(Fault(body=f"<html>{CANARY}"))
        with pytest.raises(SourceError) as caught:
            read()
        assert str(caught.value) == (
            "reading the AWS secret dev/datadog: the answer is not one of Secrets Manager; "
            "check AWS_ENDPOINT_URL"
        )
        assert CANARY not in everything(caught.value)

    def test_no_credentials(self, aws: Aws, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
        without_credentials(monkeypatch)
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert str(caught.value) == (
            "reading the AWS secret dev/datadog: no AWS credentials were found; "
            "give the pod a role or set AWS_ACCESS_KEY_ID"
        )

    def test_half_of_the_credentials(self, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(ConfigurationError, match=r"^reading the AWS secret dev/datadog: Partial cred"):
            read()

    def test_a_name_that_aws_does_not_take(self, aws: Aws) -> None:
        places = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": aws.url}
        core = load(CoreSettings, None, environ=places, file=ConfigurationFile())
        with pytest.raises(
            ConfigurationError, match=r"^reading the AWS secret : Parameter validation failed"
        ):
            AwsSecrets(core).source(DatadogSettings, "")
        assert aws.requests == []

    def test_no_region(self, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_REGION")
        monkeypatch.delenv("AWS_DEFAULT_REGION")
        core = load(CoreSettings, None, environ={}, file=ConfigurationFile())
        with pytest.raises(ConfigurationError) as caught:
            AwsSecrets(core).source(DatadogSettings, SECRET)
        assert str(caught.value) == ("reading the AWS secret dev/datadog: no region is set; set AWS_REGION")

    @pytest.mark.parametrize(
        ("variable", "value", "said"),
        [("AWS_REGION", "eu west", "eu west"), ("AWS_PROFILE", "nobody", "nobody")],
    )
    def test_a_region_or_profile_that_is_none(
        self, aws: Aws, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
    ) -> None:
        monkeypatch.setenv(variable, value)
        environ = {"AWS_REGION": "us-east-1", variable: value}
        core = load(CoreSettings, None, environ=environ, file=ConfigurationFile())
        with pytest.raises(ConfigurationError, match=f"^reading the AWS secret dev/datadog: .*{said}"):
            AwsSecrets(core).source(DatadogSettings, SECRET)


def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")


def test_the_region_is_known_before_anything_is_asked() -> None:
    assert AwsSecrets(core_settings(AWS_REGION="eu-west-1")).region == "eu-west-1"
    assert AwsSecrets(core_settings()).region == "no region"
