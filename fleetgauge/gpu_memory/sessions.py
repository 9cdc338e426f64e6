"""Who recorded: the sessions of a telemetry sink, and the manifest that lists them.

The manifest is a convenience of the writer. It may be missing, stale or broken, so that the segments on disk
stay the truth and a manifest that cannot be read is an error of its own. Small JSON documents are read here;
`recording` reads the events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .events import MemoryEvent

MANIFEST_NAME = "manifest.json"
STATUSES = ("running", "completed", "interrupted", "incomplete")
# A document is decoded in one piece: a larger file is not one that a tracker writes.
MAX_DOCUMENT_BYTES = 64 * 2**20


class ManifestError(ValueError):
    """A manifest that cannot be read. The segments beside it still can."""


@dataclass(frozen=True)
class SessionSummary:
    """One session: one process that tracked from start to stop.

    `status` is one of `STATUSES`; times are in nanoseconds since the epoch, None where unknown.
    """

    session_id: str
    status: str
    started_at_ns: int | None = None
    ended_at_ns: int | None = None
    host: str | None = None
    pid: int | None = None
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    source: str = "unknown"


@dataclass(frozen=True)
class Manifest:
    """What the writer of a sink states about it: its sessions, and the session of each segment by file name.

    `bad_entries` is how many entries could not be understood.
    """

    sessions: tuple[SessionSummary, ...]
    session_of_segment: Mapping[str, str]
    bad_entries: int


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of a sink directory, None where it has none.

    Raises `ManifestError` for one that cannot be read. An entry that makes no sense costs itself and is
    counted.
    """
    path = directory / MANIFEST_NAME
    try:
        document = read_document(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ManifestError(f"cannot read the manifest {path}: {error}") from error
    return parse_manifest(document, path)


def parse_manifest(document: object, path: object) -> Manifest:
    """Return the manifest that a document is. Raises `ManifestError`, which names the path, for any other."""
    if not isinstance(document, dict):
        raise ManifestError(f"cannot read the manifest {path}: it is not a JSON object")
    for name in ("sessions", "segments"):
        if not isinstance(document.get(name, []), list):
            raise ManifestError(f"cannot read the manifest {path}: `{name}` is not a list")
    listed = [parse_session(entry) for entry in document.get("sessions", [])]
    segments = [_segment(entry) for entry in document.get("segments", [])]
    return Manifest(
        sessions=tuple(session for session in listed if session is not None),
        session_of_segment={name: session for name, session in filter(None, segments) if session},
        bad_entries=listed.count(None) + segments.count(None),
    )


def parse_session(entry: object) -> SessionSummary | None:
    """Return a session as a manifest, a track file or an OOM dump describes it; None for any other entry."""
    if not isinstance(entry, Mapping):
        return None
    session_id, status = entry.get("session_id"), entry.get("status")
    if not isinstance(session_id, str) or not session_id.strip():
        return None
    if not isinstance(status, str) or status.strip().lower() not in STATUSES:
        return None
    return _summary(entry, session_id=session_id, status=status.strip().lower())


def infer_session(
    session_id: str, first: MemoryEvent, started_at: float | None, stopped_at: float | None
) -> SessionSummary:
    """Return a session that no manifest lists: completed if it has a stop event, else incomplete."""
    times = {"started_at_ns": _nanoseconds(started_at), "ended_at_ns": _nanoseconds(stopped_at)}
    status = "incomplete" if stopped_at is None else "completed"
    return _summary(first._asdict() | times | {"source": "events"}, session_id=session_id, status=status)


def _summary(entry: Mapping[str, object], *, session_id: str, status: str) -> SessionSummary:
    """Return the session of an entry; a field of the wrong type has its default."""
    return SessionSummary(
        session_id=session_id,
        status=status,
        started_at_ns=integer(entry.get("started_at_ns")),
        ended_at_ns=integer(entry.get("ended_at_ns")),
        host=text_or_none(entry.get("host")),
        pid=integer(entry.get("pid")),
        job_id=text_or_none(entry.get("job_id")),
        rank=integer(entry.get("rank")) or 0,
        local_rank=integer(entry.get("local_rank")) or 0,
        world_size=max(1, integer(entry.get("world_size")) or 1),
        source=text_or_none(entry.get("source")) or "unknown",
    )


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000_000)


def _segment(entry: object) -> tuple[str, str | None] | None:
    """Return the file name and the session of a segment's entry; None where the entry has no name."""
    if not isinstance(entry, Mapping) or not isinstance(name := entry.get("filename"), str):
        return None
    return name, text_or_none(entry.get("session_id"))


def read_document(path: Path) -> object:
    """Return one small JSON document.

    Raises OSError where it cannot be read, ValueError where it is not one.
    """
    if (size := path.stat().st_size) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"{size:,} bytes are more than the {MAX_DOCUMENT_BYTES:,} this reads")
    try:
        return json.loads(path.read_bytes().decode())
    # Python's parser raises this, and not ValueError, for a document nested too deeply.
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_object(path: Path) -> dict[str, object]:
    """Return the members of a document that is an object; none where it is not, or cannot be read."""
    try:
        document = read_document(path)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def integer(found: object) -> int | None:
    """Return the value, if it is an integer and not a bool; else None."""
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def text_or_none(found: object) -> str | None:
    """Return the value, if it is text that is not blank."""
    return found if isinstance(found, str) and found.strip() else None
