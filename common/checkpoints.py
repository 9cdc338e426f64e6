"""Where a run remembers how far it came: a directory, or a prefix in S3.

A checkpoint is one JSON document per key. It moves only forward and only for one run at a time: in a
directory a lock keeps the second run out, in S3 a conditional write refuses it. What is on disk is always a
whole document, old or new, whatever happens to the process that writes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from common.errors import Busy, CheckpointError, ConfigurationError
from common.settings import CoreSettings

VERSION = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds: the collector's state, and when a run last succeeded."""

    state: Mapping[str, object] = field(default_factory=dict)
    last_success: int | None = None

    def document(self) -> bytes:
        """The document to write; the writer's name makes each one unique."""
        content = {"version": VERSION, "written_by": writer(), "last_success": self.last_success}
        return json.dumps({**content, "state": self.state}).encode()

    @classmethod
    def parse(cls, text: str) -> Saved:
        """The document read back; ValueError for one that is not ours, or of another version."""
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise ValueError(f"not a checkpoint of version {VERSION}")
        state, last_success = content.get("state"), content.get("last_success")
        if not isinstance(state, dict) or not isinstance(last_success, int | None):
            raise ValueError("a checkpoint without a state")
        return cls(state, last_success)


def changed(state: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """A state with the changes of a mark; None forgets its key."""
    return {key: value for key, value in {**state, **changes}.items() if value is not None}


class Checkpoint(Protocol):
    """One key of a store, held by this run until it is closed."""

    saved: Saved
    set_aside: int

    def save(self, saved: Saved) -> None:
        """Replace the document, durably, or raise and leave the old one."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Unkept:
    """A checkpoint that is read but never moved: of a dry run, or where there is no store."""

    set_aside = 0

    def __init__(self, saved: Saved | None = None) -> None:
        self.saved = saved or Saved()

    def save(self, saved: Saved) -> None:
        """Forget it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Store(Protocol):
    """A place that keeps checkpoints."""

    def open(self, key: str) -> Checkpoint:
        """Hold a key for this run; raises Busy where another run holds it."""

    def peek(self, key: str) -> Saved:
        """What a key holds, without holding it; a damaged one counts as empty and stays as it is."""


def store(core: CoreSettings) -> Store | None:
    """The configured store, or None where there is none."""
    place = core.checkpoints
    if place is None:
        return None
    if place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        if not bucket:
            raise ConfigurationError(
                f"FLEETGAUGE_CHECKPOINTS: {place} names no bucket; write s3://bucket/prefix"
            )
        from common.checkpoints_s3 import S3Store

        return S3Store(bucket, prefix.strip("/"), core)
    return DirectoryStore(Path(place))


def writer() -> str:
    """Who writes, in words a person can act on, and unlike any other write."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()} at {at} ({uuid.uuid4().hex[:8]})"


class DirectoryStore:
    """Checkpoints as files. A lock file beside each says who holds it; the lock ends with its process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, key: str) -> Checkpoint:
        """Hold a key for this run."""
        return _FileCheckpoint(self._directory, key)

    def peek(self, key: str) -> Saved:
        """What a key holds, without holding it."""
        try:
            return Saved.parse((self._directory / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Saved()


class _FileCheckpoint:
    def __init__(self, directory: Path, key: str) -> None:
        self._path = directory / f"{key}.json"
        self.set_aside = 0
        try:
            self._lock = os.open(directory / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise ConfigurationError(
                f"FLEETGAUGE_CHECKPOINTS: the directory {directory} does not exist; create it"
            ) from None
        except OSError as error:
            raise _store_error(directory, error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 500, 0).decode(errors="replace") or "another run"
            os.close(self._lock)
            raise Busy(f"the checkpoint {key} is held by {holder}; this run leaves the work to it") from None
        try:
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, writer().encode(), 0)
            self.saved = self._load()
        except OSError as error:
            os.close(self._lock)
            raise _store_error(directory, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _load(self) -> Saved:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Saved()
        except UnicodeDecodeError:
            text = ""
        try:
            return Saved.parse(text)
        except ValueError as error:
            aside = self._path.with_suffix(f".{uuid.uuid4().hex[:8]}.bad")
            self._path.rename(aside)
            self.set_aside += 1
            log.warning(
                "the checkpoint %s cannot be used (%s); set aside as %s", self._path, error, aside.name
            )
            return Saved()

    def save(self, saved: Saved) -> None:
        """Write beside, flush, rename over, flush the directory: at no instant is there half a document."""
        beside = self._path.with_suffix(".new")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(descriptor, saved.document())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            beside.rename(self._path)
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise CheckpointError(
                f"cannot save the checkpoint {self._path}: {error.strerror}; "
                "what was delivered will be delivered again, which changes nothing"
            ) from error
        self.saved = saved


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _store_error(directory: Path, error: OSError) -> Exception:
    """A store that cannot be written is a matter of configuration; anything else may pass."""
    text = f"cannot use the checkpoint directory {directory}: {error.strerror}"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}:
        return ConfigurationError(f"{text}; it must be writable for this user")
    return CheckpointError(text)
