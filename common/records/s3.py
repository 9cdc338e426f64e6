"""Objects in S3, or in a store that has its API: list them, read them by range, and explain what fails.

Every range is absolute and of one version of its object (`If-Match`). Failures are raised as OSError with a
reason that a person can act on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ObjectTypeDef

MAX_PREFETCHED = 4 << 20  # bytes of an object
ATTEMPTS = 3  # to read a body that breaks off; complete requests are retried by boto3

T = TypeVar("T")

_ROLE = "the role needs s3:ListBucket on the bucket and s3:GetObject on its objects (docs/iam-policy.json)"
_REGION = "the bucket is in another region; set AWS_REGION to its own"
_REASONS = {
    "NoSuchBucket": "there is no such bucket",
    **dict.fromkeys(("AccessDenied", "403"), f"access is denied; {_ROLE}"),
    **dict.fromkeys(("PermanentRedirect", "301", "AuthorizationHeaderMalformed"), _REGION),
    **dict.fromkeys(("SlowDown", "503"), "S3 demands fewer requests (SlowDown); the next run retries"),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch"), "the AWS credentials are not valid"),
    "ExpiredToken": "the AWS credentials have expired",
}


class Object(NamedTuple):
    """One version of an object."""

    key: str
    size: int
    modified: float  # seconds since the epoch
    version: str  # the ETag


class ChangedFileError(OSError):
    """The object has another version than the one that was listed."""


class _BrokenBodyError(OSError):
    """A body ended early, or did not come in time."""


class S3:
    """The buckets that one account can read."""

    def __init__(self, client: S3Client) -> None:
        self._client = client

    def list(self, bucket: str, prefix: str, limit: int) -> list[Object]:
        """Return the objects whose keys begin with a prefix: all, or at least one more than the limit."""
        objects: list[Object] = []
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix))
        while len(objects) <= limit and (page := _call(lambda: next(pages, None))):
            objects += [
                Object(entry["Key"], entry["Size"], entry["LastModified"].timestamp(), entry["ETag"])
                for entry in _contents(page)
            ]
        return objects

    def head(self, bucket: str, key: str) -> Object:
        """Return the current version of an object."""
        head = _call(lambda: self._client.head_object(Bucket=bucket, Key=key))
        return Object(key, head["ContentLength"], head["LastModified"].timestamp(), head["ETag"])

    def read(self, bucket: str, key: str, version: str, start: int, end: int) -> bytes:
        """Return the bytes `start <= offset < end` of a version of an object.

        Raises ChangedFileError where the object has another version now. A body that breaks off is requested
        again.
        """
        size, byte_range = end - start, f"bytes={start}-{end - 1}"

        def get() -> bytes:
            found = self._client.get_object(Bucket=bucket, Key=key, Range=byte_range, IfMatch=version)
            with closing(found["Body"]) as body:
                content = body.read(size + 1)  # a server that ignores the range sends more
            if len(content) != size:
                raise _BrokenBodyError(f"S3 sent {len(content)} of {size} bytes")
            return content

        for _ in range(ATTEMPTS - 1):
            try:
                return _call(get)
            except _BrokenBodyError:
                continue
        return _call(get)


class ObjectContent:
    """The bytes of one version of an object. Those that were prefetched stay in memory."""

    chunk = 1 << 20  # bytes to read at a time: a request costs as much time as some of them

    def __init__(self, s3: S3, bucket: str, key: str, version: str, size: int) -> None:
        self.size = size
        self._read = partial(s3.read, bucket, key, version)
        self._blocks: list[tuple[int, bytes]] = []  # offsets and bytes

    def at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from an offset; none at the end."""
        end = min(offset + size, self.size)
        for start, block in self._blocks:
            if start <= offset < start + len(block):
                return block[offset - start : end - start]
            if offset < start < end:
                end = start
        return self._read(offset, end) if offset < end else b""

    def prefetch(self, start: int, end: int) -> None:
        """Fetch bytes that will be read, unless they are too many to stay in memory."""
        if start < end <= start + MAX_PREFETCHED - sum(len(block) for _, block in self._blocks):
            self._blocks.append((start, self._read(start, end)))

    def close(self) -> None:
        """Release the memory."""
        self._blocks.clear()


def _contents(page: ListObjectsV2OutputTypeDef) -> Sequence[ObjectTypeDef]:
    """Return the objects of a page; OSError where it is no page: boto3 parses any XML as an empty one."""
    if "Name" not in page:
        raise OSError("the answer is no listing of a bucket; check AWS_ENDPOINT_URL")
    return page.get("Contents", ())


def _call(request: Callable[[], T]) -> T:
    """Return the result of a request; raise OSError with a readable reason where it fails."""
    from botocore import exceptions

    try:
        return request()
    except exceptions.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        if code in {"PreconditionFailed", "412", "InvalidRange", "416"}:
            raise ChangedFileError("it was uploaded again while it was read") from None
        if code in {"NoSuchKey", "404"}:
            raise FileNotFoundError("it does not exist") from None
        raise OSError(_REASONS.get(code, f"S3 answers {code}")) from None
    except (exceptions.NoCredentialsError, exceptions.CredentialRetrievalError):
        reason = "no AWS credentials were found; give the pod a role or set AWS_ACCESS_KEY_ID"
        raise OSError(reason) from None
    except (
        exceptions.ReadTimeoutError,
        exceptions.ResponseStreamingError,
        exceptions.IncompleteReadError,
    ) as error:
        raise _BrokenBodyError(f"the answer broke off: {type(error).__name__}") from None
    except exceptions.BotoCoreError as error:
        raise OSError(str(error)) from None
