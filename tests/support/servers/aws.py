"""Secrets Manager and S3: moto's application, behind a door of ours that counts, breaks and hooks requests.

What AWS answers is moto's business; what goes wrong on the way is planned in `faults`, for both services.
moto keeps its state for the whole process, so two `Aws` at once are one account.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import Client

from support.servers.faults import Fault
from support.servers.loopback import Answer, LoopbackServer, Request

REGION = "us-east-1"
ACCESS_KEY_ID = "AKIATESTTESTTESTTEST"
SECRET_ACCESS_KEY = "test-secret-access-key"

_HOP_BY_HOP = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}


class _Moto(LoopbackServer[Request]):
    """moto's application in this process, at an address of its own that nothing is planned for."""

    def __init__(self) -> None:
        self._application = Client(DomainDispatcherApplication(create_backend_app))
        super().__init__()

    def respond(self, request: Request) -> Answer:
        return self.call(request.method, request.target, request.body, dict(request.headers.items()))

    def call(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        answer = self._application.open(target, method=method, data=body, headers=headers)
        kept = {name: text for name, text in answer.headers if name.lower() not in _HOP_BY_HOP}
        if method == "HEAD":
            kept["Content-Length"] = answer.headers.get("Content-Length", "0")
        return Answer(answer.status_code, answer.data, kept)


class Aws(LoopbackServer[Request]):
    """A running AWS of one empty account. `requests` holds only what the code under test asked."""

    def __init__(self) -> None:
        self._behind = _Moto()
        super().__init__()
        self.reset()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead any AWS client here."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        }

    def put_secret(self, name: str, value: Mapping[str, object] | str | bytes) -> None:
        """Create or replace a secret: a mapping as JSON, bytes as a binary secret."""
        text = json.dumps(dict(value)) if isinstance(value, Mapping) else value
        content = {"SecretBinary" if isinstance(text, bytes) else "SecretString": text}
        secrets = self.moto_client("secretsmanager")
        try:
            secrets.create_secret(Name=name, **content)
        except secrets.exceptions.ResourceExistsException:
            secrets.put_secret_value(SecretId=name, **content)
        finally:
            secrets.close()

    def make_bucket(self, name: str) -> None:
        client = self.moto_client("s3")
        client.create_bucket(Bucket=name)
        client.close()

    def allow_only(self, *actions: str) -> dict[str, str]:
        """From now on, until a reset, IAM decides; the variables of a user who may do only this."""
        document = {
            "Version": "2012-10-17",
            "Statement": {"Effect": "Allow", "Action": list(actions), "Resource": "*"},
        }
        iam = self.moto_client("iam")
        iam.create_user(UserName="user")
        iam.put_user_policy(UserName="user", PolicyName="only", PolicyDocument=json.dumps(document))
        key = iam.create_access_key(UserName="user")["AccessKey"]
        iam.close()
        self._behind.call("POST", "/moto-api/reset-auth", b"0", {})
        return {
            **self.environment,
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }

    def asked(self, service: str) -> int:
        """Count the requests made to a service, by its name in the signature: secretsmanager, s3, sts."""
        return sum(
            f"/{service}/aws4_request" in one.headers.get("Authorization", "") for one in self.requests
        )

    def reset(self) -> None:
        """Forget secrets, buckets, users, requests, faults and hooks."""
        self._behind.call("POST", "/moto-api/reset-auth", b"inf", {})
        self._behind.call("POST", "/moto-api/reset", b"", {})
        self.faults.clear()
        self._hooks.clear()
        self.requests.clear()

    def close(self) -> None:
        super().close()
        self._behind.close()

    def respond(self, request: Request) -> Answer:
        return self._behind.respond(request)

    def moto_client(self, service: Any) -> Any:  # boto3 makes its clients' classes at run time
        return boto3.client(
            service,
            endpoint_url=self._behind.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )


def secrets_fault(code: str) -> Fault:
    """Make Secrets Manager's error of that code: AccessDeniedException, ThrottlingException, …"""
    status = HTTPStatus.INTERNAL_SERVER_ERROR if code == "InternalServiceError" else HTTPStatus.BAD_REQUEST
    return Fault(
        status=status,
        headers={"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": code},
        body=json.dumps({"__type": code, "message": "refused by the test"}),
    )
