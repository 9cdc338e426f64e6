"""Checkpoints as objects in S3.

Nothing is locked: a write is refused when the object changed since it was read, so that of two runs at once
exactly one advances. The other learns who did, and leaves the work to it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from common import signals
from common.config import aws
from common.config.settings import CoreSettings
from common.errors import BusyError, CheckpointError, ConfigurationError, FleetgaugeError
from common.state.checkpoint import Checkpoint, Saved, Store

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

T = TypeVar("T")

_CONFLICT = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409", "404"}
_MISCONFIGURED = {"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403"}

MAX_WRITER = 500  # characters of whoever moved a checkpoint

log = logging.getLogger(__name__)


class S3Store(Store):
    """Checkpoints under one prefix of one bucket."""

    def __init__(self, bucket: str, prefix: str, core: CoreSettings) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._core = core
        self._made: S3Client | None = None

    def open(self, key: str) -> Checkpoint:
        return _ObjectCheckpoint(self._object(key))

    def look(self, key: str) -> Saved:
        text, _ = self._object(key).get()
        try:
            return Saved.parse(text or "")
        except ValueError:
            return Saved()

    def names(self, prefix: str) -> list[str]:
        listed = self._object(prefix).beginning_alike()
        return [name[len(self._prefix) : -5] for name in listed if name.endswith(".json")]

    def check(self, key: str) -> None:
        self._object(key).get()
        super().check(key)

    def _object(self, key: str) -> _Object:
        if self._made is None:
            self._made = aws.client("s3", self._core, f"opening checkpoints in s3://{self._bucket}")
        return _Object(self._made, self._bucket, f"{self._prefix}{key}.json")


class _Object:
    """One object: read with its tag, written only over the version that was read.

    S3 has no lock that ends with the process that holds it, and a lock of our own (an object with an expiry
    in it) would need clocks to agree. A conditional write needs neither: the version read at the start must
    still be there at the end, which is all that keeps two runs from both advancing. The price is that the
    one that is refused has already sent its points; sent twice, they are the same points.
    """

    def __init__(self, client: S3Client, bucket: str, name: str) -> None:
        self._client = client
        self._bucket = bucket
        self._name = name

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._name}"

    def get(self) -> tuple[str | None, str | None]:
        """The object's text and tag, both None where there is none."""

        def read() -> tuple[str, str]:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._name)
            return answer["Body"].read().decode(errors="replace"), answer["ETag"]

        return self._ask("read", read, {"NoSuchKey"}) or (None, None)

    def beginning_alike(self) -> list[str]:
        """The objects whose names begin as this one's does."""
        pages = self._client.get_paginator("list_objects_v2")
        start = self._name.removesuffix(".json")

        def names() -> list[str]:
            listed = pages.paginate(Bucket=self._bucket, Prefix=start)
            return [one["Key"] for page in listed for one in page.get("Contents", ())]

        return self._ask("list", names) or []

    def put(self, content: bytes, tag: str | None) -> str | None:
        """Write over the version with this tag, or over nothing; the new tag, or None where it changed."""
        over: Any = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}

        def write() -> str:
            return self._client.put_object(Bucket=self._bucket, Key=self._name, Body=content, **over)["ETag"]

        return self._ask("save", write, _CONFLICT)

    def copy_aside(self) -> str:
        """Keep a copy of what cannot be used."""
        aside, bucket = f"{self._name}.bad", self._bucket
        source: Any = {"Bucket": bucket, "Key": self._name}
        copy = self._client.copy_object
        self._ask("set aside", lambda: copy(Bucket=bucket, Key=aside, CopySource=source))
        return aside

    def _ask(self, doing: str, call: Callable[[], T], fine: Collection[str] = ()) -> T | None:
        """What S3 answers; None where it answers one of the codes that are fine."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with signals.doing(f"waiting for {self._client.meta.endpoint_url} to {doing} {self}"):
                return call()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            if code in fine:
                return None
            raise self._sort(doing, code) from None
        except BotoCoreError as error:
            raise self._sort(doing, str(error)) from None

    def _sort(self, doing: str, what: str) -> FleetgaugeError:
        if what in _MISCONFIGURED:
            return ConfigurationError(
                f"cannot {doing} the checkpoint {self}: {what}; check the bucket and that the role has "
                "s3:GetObject and s3:PutObject on it, and s3:ListBucket"
            )
        return CheckpointError(f"cannot {doing} the checkpoint {self}: {what}")


class _ObjectCheckpoint(Checkpoint):
    def __init__(self, kept: _Object) -> None:
        super().__init__()
        self._object = kept
        text, self._tag = kept.get()
        if text is not None:
            try:
                self.saved = Saved.parse(text)
            except ValueError as error:
                aside = kept.copy_aside()
                self.set_aside += 1
                log.warning("the checkpoint %s cannot be used (%s); set aside as %s", kept, error, aside)

    def save(self, saved: Saved) -> None:
        """Write over the version that was read.

        A refusal may come from our own write whose answer was lost and which was tried again: then the
        object holds what we wanted it to hold, and all is well.
        """
        content = saved.document()
        tag = self._object.put(content, self._tag)
        if tag is None:
            text, tag = self._object.get()
            if text != content.decode():
                raise BusyError(
                    f"the checkpoint {self._object} was moved by {_who(text)}; this run leaves the work to it"
                )
        self._tag = tag
        self.saved = saved


def _who(text: str | None) -> str:
    try:
        return str(json.loads(text or "")["written_by"])[:MAX_WRITER]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "someone else"
