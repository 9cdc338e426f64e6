"""Files as objects in S3, or in anything that speaks its language.

Objects are listed once, and read in blocks from where they are wanted, at most eight at once. Every read is
of the version that was listed: one that was uploaded again in between is another file until the next look.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from common.config import aws
from common.config.settings import CoreSettings
from common.records.file import LOOK, TAIL
from common.records.paths import MAGIC, MAX_DEPTH, filter_of, shown
from common.records.storage import MAX_DOCUMENT, ChangedFileError, Found, Raw, Status, Storage, Wanted

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ObjectTypeDef

MAX_AT_ONCE = 8
MAX_BLOCK = 8 << 20  # bytes
BLOCK = 1 << 20  # bytes of the first read: most objects then take one request
ATTEMPTS = 3  # to read a body whose beginning came; whole requests are tried again by boto3

T = TypeVar("T")

_ROLE = "the role needs s3:ListBucket on the bucket and s3:GetObject on its objects (docs/iam-policy.json)"
_REGION = "the bucket is in another region; set AWS_REGION to its own"
_WHY = {
    "NoSuchBucket": "there is no such bucket",
    **dict.fromkeys(("AccessDenied", "403"), f"access is denied; {_ROLE}"),
    **dict.fromkeys(("PermanentRedirect", "301", "AuthorizationHeaderMalformed"), _REGION),
    **dict.fromkeys(("SlowDown", "503"), "S3 asks to slow down; the next run reads on"),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch"), "the AWS credentials are not valid"),
    "ExpiredToken": "the AWS credentials have expired",
}


class _Listing(dict[str, Status]):
    """Objects by path."""

    @cached_property
    def _paths(self) -> list[str]:
        return sorted(self)

    def below(self, start: str) -> dict[str, Status]:
        """Those whose paths begin like that."""
        first, end = (bisect_left(self._paths, edge) for edge in (start, start + chr(sys.maxunicode)))
        return {path: self[path] for path in self._paths[first:end]}


class S3Storage(Storage):
    """The objects of all buckets that one account can read."""

    def __init__(self, core: CoreSettings, max_objects: int) -> None:
        self._core = core
        self._max_objects = max_objects
        self._listed: dict[tuple[str, str], _Listing] = {}  # by bucket and prefix

    @cached_property
    def client(self) -> S3Client:
        """What asks, at most eight times at once."""
        made: S3Client = aws.client("s3", self._core, "reading records in S3")
        return made

    def find(self, pattern: str, found: Found) -> None:
        bucket, plain, rest = _split(pattern)
        folder, _, name = f"s3://{bucket}/{plain}".rpartition("/")
        ways = [(f"{folder}/", (name + rest).split("/"))] if name + rest else []
        if not rest:
            ways.append((f"{folder}/{name}".rstrip("/") + "/", ["**", "*.jsonl"]))
        try:
            listed = self._list(bucket, plain)
        except OSError as error:
            found.unreadable.append((shown(pattern), error.strerror or str(error)))
            return
        for start, parts in ways:
            fits = filter_of(start, parts)
            found.files |= {path: status for path, status in listed.items() if fits(path)}
        if len(listed) > self._max_objects:
            why = f"there are more than {self._max_objects} objects; narrow it, or raise MAX_OBJECTS"
            found.unreadable.append((shown(pattern), why))

    def absent(self, pattern: str) -> str | None:
        bucket, plain, rest = _split(pattern)
        folder = plain[: plain.rfind("/") + 1] if rest else f"{plain.rstrip('/')}/".lstrip("/")
        try:
            there = not folder or self._has(bucket, folder)
        except OSError:
            there = True  # or may be
        return None if there else f"s3://{bucket}/{folder.rstrip('/')}"

    def is_directory(self, path: str) -> bool:
        bucket, plain, rest = _split(path)
        try:
            return path.endswith("/") or (not rest and bool(self._list(bucket, f"{plain}/")))
        except OSError:
            return True

    def tree(self, path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        bucket, plain, rest = _split(f"{path.rstrip('/')}/")
        folders: dict[str, tuple[dict[str, None], list[str]]] = {}
        top = f"s3://{bucket}/{plain}{rest}".rstrip("/")
        for below in self._list(bucket, plain + rest):
            *names, last = below[len(top) + 1 :].split("/")
            folder = top
            for name in names[:MAX_DEPTH]:
                if name.startswith("."):
                    break
                folders.setdefault(folder, ({}, []))[0][name] = None
                folder = f"{folder}/{name}"
            else:
                folders.setdefault(folder, ({}, []))[1].append(last)
        for folder, (inner, files) in folders.items():
            yield folder, [*inner], files

    def looks(self, path: str, now: float) -> list[int | str] | None:  # noqa: ARG002
        for listed in self._listed.values():
            if path in listed:
                return listed[path].looks
        raise FileNotFoundError(None, "it is gone")

    def read(self, path: str) -> bytes:
        bucket, key, rest = _split(path)

        def get() -> bytes:
            with closing(self.client.get_object(Bucket=bucket, Key=key + rest)["Body"]) as body:
                return body.read(MAX_DOCUMENT + 1)

        return ask(get)

    def _has(self, bucket: str, prefix: str) -> bool:
        """Whether there is anything below a prefix; asked only where no listing tells."""
        for (place, known), listed in self._listed.items():
            if place == bucket and listed and known.startswith(prefix):
                return True
        below = self._known(bucket, prefix)
        if below is not None:
            return bool(below)
        first = ask(lambda: self.client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1))
        return bool(_contents(first))

    def _list(self, bucket: str, prefix: str) -> Mapping[str, Status]:
        """The objects below a prefix by path: as many as may be, and what else is on the last page."""
        known = self._known(bucket, prefix)
        if known is not None:
            return known
        listed = _Listing()
        pages = iter(self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix))
        while len(listed) <= self._max_objects and (page := ask(lambda: next(pages, None))):
            for one in _contents(page):
                path, written = f"s3://{bucket}/{one['Key']}", one["LastModified"].timestamp()
                listed[path] = Status(one["Size"], written, [one["Size"], one["ETag"]], path)
        self._listed[bucket, prefix] = listed
        return listed

    def _known(self, bucket: str, prefix: str) -> Mapping[str, Status] | None:
        """The objects below a prefix, where they were listed, perhaps among others."""
        for (place, known), listed in self._listed.items():
            if place == bucket and prefix == known:
                return listed
            if place == bucket and prefix.startswith(known) and len(listed) <= self._max_objects:
                return listed.below(f"s3://{bucket}/{prefix}")
        return None

    def opened(self, files: Iterable[Wanted]) -> Iterator[tuple[str, Raw | OSError]]:
        """The beginnings of the next files are fetched while one is read."""
        pool = ThreadPoolExecutor(MAX_AT_ONCE, "s3")
        waiting: deque[tuple[str, Any]] = deque()  # Any: a future of an object, or of why not
        try:
            for wanted in files:
                waiting.append((wanted.path, pool.submit(self._open, wanted)))
                if len(waiting) == MAX_AT_ONCE:
                    path, made = waiting.popleft()
                    yield path, made.result()
            for path, made in waiting:
                yield path, made.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _open(self, wanted: Wanted) -> Raw | OSError:
        path, status, offset = wanted
        bucket, key, rest = _split(path)
        try:
            try:
                return Object(self.client, bucket, key + rest, status, offset)
            except ChangedFileError:  # since it was listed
                head = ask(lambda: self.client.head_object(Bucket=bucket, Key=key + rest))
                size, tag = head["ContentLength"], head["ETag"]
                status = Status(size, head["LastModified"].timestamp(), [size, tag], status.node)
                return Object(self.client, bucket, key + rest, status, offset)
        except OSError as error:
            return error


class Object:
    """One version of an object, of which a block is held, and the beginning."""

    def __init__(self, client: S3Client, bucket: str, key: str, status: Status, offset: int) -> None:
        self.status = status
        self.version = str(status.looks[-1])
        self._client = client
        self._name = {"Bucket": bucket, "Key": key}
        self._position = 0
        begin = max(0, offset - TAIL)
        far = begin > BLOCK
        self._head = (0, self._fetch(0, LOOK if far else BLOCK))
        self._block = (begin, self._fetch(begin, BLOCK)) if far else self._head

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; nothing at the end."""
        position = self._position
        for start, held in (self._block, self._head):
            if start <= position < start + len(held):
                found = held[position - start : position - start + size]
                self._position += len(found)
                return found
        if position >= self.status.size:
            return b""
        self._block = (position, self._fetch(position, MAX_BLOCK))
        return self.read(size)

    def seek(self, offset: int, /) -> None:
        """Go to a byte."""
        self._position = offset

    def at(self, offset: int, size: int) -> bytes:
        """Some bytes, without going there."""
        for start, held in (self._block, self._head):
            if start <= offset and offset + size <= start + len(held):
                return held[offset - start : offset - start + size]
        return self._fetch(offset, size) if size else b""

    def _fetch(self, start: int, size: int) -> bytes:
        """Bytes of this version; a body that breaks off is asked for again."""
        end = min(start + size, self.status.size)
        if end <= start:
            return b""

        def fetch() -> bytes:
            wanted: Any = {**self._name, "Range": f"bytes={start}-{end - 1}", "IfMatch": self.version}
            with closing(self._client.get_object(**wanted)["Body"]) as body:
                return body.read(end - start + 1)  # of one that is sent whole, no more

        for _ in range(ATTEMPTS - 1):
            found = ask(fetch, broken=b"")
            if len(found) == end - start:
                return found
        found = ask(fetch)
        if len(found) != end - start:
            raise OSError(None, f"S3 sent {len(found)} of {end - start} bytes")
        return found


def _contents(page: ListObjectsV2OutputTypeDef) -> Sequence[ObjectTypeDef]:
    """The objects of a page; OSError where it is none: boto3 takes whatever a stranger says for empty."""
    if "Name" not in page:
        raise OSError(None, "the answer is no listing of a bucket; check AWS_ENDPOINT_URL")
    return page.get("Contents", ())


def ask(call: Callable[[], T], broken: T | None = None) -> T:
    """What S3 answers; raises OSError in words, or returns `broken` where the body broke off."""
    from botocore import exceptions as failed

    try:
        return call()
    except failed.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        if code in {"PreconditionFailed", "412", "InvalidRange", "416"}:
            raise ChangedFileError(None, "it was uploaded again while it was read") from None
        if code in {"NoSuchKey", "404"}:
            raise FileNotFoundError(None, "it is gone") from None
        raise OSError(None, _WHY.get(code, f"S3 answers {code}")) from None
    except (failed.NoCredentialsError, failed.CredentialRetrievalError):
        why = "no AWS credentials were found; give the pod a role or set AWS_ACCESS_KEY_ID"
        raise OSError(None, why) from None
    except (failed.ReadTimeoutError, failed.ResponseStreamingError, failed.IncompleteReadError) as error:
        if broken is None:
            raise OSError(None, f"the answer broke off: {type(error).__name__}") from None
        return broken
    except failed.BotoCoreError as error:
        raise OSError(None, str(error)) from None


def _split(pattern: str) -> tuple[str, str, str]:
    """The bucket, the key up to the first wildcard, and the rest."""
    bucket, _, key = pattern.removeprefix("s3://").partition("/")
    magic = MAGIC.search(key)
    cut = magic.start() if magic else len(key)
    return bucket, key[:cut], key[cut:]
