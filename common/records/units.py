"""Which unit a file belongs to, and so which shard reads it.

A file says it in its first line, or it is told by its path. What the first line of each file said is
remembered, because a shard has to know of every file whether it is its own, and of its own whether a file of
another unit may feed the same series.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

from pydantic import Field, TypeAdapter

from common.records.entry import loads
from common.records.file import OpenFile
from common.records.saved import SavedState, Whole
from common.records.storage import Status, Wanted
from common.records.storages import Files
from common.shards import ALONE, Shard, slot
from fleetgauge.records import Json

PREFIX = "unit:"
# How a file looked, its slot, when that was, and whose series it feeds.
Known = tuple[list[Whole | str], Annotated[str, Field(pattern="^[0-9]{2}$")], Whole, str]
_KNOWN: TypeAdapter[Known] = TypeAdapter(Known)


class Units:
    """The units of files; `looks` says that the first line of each has to be looked at.

    `feeds` tells whose series a file feeds, by its first line. `sole` are those of files of one slot only, of
    this shard's: no other feeds them, as far as first lines tell. It is None where no shards matter.
    """

    def __init__(
        self,
        unit: Callable[[str, Json], str] = lambda path, _: path,
        shard: Shard = ALONE,
        saved: SavedState | None = None,
        now: int = 0,
        *,
        looks: bool = False,
        feeds: Callable[[Json], str] = lambda _: "",
        layered: bool = False,
        since: float = 0,
    ) -> None:
        self._unit = unit
        self._looks = looks
        self._feeds = feeds
        self._layered = layered
        self._since = since  # files that were last written before are not read
        self._shard = shard
        self._now = now
        self.known = dict(saved.parts(PREFIX, _KNOWN) if saved else ())
        self.sole: frozenset[str] | None = None
        self.here = ""  # whose series the file feeds that was opened last
        self._found: dict[str, object] = {}

    def owns(self, number: str) -> bool:
        """Whether the files of a slot are for this shard."""
        return self._shard.owns_slot(number)

    def slot_of(self, path: str, stream: OpenFile) -> str:
        """The slot of a file that is open."""
        first = self._first(stream)
        self.here = self._feeds(first)
        return slot(self._unit(path, first))

    def _first(self, stream: OpenFile) -> Json:
        """What the first line of a file says; nothing where that does not matter, or is no object."""
        if self._looks:
            with suppress(ValueError, RecursionError):
                said = loads(stream.first_line())
                return said if isinstance(said, dict) else {}
        return {}

    def owned(self, files: Mapping[str, Status], storage: Files) -> dict[str, Status]:
        """The files that are for this shard, as far as can be told now: one may have no first line yet."""
        if not self._layered:
            return {**files}
        changed = [path for path, status in files.items() if not self._knows(path, status)]
        young = [path for path in changed if self._looks and files[path].written >= self._since]
        said = self._look(files, storage, young)
        for path in changed:
            first = said.get(path, {})
            if path in said or path not in self.known:  # one that cannot be opened stays where it was
                number, series = slot(self._unit(path, first)), self._feeds(first)
                self.known[path] = known = ([*files[path].looks], number, self._now, series)
                if path in said or path not in young:  # or it is looked into again
                    self._found[PREFIX + path] = list(known)
        fed_by: defaultdict[str, set[str]] = defaultdict(set)
        for path in files:
            _, number, _, series = self.known[path]
            fed_by[series].add(number)
        own = (one for one, slots in fed_by.items() if one and len(slots) == 1 and all(map(self.owns, slots)))
        self.sole = frozenset(own)
        return {path: status for path, status in files.items() if self.owns(self.known[path][1])}

    def _knows(self, path: str, status: Status) -> bool:
        known = self.known.get(path)
        return known is not None and (not self._looks or known[0] == status.looks)

    def _look(self, files: Mapping[str, Status], storage: Files, paths: Sequence[str]) -> dict[str, Json]:
        # Nothing but the beginning is wanted: a place far behind the end has no other bytes to be fetched.
        found: dict[str, Json] = {}
        for path, raw in storage.opened(Wanted(path, files[path], sys.maxsize) for path in paths):
            with suppress(OSError):  # whoever it belongs to by its path says so
                if isinstance(raw, OSError):
                    raise raw
                found[path] = self._first(OpenFile(path, raw))
        return found

    def changes(self, there: Iterable[str], before: int) -> dict[str, object]:
        """What to save: files that were found, and without those that are gone for long."""
        gone = self.known.keys() - set(there)
        expired = {PREFIX + path: None for path in sorted(gone) if self.known[path][2] < before}
        found, self._found = self._found, {}
        return {**found, **expired}
