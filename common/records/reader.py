"""The lines of record files that a window of time needs, on disk and in S3.

A plain file is read from an offset before which nothing belongs to the window. It is found from the end, in
steps that double: a line is at most ten minutes older than a line before it, so where a stretch of lines is
older than the window by more, so is everything before it. From there the file is read once: to its end, or
in a backfill to where everything is later than the window. Compressed files are read from start to end.
"""

from __future__ import annotations

import io
import json
import math
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, NamedTuple

import orjson

from common.config.aws import ChangedFileError
from common.records.files import COMPRESSED, MAX_DISORDER, Content, File, Files, is_in_s3
from fleetgauge.records import MAX_LINE_BYTES, Json

MAX_OPEN_OBJECTS = 8  # objects in S3 that are requested at once
BLOCK = 1 << 20  # bytes of the first step back from the end; each further step is twice as long
PROBE = 1 << 16  # bytes whose times decide whether to go further back
CHUNK = 1 << 20  # bytes to decompress at a time

TimeOf = Callable[[Json], float | None]
# A line that is not blank: its byte in the (decompressed) content, and its value or the damage to it. A
# `nul_hole` may precede a value.
RecordLine = tuple[int, Json | None, str | None]


class Piece(NamedTuple):
    """Complete lines that follow each other, with their newlines; or damage that is no line."""

    start: int
    end: int
    text: bytes
    damage: str | None = None


def read(
    files: Files,
    selected: Iterable[tuple[File, float]],
    time_of: TimeOf,
    backfill: BackfillReader | None = None,
    until: float = math.inf,
) -> Iterator[tuple[File, Iterator[RecordLine]]]:
    """Yield each file with its lines.

    Beside each file is `since`. Its lines are all that are from then on, and usually some that are older;
    for infinity, the last lines of the file. In a backfill they may lack those from `until` on.
    They must be consumed before the next file is taken, and may raise OSError: FileNotFoundError where the
    file was deleted, otherwise it is lost. What follows the last newline is not a line yet. A file that was
    renamed since it was listed is opened by its new name, and one that changed as it is now.
    """

    def open_lines(file: File, since: float) -> Iterator[RecordLine]:
        content = files.storage(file.path).open(file)  # it is closed when its lines are
        if backfill is not None:
            return backfill.lines(file, content, since, until, time_of)
        return _lines(_pieces_since(file, content, since, time_of))

    def open_current(file_since: tuple[File, float]) -> Iterator[RecordLine]:
        file, since = file_since
        try:
            try:
                return open_lines(file, since)
            except (ChangedFileError, FileNotFoundError):
                return open_lines(files.storage(file.path).current(file), since)
        except OSError as error:
            return _raise(error)

    # Files on disk are opened one by one, objects in S3 a few ahead.
    remaining = iter(selected)
    with ThreadPoolExecutor(MAX_OPEN_OBJECTS, "s3") as pool:
        while batch := [*islice(remaining, 2 * MAX_OPEN_OBJECTS)]:
            opened = (pool.map if is_in_s3(batch[0][0].path) else map)(open_current, batch)
            for (file, _), lines in zip(batch, opened, strict=True):
                yield file, lines


def _raise(error: OSError) -> Iterator[RecordLine]:
    yield from ()
    raise error


# Where to begin


def _pieces_since(file: File, content: Content, since: float, time_of: TimeOf) -> Iterator[Piece]:
    """Return the pieces of a file from where a window begins; its first bytes are fetched at once.

    Those of a plain file begin with the first line after an offset; a compressed one is read completely.
    """
    if file.path.endswith(COMPRESSED):
        from common.records.compression import decompress

        content.prefetch(0, BLOCK)
        return _pieces(decompress(file.path, content, CHUNK))
    start = _search(content, since, time_of)
    return _pieces(_chunks(content, start, content.chunk), start, skipping=start > 0)


def _search(content: Content, since: float, time_of: TimeOf) -> int:
    """Return an offset before which no line is from `since` on."""

    def is_older(offset: int) -> bool:
        latest = _latest_time(content, offset, time_of)
        return latest is not None and latest < since - MAX_DISORDER

    high, step = content.size, BLOCK if since < math.inf else PROBE
    while True:
        low = max(0, high - step)
        content.prefetch(low, high)
        if low == 0 or is_older(low):
            break
        high, step = low, 2 * step
    # What a few more probes exclude of the last step is neither read nor parsed.
    while high - low > max(content.chunk, BLOCK // 4):
        middle = (low + high) // 2
        low, high = (middle, high) if is_older(middle) else (low, middle)
    return low


def _latest_time(content: Content, offset: int, time_of: TimeOf) -> float | None:
    """Return the latest time in the first lines from an offset on; None where no line has one."""
    for piece in _pieces(_chunks(content, offset, PROBE), offset, skipping=offset > 0):
        if times := _times(_lines([piece]), time_of):
            return max(times)
    return None


def _times(lines: Iterable[RecordLine], time_of: TimeOf, latest: float = math.inf) -> list[float]:
    times = (time_of(value) for _, value, _ in lines if value is not None)
    return [time for time in times if time is not None and time <= latest]


# From bytes to lines


def _chunks(content: Content, offset: int, size: int) -> Iterator[bytes]:
    """Yield the bytes from an offset to the end, or to where the file was truncated."""
    while found := content.at(offset, min(content.chunk, size)):
        yield found
        offset += len(found)


def _pieces(chunks: Iterable[bytes], start: int = 0, *, skipping: bool = False) -> Iterator[Piece]:
    """Cut chunks that follow each other into pieces of complete lines.

    With `skipping`, they begin inside a line, which is passed over. So is a line that is too long, in bounded
    memory.
    """
    remainder = b""
    for chunk in chunks:
        text = remainder + chunk if remainder else chunk
        cut = text.rfind(b"\n") + 1
        text, remainder = text[:cut], text[cut:]
        if text and skipping:
            first = text.index(b"\n") + 1
            start, text, skipping = start + first, text[first:], False
        if text:
            yield Piece(start, start + len(text), text)
            start += len(text)
        if skipping or len(remainder) > MAX_LINE_BYTES:
            end = start + len(remainder)
            if not skipping:
                yield Piece(start, end, b"", "too_long")
            start, remainder, skipping = end, b"", True


def _lines(pieces: Iterable[Piece]) -> Iterator[RecordLine]:
    """Parse each line; blank ones are left out."""
    parse, longest = orjson.loads, MAX_LINE_BYTES + 1  # with the newline
    for start, _, text, damage in pieces:
        if damage:
            yield start, None, damage
        for line in io.BytesIO(text):  # faster than a list of them all
            size = len(line)
            try:
                value = parse(line)
            except ValueError:
                value = None
            if type(value) is dict and size <= longest:
                yield start, value, None
            else:
                value, damage = _interpret(line[:-1], start)
                if damage:
                    yield start, None, damage
                if value is not None:
                    yield start, value, None
            start += size


def _interpret(line: bytes, start: int) -> tuple[Json | None, str | None]:
    """Return the object in a line, and the damage to it; neither for a blank line."""
    if len(line) > MAX_LINE_BYTES:
        return None, "too_long"
    text = (line.removeprefix(BOM_UTF8) if start == 0 else line).lstrip(b"\0")
    hole = "nul_hole" if line.startswith(b"\0") else None
    if not text or text.isspace():
        return None, hole
    try:
        value = _loads(text)
    except UnicodeDecodeError:
        return None, "not_utf8"
    except (ValueError, RecursionError):
        return None, "not_json"
    return (value, hole) if isinstance(value, dict) else (None, "not_an_object")


def _loads(text: bytes) -> Any:  # Any: parsed JSON
    """Parse strictly and fast; what only the standard library accepts (NaN, mostly) is parsed by that."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        value = json.loads(text.decode())
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be sent
        return value


# Backfills


class BackfillReader:
    """Where the windows of a backfill left each file: they are read in order of time, and read on from there.

    Lines that two windows need stay in memory, compressed, while there is room; without room they are read
    again.
    """

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._left: dict[File, tuple[int, list[Piece]]] = {}  # offset to read on from, and pieces before it
        self._free = max_bytes

    def lines(
        self, file: File, content: Content, since: float, until: float, time_of: TimeOf
    ) -> Iterator[RecordLine]:
        """Return the lines of a window, up to where all lines are later; its first bytes are fetched."""
        is_compressed = file.path.endswith(COMPRESSED)
        is_first = file not in self._left
        end, stored = self._left.pop(file, (0, []))
        if is_first:
            pieces = _pieces_since(file, content, since, time_of)
        else:
            pieces = _pieces(_chunks(content, end, content.chunk), end)
        self._free += sum(len(piece.text) for piece in stored)

        def window() -> Iterator[RecordLine]:
            """Yield the lines, and store the pieces that later windows need."""
            packed = iter(stored)
            unpacked = (piece._replace(text=zlib.decompress(piece.text)) for piece in packed)
            needed: list[Piece] = []
            first, size, position, last = None, 0, end, -math.inf
            for piece in chain(unpacked, pieces):
                lines = list(_lines([piece]))
                yield from lines
                # Lines that will be dropped as too far ahead do not show how far the file was read.
                times = _times(lines, time_of, file.modified + MAX_DISORDER) or [last]
                last, position = times[-1], max(position, piece.end)
                if max(times) >= until:
                    first = piece.start if first is None else first
                    needed.append(piece._replace(text=zlib.compress(piece.text, 1)))
                    size += len(needed[-1].text)
                    if size > self._free:
                        needed.clear()
                is_later = bool(piece.text) and min(times) >= until + MAX_DISORDER
                if is_later and not (is_compressed and is_first):
                    break
            remaining = list(packed)
            size += sum(len(piece.text) for piece in remaining)
            if size <= self._free:
                self._free -= size
                self._left[file] = (content.size if is_compressed else position, needed + remaining)
            elif not is_compressed and first is not None:
                self._left[file] = (first, [])

        return window()
