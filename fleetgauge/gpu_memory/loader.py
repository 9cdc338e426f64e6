"""A recording in one pass: its sessions, their statistics, pictures and alerts, and what was lost.

Memory stays bounded however long the recording: events are not kept, each session can read its own again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .digest import MAX_RANKS, RankDigest
from .events import MemoryEvent
from .oom import OomDump
from .recording import Part, Progress, Recording, open_recording, read_part
from .sessions import SessionSummary, infer_session
from .statistics import Statistics

MAX_SESSIONS = 1000


class SessionDigest:
    """What one session came to, and for each of its ranks a picture."""

    def __init__(self, summary: SessionSummary | None = None) -> None:
        self.summary = summary
        self.statistics = Statistics()
        self.ranks: dict[int | None, RankDigest] = {}
        self.parts: list[Part] = []

    def add(self, event: MemoryEvent) -> None:
        """Take an event into account."""
        self.statistics.add(event)
        digest = self.ranks.get(event.rank)
        if digest is None and len(self.ranks) < MAX_RANKS:
            digest = self.ranks[event.rank] = RankDigest(event.rank)
        if digest is not None:
            digest.add(event)


class LoadedSession:
    """One session of a recording."""

    def __init__(self, digest: SessionDigest, summary: SessionSummary, recording: Recording) -> None:
        self.digest = digest
        self.summary = summary
        self._recording = recording

    @property
    def stats(self) -> dict[str, object]:
        """Its statistics by the tracker's names, and what the recording takes on disk."""
        stats = self.digest.statistics.as_mapping() | {
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
        return sum(part.size for part in self.digest.parts)

    def events(self, progress: Progress | None = None) -> Iterator[MemoryEvent]:
        """Its events, read again from where they are."""
        ignored: Counter[str] = Counter()
        for part in self.digest.parts:
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


def load_recording(path: str | Path, progress: Progress | None = None) -> Loaded:
    """Read a sink directory, a track file, an OOM dump or a directory of sinks.

    Raises `RecordingError` where there is nothing to read. `progress` is called with bytes as they are read.
    """
    recording = open_recording(Path(path))
    losses: Counter[str] = Counter()
    digests = {name: SessionDigest(summary) for name, summary in recording.sessions.items()}
    for part in recording.parts:
        for event in read_part(part, losses, progress):
            name = event.session_id or part.session_id
            digest = digests.get(name)
            if digest is None:
                if len(digests) >= MAX_SESSIONS:
                    losses["too_many_sessions"] += 1
                    continue
                digest = digests[name] = SessionDigest()
            if part not in digest.parts[-1:]:
                digest.parts.append(part)
            digest.add(event)
    sessions = [LoadedSession(digest, _summary(name, digest), recording) for name, digest in digests.items()]
    sessions.sort(key=lambda session: (session.summary.started_at_ns or 0, session.summary.session_id))
    return Loaded(recording, tuple(sessions), losses)


def _summary(name: str, digest: SessionDigest) -> SessionSummary:
    """The manifest's word, or what the events tell."""
    if digest.summary is not None:
        return digest.summary
    statistics = digest.statistics
    if statistics.first is None:
        return SessionSummary(name, "incomplete")
    return infer_session(name, statistics.first, statistics.first_at, statistics.stopped_at)
