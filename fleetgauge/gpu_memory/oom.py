"""What a tracker writes when a job runs out of memory: a directory per dump.

The dump's manifest is written last, so that a directory without one is a dump that was cut short. Its
allocator snapshot, where there is one, is a pickle: it is never opened here. `recording` finds the dumps,
`sessions` reads their documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .sessions import MANIFEST_NAME, SessionSummary, parse_session, read_object, text_or_none

EVENTS_NAME = "events.json"
_PREFIX = "oom_dump_"
_NAME = re.compile(r"oom_dump_(\d{8}T\d{6}Z)_")


@dataclass(frozen=True)
class OomDump:
    """One dump: when, why, and whose. None is unknown; `complete` is whether it has its manifest."""

    path: Path
    created_at: datetime | None
    reason: str | None
    message: str | None
    session: SessionSummary | None
    complete: bool


def is_oom_dump(directory: Path) -> bool:
    """Return whether a directory is one dump, by its name or by what it contains."""
    if directory.name.startswith(_PREFIX):
        return directory.is_dir()
    return (directory / EVENTS_NAME).is_file() and (directory / "metadata.json").is_file()


def find_oom_dumps(directory: Path) -> Iterator[Path]:
    """Yield the dumps of a directory, oldest first as their names sort, itself if it is one."""
    if is_oom_dump(directory):
        yield directory
    elif directory.is_dir():
        yield from sorted(child for child in directory.glob(f"{_PREFIX}*") if child.is_dir())


def read_oom_dump(directory: Path) -> OomDump:
    """Read the manifest and metadata of a dump. Never raises: what cannot be read is unknown."""
    manifest = read_object(directory / MANIFEST_NAME)
    metadata = read_object(directory / "metadata.json")
    return OomDump(
        path=directory,
        created_at=dump_created_at(directory.name, manifest),
        reason=text_or_none(manifest.get("reason")) or text_or_none(metadata.get("reason")),
        message=text_or_none(metadata.get("exception_message")),
        session=parse_session(manifest.get("session")) or parse_session(metadata.get("session")),
        complete=bool(manifest),
    )


def dump_created_at(name: str, manifest: Mapping[str, object]) -> datetime | None:
    """Return when a dump was written, by its manifest or else by its name; None where neither has it."""
    named = _NAME.match(name)
    # The manifest is more reliable than a directory that may have been renamed, and absent in a dump cut
    # short.
    created = _parse_time(manifest.get("created_at_utc"), "%Y-%m-%dT%H:%M:%SZ")
    return created or (_parse_time(named.group(1), "%Y%m%dT%H%M%SZ") if named else None)


def _parse_time(text: object, form: str) -> datetime | None:
    try:
        return datetime.strptime(str(text), form).replace(tzinfo=UTC)
    except ValueError:
        return None
