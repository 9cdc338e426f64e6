"""The AWS every test of credentials, state and records trusts, asked by the real boto3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from support.servers.aws import Aws, secrets_fault
from support.servers.faults import Fault


@pytest.fixture
def secrets(aws: Aws) -> Iterator[Any]:
    with closing(client(aws, "secretsmanager")) as made:
        yield made


@pytest.fixture
def s3(aws: Aws) -> Iterator[Any]:
    with closing(client(aws, "s3")) as made:
        yield made


def client(aws: Aws, service: Any, attempts: int = 1, read_timeout: float = 5) -> Any:
    retries: Any = {"total_max_attempts": attempts, "mode": "standard"}
    given = aws.environment
    return boto3.client(
        service,
        endpoint_url=given["AWS_ENDPOINT_URL"],
        region_name=given["AWS_REGION"],
        aws_access_key_id=given["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        config=Config(read_timeout=read_timeout, retries=retries),
    )


def test_secret_is_json_text_bytes_or_absent_until_a_reset(
    aws: Aws, secrets: Any, s3: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    aws.put_secret("dev/collectors/wandb", {"WANDB_API_KEY": "first"})
    aws.put_secret("dev/collectors/wandb", {"WANDB_API_KEY": "second"})
    aws.put_secret("malformed", "{not json")
    aws.put_secret("binary", b"\x00\xff")
    aws.make_bucket("state")
    assert (aws.asked("secretsmanager"), aws.asked("s3")) == (0, 0), "of what the code under test asks"
    answers = [
        secrets.get_secret_value(SecretId=name) for name in ("dev/collectors/wandb", "malformed", "binary")
    ]
    assert json.loads(answers[0]["SecretString"]) == {"WANDB_API_KEY": "second"}
    assert (answers[1]["SecretString"], answers[2]["SecretBinary"]) == ("{not json", b"\x00\xff")
    assert len(s3.list_buckets()["Buckets"]) == 1
    assert (aws.asked("secretsmanager"), aws.asked("s3")) == (3, 1)
    assert [request.status for request in aws.requests] == [200] * 4
    aws.faults.add(secrets_fault("AccessDeniedException"), times=None)
    aws.reset()
    assert aws.requests == []
    assert s3.list_buckets()["Buckets"] == []
    with pytest.raises(secrets.exceptions.ResourceNotFoundException):
        secrets.get_secret_value(SecretId="malformed")
    assert [record for record in caplog.records if record.name == "werkzeug"] == []


@pytest.mark.parametrize(
    ("code", "status"),
    [("AccessDeniedException", 400), ("ThrottlingException", 400), ("InternalServiceError", 500)],
)
def test_boto3_raises_the_planned_error(aws: Aws, secrets: Any, code: str, status: int) -> None:
    aws.faults.add(secrets_fault(code, "because"))
    with pytest.raises(ClientError) as caught:
        secrets.get_secret_value(SecretId="any")
    assert caught.value.response["Error"] == {"Code": code, "Message": "because"}
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_boto3_gets_through_a_throttle_that_ends_and_no_slow_answer(aws: Aws) -> None:
    aws.put_secret("name", "value")
    aws.faults.add(secrets_fault("ThrottlingException"))
    with closing(client(aws, "secretsmanager", attempts=2)) as patient:
        assert patient.get_secret_value(SecretId="name")["SecretString"] == "value"
    assert [request.status for request in aws.requests] == [400, 200]
    aws.faults.add(Fault(hang=True))
    with (
        closing(client(aws, "secretsmanager", read_timeout=0.1)) as impatient,
        pytest.raises(ReadTimeoutError),
    ):
        impatient.get_secret_value(SecretId="any")
