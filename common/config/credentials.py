"""Secrets from AWS Secrets Manager, through pydantic-settings' own source with its gaps closed.

The stock source waits for minutes, quotes a malformed secret in its error and fails on a binary one with a
KeyError. Here every way a secret can be bad is one sentence that names the secret and never its content.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic_settings import AWSSecretsManagerSettingsSource, EnvSettingsSource

from common.config import aws
from common.config.file import unknown
from common.config.settings import CoreSettings, Settings, variables, without_blanks
from common.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    from types_boto3_secretsmanager import SecretsManagerClient

_DENIED = {
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "ExpiredTokenException",
}


log = logging.getLogger(__name__)


class AwsSecrets:
    """Secrets Manager of the configured region, connected to only when the first secret is needed."""

    def __init__(self, core: CoreSettings) -> None:
        self._core = core
        self._made: SecretsManagerClient | None = None

    @property
    def region(self) -> str:
        """The region that was asked, also where it is the AWS client that found it."""
        return self._made.meta.region_name if self._made else self._core.aws_region or "no region"

    def source(self, model: type[Settings], secret_id: str) -> EnvSettingsSource | None:
        """The secret as a source of settings, or None where there is no such secret."""
        if self._made is None:
            self._made = aws.client("secretsmanager", self._core, f"reading the AWS secret {secret_id}")
        try:
            return _SecretSource(model, secret_id, self._made)
        except _NoSuchSecretError:
            return None


class _NoSuchSecretError(Exception):  # not an error: the value may be elsewhere
    pass


class _SecretSource(AWSSecretsManagerSettingsSource):
    """The stock source with a client that gives up, and errors that name the fix."""

    def __init__(self, model: type[Settings], secret_id: str, client: SecretsManagerClient) -> None:
        self._secretsmanager_client = client
        self._secret_id = secret_id
        self._model = model
        # The stock __init__ would build its own client, without time-outs.
        EnvSettingsSource.__init__(self, model, case_sensitive=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return _values(self._model, self._secret_id, _read(self._secretsmanager_client, self._secret_id))


def _read(client: SecretsManagerClient, secret_id: str) -> str:
    """The secret's text. What only a person can mend is a ConfigurationError, what may pass a SourceError."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError

    doing = f"reading the AWS secret {secret_id}"
    try:
        answer: Mapping[str, object] = client.get_secret_value(SecretId=secret_id)
        log.debug("%s from %s: there it is", doing, client.meta.endpoint_url)
    except NoCredentialsError:
        raise ConfigurationError(
            f"{doing}: no AWS credentials were found; give the pod a role or set AWS_ACCESS_KEY_ID"
        ) from None
    except ClientError as error:
        code = error.response["Error"].get("Code", "unknown")
        if code == "ResourceNotFoundException":
            log.debug("%s from %s: there is none", doing, client.meta.endpoint_url)
            raise _NoSuchSecretError from None
        if code in _DENIED:
            raise ConfigurationError(
                f"{doing}: access denied ({code}); the role needs secretsmanager:GetSecretValue on it"
            ) from None
        tries = 1 + error.response["ResponseMetadata"].get("RetryAttempts", 0)
        if tries == 1:  # botocore tries again whatever may pass
            raise ConfigurationError(f"{doing}: AWS answered {code}; look at the secret in AWS") from None
        raise SourceError(f"{doing}: AWS answered {code} {tries} times; the next run tries again") from None
    except HTTPClientError as error:
        raise SourceError(
            f"{doing}: no answer within the time allowed ({type(error).__name__}); "
            "check the network path to AWS Secrets Manager"
        ) from None
    except BotoCoreError as error:
        raise ConfigurationError(f"{doing}: {error}") from None
    if "SecretBinary" in answer:
        raise ConfigurationError(f"{doing}: it is binary; store a JSON object as text")
    text = answer.get("SecretString")
    if not isinstance(text, str):
        raise SourceError(f"{doing}: the answer is not one of Secrets Manager; check AWS_ENDPOINT_URL")
    return text


def _values(model: type[Settings], secret_id: str, text: str) -> dict[str, str]:
    """Check a secret's text and give its values as environment variables would be."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ConfigurationError(
            f'the AWS secret {secret_id} is not a JSON object; store {{"NAME": "value", ...}} as text'
        ) from None
    known = list(variables(model).values())
    wrong: list[str] = []
    values: dict[str, str] = {}
    for key, value in content.items():
        if key not in known:
            wrong.append(unknown("key", key, known))
        elif isinstance(value, dict | list):
            wrong.append(f"{key} must be text or a number")
        elif value is not None:
            values[key] = value.strip() if isinstance(value, str) else json.dumps(value)
    if wrong:
        raise ConfigurationError(f"the AWS secret {secret_id}: {', '.join(wrong)}")
    return without_blanks(model, values)
