"""The files of a recording, read as they are on disk, one event at a time.

A recording is a telemetry sink (segments, perhaps pruned at the start, torn at the end, still growing), a
track file, an OOM dump, or a directory of these. A bad line costs itself and is counted by reason; a file is
read up to the size it had when the recording was opened, so that reading twice gives the same events.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from .elements import Broken, array_elements
from .events import BadEventError, MemoryEvent, parse_event
from .oom import EVENTS_NAME, OomDump, find_oom_dumps, is_oom_dump, read_oom_dump
from .sessions import MANIFEST_NAME, ManifestError, SessionSummary, parse_session, read_manifest

MAX_LINE_BYTES = 4 * 2**20
_SEGMENT = re.compile(r"segment-(\d+)\.jsonl")
_EVENT_ARRAYS = ("events", "telemetry_events")
_MAX_DEPTH = 3
_MAX_SINKS = 1024
_DUMP_PLACES = ("", "oom_dumps")

OnRead = Callable[[int], object]  # told how many more bytes were read


class RecordingError(ValueError):
    """There is nothing to read where a recording was said to be."""


@dataclass(frozen=True)
class Part:
    """One file of a recording, and the session its nameless events belong to."""

    path: Path
    size: int
    session_id: str


@dataclass(frozen=True)
class Recording:
    """What there is to read, found without reading the events."""

    path: Path
    parts: tuple[Part, ...]
    sessions: Mapping[str, SessionSummary]
    oom_dumps: tuple[OomDump, ...] = ()
    pruned_segments: int = 0
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many bytes there are to read."""
        return sum(part.size for part in self.parts)


def open_recording(path: Path) -> Recording:
    """Find the files of a recording. Raises `RecordingError` where there are none."""
    if path.name == MANIFEST_NAME:
        path = path.parent
    if path.is_file():
        return _open_file(path)
    if not path.is_dir():
        raise RecordingError(f"cannot read {path}: there is no such file or directory")
    opened = _open_directory(path)
    merged = Recording(
        path,
        tuple(part for one in opened for part in one.parts),
        {name: session for one in opened for name, session in one.sessions.items()},
        tuple(dump for one in opened for dump in one.oom_dumps),
        sum(one.pruned_segments for one in opened),
        tuple(note for one in opened for note in one.notes),
    )
    if not merged.parts and not merged.sessions and not merged.oom_dumps:
        hint = "a telemetry sink, a track file (.json, .csv) or an OOM dump is expected"
        raise RecordingError(f"cannot read {path}: it holds no segment and no manifest; {hint}")
    return merged


def _open_directory(path: Path) -> list[Recording]:
    """The directory itself where it holds events, else the sinks below it, else its OOM dumps."""
    is_dump = is_oom_dump(path)
    here = _open_dump(path) if is_dump else _open_sink(path)
    below = [] if here.parts else [_open_sink(directory) for directory in _sinks_below(path)]
    if here.parts or below or is_dump:
        return [here, *below]
    # Beside a sink, the events of a dump are a copy of the sink's; here they are all there is.
    return [replace(here, oom_dumps=()), *(_open_dump(dump.path) for dump in here.oom_dumps)]


def segments(directory: Path) -> list[tuple[int, Path]]:
    """The segments of a sink as they were written: by number, as names stop sorting at a million."""
    found = ((_SEGMENT.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match.group(1)), path) for match, path in found if match and path.is_file())


def read_part(part: Part, losses: Counter[str], on_read: OnRead | None = None) -> Iterator[MemoryEvent]:
    """The events of one file. What is lost is counted; a file that is gone by now counts as one loss."""
    try:
        with part.path.open("rb") as file:
            yield from _events(part, file, losses, on_read or (lambda _: None))
    except OSError:
        losses["unreadable_file"] += 1


def _events(part: Part, file: IO[bytes], losses: Counter[str], on_read: OnRead) -> Iterator[MemoryEvent]:
    at = 0
    readers = {".json": _json_records, ".csv": _csv_records}
    reader = readers.get(part.path.suffix.lower(), _json_lines)
    for record in reader(part, file, losses):
        try:
            yield parse_event(record, part.session_id)
        except BadEventError as error:
            losses[error.reason] += 1
        before, at = at, file.tell()
        on_read(at - before)


def _json_lines(part: Part, file: IO[bytes], losses: Counter[str]) -> Iterator[object]:
    left, skipping = part.size, False
    while left > 0 and (line := file.readline(min(left, MAX_LINE_BYTES))):
        left -= len(line)
        complete = line.endswith(b"\n")
        if skipping or (not complete and len(line) == MAX_LINE_BYTES):
            losses["line_too_long"] += not skipping
            skipping = not complete
            continue
        if not line.strip():
            continue
        try:
            yield json.loads(line.decode())
        except (ValueError, RecursionError):
            # A line without an end is the last of a writer that is still at it, or was stopped.
            losses["not_json" if complete else "torn_line"] += 1


def _json_records(_: Part, file: IO[bytes], losses: Counter[str]) -> Iterator[object]:
    rest: dict[str, object] = {}
    found = False
    with io.TextIOWrapper(file, encoding="utf-8", errors="replace") as text:
        for element in array_elements(text, _EVENT_ARRAYS, rest):
            found = True
            if isinstance(element, Broken):
                losses["not_json"] += 1
            else:
                yield element
        if rest and not found:
            yield rest  # a document that is one event


def _csv_records(_: Part, file: IO[bytes], losses: Counter[str]) -> Iterator[object]:
    with io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="") as text:
        rows = csv.DictReader(iter(lambda: text.readline(MAX_LINE_BYTES), ""))
        while True:
            try:
                row = next(rows, None)
            except csv.Error:
                losses["not_csv"] += 1
                continue
            if row is None:
                break
            yield {name: _cell(name, cell) for name, cell in row.items() if isinstance(name, str)}


def _cell(name: str, cell: object) -> object:
    """A cell as the number it was: tables write missing values empty and whole columns as floats."""
    if not isinstance(cell, str) or cell == "":
        return None
    if name in ("context", "event_type", "type", "session_id", "job_id", "host", "metadata"):
        return cell
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        number = float(cell)
    except ValueError:
        return cell
    return int(number) if number.is_integer() else number


def _open_sink(directory: Path) -> Recording:
    notes: list[str] = []
    try:
        manifest = read_manifest(directory)
    except ManifestError as error:
        manifest = None
        notes.append(f"{error}; its segments were read without it")
    numbered = segments(directory)
    session_of = manifest.session_of_segment if manifest else {}
    if manifest and manifest.bad_entries:
        notes.append(f"{manifest.bad_entries} entries of the manifest of {directory.name} make no sense")
    # Numbers are never used twice, so that those missing were pruned.
    pruned = max(0, numbered[-1][0] - len(numbered)) if numbered else 0
    if pruned:
        notes.append(f"{pruned} older segments of {directory.name} were pruned: the start is missing")
    return Recording(
        directory,
        tuple(_part(path, session_of.get(path.name, f"legacy-{directory.name}")) for _, path in numbered),
        {session.session_id: session for session in (manifest.sessions if manifest else ())},
        tuple(read_oom_dump(dump) for place in _DUMP_PLACES for dump in find_oom_dumps(directory / place)),
        pruned,
        tuple(notes),
    )


def _open_file(path: Path) -> Recording:
    """A track file. One that is an object may name its session, before or after its events."""
    session = None
    if path.suffix.lower() == ".json":
        rest: dict[str, object] = {}
        with path.open(encoding="utf-8", errors="replace") as file:
            if file.read(1) == "{":
                file.seek(0)
                for _ in array_elements(file, _EVENT_ARRAYS, rest):
                    pass
        session = parse_session(rest.get("session_summary") or rest.get("session"))
    sessions = {session.session_id: session} if session else {}
    part = _part(path, session.session_id if session else f"legacy-{path.stem}")
    return Recording(path, (part,), sessions)


def _open_dump(directory: Path) -> Recording:
    dump = read_oom_dump(directory)
    session_id = dump.session.session_id if dump.session else f"legacy-{directory.name}"
    events = directory / EVENTS_NAME
    return Recording(
        directory,
        (_part(events, session_id),) if events.is_file() else (),
        {session_id: dump.session} if dump.session else {},
        (dump,),
        notes=() if dump.complete else (f"the OOM dump {directory.name} was cut short",),
    )


def _sinks_below(directory: Path) -> list[Path]:
    """Directories below that hold a sink: one per rank is how distributed jobs write them."""
    found: list[Path] = []
    for depth in range(1, _MAX_DEPTH + 1):
        below = sorted(directory.glob("/".join("*" * depth)))
        found += [path for path in below if path.is_dir() and segments(path)]
    return found[:_MAX_SINKS]


def _part(path: Path, session_id: str) -> Part:
    return Part(path, path.stat().st_size, session_id)
