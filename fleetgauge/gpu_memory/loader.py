"""A recording in one pass: its sessions with their statistics, lines and alerts, and what was lost.

Memory stays bounded however long the recording: events are not stored, a session reads its own again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .events import MemoryEvent
from .oom import OomDump
from .profiles import SessionProfile
from .recording import Part, Recording, RecordingError, open_recording, read_part
from .sessions import SessionSummary, infer_session

MAX_SESSIONS = 1000


@dataclass(frozen=True)
class SessionEvents:
    """The events of one session, read from its files each time that they are iterated."""

    session_id: str
    parts: Sequence[Part]

    def __iter__(self) -> Iterator[MemoryEvent]:
        ignored: Counter[str] = Counter()
        for part in self.parts:
            for batch in read_part(part, ignored):
                yield from (event for event in batch if event.session_id == self.session_id)


@dataclass(frozen=True)
class LoadedSession:
    """One session of a recording, and the files that its events are in."""

    profile: SessionProfile
    summary: SessionSummary
    recording: Recording
    parts: tuple[Part, ...]

    @property
    def stats(self) -> dict[str, object]:
        """Its statistics by the tracker's names, and what the recording takes on disk."""
        stats = self.profile.totals.as_stats() | {
            "session_id": self.summary.session_id,
            "session_status": self.summary.status,
        }
        if self.recording.path.is_dir():
            stats["final_retained_files"] = len(self.recording.parts)
            stats["final_retained_bytes"] = self.recording.size
            stats["pruned_segment_count"] = self.recording.pruned_segments
        return stats

    def events(self) -> SessionEvents:
        """Return its events, to be iterated any number of times."""
        return SessionEvents(self.summary.session_id, self.parts)


@dataclass(frozen=True)
class LoadedRecording:
    """A recording: its sessions in the order they began, and everything that was lost or is unusual."""

    path: Path
    sessions: tuple[LoadedSession, ...]
    losses: Counter[str]
    oom_dumps: tuple[OomDump, ...]
    notes: tuple[str, ...]


def load_recording(path: str | Path) -> LoadedRecording:
    """Read a sink directory, a track file, an OOM dump or a directory of sinks.

    Raises `RecordingError` where there is nothing to read.
    """
    recording = open_recording(Path(path))
    losses: Counter[str] = Counter()
    profiles = {name: SessionProfile(summary) for name, summary in recording.sessions.items()}
    parts: dict[str, list[Part]] = {}
    for part in recording.parts:
        for batch in read_part(part, losses):
            by_session: dict[str, list[MemoryEvent]] = {}
            for event in batch:
                by_session.setdefault(event.session_id or part.session_id, []).append(event)
            for name, events in by_session.items():
                if name not in profiles and len(profiles) >= MAX_SESSIONS:
                    losses["too_many_sessions"] += len(events)
                    continue
                profiles.setdefault(name, SessionProfile()).add(events)
                if part not in parts.setdefault(name, []):
                    parts[name].append(part)
    if not profiles and not recording.oom_dumps:
        lost = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(losses.items()))
        raise RecordingError(f"cannot read {path}: it holds no event{f' ({lost})' if lost else ''}")
    sessions = [
        LoadedSession(profile, _summary(name, profile), recording, tuple(parts.get(name, ())))
        for name, profile in profiles.items()
    ]
    sessions.sort(key=lambda session: (session.summary.started_at_ns or 0, session.summary.session_id))
    return LoadedRecording(recording.path, tuple(sessions), losses, recording.oom_dumps, recording.notes)


def _summary(name: str, profile: SessionProfile) -> SessionSummary:
    """Return the session as the manifest states it, or as its events do."""
    if profile.summary is not None:
        return profile.summary
    if profile.first is None:
        return SessionSummary(name, "incomplete")
    totals = profile.totals
    return infer_session(name, profile.first, totals.first_at, totals.stopped_at)
