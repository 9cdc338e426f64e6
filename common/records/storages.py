"""Files wherever they are: which place holds which path, and which days `{date}` in a pattern stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import groupby, islice, repeat

from common.config.settings import CoreSettings
from common.records.local import LocalStorage
from common.records.paths import COMPRESSED
from common.records.storage import Found, Raw, Status, Storage, Wanted

DATE = "{date}"
S3 = "s3://"


class Files:
    """The files of all places. `days` are what `{date}` stands for."""

    def __init__(
        self, core: CoreSettings | None = None, days: Sequence[str] = (), max_objects: int = 20_000
    ) -> None:
        self._core = core
        self._days = days
        self._max_objects = max_objects
        self._local = LocalStorage()
        self._objects: Storage | None = None

    def of(self, path: str) -> Storage:
        """The place that a path is in."""
        if not path.startswith(S3):
            return self._local
        if self._objects is None:
            from common.records.s3 import S3Storage  # which few need, and boto3 is slow to import

            self._objects = S3Storage(self._core or CoreSettings(), self._max_objects)
        return self._objects

    def dated(self, pattern: str) -> list[str]:
        """A pattern once for each day that `{date}` in it stands for."""
        return [pattern.replace(DATE, day) for day in self._days] if DATE in pattern else [pattern]

    def find(self, patterns: Sequence[str]) -> Found:
        """Every file the patterns name, each once, under the path that sorts first."""
        found = Found()
        for pattern in patterns:
            storage, known, trouble = self.of(pattern), len(found.files), len(found.unreadable)
            for one in self.dated(pattern):
                storage.find(one, found)
            if len(found.files) == known:
                if len(found.unreadable) > trouble:
                    found.blind.add(pattern)
                elif absent := storage.absent(pattern.replace(DATE, "*")):
                    found.missing[pattern] = absent
            found.pattern_of.update(zip(islice(found.files, known, None), repeat(pattern)))
        _keep_one_of_each(found.files)
        return found

    def opened(self, files: Iterable[Wanted]) -> Iterator[tuple[str, Raw | OSError]]:
        """Each file, open until the next is asked for, in order; or why it cannot be."""
        for storage, some in groupby(files, lambda wanted: self.of(wanted.path)):
            yield from storage.opened(some)


def _keep_one_of_each(files: dict[str, Status]) -> None:
    """Leave out second names of one file, and a compressed file while its original is still there.

    A plain file that was written to since is no original: the next one has its name.
    """
    known: set[object] = set()
    for path in sorted(files):
        _, written, _, node = files[path]
        plain = files.get(path.rpartition(".")[0]) if path.endswith(COMPRESSED) else None
        if node in known or (plain and plain.written <= written):
            del files[path]
        known.add(node)


def days(since: float, until: float) -> list[str]:
    """The UTC days from one time to another, both included."""
    first, last = (datetime.fromtimestamp(time, UTC).toordinal() for time in (since, max(since, until)))
    return [date.fromordinal(day).isoformat() for day in range(first, last + 1)]
