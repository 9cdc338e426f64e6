"""The files of a recording, read as they are on disk.

A recording is a telemetry sink (segments, perhaps pruned at the start, torn at the end, still growing), a
track file, an OOM dump, or a directory of these. Segments are read in blocks, up to the size they had when
the recording was opened, so that reading twice gives the same events; a bad line costs itself and is counted
by reason. Track files and the events of a dump, which a tracker writes in one piece from its memory, are
decoded in one piece.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from .events import BadEventError, MemoryEvent, parse_event
from .oom import EVENTS_NAME, OomDump, find_oom_dumps, is_oom_dump, read_oom_dump
from .profiles import batches
from .sessions import MANIFEST_NAME, ManifestError, SessionSummary, parse_session, read_manifest

MAX_LINE_BYTES = 4 * 2**20
_BLOCK_BYTES = 2**17
_SEGMENT = re.compile(r"segment-(\d+)\.jsonl")
_EVENT_ARRAYS = ("events", "telemetry_events")
_MAX_DEPTH = 3
_MAX_SINKS = 1024
_DUMP_DIRECTORIES = ("", "oom_dumps")


class RecordingError(ValueError):
    """A path without a recording."""


@dataclass(frozen=True)
class Part:
    """One file of a recording, and the session of those events that do not name theirs.

    `records` are those of a JSON document, None for any other file.
    """

    path: Path
    size: int
    session_id: str
    records: Sequence[object] | None = None


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
        tuple(part for found in opened for part in found.parts),
        {name: session for found in opened for name, session in found.sessions.items()},
        tuple(dump for found in opened for dump in found.oom_dumps),
        sum(found.pruned_segments for found in opened),
        tuple(note for found in opened for note in found.notes),
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


def read_part(part: Part, losses: Counter[str]) -> Iterator[list[MemoryEvent]]:
    """Yield the events of one file in batches. What is lost is counted; a missing file is one loss."""
    if part.records is not None:
        for records in batches(part.records):
            yield _parse(records, part.session_id, losses)
        return
    try:
        with part.path.open("rb") as file:
            is_table = part.path.suffix.lower() == ".csv"
            for lines in batches(_rows(file, losses)) if is_table else _blocks(part.size, file, losses):
                yield _parse(lines, part.session_id, losses)
    except OSError:
        losses["unreadable_file"] += 1


def _parse(records: Iterable[object], session_id: str, losses: Counter[str]) -> list[MemoryEvent]:
    events = []
    for record in records:
        try:
            events.append(parse_event(record, session_id))
        except BadEventError as error:
            losses[error.reason] += 1
    return events


def _blocks(unread: int, file: IO[bytes], losses: Counter[str]) -> Iterator[Iterable[object]]:
    tail, skipping = b"", False
    while unread > 0 and (block := file.read(min(unread, _BLOCK_BYTES))):
        unread -= len(block)
        *lines, tail = (tail + block).split(b"\n")
        if skipping and lines:  # here a line ends that is too long
            del lines[0]
            skipping = False
        if skipping or len(tail) > MAX_LINE_BYTES:
            losses["line_too_long"] += not skipping
            tail, skipping = b"", True
        yield _decode(lines, losses, "not_json")
    # A line without an end is the last one of a writer that still writes, or was stopped.
    yield _decode([tail], losses, "torn_line")


def _decode(lines: Iterable[bytes], losses: Counter[str], reason: str) -> Iterator[object]:
    for line in lines:
        if len(line) > MAX_LINE_BYTES:
            losses["line_too_long"] += 1
        elif line and not line.isspace():
            try:
                yield json.loads(line.decode())
            except (ValueError, RecursionError):
                losses[reason] += 1


def _rows(file: IO[bytes], losses: Counter[str]) -> Iterator[object]:
    lines = (line.decode(errors="replace") for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""))
    rows = csv.DictReader(lines)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            losses["not_csv"] += 1
        else:
            yield {name: _cell(name, cell) for name, cell in row.items() if isinstance(name, str)}


def _cell(name: str, cell: object) -> object:
    """Return a cell as the number it was: tables have missing values empty, and integers as floats."""
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
        tuple(read_oom_dump(dump) for name in _DUMP_DIRECTORIES for dump in find_oom_dumps(directory / name)),
        pruned,
        tuple(notes),
    )


def _open_file(path: Path) -> Recording:
    """Open a track file. One that is an object may name its session."""
    if path.suffix.lower() != ".json":
        return Recording(path, (_part(path, f"legacy-{path.stem}"),), {})
    try:
        records, session = _read_records(path)
    except ValueError as error:
        raise RecordingError(f"cannot read {path}: it is not JSON: {error}") from error
    part = _part(path, session.session_id if session else f"legacy-{path.stem}")
    return Recording(
        path, (replace(part, records=records),), {session.session_id: session} if session else {}
    )


def _open_dump(directory: Path) -> Recording:
    dump = read_oom_dump(directory)
    session_id = dump.session.session_id if dump.session else f"legacy-{directory.name}"
    path = directory / EVENTS_NAME
    notes = () if dump.complete else (f"the OOM dump {directory.name} was cut short",)
    parts: tuple[Part, ...] = ()
    try:
        parts = (replace(_part(path, session_id), records=_read_records(path)[0]),)
    except FileNotFoundError:
        pass
    except ValueError as error:
        notes = (*notes, f"the events of the OOM dump {directory.name} are not JSON: {error}")
    return Recording(
        directory, parts, {session_id: dump.session} if dump.session else {}, (dump,), notes=notes
    )


def _read_records(path: Path) -> tuple[Sequence[object], SessionSummary | None]:
    """Return the records of a JSON document, an array, an object with one or one event, and its session."""
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict):
        return (document if isinstance(document, list) else [document]), None
    arrays = (document[name] for name in _EVENT_ARRAYS if isinstance(document.get(name), list))
    session = parse_session(document.get("session_summary") or document.get("session"))
    return next(arrays, [document]), session


def _sinks_below(directory: Path) -> list[Path]:
    """Directories below that hold a sink: one per rank is how distributed jobs write them."""
    found: list[Path] = []
    for depth in range(1, _MAX_DEPTH + 1):
        below = sorted(directory.glob("/".join("*" * depth)))
        found += [path for path in below if path.is_dir() and segments(path)]
    return found[:_MAX_SINKS]


def _part(path: Path, session_id: str) -> Part:
    return Part(path, path.stat().st_size, session_id)
