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

from common.errors import BusyError, CheckpointError, ConfigurationError, FleetgaugeError
from common.state.checkpoint import Checkpoint, Saved, Store, writer

# A link that somebody left in the directory is never followed.
_OURS = os.O_CLOEXEC | os.O_NOFOLLOW

log = logging.getLogger(__name__)


class DirectoryStore(Store):
    """Checkpoints as files. A lock file beside each says who holds it; the lock ends with its process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, key: str) -> Checkpoint:
        return _FileCheckpoint(self._directory, key)

    def look(self, key: str) -> Saved:
        try:
            return Saved.parse(_read(self._directory / f"{key}.json"))
        except (FileNotFoundError, ValueError):
            return Saved()
        except OSError as error:
            raise _store_error(self._directory, error) from None

    def names(self, prefix: str) -> list[str]:
        try:
            found = [path.name for path in self._directory.iterdir()]
        except OSError as error:
            raise _store_error(self._directory, error) from None
        return [name[:-5] for name in found if name.startswith(prefix) and name.endswith(".json")]

    def check(self, key: str) -> None:
        super().check(key)
        for name, needs in ((f"{key}.lock", os.R_OK | os.W_OK), (f"{key}.json", os.R_OK)):
            path = self._directory / name
            if path.exists() and not os.access(path, needs):
                raise _store_error(self._directory, PermissionError(errno.EACCES, f"{name} is not ours"))


class _FileCheckpoint(Checkpoint):
    def __init__(self, directory: Path, key: str) -> None:
        self._path = directory / f"{key}.json"
        try:
            self._lock = os.open(directory / f"{key}.lock", os.O_RDWR | os.O_CREAT | _OURS, 0o600)
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
        except OSError as error:
            os.close(self._lock)
            raise _store_error(directory, error) from None
        try:
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, writer().encode(), 0)
            self.saved = self._load()
        except OSError as error:
            os.close(self._lock)
            raise _store_error(directory, error) from None

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _load(self) -> Saved:
        try:
            return Saved.parse(_read(self._path))
        except FileNotFoundError:
            return Saved()
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
            beside.unlink(missing_ok=True)  # of a run that was killed
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OURS, 0o600)
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


def _read(path: Path) -> str:
    """The text of a document; ValueError for what is none, such as a link to something else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _OURS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("a symbolic link") from None
        raise
    try:
        parts = []
        while part := os.read(descriptor, 2**20):
            parts.append(part)
        return b"".join(parts).decode()
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _store_error(directory: Path, error: OSError) -> FleetgaugeError:
    """A store that cannot be written is a matter of configuration; anything else may pass."""
    text = f"cannot use the checkpoint directory {directory}: {error.strerror}"
    if error.errno == errno.ELOOP:
        return ConfigurationError(f"{text}; its lock file is one, and is not followed: remove it")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}:
        return ConfigurationError(f"{text}; it must be writable for this user")
    return CheckpointError(text)
