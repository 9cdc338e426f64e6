"""Objects that a test puts into a bucket of records, and what a run asks of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import boto3
from moto.s3.models import s3_backends

from support.servers.aws import Aws

BUCKET = "records"


class Bucket:
    """A bucket as whoever uploads there sees it."""

    def __init__(self, aws: Aws) -> None:
        aws.make_bucket(BUCKET)
        self.aws = aws
        names = {"region_name": "AWS_REGION", "endpoint_url": "AWS_ENDPOINT_URL"}
        names |= {"aws_access_key_id": "AWS_ACCESS_KEY_ID", "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY"}
        # Any: boto3 makes its clients' classes at run time
        self.client: Any = boto3.client("s3", **{key: aws.environment[name] for key, name in names.items()})  # type: ignore[call-overload]

    def put(self, key: str, *records: Mapping[str, Any]) -> bytes:
        return self.put_bytes(key, b"".join(json.dumps(one).encode() + b"\n" for one in records))

    def put_bytes(self, key: str, content: bytes) -> bytes:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        self.aws.requests.clear()
        return content

    def fill(self, objects: Mapping[str, bytes]) -> None:
        """Put many objects straight into moto, for which uploads would take minutes."""
        moto = s3_backends["123456789012"]["aws"]
        for key, content in objects.items():
            moto.put_object(BUCKET, key, content)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=key)
        self.aws.requests.clear()

    def read(self) -> list[tuple[str, str]]:
        """Return what was read of which objects since something was last put: keys and ranges."""
        asked = [one for one in self.aws.requests if one.method == "GET" and "list-type" not in one.target]
        return sorted((one.path.removeprefix(f"/{BUCKET}/"), one.headers["Range"] or "") for one in asked)
