"""The way through one project's listing: which rows to ask for next, and when all have been seen.

One principle proves that no row was missed: the order of the rows never changes. So a page that shows a row
which is known already goes on where that row was, whatever came or left meanwhile; a page that ought to show
one and does not is read again further back. Pages may be asked for side by side and answered in any order;
they are entered in the order of their offsets. Knows no network and no clock.
"""

from __future__ import annotations

import logging
from itertools import count
from math import inf

from collectors.wandb.listing import Listing
from collectors.wandb.pages import Anchor, Page, PageSize, Span
from collectors.wandb.settings import Project
from common.errors import SourceError

TRIES = 4  # of a whole page that the server fails on, before one of its rows is looked for
TRIES_OF_PART = 2
TRIES_OF_ROW = 5  # before a row is blamed
MAX_UNSERVED = 20
MAX_UNSERVED_IN_A_ROW = 3
MAX_REREADS = 3  # of one seam
MAX_IDLE = 12  # pages that get no further
SPARE_PAGES = 500  # beyond twice the runs a project may have: by then the listing has no end

log = logging.getLogger(__name__)


class Walk:
    """One project's listing on its way."""

    def __init__(self, project: Project, page_size: int, max_runs: int) -> None:
        self.project = project
        self.size = PageSize(page_size)
        self.total: int | None = None  # rows there are, hidden ones too; None where nobody says
        self.begun = False  # whether the first page is there
        self.done = False
        self._max_runs = max_runs
        self._farthest = 2 * max_runs + SPARE_PAGES * page_size
        self._rows = page_size  # that a page may have now
        self._now = count(1).__next__  # the next step
        self._listing = Listing(project)  # all that is known without a gap
        self._anchor = Anchor()
        self._edge = 0  # the first row behind the pages that were entered
        self._blank: float = inf  # the step at which the first page was asked for that shows none since then
        self._ahead: list[Span] = [Span(0, page_size)]  # all behind that, in the order of their offsets
        self._guilty = -1  # the last row of those among which one cannot be served
        self._unserved: dict[int, int] = {}  # rows that cannot be served, and the step they were blamed at
        self._moved = 0  # the step at which rows were last seen to have come or left
        self._rereads = 0  # of what comes before the row `_seam`
        self._seam = 0
        self._idle = 0  # pages that got no further
        self._early: int | None = None  # how many rows were known when the listing ended too early
        self._cursor: str | None = None  # one that is no offset, so that nothing can be compared
        self._newest = 0

    @property
    def reached(self) -> int:
        """The first row that has not been gone through; those that cannot be served have been."""
        edge = self._edge
        while edge in self._unserved:
            edge += 1
        return edge

    def next(self, limit: int) -> Span | None:
        """The rows to ask for next, at most `limit`; None where answers must come first."""
        self._rows = min(self.size.fits, limit)
        for place, span in enumerate(self._ahead):
            # Where the server failed, it is asked again in order: which row is to blame is looked for once.
            if span.under_way or span.page or (span.tries and place):
                continue
            if span.begin > self._farthest:
                raise SourceError(f"the listing of {self.project} does not end")
            self._cut(place)
            span.under_way, span.sent = True, self._now()
            return span
        return None

    def too_many(self, span: Span) -> None:
        """The server is too slow for so many rows, or their answer is too long: ask for fewer."""
        self.size.shrink(span.asked)
        span.under_way = False

    def too_large(self, span: Span, error: Exception) -> None:
        """The answer is too long to be held."""
        if span.asked > 1:
            self.too_many(span)
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
        span.under_way = False
        searching = span.begin <= self._guilty
        if span.tries < (TRIES_OF_ROW if span.asked == 1 else TRIES_OF_PART if searching else TRIES):
            return
        if span.asked == 1:
            self._step_over(span, error)
        else:
            # In the first half, or else in the second, which is what `_onward` asks for then.
            self._guilty = span.last
            span.asked, span.tries, span.failures = (span.asked + 1) // 2, 0, 0

    def served(self, span: Span, page: Page) -> None:
        """Rows were read."""
        self.size.grow(span.asked)
        span.page, span.answered = page, self._now()
        if self.total is not None and self.total != page.total:
            self._moved = self._now()
        self.total = page.total
        self._enter()

    def listing(self) -> Listing:
        """What was read, once it is done."""
        self._listing.total, self._listing.unserved = self.total, len(self._unserved)
        return self._listing

    def _cut(self, place: int) -> None:
        """Make the span at a place one page long, and leave its other rows for later."""
        span = self._ahead[place]
        if span.asked <= self._rows:
            return
        begin = span.begin + max(1, self._rows - 1)  # a row of overlap, where the page is not a single row
        rows = span.last - begin + 1
        span.asked = self._rows
        if place < len(self._ahead) - 1:
            self._ahead.insert(place + 1, Span(begin, rows))
        elif self.total is not None and not self._cursor:  # where it is not known, the page will tell
            self._ahead.append(Span(begin, max(rows, self._rows)))  # what comes meanwhile comes last

    def _step_over(self, span: Span, error: Exception) -> None:
        """Blame a row, and go on behind it."""
        self._unserved[span.begin] = self._now()
        in_a_row = next(rows for rows in count(1) if span.begin - rows not in self._unserved)
        if in_a_row > MAX_UNSERVED_IN_A_ROW or len(self._unserved) > MAX_UNSERVED:
            raise SourceError(f"W&B fails on one run after another, {len(self._unserved)} so far: {error}")
        log.warning("stepped over a run of %s that W&B cannot serve: %s", self.project, error)
        if span.begin < self._edge:  # where there was another row
            self._moved = self._now()
        self._guilty = -1
        self._ahead.remove(span)
        for other in self._ahead:
            if other.begin == span.begin and not other.under_way and not other.page:
                other.begin, other.asked = other.begin + 1, other.asked - 1
        self._ahead = [other for other in self._ahead if other.asked]
        self._enter()

    def _enter(self) -> None:
        """Take the pages that follow what is known without a gap."""
        while not self.done:
            span = self._ahead[0] if self._ahead else None
            if span is None or span.begin > self.reached:
                self._ahead.insert(0, self._onward(span))
            elif span.page is None:
                return
            elif self._goes_on(span.page):
                self._take(span, span.page)
            elif span.page.ends_early or self._ought_to_go_on(span.page):
                self._moved = self._now()
                self._go_back()
            elif span.page.more and span.page.first is None:
                self._take(span, span.page)  # whatever comes behind it has to prove itself
            else:
                self._reach(span, span.page)

    def _onward(self, following: Span | None) -> Span:
        """The next rows, from the last one shown if that gets further."""
        row = begin = self.reached
        if not self._cursor and not self._idle and row != self._guilty and self._in_one_page(row):
            begin = min(row, self._anchor.low)
        if self._guilty >= row:
            end = (row + self._guilty) // 2
        elif row - 1 in self._unserved:
            end = row  # where the next one fails too, it may not be the rows
        elif following:
            end = following.begin
        else:
            end = max(begin + self._rows, self.total or 0) - 1
        return Span(begin, end - begin + 1, self._cursor)

    def _in_one_page(self, row: int) -> bool:
        """Whether a page can hold both the anchor and a row."""
        low = self._anchor.low
        return row - low < self._rows and not any(low <= one <= row for one in self._unserved)

    def _goes_on(self, page: Page) -> bool:
        """Whether no row can be missing between what is known and a page."""
        return page.begin == 0 or self._cursor is not None or any(name in self._listing for name in page.ids)

    def _ought_to_go_on(self, page: Page) -> bool:
        """Whether a page reaches back far enough to show a row that is known."""
        if page.begin > self._anchor.low:
            return False
        return page.end >= self._anchor.high or page.first is not None or not page.more

    def _take(self, span: Span, page: Page) -> None:
        """Enter a page: all before it is known."""
        self._ahead.pop(0)
        self.begun = True
        before = self._listing.listed, self.reached
        self._listing.take(page, newer=span.sent > self._newest)
        self._newest = max(self._newest, span.sent)
        if self._listing.listed > self._max_runs:
            raise SourceError(
                f"{self.project} has more than {self._max_runs:,} runs to read; "
                "raise FLEETGAUGE_WANDB_MAX_RUNS"
            )
        self._set_anchor(span, page)
        self._cover(page, before)
        if page.ends_early and self._cursor is None:
            self._end_early(page)
        else:
            self.done = not page.more
        self._cursor = page.cursor

    def _set_anchor(self, span: Span, page: Page) -> None:
        """Go on from the last row that a page shows."""
        anchor = self._anchor
        if self._cursor is None and page.contradicts(anchor):
            self._moved = self._now()
        if page.last is None:
            self._blank = min(self._blank, span.sent)
        elif page.end >= anchor.low or self._edge <= anchor.low:
            kept = page.last[0] == anchor.name and anchor.since > self._moved
            self._anchor = Anchor(*page.last, anchor.since if kept else span.sent, span.sent)
            if not kept or page.end >= self._edge:  # what was seen behind another is void
                self._forget_from(page.end + 1)

    def _cover(self, page: Page, before: tuple[int, int]) -> None:
        """Note how far a page got. Listed rows and the edge before it tell whether it got further."""
        self._edge = max(self._edge, page.end + 1)
        if self.reached > self._seam:
            self._rereads = 0
        if self.reached > before[1] or self._listing.listed > before[0]:
            self._idle = 0
            return
        self._idle += 1
        if self._idle > MAX_IDLE:
            raise SourceError(f"the listing of {self.project} does not go on behind row {self.reached:,}")

    def _reach(self, span: Span, page: Page) -> None:
        """See whether a page goes on behind the anchor, though it does not reach back to it.

        One page that shows both is a proof. Where there cannot be one, because a row between them cannot be
        served or hidden rows fill a page, the page is believed as long as nothing was seen to move: neither
        since all of this was asked for, nor by the anchor, which must still be where it was. Where as many
        rows come as leave in that time, nobody can tell.
        """
        anchor = self._anchor
        goal = page.first if page.first is not None else max(page.begin, min(page.end, (page.total or 0) - 1))
        blamed = [step for row, step in self._unserved.items() if anchor.low <= row < page.begin]
        if span.bridged != anchor.low and self._in_one_page(goal):
            span.bridged = anchor.low
            self._ahead.insert(0, Span(anchor.low, goal - anchor.low + 1))
        elif min(anchor.since, self._blank, span.sent, *blamed) < self._moved:
            self._go_back()
        elif anchor.seen < max([span.answered, *blamed]):
            self._ahead.insert(0, Span(anchor.low, anchor.high - anchor.low + 1))
        else:
            self._take(span, page)

    def _go_back(self) -> None:
        """Read again, further back each time, until a row that is known comes."""
        self._seam = max(self._seam, self.reached)
        self._rereads += 1
        if self._rereads > MAX_REREADS:
            raise SourceError(
                f"the runs of {self.project} move while they are read: what comes before row "
                f"{self._ahead[0].begin:,} did not fit what comes behind it {self._rereads} times"
            )
        low = self._anchor.low
        self._forget_from(max(0, low - max(1, self._rows - 1) * self._rereads))
        self._ahead[0] = Span(self._edge, min(self._rows, low - self._edge + 1))

    def _forget_from(self, row: int) -> None:
        """Read again all that comes from a row on."""
        self._edge, self._blank = row, inf
        self._unserved = {other: step for other, step in self._unserved.items() if other < row}

    def _end_early(self, page: Page) -> None:
        """A listing that ends before its last row is asked for the rest, once."""
        self._edge = self._anchor.high + 1
        if self._early == self._listing.listed:
            raise SourceError(
                f"the listing of {self.project} ended twice at row {self._edge:,} of {page.total or 0:,}"
            )
        self._early = self._listing.listed
