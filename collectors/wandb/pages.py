"""Pages of a listing: which rows they hold, whether two of them belong together, how large they may be.

Knows offsets, because W&B's cursors are such; knows no network. A page that is read later than its
neighbour may show another state of the listing: only a row that both hold at one offset proves that
nothing was missed between them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from collectors.wandb.runs import Run

_OFFSET = re.compile(r"arrayconnection:(\d+)")


@dataclass(frozen=True, slots=True)
class Page:
    """One page as it was read: `number` tells in which order pages were asked for.

    It covers the offsets from `begin` to `end`, and shows rows at `offsets`, which are None where nobody
    knows them. `total` is None where the server does not count. Rows without an id have None for one.
    """

    begin: int
    asked: int
    number: int
    end: int
    offsets: Sequence[int] | None
    ids: Sequence[str | None]
    runs: Sequence[Run | None] = ()
    flaws: Mapping[int, list[str]] = field(default_factory=dict)  # by place in the page
    total: int | None = None
    more: bool = False
    cursor: str | None = None
    errors: int = 0


class Seam(Enum):
    """What two pages that follow each other say of the rows between them."""

    SAME = "a row is at the same offset in both, and none differs"
    DIFFERENT = "rows have moved"
    BLIND = "neither shows a row where they overlap"


def seam(left: Page, right: Page) -> Seam:
    """Whether two pages show one state of the listing: rows of one offset must have one id."""
    if left.offsets is None or right.offsets is None:
        return Seam.SAME if {*left.ids} & {*right.ids} - {None} else Seam.BLIND
    first = max(_first(left), _first(right))
    last = min(left.end, right.end)
    of_left, of_right = (
        {
            place: name
            for place, name in zip(page.offsets or (), page.ids, strict=True)
            if first <= place <= last
        }
        for page in (left, right)
    )
    if of_left != of_right:
        return Seam.DIFFERENT
    return Seam.SAME if of_left else Seam.BLIND


def _first(page: Page) -> int:
    """The first offset a page covers; some servers repeat rows of the page before."""
    return min(page.begin, page.offsets[0]) if page.offsets else page.begin


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
