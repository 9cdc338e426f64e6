"""The way through one project's listing: which rows to ask for next, and when all have been seen.

Knows how listings go wrong: short and empty pages, hidden and repeated rows, rows that move while they are
read, runs that cannot be served, pages that are too much for the server. Pages may be asked for side by
side and answered in any order; they are entered in the order of their offsets. Knows no network and no
clock.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from collectors.wandb.listing import Listing
from collectors.wandb.pages import Page, PageSize, Seam, seam
from collectors.wandb.settings import Project
from common.errors import SourceError

TRIES = 4  # of a whole page that the server fails on, before one of its rows is looked for
TRIES_OF_PART = 2
TRIES_OF_ROW = 5  # before a row is blamed
MAX_UNSERVED = 20
MAX_UNSERVED_IN_A_ROW = 3
MAX_REREADS = 3  # of one seam
MAX_GAPS = 12  # times that one row is asked for which short pages leave out
SPARE_PAGES = 500  # beyond twice the runs a project may have: by then the listing has no end

log = logging.getLogger(__name__)


class Stage(Enum):
    """How far a span of rows is."""

    TO_ASK = 0
    HELD = 1  # until the span before it is answered
    ASKED = 2
    READ = 3


@dataclass(eq=False, slots=True)
class Span:
    """Rows to ask for together. `after` is a cursor that is no offset, where the server has such.

    `part` says that it comes of a page that the server failed on, `guilty` that one of its rows cannot be
    served, `alone` that one row is too large to be read beside others. `follower` is what is held until this
    one is answered for; where this one is to blame, that one is not guilty.
    """

    begin: int
    asked: int
    after: str | None = None
    part: bool = False
    guilty: bool = False
    alone: bool = False
    follower: Span | None = None
    stage: Stage = Stage.TO_ASK
    page: Page | None = None
    tries: int = 0  # on which the server failed
    unanswered: int = 0  # that were not answered at all
    failures: int = 0  # of any kind

    @property
    def last(self) -> int:
        return self.begin + self.asked - 1


class Walk:
    """One project's listing on its way."""

    def __init__(self, project: Project, page_size: int, max_runs: int) -> None:
        self.project = project
        self.size = PageSize(page_size)
        self.done = False
        self._max_runs = max_runs
        self._farthest = 2 * max_runs + SPARE_PAGES * page_size
        self._pages: list[Page] = []  # without a gap, in the order of their offsets
        self._ahead: list[Span] = [Span(0, page_size)]  # all behind them, in the same order
        self._unserved: set[int] = set()
        self._rereads: Counter[int] = Counter()
        self._bridges: Counter[tuple[int, int]] = Counter()
        self._gaps: Counter[int] = Counter()
        self._early_end: int | None = None  # an offset behind which the server once saw no more rows
        self._total: tuple[int, int | None] = (-1, None)  # as the page says that was asked for last
        self._opaque = False  # whether cursors are no offsets, and so nothing can be compared

    @property
    def total(self) -> int | None:
        """How many rows there are, hidden ones too; None where nobody says."""
        return self._total[1]

    @property
    def begun(self) -> bool:
        """Whether the first page is there."""
        return bool(self._pages)

    @property
    def reached(self) -> int:
        """How many rows have been gone through."""
        return self._edge()

    def next(self, limit: int) -> Span | None:
        """The rows to ask for next, at most `limit`; None where answers must come first."""
        size = min(self.size.fits, limit)
        searching = any(span.part and span.stage is Stage.ASKED for span in self._ahead)
        for place, span in enumerate(self._ahead):
            if span.stage is not Stage.TO_ASK or (searching and span.part):
                continue
            if span.begin > self._farthest:
                raise SourceError(f"the listing of {self.project} does not end")
            if span.guilty and span.asked > 1:
                self._halve(place)
            elif span.part and span.begin - 1 in self._unserved:
                # Behind a row that cannot be served, look at the next one alone: where all fail, it is not
                # the rows.
                self._cut(place, 1, hold=True)
            else:
                if not span.part and place == len(self._ahead) - 1:
                    span.asked = max(span.asked, size)  # what comes meanwhile comes last
                self._cut(place, size)
            span.stage = Stage.ASKED
            return span
        return None

    def again(self, span: Span) -> None:
        """The rows were not answered for."""
        span.stage = Stage.TO_ASK

    def too_many(self, span: Span) -> None:
        """The server is too slow for so many rows, or their answer is too long: ask for fewer."""
        self.size.shrink(span.asked)
        self.again(span)

    def too_large(self, span: Span, error: Exception) -> None:
        """The answer is too long to be held beside others, or, for one row alone, at all."""
        if span.asked > 1:
            self.too_many(span)
        elif not span.alone:
            span.alone = True
            self.again(span)
        else:
            self.size.forget()
            self._step_over(span, error)

    def failed(self, span: Span, error: Exception) -> None:
        """The server fails on these rows. Where it does so again and again, one of them is to blame."""
        if span.after is not None:
            raise SourceError(
                f"W&B's cursor {span.after!r} is not an offset, so no row can be stepped over: {error}"
            )
        span.tries += 1
        self.again(span)
        if span.tries < (TRIES_OF_ROW if span.asked == 1 else TRIES_OF_PART if span.part else TRIES):
            return
        if span.asked == 1:
            self._step_over(span, error)
            return
        self._release(span, guilty=False)
        span.part = span.guilty = True

    def served(self, span: Span, page: Page) -> None:
        """Rows were read."""
        if span.alone:
            self.size.forget()
        self.size.grow(span.asked)
        span.stage, span.page = Stage.READ, page
        self._release(span, guilty=True)
        self._opaque |= page.cursor is not None
        self._total = max(self._total, (page.number, page.total), key=lambda said: said[0])
        self._enter()

    def listing(self) -> Listing:
        """What was read, once it is done."""
        found = Listing(self.project, self.total, len(self._unserved))
        for page in sorted(self._pages, key=lambda page: page.number):
            found.take(page)
        self._check_number(found.listed)
        return found

    def _cut(self, place: int, size: int, *, hold: bool = False) -> None:
        """Make the span at a place one page long, and leave its other rows for later."""
        span = self._ahead[place]
        if span.asked <= size:
            return
        begin = span.begin + max(1, size - 1)  # a row of overlap, where the page is not a single row
        rest = Span(begin, span.last - begin + 1, part=span.part)
        span.asked = size
        # Where the total is not known, what follows behind the last span its page will tell.
        if span.part or place < len(self._ahead) - 1 or (self.total is not None and not self._opaque):
            rest.follower, span.follower = span.follower, None
            self._ahead.insert(place + 1, rest)
            if hold:
                rest.stage, span.follower = Stage.HELD, rest

    def _release(self, span: Span, *, guilty: bool) -> None:
        """What was held until this span was answered for may be asked for now."""
        if span.follower:
            span.follower.stage, span.follower.guilty = Stage.TO_ASK, span.follower.guilty and guilty
            span.follower = None

    def _halve(self, place: int) -> None:
        """Look for the guilty row in the first half; if that is served, it is in the second."""
        span = self._ahead[place]
        half = (span.asked + 1) // 2
        begin = span.begin + half - (span.asked > 2)
        rest = Span(begin, span.last - begin + 1, part=True, guilty=True, stage=Stage.HELD)
        span.asked, span.part, span.guilty, span.follower = half, True, False, rest
        span.tries = span.failures = 0
        self._ahead.insert(place + 1, rest)

    def _step_over(self, span: Span, error: Exception) -> None:
        """Blame a row, and go on behind it."""
        self._unserved.add(span.begin)
        in_a_row = 1
        while span.begin - in_a_row in self._unserved:
            in_a_row += 1
        if in_a_row > MAX_UNSERVED_IN_A_ROW or len(self._unserved) > MAX_UNSERVED:
            raise SourceError(f"W&B fails on one run after another, {len(self._unserved)} so far: {error}")
        log.warning("stepped over a run of %s that W&B cannot serve: %s", self.project, error)
        self._ahead.remove(span)
        self._release(span, guilty=False)
        for other in [one for one in self._ahead if one.stage in {Stage.TO_ASK, Stage.HELD}]:
            self._leave_out(other, span.begin)
        self._enter()

    def _leave_out(self, span: Span, row: int) -> None:
        """Ask no more for a row where spans overlap."""
        if span.begin == row:
            span.begin += 1
            span.asked -= 1
        elif span.last == row:
            span.asked -= 1
        if not span.asked:
            self._ahead.remove(span)
            self._release(span, guilty=False)

    def _enter(self) -> None:
        """Take the pages that follow what is there without a gap."""
        while self._ahead:
            span = self._ahead[0]
            if self._fill_gap(span) or span.page is None:
                return
            found, left = self._compare(span.page)
            bridge = self._bridge(left, span.page) if found is Seam.BLIND else None
            if bridge:
                self._ahead.insert(0, bridge)
                return
            if found is Seam.DIFFERENT or (found is Seam.BLIND and self._shrank(left, span.page)):
                self._read_again(left, span, span.page)
                continue
            self._ahead.pop(0)
            self._pages.append(span.page)
            self._check_number(sum(len(page.ids) for page in self._pages) - 2 * len(self._pages))
            self._follow(span.page)
        self._extend()

    def _fill_gap(self, span: Span) -> bool:
        """Ask for the rows before a span that a short page left out, or that are to be read again."""
        edge = self._edge()
        last = self._pages[-1] if self._pages else None
        ended = last is not None and not last.more and not self._is_early(last)
        if span.begin <= edge or (ended and not (span.page and span.page.ids)):
            return False
        self._gaps[edge] += 1
        if last is not None and self._is_early(last) and self._gaps[edge] > 1:
            raise self._ended_twice(edge)
        if self._gaps[edge] > MAX_GAPS:
            raise SourceError(f"the listing of {self.project} does not go on behind row {edge:,}")
        begin = max(0, edge - 1)
        self._ahead.insert(0, Span(begin, span.begin - begin + 1))
        return True

    def _edge(self) -> int:
        """The first row behind the pages that were entered and those that cannot be served."""
        edge = self._pages[-1].end + 1 if self._pages else 0
        while edge in self._unserved:
            edge += 1
        return edge

    def _compare(self, page: Page) -> tuple[Seam, int]:
        """A page with the last one before it that shows a row, and the place of that."""
        place = len(self._pages) - 1
        while place >= 0 and not self._pages[place].ids:
            place -= 1
        if place < 0 or self._opaque:  # nothing to compare
            return Seam.SAME, place
        return seam(self._pages[place], page), place

    def _bridge(self, place: int, page: Page) -> Span | None:
        """The rows from the last one shown before a page to its first: they prove the seam.

        None where they cannot be read together, because the server does not show so many at once.
        """
        left = self._pages[place]
        if not left.offsets or not page.offsets:
            return None
        begin, end = left.offsets[-1], page.offsets[0]
        if not begin < end < begin + self.size.fits or self._unserved & {*range(begin, end)}:
            return None
        self._bridges[begin, end] += 1
        return Span(begin, end - begin + 1) if self._bridges[begin, end] <= MAX_REREADS else None

    def _shrank(self, place: int, page: Page) -> bool:
        """Whether rows left between two pages that have no row in common, as far as the totals tell."""
        older, newer = sorted((self._pages[place], page), key=lambda one: one.number)
        return older.total is not None and newer.total is not None and newer.total < older.total

    def _read_again(self, place: int, span: Span, right: Page) -> None:
        """Of two pages that do not fit together, read the older one again."""
        left = self._pages[place]
        self._count_reread(right.begin)
        if right.number < left.number:
            span.page, span.stage = None, Stage.TO_ASK
            return
        del self._pages[place:]
        self._unserved -= {*range(left.begin, right.begin)}  # which may be other rows by now

    def _count_reread(self, begin: int) -> None:
        self._rereads[begin] += 1
        if self._rereads[begin] > MAX_REREADS:
            raise SourceError(
                f"the runs of {self.project} move while they are read: what comes before row {begin} "
                f"did not fit what comes behind it {MAX_REREADS + 1} times"
            )

    def _follow(self, page: Page) -> None:
        """What follows from a page that was entered, where it says that there are no more."""
        if self._is_early(page):
            self._early_end = self._last_shown()
        elif not page.more:
            self._ahead = [span for span in self._ahead if span.stage in {Stage.ASKED, Stage.READ}]

    def _extend(self) -> None:
        """Behind the last page: go on, or end."""
        last = self._pages[-1] if self._pages else None
        behind = self._edge()
        if last is not None and behind == last.end + 1:
            if not last.more and not self._is_early(last):
                self._finish()
                return
            if last.more and not self._opaque and last.asked > 1:
                behind -= 1  # a row of overlap
        elif last is not None and self.total is not None and behind >= self.total:
            self._finish()
            return
        rows = self.size.most if self.total is None or self.total <= behind + 1 else self.total - behind
        self._ahead.append(Span(behind, rows, after=last.cursor if last else None))

    def _finish(self) -> None:
        """All rows were gone through. Where the listing ended too early, some must have come behind that."""
        self.done = True
        if self._early_end is None:
            return
        if self._last_shown() <= self._early_end:
            raise self._ended_twice(self._early_end + 1)

    def _ended_twice(self, row: int) -> SourceError:
        return SourceError(f"the listing of {self.project} ended twice at row {row:,} of {self.total or 0:,}")

    def _last_shown(self) -> int:
        shown = [page.offsets[-1] if page.offsets else page.begin for page in self._pages if page.ids]
        return max(shown, default=-1)

    def _is_early(self, page: Page) -> bool:
        """Whether a page says that there are no more, though it was not asked for all there are."""
        if page.more or page.total is None or self._opaque:
            return False
        return page.begin + page.asked < page.total

    def _check_number(self, runs: int) -> None:
        if runs > self._max_runs:
            raise SourceError(
                f"{self.project} has more than {self._max_runs:,} runs to read; "
                "raise FLEETGAUGE_WANDB_MAX_RUNS"
            )
