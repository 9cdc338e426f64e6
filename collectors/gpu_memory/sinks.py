"""What the directories of sinks say besides events: sessions by their manifests, and out-of-memory dumps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from glob import escape
from itertools import islice
from pathlib import PurePath
from typing import Annotated, Generic, NamedTuple, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from collectors.gpu_memory.metrics import INTERRUPTED, OOM_DUMPS, SESSIONS
from common.collector import Context, S
from common.metric import Sample
from common.records.paths import shown
from common.records.saved import SavedState
from common.records.storage import MAX_DOCUMENT, Found
from common.records.storages import Files
from common.shards import ALONE, Shard, slot
from common.times import DAY
from fleetgauge.gpu_memory import ManifestError
from fleetgauge.gpu_memory.oom import dump_created_at
from fleetgauge.gpu_memory.sessions import MANIFEST_NAME, parse_manifest

STATUSES = ("running", "completed", "interrupted", "incomplete")
SEGMENTS = "segment-*.jsonl"
DUMP = "oom_dump_"
OF_A_DUMP = {"events.json", "metadata.json"}  # also of one that was renamed
SINK, DUMPED = "sink:", "dump:"  # how keys of the saved state begin
MAX_ENTRIES = 1000  # of a manifest that is remembered; a longer one is read in every tick

T = TypeVar("T")
Whole = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]  # what a checkpoint can hold


def patterns(paths: Sequence[str], files: Files) -> list[str]:
    """Where the segments are; of a directory, all in it and below."""
    return [
        f"{escape(path.rstrip('/'))}/**/{SEGMENTS}" if _is_directory(path, files) else path for path in paths
    ]


def _is_directory(path: str, files: Files) -> bool:
    return any(files.of(path).is_directory(one) for one in files.dated(path))


class Told(NamedTuple):
    """What is needed of a sink's manifest; `broken` says why nothing is known. As saved, so all is JSON."""

    sessions: Annotated[list[tuple[str, str, Whole | None]], Field(max_length=MAX_ENTRIES)]
    segments: Annotated[dict[str, str], Field(max_length=MAX_ENTRIES)]  # their sessions
    bad: Annotated[Whole, Field(ge=0)]
    broken: str = ""

    @classmethod
    def by(cls, path: str, content: bytes) -> Told:
        """What a manifest says; of each session its name, its status, and when it ended or else began."""
        try:
            found = parse_manifest(_document(content), path)
        except ManifestError as error:
            return cls([], {}, 0, shown(str(error)))
        except ValueError as error:
            return cls([], {}, 0, shown(f"cannot read the manifest {path}: {error}"))
        sessions = [
            (one.session_id, one.status, one.ended_at_ns or one.started_at_ns) for one in found.sessions
        ]
        return cls(sessions, {**found.session_of_segment}, found.bad_entries)


def _created(path: str, content: bytes = b"{}") -> int | None:
    """When a dump was made that has this manifest, or by its name."""
    try:
        found = _document(content)
    except ValueError:
        found = {}
    created = dump_created_at(PurePath(path).parent.name, found if isinstance(found, dict) else {})
    return int(created.timestamp()) if created else None


def _document(content: bytes) -> object:
    if len(content) > MAX_DOCUMENT:
        raise ValueError(f"it has more than the {MAX_DOCUMENT:,} bytes that this reads")
    try:
        return json.loads(content.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


class _Manifests(Generic[T]):
    """The manifests of some directories. Of one that looks as it did, what was saved of it is used.

    Saved as how it looked and what it told, in the slot of the directory.
    """

    def __init__(
        self, prefix: str, schema: TypeAdapter[tuple[list[Whole | str], T]], tell: Callable[[str, bytes], T]
    ) -> None:
        self._prefix = prefix
        self._schema = schema
        self._tell = tell
        self.directories: dict[str, None] = {}
        self.told: dict[str, T] = {}
        self._changes: dict[str, object] = {}

    def recall(self, saved: SavedState, files: Files, now: int) -> None:
        """Begin with what was saved."""
        self._saved, self._files, self._now = saved, files, now
        self._known = dict(saved.parts(self._prefix, self._schema))

    def of(self, directory: str) -> T:
        """What the manifest of a directory tells; raises OSError where it cannot be read now."""
        if directory not in self.told:
            path = f"{directory}/{MANIFEST_NAME}"
            storage = self._files.of(path)
            looks, known = storage.looks(path, self._now), self._known.get(directory)
            if known and known[0] == looks:
                self.told[directory] = known[1]
            else:
                self.told[directory] = told = self._tell(path, storage.read(path))
                if looks:
                    self._remember(directory, [looks, told])
        return self.told[directory]

    def _remember(self, directory: str, part: object) -> None:
        try:
            directory.encode()
            self._schema.validate_python(part)
        except (UnicodeEncodeError, ValidationError):
            return  # it could not be used, or not even be saved
        key = self._prefix + directory
        self._saved.claim(key, slot(directory))
        self._changes[key] = part

    def changes(self, saw_all: bool) -> Iterator[tuple[str, object]]:
        """What to save: without directories that are gone, where all that are there were seen."""
        yield from self._changes.items()
        for gone in sorted(self._known.keys() - self.directories.keys()) if saw_all else ():
            yield self._prefix + gone, None


_TOLD: TypeAdapter[tuple[list[Whole | str], Told]] = TypeAdapter(tuple[list[Whole | str], Told])
_CREATED: TypeAdapter[tuple[list[Whole | str], int | None]] = TypeAdapter(
    tuple[list[Whole | str], Whole | None]
)


class Sinks:
    """The sinks and dumps that were there when the tick began."""

    def __init__(self, paths: Sequence[str], files: Files, shard: Shard = ALONE) -> None:
        self._files = files
        self._sinks = _Manifests(SINK, _TOLD, Told.by)
        self._dumps = _Manifests(DUMPED, _CREATED, _created)
        self._recalled = False
        self._created: list[int | None] = []
        self._broken: list[tuple[str, str]] = []
        self._saw_all = True
        for path in paths:
            try:
                for directory, below, names in _directories(path, files):
                    self._look(directory, below, names, shard)
            except OSError:  # which reading the segments reports
                self._saw_all = False

    def _look(self, directory: str, below: list[str], names: list[str], shard: Shard) -> None:
        owned = shard.owns(directory)
        if owned and MANIFEST_NAME in names and any(name.startswith("segment-") for name in names):
            self._sinks.directories[directory] = None
        dumps = {f"{directory}/{name}" for name in below if name.startswith(DUMP)}
        if PurePath(directory).name.startswith(DUMP) or {*names} >= OF_A_DUMP:
            dumps = {directory}
        self._dumps.directories |= dict.fromkeys(filter(shard.owns, dumps))

    def recall(self, saved: SavedState, now: int) -> None:
        """Read what looks other than when an earlier tick saved it; the passes of a replay share one look."""
        if self._recalled:
            return
        self._recalled = True
        self._sinks.recall(saved, self._files, now)
        self._dumps.recall(saved, self._files, now)
        for directory in self._sinks.directories:
            self._read(directory)
        for dump in self._dumps.directories:
            try:
                created = self._dumps.of(dump)
            except OSError:  # one that was cut short has no manifest
                created = _created(f"{dump}/{MANIFEST_NAME}")
            self._created.append(created)

    def _read(self, directory: str) -> None:
        try:
            told = self._sinks.of(directory)
        except FileNotFoundError:
            return  # gone since it was listed
        except OSError as error:
            path = f"{directory}/{MANIFEST_NAME}"
            self._broken.append((shown(directory), shown(f"cannot read the manifest {path}: {error}")))
            return
        if told.broken:
            self._broken.append((shown(directory), told.broken))

    def session_of(self, path: str) -> str:
        """The session of events that do not say theirs: by the manifest, or else the sink itself."""
        directory, _, name = path.rpartition("/")
        told = self._sinks.told.get(directory)
        return (told and told.segments.get(name)) or directory

    def samples(self, context: Context[S]) -> Iterator[Sample]:
        """Sessions by status and what went wrong lately, now. Sessions of a broken manifest are missing."""
        for directory, why in self._broken:
            context.lose(f"the sessions of {directory}", why)
        sinks = self._sinks.told.values()
        bad = sum(told.bad for told in sinks)
        if bad:
            context.drop("bad_manifest_entry", bad)
        now, day_ago = context.now, (context.now - DAY) * 1_000_000_000
        sessions = {name: (status, at) for told in sinks for name, status, at in told.sessions}
        statuses = Counter(status for status, _ in sessions.values())
        for status in STATUSES:
            yield SESSIONS(statuses[status], now, status=status)
        interrupted = [at for status, at in sessions.values() if status == "interrupted"]
        yield INTERRUPTED(sum(at is not None and at > day_ago for at in interrupted), now)
        if undated := self._created.count(None):
            context.drop("undated_oom_dump", undated)
        yield OOM_DUMPS(sum(at is not None and at > now - DAY for at in self._created), now)

    def changes(self) -> dict[str, object]:
        """What to save of what was read, and without what is gone."""
        return {one: part for kind in (self._sinks, self._dumps) for one, part in kind.changes(self._saw_all)}


def _directories(path: str, files: Files) -> Iterator[tuple[str, list[str], list[str]]]:
    """The directories to look into, with the names of what is in each: of a file, the one it is in."""
    storage, found = files.of(path), Found()
    whole = _is_directory(path, files)
    for one in files.dated(path):
        if whole:
            yield from storage.tree(one)
        else:
            storage.find(one, found)
    for parent in sorted({file.rpartition("/")[0] for file in found.files}):
        yield from islice(storage.tree(parent), 1)
    if found.unreadable:
        raise OSError(*found.unreadable[0])
