"""What the directories of sinks say besides events: sessions by their manifests, and out-of-memory dumps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path

from collectors.gpu_memory.metrics import INTERRUPTED, OOM_DUMPS, SESSIONS
from common.collector import Context, S
from common.metric import Sample
from common.records.paths import MAX_DEPTH, find, shown
from fleetgauge.gpu_memory import (
    Manifest,
    ManifestError,
    SessionSummary,
    find_oom_dumps,
    read_manifest,
    read_oom_dump,
)

DAY = 86400
STATUSES = ("running", "completed", "interrupted", "incomplete")
SEGMENTS = "segment-*.jsonl"


def patterns(paths: Sequence[str]) -> list[str]:
    """Where the segments are; of a directory, all in it and below."""
    return [
        f"{escape(path.rstrip('/'))}/**/{SEGMENTS}" if path.endswith("/") or Path(path).is_dir() else path
        for path in paths
    ]


class Sinks:
    """The manifests and dumps that were there when the tick began."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._manifests: dict[Path, Manifest] = {}
        self._dumps: set[Path] = set()
        self._broken: list[tuple[str, str]] = []
        for directory, is_sink in _directories(paths):
            try:
                if is_sink and (manifest := read_manifest(directory)):
                    self._manifests[directory] = manifest
                self._dumps.update(find_oom_dumps(directory))
            except (ManifestError, OSError) as error:
                self._broken.append((shown(str(directory)), shown(str(error))))

    def session_of(self, path: str) -> str:
        """The session of events that do not say theirs: by the manifest, or else the sink itself."""
        segment = Path(path)
        manifest = self._manifests.get(segment.parent)
        return (manifest and manifest.session_of_segment.get(segment.name)) or str(segment.parent)

    def samples(self, context: Context[S]) -> Iterator[Sample]:
        """Sessions by status and what went wrong lately, now. Sessions of a broken manifest are missing."""
        for directory, why in self._broken:
            context.lose(f"the sessions of {directory}", why)
        bad = sum(manifest.bad_entries for manifest in self._manifests.values())
        if bad:
            context.drop("bad_manifest_entry", bad)
        now = context.now
        sessions = {one.session_id: one for sink in self._manifests.values() for one in sink.sessions}
        statuses = Counter(session.status for session in sessions.values())
        for status in STATUSES:
            yield SESSIONS(statuses[status], now, status=status)
        yield INTERRUPTED(sum(_interrupted_since(one, now - DAY) for one in sessions.values()), now)
        created = [read_oom_dump(dump).created_at for dump in sorted(self._dumps)]
        if undated := created.count(None):
            context.drop("undated_oom_dump", undated)
        yield OOM_DUMPS(sum(moment is not None and moment.timestamp() > now - DAY for moment in created), now)


def _interrupted_since(session: SessionSummary, since: int) -> bool:
    ended = session.ended_at_ns or session.started_at_ns
    return session.status == "interrupted" and ended is not None and ended > since * 1_000_000_000


def _directories(paths: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """The directories to look into, and whether each is a sink. What cannot be entered, the tail reports."""
    for path in paths:
        if not Path(path).is_dir():
            for parent in sorted({Path(file).parent for file in find([path]).files}):
                yield parent, True
            continue
        top = Path(path).absolute()
        for name, below, files in os.walk(top):
            directory = Path(name)
            if directory.name.startswith("oom_dump_") or len(directory.parts) - len(top.parts) >= MAX_DEPTH:
                below.clear()
            below[:] = sorted(one for one in below if not one.startswith("."))
            yield directory, any(file.startswith("segment-") for file in files)
