"""The lines of record files that a window of time needs, on disk and in S3.

A plain file is read from an offset before which nothing belongs to the window. It is found from the end, in
steps that double: a line is at most ten minutes older than a line before it, so where a stretch of lines is
older than the window by more, so is everything before it. From there the file is read once, to its end.
Compressed files are read from their start. A backfill makes an `Index` and reads only the parts it needs.
"""

from __future__ import annotations

import io
import json
import math
import zlib
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import orjson

from common.records.files import COMPRESSED, MAX_DISORDER, Content, File, Files, is_in_s3
from common.records.s3 import ChangedFileError
from fleetgauge.records import MAX_LINE_BYTES, Json

MAX_OPEN_OBJECTS = 8  # objects in S3 that are requested at once
OVERLAP = 4096  # bytes that must be the same in the next version of an object for reading to continue there

TimeOf = Callable[[Json], float | None]
A = TypeVar("A")
R = TypeVar("R")


class RecordLine(NamedTuple):
    """A line that is not blank. Of the kinds of damage only a `nul_hole` may come with a value."""

    start: int  # byte in the (decompressed) content
    value: Json | None
    damage: str | None  # not_utf8, not_json, not_an_object, too_long, nul_hole, corrupt_gzip or corrupt_zstd


class Sizes(NamedTuple):
    """How many bytes are read at a time; tests take small ones."""

    block: int = 1 << 20  # the first step back from the end; each further step is twice as long
    probe: int = 1 << 16  # whose times decide whether to go further back
    chunk: int = 1 << 20  # that are read at a time at most; also a part of an index
    line: int = MAX_LINE_BYTES  # without the newline; a longer one is damage
    tail: int = 1 << 22  # in which the last object of a file must be


class Piece(NamedTuple):
    """Complete lines that follow each other, with their newlines; or damage that is no line.

    In `text`, NUL bytes before the first line may be fewer than in the file.
    """

    start: int
    end: int
    text: bytes
    damage: str | None = None


DEFAULT = Sizes()
_line: Callable[[tuple[int, Json | None, str | None]], RecordLine] = partial(tuple.__new__, RecordLine)


def read(
    files: Files,
    selected: Iterable[tuple[File, float]],
    time_of: TimeOf,
    index: Index | None = None,
    until: float | None = None,
    sizes: Sizes = DEFAULT,
) -> Iterator[tuple[File, Iterator[RecordLine] | OSError]]:
    """Yield each file with its lines, or with the reason why it is lost; a deleted one is left out.

    Beside each file is `since`. Its lines are all that are from then on, and usually some that are older.
    With an index they may lack those from `until` on, and windows should be read in order of time. They must
    be consumed before the next file is taken, and may raise OSError: then the file is lost. What follows the
    last newline is not a line yet.
    """

    def prepare(file: File, since: float, content: Content) -> int:
        """Return the offset from which a plain file is read, and have its first bytes fetched."""
        if index is None and not file.path.endswith(COMPRESSED):
            return _search(content, since, time_of, sizes)
        if index is None or not index.knows(file):
            content.prefetch(0, min(content.size, sizes.block))
        return 0

    for listed, since, opened in _open_each(files, selected, prepare):
        if isinstance(opened, OSError):
            yield listed, opened
        elif opened is not None:
            file, content, start = opened
            with closing(content):
                if index is None:
                    size = min(content.chunk, sizes.chunk)
                    chunks = _chunks(file, content, size, start, files=files)
                    pieces = _pieces(chunks, sizes, start, skipping=start > 0)
                else:
                    window = (since, math.inf if until is None else until)
                    pieces = index.pieces(file, content, window, time_of, sizes)
                yield listed, _lines(pieces, sizes)


def last_values(
    files: Files, selected: Iterable[File], sizes: Sizes = DEFAULT
) -> Iterator[tuple[File, Json | OSError | None]]:
    """Yield each file with the last complete object in it; None where it has none, or was deleted.

    Of a plain file only the last bytes are read, `sizes.tail` at most.
    """

    def find(file: File, size: int, content: Content) -> Json | None:
        if file.path.endswith(COMPRESSED):
            value = None
            for piece in _pieces(_chunks(file, content, sizes.chunk), sizes):
                value = _last_object(piece, sizes) or value
            return value
        while True:
            start = max(0, content.size - size)
            value = _last_object(_complete_lines(content, start, content.size), sizes)
            if value is not None or start == 0 or size >= sizes.tail:
                return value
            size *= 2

    for listed, _, opened in _open_each(files, ((file, sizes.probe) for file in selected), find):
        if opened is None or isinstance(opened, OSError):
            yield listed, opened
        else:
            opened[1].close()
            yield listed, opened[2]


def _open_each(
    files: Files, selected: Iterable[tuple[File, A]], prepare: Callable[[File, A, Content], R]
) -> Iterator[tuple[File, A, tuple[File, Content, R] | OSError | None]]:
    """Yield each file as listed, its argument, and the file as opened with what `prepare` returned.

    A file that was renamed since it was listed is opened by its new name, and one that changed as it is now;
    None is for one that was deleted. Files on disk are opened one by one; in S3 a few ahead, in threads.
    """

    def opened(file: File, argument: A) -> tuple[File, Content, R]:
        content = files.open(file)
        try:
            return file, content, prepare(file, argument, content)
        except BaseException:
            content.close()
            raise

    def work(file: File, argument: A) -> tuple[File, Content, R] | OSError | None:
        try:
            try:
                return opened(file, argument)
            except ChangedFileError:
                return opened(files.refresh(file), argument)
            except FileNotFoundError:
                current = files.find_again(file)
                return None if current is None else opened(current, argument)
        except OSError as error:
            return error

    for in_s3, group in groupby(selected, lambda pair: is_in_s3(pair[0].path)):
        if not in_s3:
            yield from ((*pair, work(*pair)) for pair in group)
            continue
        pool = ThreadPoolExecutor(MAX_OPEN_OBJECTS, "s3")
        started: deque[tuple[tuple[File, A], Future[tuple[File, Content, R] | OSError | None]]] = deque()
        try:
            for pair in group:
                started.append((pair, pool.submit(work, *pair)))
                if len(started) == MAX_OPEN_OBJECTS:
                    pair, result = started.popleft()
                    yield *pair, result.result()
            for pair, result in started:
                yield *pair, result.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


# Where to begin


def _search(content: Content, since: float, time_of: TimeOf, sizes: Sizes) -> int:
    """Return an offset before which no line is from `since` on."""

    def is_older(offset: int) -> bool:
        latest = _latest_time(content, offset, time_of, sizes)
        return latest is not None and latest < since - MAX_DISORDER

    high, step = content.size, sizes.block
    while True:
        low = max(0, high - step)
        content.prefetch(low, high)
        if low == 0 or is_older(low):
            break
        high, step = low, 2 * step
    while high - low > max(sizes.block // 2, (content.size - high) // 8):
        middle = (low + high) // 2
        if is_older(middle):
            low = middle
        else:
            high = middle
    return low


def _latest_time(content: Content, offset: int, time_of: TimeOf, sizes: Sizes) -> float | None:
    """Return the latest time in a stretch of lines that begins at or after an offset.

    The stretch is longer than a probe where that has no line with a time; None where there is none either.
    """
    size = sizes.probe
    while True:
        end = min(offset + size, content.size)
        times = _times(_complete_lines(content, offset, end), time_of, sizes)
        if times:
            return max(times)
        if size > 2 * sizes.line or end == content.size:
            return None
        size *= 4


def _complete_lines(content: Content, start: int, end: int) -> Piece:
    """Return the lines of a stretch, without what it has of a line before it and of one after it."""
    text = b"".join(_ranges(content, start, end, end - start))
    first = text.find(b"\n") + 1 if start else 0
    last = max(first, text.rfind(b"\n") + 1)
    return Piece(start + first, start + last, text[first:last])


def _times(piece: Piece, time_of: TimeOf, sizes: Sizes) -> list[float]:
    times = (time_of(line.value) for line in _lines([piece], sizes) if line.value is not None)
    return [time for time in times if time is not None]


def _last_object(piece: Piece, sizes: Sizes) -> Json | None:
    lines = piece.text.split(b"\n")
    for number in reversed(range(len(lines))):
        value, _ = _interpret(lines[number], piece.start + number, sizes)
        if value is not None:
            return value
    return None


# From bytes to lines


def _ranges(content: Content, start: int, end: int, size: int) -> Iterator[bytes]:
    """Yield the bytes of a range, at most `size` at a time; fewer where the file was truncated."""
    while start < end and (found := content.at(start, min(size, end - start))):
        yield found
        start += len(found)


def _chunks(
    file: File, content: Content, size: int, start: int = 0, *, files: Files | None = None
) -> Iterator[bytes | str]:
    """Yield what a file contains, `size` bytes at a time: a compressed one from its start.

    Where `files` are given, an object that grew while it was read is read on in its next version, once.
    """
    if file.path.endswith(COMPRESSED):
        from common.records.compression import decompress

        yield from decompress(file.path, content.at, size)
        return
    last = b""
    try:
        for chunk in _ranges(content, start, content.size, size):
            yield chunk
            start, last = start + len(chunk), chunk[-OVERLAP:]
    except ChangedFileError:
        if files is None:
            raise
        file = files.refresh(file)
        content = files.open(file)
        if content.at(start - len(last), len(last)) != last:
            raise
        yield from _chunks(file, content, size, start)


def _pieces(
    chunks: Iterable[bytes | str], sizes: Sizes, start: int = 0, *, skipping: bool = False
) -> Iterator[Piece]:
    """Cut chunks that follow each other into pieces of complete lines.

    With `skipping`, they begin inside a line, which is passed over. So is a line that is too long, and a run
    of NUL bytes, in bounded memory.
    """
    nuls, remainder = 0, b""  # `remainder` begins `nuls` bytes after `start`
    for chunk in chunks:
        if isinstance(chunk, str):
            yield Piece(start, start, b"", chunk)
            return
        text = remainder + chunk if remainder else chunk
        cut = text.rfind(b"\n") + 1
        text, remainder = text[:cut], text[cut:]
        if text and (skipping or nuls):
            first = text.index(b"\n") + 1
            if nuls:
                yield Piece(start, start + nuls + first, b"\0" + text[:first])
            start += nuls + first
            text, nuls, skipping = text[first:], 0, False
        if text:
            yield Piece(start, start + len(text), text)
            start += len(text)
        stripped = remainder.lstrip(b"\0")
        nuls += len(remainder) - len(stripped)
        remainder = stripped
        if skipping or len(remainder) > sizes.line:
            end = start + nuls + len(remainder)
            if not skipping:
                yield Piece(start, end, b"", "too_long")
            start, nuls, remainder, skipping = end, 0, b"", True


def _lines(pieces: Iterable[Piece], sizes: Sizes) -> Iterator[RecordLine]:
    """Parse each line; blank ones are left out."""
    parse, longest = orjson.loads, sizes.line + 1  # with the newline
    for start, _, text, damage in pieces:
        if damage:
            yield RecordLine(start, None, damage)
        for line in io.BytesIO(text):  # faster than a list of them all
            size = len(line)
            try:
                value = parse(line)
            except ValueError:
                value = None
            if type(value) is dict and size <= longest:
                yield _line((start, value, None))
            else:
                value, damage = _interpret(line[:-1], start, sizes)
                if value is not None or damage:
                    yield _line((start, value, damage))
            start += size


def _interpret(line: bytes, start: int, sizes: Sizes) -> tuple[Json | None, str | None]:
    """Return the object in a line, and the damage to it; neither for a blank line."""
    text = (line.removeprefix(BOM_UTF8) if start == 0 else line).lstrip(b"\0")
    hole = "nul_hole" if line.startswith(b"\0") else None
    if not text or text.isspace():
        return None, hole
    if len(text) > sizes.line:
        return None, "too_long"
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return None, "not_json" if _is_utf8(text) else "not_utf8"
    return (value, hole) if isinstance(value, dict) else (None, "not_an_object")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def loads(text: bytes) -> Any:  # Any: parsed JSON
    """Parse strictly and fast; what only the standard library accepts (NaN, mostly) is parsed by that."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        value = json.loads(text.decode())
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be sent
        return value


# Backfills


class _Part(NamedTuple):
    """A stretch of lines, and the earliest and latest of their times."""

    start: int
    end: int
    earliest: float
    latest: float


class Index:
    """Which times each part of a file has, so that the windows of a backfill read only what they need.

    A file is indexed in one pass, when it is first read. Parts that a later window needs too stay in memory,
    compressed, while there is room. Windows are read in order of time: parts that are older are dropped.
    """

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._parts: dict[str, tuple[File, list[_Part]]] = {}  # by path
        self._stored: dict[tuple[File, _Part], list[Piece]] = {}  # compressed
        self._free = max_bytes
        self._since = -math.inf

    def knows(self, file: File) -> bool:
        """Return whether a version of a file is indexed."""
        return file.path in self._parts and self._parts[file.path][0] == file

    def pieces(
        self, file: File, content: Content, window: tuple[float, float], time_of: TimeOf, sizes: Sizes
    ) -> Iterator[Piece]:
        """Yield the lines of the parts that have any time of a window, which is half-open."""
        since, until = window
        self._drop_before(since)
        if not self.knows(file):
            self._parts[file.path] = (file, self._build(file, content, since, time_of, sizes))
        parts = self._parts[file.path][1]
        needed = [part for part in parts if part.latest >= since and part.earliest < until]
        if file.path.endswith(COMPRESSED) and any((file, part) not in self._stored for part in needed):
            for piece in _pieces(_chunks(file, content, sizes.chunk), sizes):
                if piece.start > needed[-1].start:
                    return
                yield piece
            return
        for part in needed:
            if (file, part) in self._stored:
                packed = self._stored[file, part]
                yield from (piece._replace(text=zlib.decompress(piece.text)) for piece in packed)
                continue
            ranges = _ranges(content, part.start, part.end, sizes.chunk + sizes.line)
            pieces = list(_pieces(ranges, sizes, part.start))
            if part.latest >= until:
                self._store(file, part, pieces)
            yield from pieces

    def _build(
        self, file: File, content: Content, since: float, time_of: TimeOf, sizes: Sizes
    ) -> list[_Part]:
        """Read a file once, and return its parts; those of a small or compressed one are stored."""
        parts: list[_Part] = []
        stores, last = file.path.endswith(COMPRESSED) or content.size <= sizes.chunk, -math.inf
        for piece in _pieces(_chunks(file, content, sizes.chunk), sizes):
            times = _times(piece, time_of, sizes) or [last]
            last = times[-1]
            part = _Part(piece.start, piece.end, min(times), max(times))
            parts.append(part)
            if stores and part.latest >= since:
                self._store(file, part, [piece])
        return parts

    def _store(self, file: File, part: _Part, pieces: Iterable[Piece]) -> None:
        packed = [piece._replace(text=zlib.compress(piece.text, 1)) for piece in pieces]
        size = sum(len(piece.text) for piece in packed)
        if size <= self._free:
            self._free -= size
            self._stored[file, part] = packed

    def _drop_before(self, since: float) -> None:
        if since > self._since:
            self._since = since
            for file, part in [key for key in self._stored if key[1].latest < since]:
                self._free += sum(len(piece.text) for piece in self._stored.pop((file, part)))
