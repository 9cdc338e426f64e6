"""Checkpoints as files of a directory.

A lock keeps the second run of a key out, and ends with the process that holds it. What is on disk is always
a whole document, old or new, whatever happens to the process that writes it.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import uuid
from pathlib import Path
from typing import Self

from common.errors import BusyError, CheckpointError, ConfigurationError
from common.state.checkpoint import Checkpoint, Saved, writer

log = logging.getLogger(__name__)


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
            raise BusyError(
                f"the checkpoint {key} is held by {holder}; this run leaves the work to it"
            ) from None
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
