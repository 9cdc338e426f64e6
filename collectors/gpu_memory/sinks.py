"""The directories of sinks besides their events: sessions by their manifests, and out-of-memory dumps."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath

from common.outcome import Report
from common.records.files import NOT_THERE, Files, reason, shown
from fleetgauge.gpu_memory import ManifestError
from fleetgauge.gpu_memory.oom import dump_created_at
from fleetgauge.gpu_memory.sessions import MANIFEST_NAME, Manifest, SessionSummary, parse_manifest

DUMP = "oom_dump_"
_SEGMENT = "segment-"  # what the names of a sink's files of events begin with
OF_A_DUMP = {"events.json", "metadata.json"}  # also of one that was renamed


class Sinks:
    """The sinks and dumps below some paths that were written to since a time.

    Manifests are read once. `dumps` has the second of each. `lost` has directories whose manifest cannot be
    read or listed, why, and when they were last written to.
    """

    def __init__(self, paths: Sequence[str], files: Files, report: Report, touched_since: float) -> None:
        self.files = files
        self.sessions: dict[str, SessionSummary] = {}  # by name
        self.dumps: list[int] = []
        self._manifests: dict[str, Manifest | str] = {}  # by directory; a text is why it cannot be read
        names: defaultdict[str, set[str]] = defaultdict(set)  # by directory
        modified: defaultdict[str, float] = defaultdict(float)
        # Beside segments. A directory has its manifest in it.
        folders = [folder for folder, _, name in (path.rpartition("/") for path in paths) if _SEGMENT in name]
        # Of a directory: segments, and documents like `manifest.json` and `events.json`.
        listed = files.find([*paths, *(f"{folder}/{MANIFEST_NAME}" for folder in folders)], "[ems]*.json*")
        self.lost = [(path, why, math.inf) for path, why in listed.unreadable if why != NOT_THERE]
        for file in listed.files.values():
            directory, _, name = file.path.rpartition("/")
            names[directory].add(name)
            modified[directory] = max(file.modified, modified[directory])
        for directory in sorted(path for path in names if modified[path] >= touched_since):
            found = names[directory]
            if PurePath(directory).name.startswith(DUMP) or found >= OF_A_DUMP:
                self._add_dump(directory, report)
            elif MANIFEST_NAME in found and any(name.startswith(_SEGMENT) for name in found):
                manifest = self._manifest(directory)
                if isinstance(manifest, str):
                    self.lost.append((directory, manifest, modified[directory]))
                    continue
                if manifest.bad_entries:
                    report.drop("bad_manifest_entry", manifest.bad_entries, shown(directory))
                self.sessions |= {session.session_id: session for session in manifest.sessions}

    def session_of(self, path: str) -> str:
        """Return the session of events that do not name theirs: by the manifest, or else the directory."""
        directory, _, name = path.rpartition("/")
        manifest = self._manifest(directory)
        session = manifest.session_of_segment.get(name) if isinstance(manifest, Manifest) else None
        return session or directory

    def _add_dump(self, directory: str, report: Report) -> None:
        """Note when a dump was written, by its manifest or its name."""
        try:
            document = json.loads(self.files.read_document(f"{directory}/{MANIFEST_NAME}").decode())
        except (OSError, ValueError, RecursionError):  # one that was cut short has none
            document = None
        created = dump_created_at(PurePath(directory).name, document if isinstance(document, dict) else {})
        if created is None:
            report.drop("undated_oom_dump", 1, shown(directory))
        else:
            self.dumps.append(int(created.timestamp()))

    def _manifest(self, directory: str) -> Manifest | str:
        """Return the manifest of a directory, or why there is none."""
        if directory not in self._manifests:
            path = f"{directory}/{MANIFEST_NAME}"
            try:
                document = json.loads(self.files.read_document(path).decode())
                self._manifests[directory] = parse_manifest(document, path)
            except ManifestError as error:
                self._manifests[directory] = shown(str(error))
            except (OSError, ValueError, RecursionError) as error:
                self._manifests[directory] = shown(f"cannot read the manifest {path}: {reason(error)}")
        return self._manifests[directory]
