"""What a run leaves for the next one: a small JSON document, in a directory or in S3, and never required.

Losing it costs repeated points or a gap, never a wrong number, so that nothing is locked. Of two runs at once
that of the later start is stored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from common.config import aws
from common.config.settings import CoreSettings
from common.errors import ConfigurationError, StateError
from common.times import EARLIEST
from common.window import Window

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

    from common.collector import Report

VERSION = 2
MAX_STATE_BYTES = 2**26  # of a document that is read
MAX_MEMORY_DEPTH = 32  # of what a collector remembers; ours need a handful
MAX_CLOCK_AHEAD = 86_400  # seconds that the clock of an earlier run may have been ahead of ours
MAX_PART = 24  # characters of each readable part of a key

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Document:
    """The state of one collector: up to when points were sent, and what it observed and cannot ask again.

    `now` is when the run began that saved it; `sent_until` and `last_success` are None where not known.
    """

    now: int = 0
    sent_until: int | None = None
    last_success: int | None = None
    memory: dict[str, object] = field(default_factory=dict)

    def copy_memory(self) -> dict[str, object]:
        """Return a copy of the memory, which a collector may change."""
        memory: dict[str, object] = json.loads(json.dumps(self.memory))
        return memory

    def encode(self) -> bytes:
        """Return the JSON to write."""
        times = {"now": self.now, "sent_until": self.sent_until, "last_success": self.last_success}
        return json.dumps({"version": VERSION, **times, "memory": self.memory}).encode()

    @classmethod
    def decode(cls, content: bytes, now: int) -> Document:
        """Read a document, without times in the future; ValueError for one that no run of ours has saved."""
        if len(content) > MAX_STATE_BYTES:
            raise ValueError(f"larger than {MAX_STATE_BYTES:,} bytes")
        try:
            fields = json.loads(content)
        except RecursionError:
            raise ValueError("nested too deep") from None
        if not isinstance(fields, dict) or fields.get("version") != VERSION:
            raise ValueError(f"not a state document of version {VERSION}")
        memory = fields.get("memory")
        if not isinstance(memory, dict) or _is_deeper(memory, MAX_MEMORY_DEPTH):
            raise ValueError("without a memory that can be read")
        saved, sent_until, success = (
            _time(fields.get(name), now) for name in ("now", "sent_until", "last_success")
        )
        if saved is None:
            raise ValueError("without a time")
        return cls(saved, _past(sent_until, now), _past(success, now), memory)


def _is_deeper(value: dict[str, object], limit: int) -> bool:
    """Return whether dicts and lists are nested deeper than a limit, without recursion."""
    layer: list[Any] = [value]  # Any: dicts and lists
    containers = (dict, list)  # not `dict | list`, which would be made anew for each value
    for _ in range(limit + 1):
        inner = chain.from_iterable(item if isinstance(item, list) else item.values() for item in layer)
        layer = [item for item in inner if isinstance(item, containers)]
    return bool(layer)


def _time(value: object, now: int) -> int | None:
    """Return a time that a run may have saved, perhaps by a clock ahead of ours."""
    if value is None:
        return None
    if type(value) is not int or not EARLIEST <= value <= now + MAX_CLOCK_AHEAD:
        raise ValueError("with a time that cannot be")
    return value


def _past(time: int | None, now: int) -> int | None:
    return None if time is None or time > now else time


class StateStore(Protocol):
    """Where documents are stored, by name. Both raise StateError."""

    def read(self, name: str) -> bytes | None:
        """Return a document; None where there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Replace a document, durably."""


def open_store(core: CoreSettings) -> StateStore | None:
    """Return the store that FLEETGAUGE_STATE names; None where none is configured."""
    if core.state is None:
        return None
    if not core.state.startswith("s3://"):
        return DirectoryStore(Path(core.state))
    bucket, _, prefix = core.state.removeprefix("s3://").partition("/")
    if not bucket:
        raise ConfigurationError(f"FLEETGAUGE_STATE: {core.state} names no bucket; write s3://bucket/prefix")
    return S3Store(bucket, prefix.strip("/"), core)


def state_key(collector: str, core: CoreSettings, address: str, *more: str) -> str:
    """Return the name of a collector's document; `more` may be a node, or a shard.

    Readable parts and a hash. Only what identifies an installation is in it, so that a run with
    another path or project continues with the document that is there.
    """
    exact = [collector, core.env, core.service, address, core.instance, *more]
    site = address.partition("://")[2]
    parts = [collector, core.env, core.service, site, core.instance, *more]
    readable = [re.sub(r"[^A-Za-z0-9.-]", "_", part)[:MAX_PART] for part in parts if part]
    digest = hashlib.blake2b(json.dumps(exact).encode(), digest_size=8).hexdigest()
    return "-".join([*readable, digest])


def load(store: StateStore, key: str, now: int) -> tuple[Document, str | None]:
    """Return the document of a key, an empty one where there is none, and why a bad one was not used."""
    content = store.read(key)
    if content is None:
        return Document(), None
    try:
        return Document.decode(content, now), None
    except ValueError as error:
        log.warning("the state document %s cannot be used (%s)", key, error)
        return Document(), f"{key}: {error}"


def save(store: StateStore, key: str, document: Document) -> None:
    """Save a document, unless a run that began later has saved one. An unreadable one is copied first."""
    content = store.read(key)
    if content is not None:
        try:
            if Document.decode(content, document.now).now > document.now:
                log.info("a run that began later has saved the state document %s: it is left alone", key)
                return
        except ValueError:
            store.write(f"{key}.bad", content)
            log.warning("the state document %s was copied to %s.bad", key, key)
    store.write(key, document.encode())


def check(store: StateStore, key: str) -> None:
    """Raise StateError where a run could not read its document or write one."""
    store.read(key)
    store.write(f"{key}.check", b"{}")


class SavedState:
    """The state document of one collector in one run.

    Without a store, or once it could not be used, the document is in memory only: a process that stays has it
    for its next run. Failures of the store are reported, and the run continues.
    """

    def __init__(
        self, store: StateStore | None, key: str, now: int, document: Document, report: Report
    ) -> None:
        self.document = document
        self.gap: Window | None = None  # what was missed before this run, where that is known
        self._store, self._key, self._report = store, key, report
        if store is None:
            return
        try:
            stored, flaw = load(store, key, now)
        except StateError as error:
            self._lose(error)
            return
        if flaw:
            report.drop("bad_state", example=flaw)
        if stored.now >= document.now:  # or a process that stays could not save its last one
            self.document = stored

    def save(self, document: Document) -> None:
        """Save a document; where that fails, report it and continue in memory."""
        self.document = document
        if self._store is None:
            return
        try:
            save(self._store, self._key, document)
        except StateError as error:
            self._lose(error)

    def _lose(self, error: StateError) -> None:
        self._store = None
        self._report.lose("the state of earlier runs", error, "state")


class DirectoryStore:
    """Documents as files, each complete at any instant: written beside, flushed, renamed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        if not self._directory.is_dir():
            raise StateError(f"FLEETGAUGE_STATE: there is no directory {self._directory}; create it")
        try:
            # O_NOFOLLOW and O_NONBLOCK: symbolic links are not followed, and a pipe does not block.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._directory / f"{name}.json", flags), "rb") as file:
                return file.read(MAX_STATE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read {name}.json in {self._directory}: {error.strerror}") from None

    def write(self, name: str, content: bytes) -> None:
        beside: str | None = None
        try:
            descriptor, beside = tempfile.mkstemp(".new", f"{name}.", self._directory)
            with open(descriptor, "wb") as file:  # noqa: PTH123
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            Path(beside).rename(self._directory / f"{name}.json")
            beside = None
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise StateError(
                f"cannot write {name}.json in {self._directory}: {error.strerror}; "
                "it must have room and be writable for this user"
            ) from None
        finally:
            if beside is not None:
                Path(beside).unlink(missing_ok=True)


class S3Store:
    """Documents as objects under one prefix of one bucket."""

    def __init__(self, bucket: str, prefix: str, core: CoreSettings) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._core = core
        self._client: S3Client | None = None

    def read(self, name: str) -> bytes | None:
        def read(client: S3Client, key: str) -> bytes:
            return client.get_object(Bucket=self._bucket, Key=key)["Body"].read(MAX_STATE_BYTES + 1)

        return self._call("read", read, name, missing="NoSuchKey")

    def write(self, name: str, content: bytes) -> None:
        self._call(
            "write", lambda client, key: client.put_object(Bucket=self._bucket, Key=key, Body=content), name
        )

    def _call(
        self, doing: str, call: Callable[[S3Client, str], T], name: str, missing: str | None = None
    ) -> T | None:
        """Return the result of a call; None where the object is missing, StateError where the call fails."""
        from botocore.exceptions import BotoCoreError, ClientError

        key = f"{self._prefix}{name}.json"
        url = f"s3://{self._bucket}/{key}"
        if self._client is None:
            self._client = aws.client("s3", self._core, f"opening the state in s3://{self._bucket}")
        try:
            return call(self._client, key)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            if code == missing:
                return None
            raise StateError(
                f"cannot {doing} {url}: {code}; check that the bucket exists and that the role has "
                "s3:GetObject and s3:PutObject on it, and s3:ListBucket"
            ) from None
        except (BotoCoreError, OSError) as error:
            raise StateError(f"cannot {doing} {url}: {error}") from None
