"""What a run leaves for the next one: a small JSON document, in a directory or in S3, and never required.

Losing it costs repeated points or a gap, never a wrong number, so that nothing is locked or flushed. Of two
runs at once that of the later start is stored.

`Document` is the content, `SavedState` the document of one run, `DirectoryStore` and `S3Store` store the
bytes. `live.py` decides what is saved, and when.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from common.config import aws
from common.config.settings import CoreSettings
from common.errors import ConfigurationError, StateError
from common.times import DAY, EARLIEST
from common.window import Window

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

    from common.collector import Report

MAX_STATE_BYTES = 2**26  # of a document that is read
# Seconds that the clock of an earlier run may have been ahead of ours. Its document counts as later than
# ours, so that this is also the longest time for which it prevents saving.
MAX_CLOCK_AHEAD = DAY
MAX_PART = 24  # characters of each readable part of a key

log = logging.getLogger(__name__)


class Document(BaseModel):
    """The state of one collector: up to when points were sent, and what it observed and cannot query again.

    `now` is when the run began that saved it; `sent_until` and `last_success` are None where not known. All
    are seconds since the epoch. `memory` is JSON, which only the collector interprets.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    version: Literal[2] = 2
    now: int = 0
    sent_until: int | None = None
    last_success: int | None = None
    memory: dict[str, Any] = {}  # Any: JSON

    def copy_memory(self) -> dict[str, Any]:
        """Return a deep copy of the memory, which a collector may change; TypeError where it is not JSON."""
        memory: dict[str, Any] = json.loads(json.dumps(self.memory))
        return memory

    def encode(self) -> bytes:
        """Return the JSON to write, in UTF-8."""
        return json.dumps(self.model_dump()).encode()

    @classmethod
    def decode(cls, content: bytes, now: int) -> Document:
        """Return the document of some bytes; ValueError for one that no run of ours has saved.

        `now` is the current time. `sent_until` and `last_success` that are later than it become None: of
        another machine's clock they would make this run skip time.
        """
        try:
            found = cls.model_validate(json.loads(content))
        # json raises it for content that is nested too deep. The bytes are untrusted: a bucket may be shared.
        except RecursionError:
            raise ValueError("nested too deep") from None
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(": ".join([*map(str, first["loc"]), first["msg"]])) from None
        times = {"now": found.now, "sent_until": found.sent_until, "last_success": found.last_success}
        for name, at in times.items():
            if at is not None and not EARLIEST <= at <= now + MAX_CLOCK_AHEAD:
                raise ValueError(f"{name}: a time that cannot be")
        ahead = [name for name, at in times.items() if name != "now" and at is not None and at > now]
        return found.model_copy(update=dict.fromkeys(ahead))


class StateStore(Protocol):
    """A store of documents by name. Both methods raise StateError.

    S3 also raises ConfigurationError, where no client can be made (no region).
    """

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a document; None where it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Replace a document, completely or not at all."""


def open_store(core: CoreSettings) -> StateStore | None:
    """Return the store that FLEETGAUGE_STATE names; None where none is configured.

    Nothing is read yet. ConfigurationError for an S3 URL without a bucket.
    """
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

    Readable parts for a person, and a hash of the exact ones, because readable parts are cut and respelt.
    Only what identifies an installation is in it, so that a run with another path or project continues with
    the document that is there.
    """
    parts = [collector, core.env, core.service, address, core.instance, *more]
    texts = [part.removeprefix("https://") for part in parts if part]
    readable = [re.sub(r"[^A-Za-z0-9.-]", "_", text)[:MAX_PART] for text in texts]
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
    return "-".join([*readable, digest])


def check(store: StateStore, key: str) -> None:
    """Raise StateError where a run could not read its document or write one.

    It writes a document beside it, so that a check changes no state.
    """
    store.read(key)
    store.write(f"{key}.check", b"{}")


class SavedState:
    """The state document of one collector in one run: what was read, and what is to be saved.

    Without a store, or once it could not be used, the document is in memory only: a process that stays has it
    for its next run. Failures of the store make the run partial, and it continues.
    """

    def __init__(
        self,
        store: StateStore | None,
        key: str,
        now: int,
        document: Document,
        report: Report,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the document from the store; `document` is that of the last run of this process, if any.

        An unusable document is counted as `bad_state` and ignored.
        """
        self.document = document
        self.gap: Window | None = None  # what was missed before this run, where that is known
        self._store, self._key, self._report, self._clock = store, key, report, clock
        try:
            content = store.read(key) if store else None
        except StateError as error:
            self._lose(error)
            return
        if content is None:
            return
        try:
            stored = Document.decode(content, now)
        except ValueError as error:
            log.warning("the state document %s cannot be used (%s)", key, error)
            report.drop("bad_state", example=f"{key}: {error}")
            return
        # The document in memory is newer where a process that stays could not save its last one.
        if stored.now >= document.now:
            self.document = stored

    def save(self, document: Document) -> None:
        """Save a document, unless a run that began later has saved one. Raises nothing expected.

        An unreadable document is copied to `<key>.bad` first. Where the store fails, that is reported, and
        the document is in memory only.
        """
        self.document = document
        if self._store is None:
            return
        try:
            # Read again: another run may have saved since this one began. Between this and the write there is
            # no lock; the worst case is a document that is a run older.
            content = self._store.read(self._key)
            try:
                # A start in the future is that of a clock which was ahead: it must not prevent saving.
                now = int(self._clock())
                if content is not None and document.now < Document.decode(content, now).now <= now:
                    log.info("a run that began later has saved the state document: it is left alone")
                    return
            # Stored by a newer version, or damaged: a person may want to look at it.
            except ValueError:
                self._store.write(f"{self._key}.bad", content or b"")
                log.warning("the state document %s was copied to %s.bad", self._key, self._key)
            self._store.write(self._key, document.encode())
        except StateError as error:
            self._lose(error)

    def _lose(self, error: StateError) -> None:
        """Continue without the store: each further request to it would take its timeouts again."""
        self._store = None
        self._report.lose("the state of earlier runs", error, "state")


class DirectoryStore:
    """Documents as files of a directory, each complete at any instant: written beside and renamed.

    The directory is not created: a mistyped path or an unmounted volume would look like a first run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        # Otherwise a missing directory would be the same as a missing document.
        if not self._directory.is_dir():
            raise StateError(f"FLEETGAUGE_STATE: there is no directory {self._directory}; create it")
        try:
            with (self._directory / f"{name}.json").open("rb") as file:
                return file.read(MAX_STATE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"cannot read {name}.json in {self._directory}: {error.strerror}") from None

    def write(self, name: str, content: bytes) -> None:
        beside: Path | None = None
        try:
            # In the same directory, because a rename is atomic only within a file system.
            with tempfile.NamedTemporaryFile(
                prefix=f"{name}.", suffix=".new", dir=self._directory, delete=False
            ) as file:
                beside = Path(file.name)
                file.write(content)
            beside.rename(self._directory / f"{name}.json")
        except OSError as error:
            if beside is not None:
                beside.unlink(missing_ok=True)
            raise StateError(
                f"cannot write {name}.json in {self._directory}: {error.strerror}; "
                "it must have room and be writable for this user"
            ) from None


class S3Store:
    """Documents as objects under one prefix of one bucket. S3 replaces an object atomically.

    The client is made at the first request: importing botocore and reading its models is slow.
    """

    def __init__(self, bucket: str, prefix: str, core: CoreSettings) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._core = core

    @cached_property
    def _client(self) -> S3Client:
        client: S3Client = aws.client("s3", self._core, f"opening the state in s3://{self._bucket}")
        return client

    def read(self, name: str) -> bytes | None:
        client, key = self._client, f"{self._prefix}{name}.json"
        try:
            return client.get_object(Bucket=self._bucket, Key=key)["Body"].read(MAX_STATE_BYTES)
        except client.exceptions.NoSuchKey:
            return None
        except Exception as error:
            raise self._error("read", key, error) from None

    def write(self, name: str, content: bytes) -> None:
        client, key = self._client, f"{self._prefix}{name}.json"
        try:
            client.put_object(Bucket=self._bucket, Key=key, Body=content)
        except Exception as error:
            raise self._error("write", key, error) from None

    def _error(self, doing: str, key: str, error: Exception) -> StateError:
        """Return the error of a request, with the permissions to check where AWS refused.

        S3 reports a missing object as AccessDenied, and not as NoSuchKey, to a role without s3:ListBucket.
        """
        from botocore.exceptions import ClientError

        why = str(error)
        if isinstance(error, ClientError):
            code = error.response.get("Error", {}).get("Code", "unknown")
            why = (
                f"{code}; check that the bucket exists and that the role has s3:GetObject and s3:PutObject "
                "on it, and s3:ListBucket"
            )
        return StateError(f"cannot {doing} s3://{self._bucket}/{key}: {why}")
