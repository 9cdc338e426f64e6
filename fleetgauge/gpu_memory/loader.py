"""A recording in one pass: its sessions, their statistics, pictures and alerts, and what was lost.

Memory stays bounded however long the recording: events are not kept, each session can read its own again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .events import MemoryEvent
from .oom import OomDump
from .profiles import MAX_RANKS, RankProfile, Statistics
from .recording import OnRead, Part, Recording, RecordingError, open_recording, read_part
from .sessions import SessionSummary, infer_session

MAX_SESSIONS = 1000


@dataclass
class SessionProfile:
    """What one session came to, and for each of its ranks a picture."""

    summary: SessionSummary | None = None
    statistics: Statistics = field(default_factory=Statistics)
    ranks: dict[int | None, RankProfile] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)

    def add(self, event: MemoryEvent) -> None:
        """Take an event into account."""
        self.statistics.add(event)
        profile = self.ranks.get(event.rank)
        if profile is None and len(self.ranks) < MAX_RANKS:
            profile = self.ranks[event.rank] = RankProfile(event.rank)
        if profile is not None:
            profile.add(event)


@dataclass(frozen=True)
class LoadedSession:
    """One session of a recording."""

    profile: SessionProfile
    summary: SessionSummary
    recording: Recording

    @property
    def stats(self) -> dict[str, object]:
        """Its statistics by the tracker's names, and what the recording takes on disk."""
        stats = self.profile.statistics.as_mapping() | {
            "session_id": self.summary.session_id,
            "session_status": self.summary.status,
        }
        if self.recording.path.is_dir():
            stats["final_retained_files"] = len(self.recording.parts)
            stats["final_retained_bytes"] = self.recording.size
            stats["pruned_segment_count"] = self.recording.pruned_segments
        return stats

    @property
    def size(self) -> int:
        """How many bytes its events are spread over."""
        return sum(part.size for part in self.profile.parts)

    def events(self, progress: OnRead | None = None) -> Iterator[MemoryEvent]:
        """Its events, read again from where they are."""
        ignored: Counter[str] = Counter()
        for part in self.profile.parts:
            for event in read_part(part, ignored, progress):
                if event.session_id == self.summary.session_id:
                    yield event


@dataclass(frozen=True)
class Loaded:
    """A whole recording: its sessions in the order they began, and everything that was lost or is odd."""

    path: Path
    sessions: tuple[LoadedSession, ...]
    losses: Counter[str]
    oom_dumps: tuple[OomDump, ...]
    notes: tuple[str, ...]


def load_recording(path: str | Path, progress: OnRead | None = None) -> Loaded:
    """Read a sink directory, a track file, an OOM dump or a directory of sinks.

    Raises `RecordingError` where there is nothing to read. `progress` is called with bytes as they are read.
    """
    recording = open_recording(Path(path))
    losses: Counter[str] = Counter()
    profiles = {name: SessionProfile(summary) for name, summary in recording.sessions.items()}
    for part in recording.parts:
        for event in read_part(part, losses, progress):
            name = event.session_id or part.session_id
            profile = profiles.get(name)
            if profile is None:
                if len(profiles) >= MAX_SESSIONS:
                    losses["too_many_sessions"] += 1
                    continue
                profile = profiles[name] = SessionProfile()
            if part not in profile.parts[-1:]:
                profile.parts.append(part)
            profile.add(event)
    if not profiles and not recording.oom_dumps:
        lost = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in sorted(losses.items()))
        raise RecordingError(f"cannot read {path}: it holds no event{f' ({lost})' if lost else ''}")
    sessions = [LoadedSession(one, _summary(name, one), recording) for name, one in profiles.items()]
    sessions.sort(key=lambda session: (session.summary.started_at_ns or 0, session.summary.session_id))
    return Loaded(recording.path, tuple(sessions), losses, recording.oom_dumps, recording.notes)


def _summary(name: str, profile: SessionProfile) -> SessionSummary:
    """The manifest's word, or what the events tell."""
    if profile.summary is not None:
        return profile.summary
    statistics = profile.statistics
    if statistics.first is None:
        return SessionSummary(name, "incomplete")
    return infer_session(name, statistics.first, statistics.first_at, statistics.stopped_at)
