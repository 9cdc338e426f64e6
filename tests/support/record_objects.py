"""Ticks over records in S3, and the objects that a test puts there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from moto.s3.models import s3_backends

from common.collector import Collector
from common.config.file import ConfigurationFile
from common.config.settings import CoreSettings, load
from support.servers.aws import Aws
from support.xenna_ticks import Ticks

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

    def mirror(self, folder: Path, prefix: str) -> None:
        """Make what is under a prefix what is in a folder, as a sync that deletes does."""
        content = {f"{prefix}/{one.relative_to(folder)}": one for one in folder.rglob("*") if one.is_file()}
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", ())
        for key in {one["Key"] for one in listed} - content.keys():
            self.delete(key)
        for key, path in content.items():
            self.put_bytes(key, path.read_bytes())

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=key)
        self.aws.requests.clear()

    def read(self) -> list[tuple[str, str]]:
        """What was read of which objects since something was last put: keys and ranges."""
        asked = [one for one in self.aws.requests if one.method == "GET" and "list-type" not in one.target]
        return sorted((one.path.removeprefix(f"/{BUCKET}/"), one.headers["Range"] or "") for one in asked)


class ObjectTicks(Ticks):
    """Ticks of a collector over objects."""

    def __init__(
        self,
        aws: Aws,
        path: str = f"s3://{BUCKET}/run/",
        collector: Collector[Any] = Ticks.collector,
        **settings: str,
    ) -> None:
        self.collector = collector
        super().__init__(Path("unused"), **{"paths": path, **settings})
        self.core = load(CoreSettings, None, environ=aws.environment, file=ConfigurationFile())

    def context(self) -> Any:
        return replace(super().context(), network=self.core)
