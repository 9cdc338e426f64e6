"""A recording, read as it is on disk: its files, and its sessions in one pass over them.

A recording is a telemetry sink (segments, perhaps pruned at the start, torn at the end, still growing), a
track file, an OOM dump, or a directory of these. Segments are read in blocks; a bad line costs itself and is
counted by reason. Track files and the events of a dump, which a tracker writes in one piece from its memory,
are decoded in one piece. Events are not stored, so that memory stays bounded; a session reads its own again.

`load_recording` is the entry point. `events` parses a record, `profiles` sums a session.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from .events import BadEventError, MemoryEvent, batches, parse_event
from .oom import EVENTS_NAME, OomDump, find_oom_dumps, is_oom_dump, read_oom_dump
from .profiles import SessionProfile
from .sessions import (
    ManifestError,
    SessionSummary,
    infer_session,
    parse_session,
    read_manifest,
)
from .timeline import Timeline

MAX_EVENT_BYTES = 4 * 2**20
_BLOCK_BYTES = 2**17
_SEGMENT = re.compile(r"segment-(\d+)\.jsonl")
_EVENT_ARRAYS = ("events", "telemetry_events")
# Limits on what a wrong path, such as a home directory, can cost.
_MAX_DIRECTORY_DEPTH = 3
_MAX_SINKS = 1024
# Trackers write dumps into the sink itself or into a directory of their own below it.
_DUMP_DIRECTORIES = ("", "oom_dumps")
MAX_SESSIONS = 1000


class RecordingError(ValueError):
    """A path without a recording, or with one that cannot be read."""


@dataclass(frozen=True)
class Part:
    """One file of a recording, and the session of those events that do not name theirs.

    `records` are those of a JSON document, None for any other file.
    """

    path: Path
    size: int
    session_id: str
    records: Sequence[object] | None = None


@dataclass
class Recording:
    """What there is to read, found without reading the events of segments.

    `sessions` are those that a document states, by id; `notes` are sentences for the user.
    """

    path: Path
    parts: list[Part] = field(default_factory=list)
    sessions: dict[str, SessionSummary] = field(default_factory=dict)
    oom_dumps: list[OomDump] = field(default_factory=list)
    pruned_segments: int = 0
    notes: list[str] = field(default_factory=list)

    def add_sink(self, directory: Path) -> None:
        """Add a sink: its segments, with or without its manifest, and the OOM dumps beside them.

        Raises OSError where the directory cannot be listed.
        """
        session_of: Mapping[str, str] = {}
        try:
            if manifest := read_manifest(directory):
                session_of = manifest.session_of_segment
                self.sessions |= {session.session_id: session for session in manifest.sessions}
                if bad := manifest.bad_entries:
                    self.notes.append(f"{bad} entries of the manifest of {directory.name} make no sense")
        except ManifestError as error:
            self.notes.append(f"{error}; its segments were read without it")
        numbered = segments(directory)
        # An event without a session gets that of its segment; without a manifest, such events of a sink are
        # one session.
        for _, path in numbered:
            self._add_part(path, session_of.get(path.name, f"legacy-{directory.name}"))
        # Numbers are never used twice, so that those missing were pruned.
        pruned = max(0, numbered[-1][0] - len(numbered)) if numbered else 0
        if pruned:
            self.pruned_segments += pruned
            note = f"{pruned} older segments of {directory.name} were pruned: the start is missing"
            self.notes.append(note)
        for name in _DUMP_DIRECTORIES:
            self.oom_dumps += map(read_oom_dump, find_oom_dumps(directory / name))

    def add_file(self, path: Path) -> None:
        """Add a track file. One that is an object may name its session.

        Raises `RecordingError` where it is not JSON, OSError where it cannot be read.
        """
        try:
            records, session = _read_records(path)
        except ValueError as error:
            raise RecordingError(f"cannot read {path}: it is not JSON: {error}") from error
        if session:
            self.sessions[session.session_id] = session
        self._add_part(path, session.session_id if session else f"legacy-{path.stem}", records)

    def add_dump(self, directory: Path) -> None:
        """Add an OOM dump and its events. One that was cut short or is not JSON becomes a note."""
        dump = read_oom_dump(directory)
        self.oom_dumps.append(dump)
        session_id = dump.session.session_id if dump.session else f"legacy-{directory.name}"
        if dump.session:
            self.sessions[session_id] = dump.session
        if not dump.complete:
            self.notes.append(f"the OOM dump {directory.name} was cut short")
        with suppress(FileNotFoundError):
            try:
                records, _ = _read_records(directory / EVENTS_NAME)
                self._add_part(directory / EVENTS_NAME, session_id, records)
            except ValueError as error:
                self.notes.append(f"the events of the OOM dump {directory.name} are not JSON: {error}")

    def _add_part(self, path: Path, session_id: str, records: Sequence[object] | None = None) -> None:
        self.parts.append(Part(path, path.stat().st_size, session_id, records))


def open_recording(path: Path) -> Recording:
    """Find the files of a recording. Raises `RecordingError` where there are none.

    Those are the directory itself where it has events, else the sinks below it, else its OOM dumps.
    """
    recording = Recording(path)
    if path.is_file():
        recording.add_file(path)
        return recording
    if not path.is_dir():
        raise RecordingError(f"cannot read {path}: there is no such file or directory")
    is_dump = is_oom_dump(path)
    if is_dump:
        recording.add_dump(path)
    else:
        recording.add_sink(path)
    # Only where the directory itself has no events: dumps and exports below a sink are not sinks.
    if not recording.parts:
        for directory in _sinks_below(path):
            recording.add_sink(directory)
    if not recording.parts and not is_dump:
        # Beside a sink, the events of a dump are a copy of the sink's; here they are all there is.
        dumps, recording.oom_dumps = recording.oom_dumps, []
        for dump in dumps:
            recording.add_dump(dump.path)
    if not recording.parts and not recording.sessions and not recording.oom_dumps:
        hint = "a telemetry sink, a track file (.json) or an OOM dump is expected"
        raise RecordingError(f"cannot read {path}: it holds no segment and no manifest; {hint}")
    return recording


def segments(directory: Path) -> list[tuple[int, Path]]:
    """Return the segments of a sink as they were written: by number, as names stop sorting at a million."""
    found = ((_SEGMENT.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match.group(1)), path) for match, path in found if match and path.is_file())


def read_part(part: Part, losses: Counter[str]) -> Iterator[list[MemoryEvent]]:
    """Yield the events of one file in batches. What is lost is counted; a missing file is one loss."""
    if part.records is not None:
        for records in batches(part.records):
            yield _parse(records, part.session_id, losses)
        return
    try:
        with part.path.open("rb") as file:
            for lines in _blocks(file, losses):
                yield _parse(lines, part.session_id, losses)
    except OSError:
        losses["unreadable_file"] += 1


def _parse(records: Iterable[object], session_id: str, losses: Counter[str]) -> list[MemoryEvent]:
    """Return the events of some records; a record that is no event is counted in `losses` by its reason."""
    events = []
    for record in records:
        try:
            events.append(parse_event(record, session_id))
        except BadEventError as error:
            losses[error.reason] += 1
    return events


def _blocks(file: IO[bytes], losses: Counter[str]) -> Iterator[Iterable[object]]:
    """Yield the decoded lines of a file, block by block, in bounded memory however long a line is."""
    tail, skipping = b"", False
    while block := file.read(_BLOCK_BYTES):
        *lines, tail = (tail + block).split(b"\n")
        if skipping and lines:  # here a line ends that is too long
            del lines[0]
            skipping = False
        # A line that is too long is counted once, and its remainder is dropped as it is read.
        if skipping or len(tail) > MAX_EVENT_BYTES:
            losses["line_too_long"] += not skipping
            tail, skipping = b"", True
        yield _decode(lines, losses, "not_json")
    # A line without an end is the last one of a writer that still writes, or was stopped.
    yield _decode([tail], losses, "torn_line")


def _decode(lines: Iterable[bytes], losses: Counter[str], reason: str) -> Iterator[object]:
    """Yield the JSON values of lines.

    A line that is none is counted under `reason`; a blank one is skipped.
    """
    for line in lines:
        if len(line) > MAX_EVENT_BYTES:
            losses["line_too_long"] += 1
        elif line and not line.isspace():
            try:
                yield json.loads(line.decode())
            except (ValueError, RecursionError):
                losses[reason] += 1


def _read_records(path: Path) -> tuple[Sequence[object], SessionSummary | None]:
    """Return the records of a JSON document, an array, an object with one or one event, and its session.

    Raises ValueError where it is not JSON, OSError where it cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict):
        return (document if isinstance(document, list) else [document]), None
    arrays = (document[name] for name in _EVENT_ARRAYS if isinstance(document.get(name), list))
    session = parse_session(document.get("session_summary") or document.get("session"))
    return next(arrays, [document]), session


def _sinks_below(directory: Path) -> list[Path]:
    """Return the directories below that contain a sink: one per rank is how distributed jobs write them."""
    found: list[Path] = []
    for depth in range(1, _MAX_DIRECTORY_DEPTH + 1):
        below = sorted(directory.glob("/".join("*" * depth)))
        found += [path for path in below if path.is_dir() and segments(path)]
    return found[:_MAX_SINKS]


@dataclass(frozen=True)
class LoadedSession:
    """One session of a recording, and the files that its events are in.

    `timeline` is empty unless it was requested.
    """

    profile: SessionProfile
    summary: SessionSummary
    recording: Recording
    parts: tuple[Part, ...]
    timeline: Timeline

    @property
    def stats(self) -> dict[str, object]:
        """Return its statistics by the tracker's names, and what the recording takes on disk."""
        stats = self.profile.totals.as_stats() | {
            "session_id": self.summary.session_id,
            "session_status": self.summary.status,
        }
        if self.recording.path.is_dir():
            stats["final_retained_files"] = len(self.recording.parts)
            stats["final_retained_bytes"] = sum(part.size for part in self.recording.parts)
            stats["pruned_segment_count"] = self.recording.pruned_segments
        return stats

    def events(self) -> Iterator[MemoryEvent]:
        """Yield its events, read again from its files; what is lost was counted by the first pass."""
        for part in self.parts:
            for batch in read_part(part, Counter()):
                yield from (event for event in batch if event.session_id == self.summary.session_id)


@dataclass(frozen=True)
class LoadedRecording:
    """A recording: its sessions in the order they began, and everything that was lost or is unusual.

    `losses` counts lines and events by the reason why they were left out.
    """

    path: Path
    sessions: tuple[LoadedSession, ...]
    losses: Counter[str]
    oom_dumps: tuple[OomDump, ...]
    notes: tuple[str, ...]


def load_recording(path: str | Path, *, timelines: bool = False) -> LoadedRecording:
    """Read a sink directory, a track file, an OOM dump or a directory of sinks.

    With `timelines`, each session has the columns of its events, as an export to W&B needs them. Raises
    `RecordingError` where there is nothing to read.
    """
    recording = open_recording(Path(path))
    losses: Counter[str] = Counter()
    # Sessions of a manifest are shown even if all of their segments were pruned.
    profiles = {name: SessionProfile(summary) for name, summary in recording.sessions.items()}
    parts: dict[str, list[Part]] = {}
    by_name: defaultdict[str, Timeline] = defaultdict(Timeline)
    for part in recording.parts:
        for batch in read_part(part, losses):
            by_session: dict[str, list[MemoryEvent]] = {}
            for event in batch:
                by_session.setdefault(event.session_id or part.session_id, []).append(event)
            for name, events in by_session.items():
                # A damaged file may name a new session in every event: profiles are bounded, too.
                if name not in profiles and len(profiles) >= MAX_SESSIONS:
                    losses["too_many_sessions"] += len(events)
                    continue
                profiles.setdefault(name, SessionProfile()).add(events)
                if timelines:
                    by_name[name].add(events)
                if part not in parts.setdefault(name, []):
                    parts[name].append(part)
    if not profiles and not recording.oom_dumps:
        lost = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(losses.items()))
        raise RecordingError(f"cannot read {path}: it holds no event{f' ({lost})' if lost else ''}")
    sessions = [
        LoadedSession(profile, _summary(name, profile), recording, tuple(parts.get(name, ())), by_name[name])
        for name, profile in profiles.items()
    ]
    # By name as well, so that the order of sessions with the same start is always the same.
    sessions.sort(key=lambda session: (session.summary.started_at_ns or 0, session.summary.session_id))
    return LoadedRecording(
        recording.path, tuple(sessions), losses, tuple(recording.oom_dumps), tuple(recording.notes)
    )


def _summary(name: str, profile: SessionProfile) -> SessionSummary:
    """Return the session as the manifest states it, or as its events do."""
    if profile.summary is not None:
        return profile.summary
    if profile.first is None:
        return SessionSummary(name, "incomplete")
    totals = profile.totals
    return infer_session(name, profile.first, totals.first_at, totals.stopped_at)
