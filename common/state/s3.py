"""Checkpoints as objects in S3.

Nothing is locked: a write is refused when the object changed since it was read, so that of two runs at once
exactly one advances. The other learns who did, and leaves the work to it.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Self

from common.config import aws
from common.config.settings import CoreSettings
from common.errors import BusyError, CheckpointError, ConfigurationError, FleetgaugeError
from common.state.checkpoint import Checkpoint, Saved, try_out

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_CONFLICT = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409", "404"}
_MISCONFIGURED = {"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403"}

MAX_WRITER = 500  # characters of whoever moved a checkpoint

log = logging.getLogger(__name__)


class S3Store:
    """Checkpoints under one prefix of one bucket."""

    def __init__(self, bucket: str, prefix: str, core: CoreSettings) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._core = core
        self._made: S3Client | None = None

    def open(self, key: str) -> Checkpoint:
        """Read a key, remembering which version of it was read."""
        return _ObjectCheckpoint(self._object(key))

    def peek(self, key: str) -> Saved:
        """What a key holds; a damaged or unreachable one counts as empty."""
        try:
            text, _ = self._object(key).get()
            return Saved.parse(text or "")
        except (FleetgaugeError, ValueError):
            return Saved()

    def check(self, key: str) -> None:
        """Raise where a run could not read or move a key."""
        self._object(key).get()
        try_out(self, key)

    def _object(self, key: str) -> _Object:
        name = f"{self._prefix}/{key}.json" if self._prefix else f"{key}.json"
        return _Object(self._client(), self._bucket, name)

    def _client(self) -> S3Client:
        if self._made is None:
            import boto3
            from botocore.exceptions import BotoCoreError

            try:
                self._made = boto3.Session().client("s3", **aws.options(self._core))
            except (BotoCoreError, ValueError) as error:  # a profile, region or endpoint that is none
                raise ConfigurationError(f"opening checkpoints in s3://{self._bucket}: {error}") from None
        return self._made


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
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._name)
            return answer["Body"].read().decode(errors="replace"), answer["ETag"]
        except ClientError as error:
            if _code(error.response["Error"]) == "NoSuchKey":
                return None, None
            raise self._sort("read", _code(error.response["Error"])) from None
        except BotoCoreError as error:
            raise self._sort("read", str(error)) from None

    def put(self, content: bytes, tag: str | None) -> str | None:
        """Write over the version with this tag, or over nothing; the new tag, or None where it changed."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if tag is None:
                answer = self._client.put_object(
                    Bucket=self._bucket, Key=self._name, Body=content, IfNoneMatch="*"
                )
            else:
                answer = self._client.put_object(
                    Bucket=self._bucket, Key=self._name, Body=content, IfMatch=tag
                )
            return answer["ETag"]
        except ClientError as error:
            if _code(error.response["Error"]) in _CONFLICT:
                return None
            raise self._sort("save", _code(error.response["Error"])) from None
        except BotoCoreError as error:
            raise self._sort("save", str(error)) from None

    def copy_aside(self) -> str:
        """Keep a copy of what cannot be used."""
        from botocore.exceptions import BotoCoreError, ClientError

        aside = f"{self._name}.bad"
        try:
            self._client.copy_object(
                Bucket=self._bucket, Key=aside, CopySource={"Bucket": self._bucket, "Key": self._name}
            )
        except (ClientError, BotoCoreError) as error:
            raise self._sort("set aside", str(error)) from None
        return aside

    def _sort(self, doing: str, what: str) -> FleetgaugeError:
        if what in _MISCONFIGURED:
            return ConfigurationError(
                f"cannot {doing} the checkpoint {self}: {what}; check the bucket and that the role has "
                "s3:GetObject and s3:PutObject on it"
            )
        return CheckpointError(f"cannot {doing} the checkpoint {self}: {what}")


def _code(error: object) -> str:
    return str(error.get("Code", "unknown")) if isinstance(error, dict) else "unknown"


class _ObjectCheckpoint:
    def __init__(self, kept: _Object) -> None:
        self._object = kept
        self.set_aside = 0
        text, self._tag = kept.get()
        self.saved = Saved()
        if text is not None:
            try:
                self.saved = Saved.parse(text)
            except ValueError as error:
                aside = kept.copy_aside()
                self.set_aside += 1
                log.warning("the checkpoint %s cannot be used (%s); set aside as %s", kept, error, aside)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

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
