"""The directories of sinks besides their events: sessions by their manifests, and out-of-memory dumps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from common.collector import Report
from common.records.files import MAX_DOCUMENT, File, Files, reason
from common.records.names import shown
from fleetgauge.gpu_memory import ManifestError
from fleetgauge.gpu_memory.oom import dump_created_at
from fleetgauge.gpu_memory.sessions import MANIFEST_NAME, Manifest, parse_manifest

STATUSES = ("running", "completed", "interrupted", "incomplete")
DUMP = "oom_dump_"
OF_A_DUMP = {"events.json", "metadata.json"}  # also of one that was renamed
NANOSECONDS = 1_000_000_000


class Sinks:
    """The sinks and dumps below some paths. Manifests are read where they are needed, and once."""

    def __init__(self, paths: Sequence[str], files: Files) -> None:
        self._paths = paths
        self._files = files
        self._manifests: dict[str, Manifest | str] = {}  # by directory; a text is why it cannot be read
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
        directories: dict[str, list[File]] = {}
        manifests = [f"{path.rpartition('/')[0]}/{MANIFEST_NAME}" for path in self._paths]  # beside segments
        for file in self._files.find([*self._paths, *manifests], "*").files.values():
            directories.setdefault(file.path.rpartition("/")[0], []).append(file)
        sessions: dict[str, tuple[str, int | None]] = {}
        for directory, files in directories.items():
            names = {PurePath(file.path).name for file in files}
            if max(file.modified for file in files) < touched_since:
                continue
            if PurePath(directory).name.startswith(DUMP) or names >= OF_A_DUMP:
                self._add_dump(directory, report)
            elif MANIFEST_NAME in names and any(name.startswith("segment-") for name in names):
                manifest = self._manifest(directory)
                if isinstance(manifest, str):
                    report.lose(f"the sessions of {shown(directory)}", manifest)
                    continue
                if manifest.bad_entries:
                    report.drop("bad_manifest_entry", manifest.bad_entries, shown(directory))
                for session in manifest.sessions:
                    sessions[session.session_id] = (session.status, session.ended_at_ns)
        self.statuses.update(status for status, _ in sessions.values())
        self.interrupted += [
            ended // NANOSECONDS
            for status, ended in sessions.values()
            if status == "interrupted" and ended is not None
        ]

    def _add_dump(self, directory: str, report: Report) -> None:
        """Note when a dump was written, by its manifest or its name."""
        try:
            document = self._document(f"{directory}/{MANIFEST_NAME}")
        except (OSError, ValueError):  # one that was cut short has none
            document = None
        found = document if isinstance(document, dict) else {}
        created = dump_created_at(PurePath(directory).name, found)
        if created is None:
            report.drop("undated_oom_dump", 1, shown(directory))
        else:
            self.dumps.append(int(created.timestamp()))

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

    def _document(self, path: str) -> object:
        """Return a JSON document; ValueError for one that is too large or is none."""
        content = self._files.read_document(path)
        if len(content) > MAX_DOCUMENT:
            raise ValueError(f"it has more than the {MAX_DOCUMENT:,} bytes that this reads")
        try:
            return json.loads(content.decode())
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
