"""The directories of sinks besides their events: sessions by their manifests, and out-of-memory dumps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from common.collector import Report
from common.records.files import Files, reason, shown
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
        self.files = files
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
        names: dict[str, set[str]] = {}  # by directory
        touched: set[str] = set()
        manifests = [f"{path.rpartition('/')[0]}/{MANIFEST_NAME}" for path in self._paths]  # beside segments
        for file in self.files.find([*self._paths, *manifests], "*").files.values():
            directory, _, name = file.path.rpartition("/")
            names.setdefault(directory, set()).add(name)
            if file.modified >= touched_since:
                touched.add(directory)
        ended: dict[str, tuple[str, int | None]] = {}  # status and time, by session
        for directory in names.keys() & touched:
            found = names[directory]
            if PurePath(directory).name.startswith(DUMP) or found >= OF_A_DUMP:
                self._add_dump(directory, report)
            elif MANIFEST_NAME in found and any(name.startswith("segment-") for name in found):
                manifest = self._manifest(directory)
                if isinstance(manifest, str):
                    report.lose(f"the sessions of {shown(directory)}", manifest)
                    continue
                if manifest.bad_entries:
                    report.drop("bad_manifest_entry", manifest.bad_entries, shown(directory))
                for session in manifest.sessions:
                    ended[session.session_id] = (session.status, session.ended_at_ns)
        for status, time in ended.values():
            self.statuses[status] += 1
            if status == "interrupted" and time is not None:
                self.interrupted.append(time // NANOSECONDS)

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
                why = reason(error) if isinstance(error, OSError) else str(error)
                self._manifests[directory] = shown(f"cannot read the manifest {path}: {why}")
        return self._manifests[directory]
