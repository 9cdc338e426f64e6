"""What the directories of sinks say besides events: sessions by their manifests, and out-of-memory dumps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from glob import escape
from itertools import islice
from pathlib import PurePath

from collectors.gpu_memory.metrics import INTERRUPTED, OOM_DUMPS, SESSIONS
from common.collector import Context, S
from common.metric import Sample
from common.records.paths import shown
from common.records.storage import MAX_DOCUMENT
from common.records.storages import Files
from common.shards import ALONE, Shard
from fleetgauge.gpu_memory import Manifest, ManifestError, SessionSummary
from fleetgauge.gpu_memory.oom import dump_created_at
from fleetgauge.gpu_memory.sessions import MANIFEST_NAME, parse_manifest

DAY = 86400
STATUSES = ("running", "completed", "interrupted", "incomplete")
SEGMENTS = "segment-*.jsonl"
DUMP = "oom_dump_"
OF_A_DUMP = {"events.json", "metadata.json"}  # also of one that was renamed


def patterns(paths: Sequence[str], files: Files) -> list[str]:
    """Where the segments are; of a directory, all in it and below."""
    return [
        f"{escape(path.rstrip('/'))}/**/{SEGMENTS}" if _is_directory(path, files) else path for path in paths
    ]


def _is_directory(path: str, files: Files) -> bool:
    return any(files.of(path).is_directory(one) for one in files.dated(path))


class Sinks:
    """The manifests and dumps that were there when the tick began."""

    def __init__(self, paths: Sequence[str], files: Files, shard: Shard = ALONE) -> None:
        self._files = files
        self._manifests: dict[str, Manifest] = {}
        self._dumps: dict[str, datetime | None] = {}
        self._broken: list[tuple[str, str]] = []
        for directory, below, names in _directories(paths, files):
            owned = shard.owns(directory)
            if owned and MANIFEST_NAME in names and any(name.startswith("segment-") for name in names):
                self._read_manifest(directory)
            dumps = {f"{directory}/{name}" for name in below if name.startswith(DUMP)}
            if PurePath(directory).name.startswith(DUMP) or {*names} >= OF_A_DUMP:
                dumps = {directory}
            for dump in filter(shard.owns, dumps - self._dumps.keys()):
                self._dumps[dump] = self._created_at(dump)

    def _read_manifest(self, directory: str) -> None:
        path = f"{directory}/{MANIFEST_NAME}"
        try:
            self._manifests[directory] = parse_manifest(self._document(path), path)
        except FileNotFoundError:
            return  # gone since it was listed
        except ManifestError as error:
            self._broken.append((shown(directory), shown(str(error))))
        except (OSError, ValueError) as error:
            self._broken.append((shown(directory), shown(f"cannot read the manifest {path}: {error}")))

    def _created_at(self, dump: str) -> datetime | None:
        try:
            manifest = self._document(f"{dump}/{MANIFEST_NAME}")
        except (OSError, ValueError):
            manifest = None  # a dump that was cut short has none
        return dump_created_at(PurePath(dump).name, manifest if isinstance(manifest, dict) else {})

    def _document(self, path: str) -> object:
        content = self._files.of(path).read(path)
        if len(content) > MAX_DOCUMENT:
            raise ValueError(f"it has more than the {MAX_DOCUMENT:,} bytes that this reads")
        try:
            return json.loads(content.decode())
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error

    def session_of(self, path: str) -> str:
        """The session of events that do not say theirs: by the manifest, or else the sink itself."""
        directory, _, name = path.rpartition("/")
        manifest = self._manifests.get(directory)
        return (manifest and manifest.session_of_segment.get(name)) or directory

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
        created = list(self._dumps.values())
        if undated := created.count(None):
            context.drop("undated_oom_dump", undated)
        yield OOM_DUMPS(sum(moment is not None and moment.timestamp() > now - DAY for moment in created), now)


def _interrupted_since(session: SessionSummary, since: int) -> bool:
    ended = session.ended_at_ns or session.started_at_ns
    return session.status == "interrupted" and ended is not None and ended > since * 1_000_000_000


def _directories(paths: Sequence[str], files: Files) -> Iterator[tuple[str, list[str], list[str]]]:
    """The directories to look into, with the names of what is in each: of a file, the one it is in."""
    for path in (one for given in paths for one in files.dated(given)):
        storage = files.of(path)
        if storage.is_directory(path):
            yield from storage.tree(path)
        else:
            for parent in sorted({file.rpartition("/")[0] for file in files.find([path]).files}):
                yield from islice(storage.tree(parent), 1)
