"""The AWS every test of credentials, state and records trusts, asked by the real boto3."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from support.servers.aws import Aws, secrets_fault
from support.servers.faults import Fault


@pytest.fixture(scope="module")
def running() -> Iterator[Aws]:
    with Aws() as aws:
        yield aws


@pytest.fixture
def aws(running: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    running.reset()
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    return running


@pytest.fixture
def secrets(aws: Aws) -> Iterator[Any]:
    with closing(client("secretsmanager")) as made:
        yield made


@pytest.fixture
def s3(aws: Aws) -> Iterator[Any]:
    with closing(client("s3")) as made:
        yield made


def client(service: Any, attempts: int = 1, read_timeout: float = 5) -> Any:
    retries: Any = {"total_max_attempts": attempts, "mode": "standard"}
    return boto3.client(service, config=Config(read_timeout=read_timeout, retries=retries))


def test_a_mapping_is_a_json_secret(aws: Aws, secrets: Any) -> None:
    aws.put_secret("dev/collectors/wandb", {"WANDB_API_KEY": "first"})
    aws.put_secret("dev/collectors/wandb", {"WANDB_API_KEY": "second"})
    answer = secrets.get_secret_value(SecretId="dev/collectors/wandb")
    assert json.loads(answer["SecretString"]) == {"WANDB_API_KEY": "second"}
    assert [request.status for request in aws.requests] == [200]


def test_text_and_bytes_stay_what_they_are(aws: Aws, secrets: Any) -> None:
    aws.put_secret("malformed", "{not json")
    aws.put_secret("binary", b"\x00\xff")
    assert secrets.get_secret_value(SecretId="malformed")["SecretString"] == "{not json"
    binary = secrets.get_secret_value(SecretId="binary")
    assert binary["SecretBinary"] == b"\x00\xff"
    assert "SecretString" not in binary


def test_a_missing_secret_is_not_found(secrets: Any) -> None:
    with pytest.raises(secrets.exceptions.ResourceNotFoundException):
        secrets.get_secret_value(SecretId="absent")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("AccessDeniedException", 400),
        ("ThrottlingException", 400),
        ("DecryptionFailure", 400),
        ("InternalServiceError", 500),
    ],
)
def test_boto3_raises_the_planned_error(aws: Aws, secrets: Any, code: str, status: int) -> None:
    aws.faults.add(secrets_fault(code, "because"))
    with pytest.raises(ClientError) as caught:
        secrets.get_secret_value(SecretId="any")
    assert caught.value.response["Error"] == {"Code": code, "Message": "because"}
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_boto3_gets_through_a_throttle_that_ends(aws: Aws) -> None:
    aws.put_secret("name", "value")
    aws.faults.add(secrets_fault("ThrottlingException"))
    with closing(client("secretsmanager", attempts=2)) as patient:
        assert patient.get_secret_value(SecretId="name")["SecretString"] == "value"
    assert [request.status for request in aws.requests] == [400, 200]


def test_a_slow_answer_is_a_read_timeout(aws: Aws) -> None:
    aws.faults.add(Fault(hang=True))
    with (
        closing(client("secretsmanager", read_timeout=0.1)) as impatient,
        pytest.raises(ReadTimeoutError),
    ):
        impatient.get_secret_value(SecretId="any")


def test_a_bucket_keeps_objects_and_their_conditions(aws: Aws, s3: Any) -> None:
    aws.make_bucket("state")
    etag = s3.put_object(Bucket="state", Key="wandb.json", Body=b"{}", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket="state", Key="wandb.json", Body=b"{}", IfNoneMatch="*")
    assert s3.get_object(Bucket="state", Key="wandb.json")["Body"].read() == b"{}"
    head = s3.head_object(Bucket="state", Key="wandb.json")
    assert (head["ContentLength"], head["ETag"]) == (2, etag)
    s3.delete_object(Bucket="state", Key="wandb.json")
    assert s3.list_objects_v2(Bucket="state")["KeyCount"] == 0


def test_an_object_may_be_stored_though_the_writer_saw_a_reset(aws: Aws, s3: Any) -> None:
    aws.make_bucket("state")
    aws.faults.add(Fault(reset="after", applied=True))
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Bucket="state", Key="mark", Body=b"7")
    assert s3.get_object(Bucket="state", Key="mark")["Body"].read() == b"7"


def test_requests_are_counted_by_service(aws: Aws, secrets: Any, s3: Any) -> None:
    aws.put_secret("name", "value")
    aws.make_bucket("state")
    assert (aws.asked("secretsmanager"), aws.asked("s3")) == (0, 0)
    secrets.get_secret_value(SecretId="name")
    s3.list_buckets()
    s3.list_buckets()
    assert (aws.asked("secretsmanager"), aws.asked("s3")) == (1, 2)


def test_reset_forgets_everything(aws: Aws, secrets: Any, s3: Any) -> None:
    aws.put_secret("name", "value")
    aws.make_bucket("state")
    aws.faults.add(secrets_fault("AccessDeniedException"), times=None)
    aws.reset()
    assert aws.requests == []
    assert s3.list_buckets()["Buckets"] == []
    with pytest.raises(secrets.exceptions.ResourceNotFoundException):
        secrets.get_secret_value(SecretId="name")


def test_moto_logs_no_requests(aws: Aws, secrets: Any, caplog: pytest.LogCaptureFixture) -> None:
    aws.put_secret("name", "value")
    with caplog.at_level(logging.DEBUG):
        secrets.get_secret_value(SecretId="name")
    assert [record for record in caplog.records if record.name == "werkzeug"] == []
