"""Reads growing files of JSON lines, each line once, across restarts, rotation and damage.

    tail = Tail(patterns, SavedState(context.state), now=context.now)
    for file in tail.files():
        for entry in file.entries():
            ...                               # leaving the loop leaves this entry for the next tick
        yield Mark(file.changes())
    yield Mark(tail.expired())

Knows where reading stopped, not what a line means. The saved state has one key per file, made of its path
and a digest of its first line, and one per run where the lines are records of ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field

from common.records.entry import Entry, Identity, entry_of, loads
from common.records.file import PLACE, CorruptFileError, NotDue, OpenFile, Place
from common.records.paths import first_name, shown
from common.records.saved import SavedState
from common.records.seen_runs import SeenRuns
from common.records.storage import RACY, ChangedFileError, Raw, Status, Wanted
from common.records.storages import Files
from common.records.units import Units
from fleetgauge.records import MAX_LINE_BYTES, Line, lines

PREFIX = "file:"
LINES_PER_LOOK = 64  # lines between two looks at the clock

NOT_THERE = "it is not there; where that is normal, write a wildcard in the path"

Damaged = Callable[[str, str, int, int], None]  # reason, path, and where: the byte, and the line or 0


@dataclass
class Tail:
    """One tick's reading. Its counts are complete once `files` is exhausted."""

    patterns: Sequence[str]
    saved: SavedState
    _: KW_ONLY
    now: int
    storage: Files = field(default_factory=Files)
    identity: Identity | None = None
    bytes_per_tick: int = 64_000_000
    bytes_beyond: int = 0  # that may follow until whoever reads has come to a good place to stop
    max_line_bytes: int = MAX_LINE_BYTES
    expire_after: int = 7 * 86400  # seconds for which a file that nobody writes to is remembered
    enough: Callable[[], bool] = lambda: False
    family: Callable[[str], str] = str
    due: float = math.inf
    not_due: NotDue = field(default_factory=dict)
    damaged: Damaged = lambda *_: None
    units: Units = field(default_factory=Units)

    def __post_init__(self) -> None:
        self.runs = SeenRuns(self.saved, self.now)
        self.files_found = self.taken = self.bytes = self.backlog_bytes = 0
        self.over = False
        self._last_byte = 0
        self.waiting_since: float | None = None  # last change of the file that has waited longest
        self.damage: Counter[str] = Counter()
        self.lost: list[tuple[str, str]] = []  # paths that could not be read, and why
        self.blind = False  # where none of them could
        self.pattern_of: dict[str, str] = {}
        self._places: dict[str, dict[str, Place]] = {}  # by path, then by head
        self._by_head: dict[str, Place] = {}
        self._needed: set[str] = set()
        self._found: Mapping[str, Status] = {}  # by all shards
        for name, place in self.saved.parts(PREFIX, PLACE):
            head, _, path = name.partition(":")
            self._places.setdefault(path, {})[head] = place
            self.remember(head, place)

    def remember(self, head: str, place: Place) -> None:
        """Note how far a file was read, for its copies and for the name it may have next."""
        known = self._by_head.get(head)
        if known is None or known.offset < place.offset:
            self._by_head[head] = place

    def files(self) -> Iterator[TailedFile]:
        """The files with something to read, oldest first, one open at a time."""
        found = self.storage.find(self.patterns)
        gone = {pattern: path for pattern, path in found.missing.items() if not self._remembers(path)}
        self.lost += [*found.unreadable, *((shown(path), NOT_THERE) for path in gone.values())]
        self.blind = {*gone, *found.blind} >= set(self.patterns)
        self._found, files = found.files, self.units.owned(found.files, self.storage)
        self.files_found = len(files)
        self.pattern_of = found.pattern_of
        for path, raw in self.storage.opened(self._wanted(files)):
            if self.over:  # since it was fetched
                self._leave(self._want(path, files[path]))
            else:
                yield from self._open(path, raw)

    def _wanted(self, files: Mapping[str, Status]) -> Iterator[Wanted]:
        """The files that have something to read, as far as can be told without opening them."""
        changed = [(status.written, path) for path, status in files.items() if self._may_have(path, status)]
        if not changed:
            return
        oldest = self.now - self.expire_after
        news = {self.family(path) for path, status in files.items() if status.written >= oldest}
        for _, path in sorted(changed):
            status = files[path]
            if (path not in self._places and self.family(path) not in news) or self._is_not_due(path, status):
                continue
            wanted = self._want(path, status)
            if self.spent():
                self._leave(wanted)
            else:
                yield wanted

    def _may_have(self, path: str, status: Status) -> bool:
        """Whether a file looks other than when it was last read to its end."""
        places = self._places.get(path)
        if not status.size or not places:
            return status.size > 0
        return status.looks not in [place.whole for place in places.values()]

    def _want(self, path: str, status: Status) -> Wanted:
        read = max((place.offset for place in self._places.get(path, {}).values()), default=0)
        return Wanted(path, status, read)

    def _leave(self, wanted: Wanted) -> None:
        """Leave a file for the next tick."""
        path, status, read = wanted
        self._needed.update(f"{PREFIX}{head}:{path}" for head in self._places.get(path, {}))
        self.wait(max(0, status.size - read), status.written)

    def _is_not_due(self, path: str, status: Status) -> bool:
        """Whether a file looks as it did when its time was noted, and that has not come."""
        looks, until = self.not_due.get(path, (None, 0.0))
        return self.due < until and looks == status.looks

    def _remembers(self, path: str) -> bool:
        """Whether a file of that path, or of that directory, was ever read, or found by another shard."""
        paths = (*self._places, *self.units.known)
        return any(first_name(known) == path or known.startswith(f"{path}/") for known in paths)

    def _open(self, path: str, raw: Raw | OSError) -> Iterator[TailedFile]:
        try:
            if isinstance(raw, OSError):
                raise raw
            stream = OpenFile(path, raw)
            if stream.head:
                slot = self.units.slot_of(path, stream)
                if self.units.owns(slot):  # or it is another file since it was looked into
                    self._needed.add(f"{PREFIX}{stream.head}:{path}")
                    self.saved.slot = slot
                    yield TailedFile(self, path, stream, self._place(path, stream))
            elif stream.corrupt:
                self.hurt(stream.damage, path, 0, 0)
                self.not_due[path] = (stream.status.looks, math.inf)
        except FileNotFoundError:
            return  # gone since it was listed; if renamed, the next tick finds it
        except OSError as error:
            self.lost.append((shown(path), error.strerror or str(error)))

    def hurt(self, damage: str, path: str, start: int, number: int) -> None:
        """Count damage, and tell where it is."""
        self.damage[damage] += 1
        self.damaged(damage, path, start, number)

    def _place(self, path: str, stream: OpenFile) -> Place:
        """Where to go on: by path and first line, or by the first line alone after a rename."""
        own = self._places.get(path, {}).get(stream.head)
        place = own or self._by_head.get(stream.head)
        if place and (own or stream.may_be(place)) and stream.resume(place):
            return place
        start = Place(0, "", self.now)
        stream.resume(start)
        return start

    @property
    def behind(self) -> bool:
        """Whether something was left for the next tick because this one has had its share."""
        return self.waiting_since is not None

    def spent(self) -> bool:
        """Whether this tick has taken its share of bytes or of time, and is `over`."""
        if not self.over and (self.bytes >= self.bytes_per_tick or self.enough()):
            self.over, self._last_byte = True, self.bytes + self.bytes_beyond
        return self.over

    def exhausted(self) -> bool:
        """Whether it is over, and no good place to stop was found since."""
        return self.spent() and self.bytes >= self._last_byte

    def wait(self, size: int, since: float) -> None:
        """Count bytes that are left for the next tick because this one has had its share."""
        self.backlog_bytes += size
        self.waiting_since = min(since, self.waiting_since or since)

    def expired(self) -> dict[str, object]:
        """What to save at the end: without what nothing has needed for long."""
        before = self.now - self.expire_after
        keys = {
            f"{PREFIX}{head}:{path}"
            for path, places in self._places.items()
            for head, place in places.items()
            if place.at < before
        }
        gone = dict.fromkeys(sorted({*(keys - self._needed), *self.runs.expired(before)}))
        return {**gone, **self.units.changes(self._found, before)}


class TailedFile:
    """One file of a tail, from where the last tick left it."""

    def __init__(self, tail: Tail, path: str, stream: OpenFile, place: Place) -> None:
        self.path = path
        self.head = stream.head
        self.written = stream.status.written
        self._tail = tail
        self._stream = stream
        self._offset = place.offset
        self._skipping = place.skipping
        self._touched: set[str] = set()
        self._finished = False

    def entries(self) -> Iterator[Entry]:
        """The objects not seen before. One counts as read when the next is asked for, or the end is met."""
        tail, first = self._tail, self._offset
        most, runs, identify, number = tail.bytes_per_tick, tail.runs, tail.identity, 0
        try:
            for start, end, value, damage, unfinished in self._lines(self._stream):
                look = start > first and (tail.bytes >= most or not number % LINES_PER_LOOK)
                if look and tail.exhausted():
                    self.stop()
                    return
                number += 1
                if damage:
                    tail.hurt(damage, self.path, start, 0 if first else number)
                if value is not None:
                    identity = identify(value) if identify else None
                    run, seq = identity or ("", 0)
                    seen = runs[run] if identity else None
                    if seen is None or seq not in seen:
                        yield entry_of((value, start, identity, 0 if first else number))
                        if seen is not None:
                            seen.add(seq)
                            self._touched.add(run)
                        tail.taken += 1
                tail.bytes += end - start
                self._offset, self._skipping = end, unfinished
        except CorruptFileError:
            tail.hurt(self._stream.damage, self.path, self._offset, 0)
        except ChangedFileError:
            self.stop()
            return
        except OSError as error:
            tail.lost.append((shown(self.path), error.strerror or str(error)))
            return
        self._finished = True

    def stop(self) -> None:
        """Leave the entry under way and all behind it: this tick has had its share."""
        status = self._stream.status
        self._tail.wait(max(0, status.size - self._offset), status.written)

    def peek(self) -> Iterator[Entry]:
        """The objects from the entry under way on, none of which counts as read."""
        identify, wanted = self._tail.identity, Wanted(self.path, self._stream.status, self._offset)
        with suppress(OSError, CorruptFileError):
            for _, raw in self._tail.storage.opened([wanted]):
                if isinstance(raw, OSError):
                    return
                stream = OpenFile(self.path, raw)
                stream.seek(self._offset)
                for start, _, value, _, _ in self._lines(stream):
                    if value is not None:
                        yield Entry(value, start, identify(value) if identify else None, 0)

    def _lines(self, stream: OpenFile) -> Iterator[Line]:
        longest = self._tail.max_line_bytes
        return lines(stream, self._offset, skipping=self._skipping, longest=longest, loads=loads)

    def wait_until(self, time: float) -> None:
        """Say that nothing is due before a time from the entry on at which the loop was left."""
        self._tail.not_due[self.path] = (self._stream.status.looks, time)

    def changes(self) -> dict[str, object]:
        """What to save so that the next tick goes on behind the last entry that counts as read."""
        status = self._stream.status
        settled = self._stream.version or status.written < self._tail.now - RACY
        place = Place(
            offset=self._offset,
            tail=self._stream.tail(self._offset),
            at=self._tail.now,
            skipping=self._skipping,
            whole=status.looks if self._finished and settled else None,
        )
        self._tail.remember(self.head, place)
        key = f"{PREFIX}{self.head}:{self.path}"
        changes = {key: {**vars(place)}, **self._tail.runs.changes(self._touched)}
        for one in changes:
            self._tail.saved.claim(one)
        return changes
