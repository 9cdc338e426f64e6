"""Pages of a listing: which rows they are asked for, which they show, and how large they may be.

Knows offsets, because W&B's cursors are such; knows no network.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from collectors.wandb.runs import Run

log = logging.getLogger(__name__)

_OFFSET = re.compile(r"arrayconnection:(\d+)")


@dataclass(frozen=True)
class Page:
    """One page as it was read.

    It covers the offsets from `begin` to `end`, and shows rows at `offsets`, which are None where nobody
    knows them. `total` is None where the server does not count. Rows without an id have None for one.
    """

    begin: int
    asked: int
    end: int
    offsets: Sequence[int] | None
    ids: Sequence[str | None]
    runs: Sequence[Run | None] = ()
    flaws: Mapping[int, list[str]] = field(default_factory=dict)  # by place in the page
    total: int | None = None
    more: bool = False
    cursor: str | None = None
    errors: int = 0

    @property
    def first(self) -> int | None:
        """The highest offset that the first row can have which shows its id."""
        place = next((place for place, name in enumerate(self.ids) if name is not None), None)
        return None if place is None else self._between(place)[1]

    @property
    def last(self) -> tuple[str, int, int] | None:
        """The last id that is shown, and the offsets between which its row is."""
        for place in reversed(range(len(self.ids))):
            name = self.ids[place]
            if name is not None:
                return name, *self._between(place)
        return None

    @property
    def ends_early(self) -> bool:
        """Whether it says that there are no more rows, though it was not asked for all there are."""
        return not self.more and self.total is not None and self.begin + self.asked < self.total

    def contradicts(self, anchor: Anchor) -> bool:
        """Whether a row ought to be here and is not, or is elsewhere."""
        name, low, high = anchor.name, anchor.low, anchor.high
        if name is None or not self.begin <= low <= high <= self.end:
            return False
        if name not in self.ids:
            return True
        lowest, highest = self._between(self.ids.index(name))
        return highest < low or lowest > high

    def _between(self, place: int) -> tuple[int, int]:
        """The offsets between which a row is: exactly, or as many rows may be hidden before or behind it."""
        if self.offsets is not None:
            return self.offsets[place], self.offsets[place]
        low = min(self.begin + place, self.end)
        return low, max(low, self.end - (len(self.ids) - 1 - place))


@dataclass(eq=False, slots=True)
class Span:
    """Rows to ask for together. `after` is a cursor that is no offset, where the server has such.

    `sent` and `answered` are steps of the walk, `bridged` is the anchor from which it was tried to reach
    these rows.
    """

    begin: int
    asked: int
    after: str | None = None
    under_way: bool = False
    page: Page | None = None
    sent: int = 0
    answered: int = 0
    bridged: int | None = None
    tries: int = 0  # on which the server failed
    unanswered: int = 0  # that were not answered at all
    failures: int = 0  # of any kind

    @property
    def last(self) -> int:
        return self.begin + self.asked - 1


@dataclass(frozen=True)
class Anchor:
    """The last row shown of those that are known without a gap; at first, the beginning of the listing.

    It is at an offset from `low` to `high`. It was asked for at the steps `since` and, the last time, `seen`.
    """

    name: str | None = None
    low: int = 0
    high: int = -1
    since: float = inf
    seen: float = inf


@dataclass
class PageSize:
    """How many rows to ask for at once: halved where that is too many, then grown again little by little.

    A size that failed is never reached again: what was too much once will be again. Where even a single
    row was, size is not the reason, and what failed is forgotten.
    """

    most: int
    fits: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        self.fits = self.fits or self.most
        self.failed = self.failed or self.most + 1

    def shrink(self, asked: int) -> None:
        """So many rows were too many."""
        self.failed = min(self.failed, asked) if asked > 1 else self.most + 1
        self.fits = max(1, min(self.fits, asked // 2))
        log.debug("%d runs were too many for one request: %d at most from now on", asked, self.fits)

    def forget(self) -> None:
        """It was one row that was too large, and that one has been dealt with."""
        self.failed = self.most + 1
        self.fits = max(self.fits, self.most // 4)

    def grow(self, asked: int) -> None:
        """So many rows were served."""
        if asked >= self.fits:
            self.fits += min(max(1, self.fits // 8), (self.failed - self.fits) // 2)


def offset_of(cursor: object) -> int | None:
    """The offset in a cursor; None where there is none."""
    if not isinstance(cursor, str):
        return None
    try:
        text = base64.b64decode(cursor, validate=True).decode()
    except ValueError:
        return None
    found = _OFFSET.fullmatch(text)
    return int(found[1]) if found else None


def cursor_before(begin: int) -> str | None:
    """The cursor behind which the row of an offset comes first."""
    return base64.b64encode(f"arrayconnection:{begin - 1}".encode()).decode() if begin > 0 else None


def offsets_of(cursors: Sequence[object], begin: int, asked: int) -> Sequence[int] | None:
    """The offsets of the rows of a page, by their cursors.

    Where the server gives none, a full page tells by itself; which rows of a short one are hidden nobody
    knows.
    """
    number = len(cursors)
    first, last = (offset_of(cursors[0]), offset_of(cursors[-1])) if number else (None, None)
    if first is not None and last == first + number - 1:
        return range(first, first + number)
    found = [offset_of(cursor) for cursor in cursors]
    known = [offset for offset in found if offset is not None]
    if len(known) == number and all(row < following for row, following in pairwise(known)):
        return known
    return range(begin, begin + number) if number == asked else None
