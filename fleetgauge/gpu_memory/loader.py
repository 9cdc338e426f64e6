"""A recording in one pass: its sessions, their statistics, pictures and alerts, and what was lost.

Memory stays bounded however long the recording: events are not kept, each session can read its own again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .events import MemoryEvent
from .oom import OomDump
from .profiles import MAX_RANKS, RankProfile
from .recording import OnRead, Part, Recording, open_recording, read_part
from .sessions import SessionSummary, infer_session
from .statistics import Statistics

MAX_SESSIONS = 1000


class SessionProfile:
    """What one session came to, and for each of its ranks a picture."""

    def __init__(self, summary: SessionSummary | None = None) -> None:
        self.summary = summary
        self.statistics = Statistics()
        self.ranks: dict[int | None, RankProfile] = {}
        self.parts: list[Part] = []

    def add(self, event: MemoryEvent) -> None:
        """Take an event into account."""
        self.statistics.add(event)
        profile = self.ranks.get(event.rank)
        if profile is None and len(self.ranks) < MAX_RANKS:
            profile = self.ranks[event.rank] = RankProfile(event.rank)
        if profile is not None:
            profile.add(event)


class LoadedSession:
    """One session of a recording."""

    def __init__(self, profile: SessionProfile, summary: SessionSummary, recording: Recording) -> None:
        self.profile = profile
        self.summary = summary
        self._recording = recording

    @property
    def stats(self) -> dict[str, object]:
        """Its statistics by the tracker's names, and what the recording takes on disk."""
        stats = self.profile.statistics.as_mapping() | {
            "session_id": self.summary.session_id,
            "session_status": self.summary.status,
        }
        if self._recording.path.is_dir():
            stats["final_retained_files"] = len(self._recording.parts)
            stats["final_retained_bytes"] = self._recording.size
            stats["pruned_segment_count"] = self._recording.pruned_segments
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


class Loaded:
    """A whole recording: its sessions in the order they began, and everything that was lost or is odd."""

    def __init__(
        self, recording: Recording, sessions: tuple[LoadedSession, ...], losses: Counter[str]
    ) -> None:
        self.path = recording.path
        self.sessions = sessions
        self.losses = losses
        self.oom_dumps: tuple[OomDump, ...] = recording.oom_dumps
        self.notes = recording.notes


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
    sessions = [LoadedSession(one, _summary(name, one), recording) for name, one in profiles.items()]
    sessions.sort(key=lambda session: (session.summary.started_at_ns or 0, session.summary.session_id))
    return Loaded(recording, tuple(sessions), losses)


def _summary(name: str, profile: SessionProfile) -> SessionSummary:
    """The manifest's word, or what the events tell."""
    if profile.summary is not None:
        return profile.summary
    statistics = profile.statistics
    if statistics.first is None:
        return SessionSummary(name, "incomplete")
    return infer_session(name, statistics.first, statistics.first_at, statistics.stopped_at)
