"""The directories of sinks besides their events: sessions by their manifests, and out-of-memory dumps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import PurePath

from common.collector import Report
from common.records.files import MAX_DOCUMENT, File, Files, reason, shown
from fleetgauge.gpu_memory import ManifestError
from fleetgauge.gpu_memory.oom import dump_created_at
from fleetgauge.gpu_memory.sessions import MANIFEST_NAME, Manifest, parse_manifest

STATUSES = ("running", "completed", "interrupted", "incomplete")
SEGMENTS = "segment-*.jsonl"
DUMP = "oom_dump_"
OF_A_DUMP = {"events.json", "metadata.json"}  # also of one that was renamed
NANOSECONDS = 1_000_000_000


class Sinks:
    """The sinks and dumps below some paths. Manifests are read where they are needed, and once."""

    def __init__(self, paths: Sequence[str], files: Files) -> None:
        self._paths = paths
        self._files = files
        self._manifests: dict[
            str, Manifest | str
        ] = {}  # by directory; a text is the reason why it cannot be read
        self._was_read = False
        self.statuses: Counter[str] = Counter()  # of sessions
        self.interrupted: list[int] = []  # when sessions ended that were interrupted, in seconds
        self.dumps: list[int] = []  # when dumps were written

    def session_of(self, path: str) -> str:
        """Return the session of events that do not name theirs: by the manifest, or else the directory."""
        directory, _, name = path.rpartition("/")
        manifest = self._manifest(directory)
        session = manifest.session_of_segment.get(name) if isinstance(manifest, Manifest) else None
        return session or directory

    def read(self, report: Report, touched_since: float) -> None:
        """Read the manifests of sinks and dumps that were written to since a time."""
        if self._was_read:
            return
        self._was_read = True
        sessions: dict[str, tuple[str, int | None]] = {}
        undated = 0
        for directory, is_dump, files in self._directories(report):
            names = {PurePath(file.path).name for file in files}
            if files and max(file.modified for file in files) < touched_since:
                continue
            if is_dump:
                created = self._created(directory, MANIFEST_NAME in names)
                undated += created is None
                self.dumps += [] if created is None else [created]
            elif MANIFEST_NAME in names and any(name.startswith("segment-") for name in names):
                manifest = self._manifest(directory)
                if isinstance(manifest, str):
                    report.lose(f"the sessions of {shown(directory)}", manifest)
                    continue
                if manifest.bad_entries:
                    report.drop("bad_manifest_entry", manifest.bad_entries, shown(directory))
                for session in manifest.sessions:
                    sessions[session.session_id] = (session.status, session.ended_at_ns)
        if undated:
            report.drop("undated_oom_dump", undated)
        self.statuses.update(status for status, _ in sessions.values())
        self.interrupted += [
            ended // NANOSECONDS
            for status, ended in sessions.values()
            if status == "interrupted" and ended is not None
        ]

    def _directories(self, report: Report) -> Iterator[tuple[str, bool, list[File]]]:
        """Yield each directory of the paths once, whether it is a dump, and its files."""
        seen: set[str] = set()
        for path in chain.from_iterable(map(self._files.expand, self._paths)):
            try:
                for directory, _, files in self._below(path):
                    names = {PurePath(file.path).name for file in files}
                    if directory not in seen:
                        seen.add(directory)
                        yield (
                            directory,
                            PurePath(directory).name.startswith(DUMP) or names >= OF_A_DUMP,
                            files,
                        )
            except OSError as error:
                report.lose(shown(path), reason(error))

    def _below(self, path: str) -> Iterator[tuple[str, list[str], list[File]]]:
        """Yield the directories below a path; of a segment or a glob, those that hold the files."""
        if self._files.is_directory(path):
            yield from self._files.tree(path)
            return
        for parent in sorted({file.rpartition("/")[0] for file in self._files.find([path]).files}):
            yield from islice(self._files.tree(parent), 1)

    def _manifest(self, directory: str) -> Manifest | str:
        """Return the manifest of a directory, or why there is none."""
        if directory not in self._manifests:
            path = f"{directory}/{MANIFEST_NAME}"
            try:
                self._manifests[directory] = parse_manifest(self._document(path), path)
            except ManifestError as error:
                self._manifests[directory] = shown(str(error))
            except (OSError, ValueError) as error:
                why = reason(error) if isinstance(error, OSError) else str(error)
                self._manifests[directory] = shown(f"cannot read the manifest {path}: {why}")
        return self._manifests[directory]

    def _created(self, directory: str, has_manifest: bool) -> int | None:
        """Return when a dump was written, by its manifest or its name. One that was cut short has none."""
        document: object = {}
        if has_manifest:
            try:
                document = self._document(f"{directory}/{MANIFEST_NAME}")
            except (OSError, ValueError):
                document = {}
        found = document if isinstance(document, dict) else {}
        created = dump_created_at(PurePath(directory).name, found)
        return int(created.timestamp()) if created else None

    def _document(self, path: str) -> object:
        """Return a JSON document; ValueError for one that is too large or is none."""
        content = self._files.read_document(path)
        if len(content) > MAX_DOCUMENT:
            raise ValueError(f"it has more than the {MAX_DOCUMENT:,} bytes that this reads")
        try:
            return json.loads(content.decode())
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
