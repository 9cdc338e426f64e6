"""A bucket in the test's S3: what a test puts there, and what the code under test requested."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from moto.s3.models import s3_backends

from common.config.sources import Configuration
from support.servers.aws import Aws
from support.servers.loopback import Request

NAME = "records"


class Bucket:
    """An empty bucket."""

    def __init__(self, aws: Aws) -> None:
        aws.make_bucket(NAME)
        self.aws = aws
        self.core = Configuration(aws.environment, None).core
        self._store = s3_backends["123456789012"]["aws"]  # of moto: uploads take much longer

    def path(self, key: str) -> str:
        return f"s3://{NAME}/{key}"

    def put(self, key: str, content: bytes) -> None:
        self._store.put_object(NAME, key, content)

    def delete(self, key: str) -> None:
        self._store.delete_object(NAME, key)

    def mirror(self, folder: Path) -> None:
        """Become what a folder is, with the times of its files."""
        content = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        for key in {*self._store.buckets[NAME].keys} - content.keys():
            self.delete(key)
        for key, path in content.items():
            stored = self._store.put_object(NAME, key, path.read_bytes())
            stored.last_modified = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(tzinfo=None)

    def ranges(self, key: str | None = None) -> list[str]:
        """Return the ranges that were requested of an object, or of all."""
        return [
            request.headers["Range"] or "all"
            for request in self.aws.requests
            if request.method == "GET" and "list-type" not in request.target
            and (key is None or request.path == f"/{NAME}/{key}")
        ]  # fmt: skip

    def bytes_read(self) -> int:
        edges = (byte_range.removeprefix("bytes=").split("-") for byte_range in self.ranges())
        return sum(int(last) - int(first) + 1 for first, last in edges)

    def on_read(self, number: int, key: str, action: Callable[[], object]) -> None:
        """Do something when a number of reads of an object were requested, before the last is answered."""
        count = 0

        def hook(request: Request) -> None:
            nonlocal count
            if request.headers["If-Match"] and request.path == f"/{NAME}/{key}":
                count += 1
                if count == number:
                    action()

        self.aws.on("read", hook)
