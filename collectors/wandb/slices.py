"""Decide which slices of creation time to request next, and when every run was seen.

A run's creation time never changes, while its offset does. So a listing is cut into slices `[since, until)`
of creation time, and a slice is complete once one page shows all of it. If there is more, it continues one
second before the last time shown: shown times may be rounded. A cut is exact, because the server compares
stored times. Where a single second has more runs than a page, they are requested by offset, and the second is
complete only if the pages prove it (`_Crowd`).

Failures stay in their slice. A heavy one halves the rows of the project's pages. A quick one is retried, and
then the slice is halved. A run that cannot be served ends up alone in its second, and is stepped over. While
the server serves nobody, slices stay as they are.

Pure: no network, no clock. `reader` sends the requests; `query` writes them and reads the answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from common.errors import SourceError
from common.times import EARLIEST, iso

OVERLAP = 1  # seconds by which a slice continues before the last time shown
TOLERANCE = 2  # seconds by which a row may be outside the slice that was requested
LATEST = 4_102_444_800  # the year 2100: a slice until then, or since EARLIEST, has no limit on that side
TRIES = 3  # of a slice that fails quickly
TRIES_OF_ROW = 5
MAX_FAILURES = 24  # in a row
MAX_UNSERVED = 20
MAX_ROUNDS = 6  # of reading a crowded second
GROW_AFTER = 8  # pages that succeeded
SLACK = 1.05  # by which a slice may hold more rows than expected without costing another page

T = TypeVar("T")


class Page(NamedTuple, Generic[T]):
    """The answer to a request: its rows by id, and their creation times as shown, in seconds and in order.

    An unreadable time is left out. `total` counts the rows of the slice, hidden ones too; None where the
    server does not count.
    """

    rows: Mapping[str, T]
    times: Sequence[float]
    total: int | None
    more: bool


class Failure(Enum):
    """What a failed request means for its rows."""

    HEAVY = auto()  # they were too many
    QUICK = auto()  # one of them may be impossible to serve, or it was chance
    UNAVAILABLE = auto()  # nothing: the server cannot be reached, or serves nobody
    RATE_LIMITED = auto()  # nothing, and it is no failure of this request


@dataclass(eq=False, slots=True)
class _Crowd:
    """A second that is read by offset, in rounds over all of its runs.

    Between two pages runs leave and others come, and each shifts all that follow. But a run that is shown
    again by a later round was there when that round began: if these, and the rows that the round could not
    get, are as many as the last page before or the first page of the round counts, they are all.

    This does not cover a run that leaves after one round showed it and returns during a later one: it counts
    as shown again though it was not there when that round began, and may stand for one that is missing. Nor
    does it cover pages whose count is of another instant than their rows.
    """

    offset: int = 0
    rounds: int = 1
    shown: set[str] = field(default_factory=set)  # in this round
    shown_before: set[str] = field(default_factory=set)  # in any earlier round
    # The totals of the last page of the round before and of the pages of this round.
    totals: list[int | None] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Slice:
    """Runs created in `[since, until)` that were not all seen yet.

    Mutable: it shrinks as pages are served, and `cut` may move its end while a request is under way.
    """

    since: int
    until: int
    rows: int  # to request at most
    expected: float = 0  # rows that it holds, as far as known
    pace: float = math.inf  # seconds per row, as last shown
    is_counted: bool = False  # whether its rows are part of the project's total
    failures: int = 0  # in a row
    is_requested: bool = False
    crowd: _Crowd | None = None


class SliceRequest(NamedTuple):
    """Up to `rows` rows of a slice as it was when they were requested; it may have been cut since."""

    slice: Slice
    since: int
    until: int
    rows: int
    offset: int = 0


class Slices(Generic[T]):
    """The listing of one project.

    Most runs are expected to be created between `since` and `until`. `unserved` are the second and offset of
    each row that an earlier listing could not get; the attribute holds those of this one. `partial` names the
    seconds that are not proven to be complete. A listing that cannot be completed raises SourceError.

    The caller alternates `next` (or `cut`) with `served` or `failed`, one of which ends every request. One
    thread only: there is no lock.
    """

    def __init__(
        self,
        page_size: int,
        max_rows: int,
        since: int,
        until: int,
        unserved: Collection[tuple[int, int]] = (),
    ) -> None:
        """Begin with one slice without limits, cut around the seconds in `unserved`.

        `page_size` is the most rows of a request, `max_rows` the most of the listing.
        """
        self.rows: dict[str, T] = {}  # by id, as last shown
        self.total: int | None = 0
        self.partial: list[str] = []
        self.unserved: list[tuple[int, int]] = []
        self.failures = 0  # in a row
        self._page_size, self._max_rows = page_size, max_rows
        self._since, self._until = since, until
        self._size = page_size  # that the server can serve
        self._successes = 0  # since the size was last tried to be doubled
        self._suspects = frozenset(unserved)
        self._slices: list[Slice] = []
        # A second with rows that failed before is read by offset from the start: finding it again by halving
        # would cost dozens of requests at every tick.
        edge = EARLIEST
        for second in sorted({second for second, _ in unserved}):
            if second > edge:
                self._slices.append(Slice(edge, second, page_size))
            self._slices.append(Slice(second, second + 1, page_size, crowd=_Crowd()))
            edge = second + 1
        self._slices.append(Slice(edge, LATEST, page_size))

    @property
    def outstanding(self) -> int:
        """Return the number of slices that are under way or wait; 0 once the listing is done."""
        return len(self._slices)

    def next(self) -> SliceRequest | None:
        """Return the next request; None where answers must come first."""
        return next((self._request(piece) for piece in self._slices if not piece.is_requested), None)

    def cut(self) -> SliceRequest | None:
        """Return a request for half of the largest slice that needs several pages; None where there is none.

        It is for a connection that has nothing else to do: each cut may cost a page.
        """
        large = [
            piece
            for piece in self._slices
            if piece.expected > self._size and piece.crowd is None and not piece.failures
        ]
        if not large:
            return None
        piece = max(large, key=lambda piece: piece.expected)
        # The first page is under way already, so that the cut halves the pages after it.
        pages = math.ceil(SLACK * piece.expected / self._size)
        share = (1 + (pages - 1) // 2) / pages
        time = min(piece.until, self._until) - piece.since
        at = piece.since + round(share * min(time, piece.expected * piece.pace))
        if not piece.since + OVERLAP < at < piece.until:
            return None
        tail = Slice(at, piece.until, self._page_size, (1 - share) * piece.expected, piece.pace, True)
        piece.until, piece.expected = at, share * piece.expected
        self._slices.append(tail)
        return self._request(tail)

    def failed(self, request: SliceRequest, failure: Failure, error: Exception) -> None:
        """Note a failed request. Raises SourceError where no other will do better.

        `error` is the reason for the message; `failure` decides what happens to the slice.
        """
        piece = request.slice
        piece.is_requested = False
        if failure is Failure.RATE_LIMITED:
            return
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            raise SourceError(f"W&B could not be read: {error} ({self.failures} failures in a row)")
        # Nothing was learnt about the rows, and parts of the slice would only be more requests.
        if failure is Failure.UNAVAILABLE:
            return
        # Fewer rows are the cure for a heavy query.
        if failure is Failure.HEAVY:
            self._successes = 0
            if request.rows > 1:
                self._size = min(self._size, request.rows // 2)
                return
        # A quick failure, or a single row that is heavy: it is chance, or a row that cannot be served.
        piece.failures += 1
        is_row = piece.crowd is not None and request.rows == 1
        # The verdict on a single row is final for this run, so that it takes more attempts; a row that failed
        # in an earlier run as well gets one.
        tries = TRIES_OF_ROW if is_row else TRIES
        if is_row and (piece.since, request.offset) in self._suspects:
            tries = 1
        if piece.failures < tries:
            return
        piece.failures = 0
        if is_row:
            self._step_over(piece, error)
        elif piece.until - piece.since > 1:
            self._split(piece, failures=1)
        else:
            piece.rows, piece.crowd = 1, piece.crowd or _Crowd()

    def served(self, request: SliceRequest, page: Page[T]) -> None:
        """Add the rows of a page, and decide what it leaves of its slice.

        Raises SourceError for a page that ignores the filter or the order, and for more than `max_rows` runs.
        """
        request.slice.is_requested = False
        _check_times(request, page)
        self.rows.update(page.rows)
        if len(self.rows) > self._max_rows:
            raise SourceError(
                f"there are more than {self._max_rows:,} runs to read; raise FLEETGAUGE_WANDB_MAX_RUNS"
            )
        piece, total = request.slice, page.total
        self.failures = piece.failures = 0
        piece.rows = min(2 * piece.rows, self._page_size)
        self._size = max(self._size, request.rows)
        self._successes += 1
        # The first page of a slice counts all of its rows. What is cut off later is part of that count.
        if not piece.is_counted:
            piece.is_counted = True
            self.total = None if self.total is None or total is None else self.total + total
        # A last page that counts more rows than were requested lacks some that are not merely hidden.
        is_last = not page.more and (total is None or total <= request.offset + request.rows)
        # The count and the rows may be of different instants: a full page with more behind it is not all, nor
        # is a page of more rows than are counted.
        is_full = page.more and len(page.rows) >= request.rows
        shows_total = len(page.rows) == total and not is_full
        if request.offset == 0 and (is_last or shows_total):
            self._slices.remove(piece)
        elif piece.crowd is not None:
            self._add_to_crowd(request, piece.crowd, page, is_last=is_last)
        else:
            self._continue(request, page)

    def _request(self, piece: Slice) -> SliceRequest:
        """Return a request for the next rows of a slice.

        After enough successes it is for twice as many rows as the server is known to serve: a size that
        never grew again would collapse to one row where answers fail at random.
        """
        size = self._size
        if size < self._page_size and self._successes >= GROW_AFTER:
            size, self._successes = min(2 * size, self._page_size), 0
        rows, offset = min(size, piece.rows), 0
        if piece.crowd is not None:
            offset = piece.crowd.offset
            # Rows that failed in an earlier run are requested alone.
            suspects = [at - offset for second, at in self._suspects if second == piece.since]
            rows = min([rows, *(max(1, distance) for distance in suspects if distance >= 0)])
        piece.is_requested = True
        return SliceRequest(piece, piece.since, piece.until, rows, offset)

    def _continue(self, request: SliceRequest, page: Page[T]) -> None:
        """Continue a slice behind the last time shown."""
        piece = request.slice
        start = math.floor(page.times[-1]) - OVERLAP if page.times else None
        if start is None:
            return self._split(piece)
        if start <= piece.since:  # a crowded second
            return self._split(piece, piece.since + 1)
        # The slice was cut while the page was under way, and the page covers what is left of it.
        if start >= piece.until:
            return self._slices.remove(piece)
        piece.since = start
        if page.total is not None:
            # A slice that was cut since has fewer rows than the page counts.
            counted = page.total if piece.until == request.until else piece.expected
            piece.expected = max(0, counted - len(page.rows))
            piece.pace = (page.times[-1] - page.times[0]) / len(page.rows)
        return None

    def _split(self, piece: Slice, at: int | None = None, failures: int = 0) -> None:
        """Cut a slice in two, in the middle unless `at` is given; read a second by offset.

        The parts begin with `failures`. Both go to the end: all others are tried before them.
        """
        since, until = piece.since, piece.until
        if until - since == 1:
            piece.crowd = _Crowd()
            return
        if at is None:
            likely = [limit for limit in (self._since, self._until) if since < limit < until]
            at = likely[0] if likely else (since + until) // 2
        self._slices.remove(piece)
        for limits in ((since, at), (at, until)):
            half = Slice(*limits, self._page_size, piece.expected / 2, piece.pace, piece.is_counted)
            half.failures = failures
            self._slices.append(half)

    def _add_to_crowd(self, request: SliceRequest, crowd: _Crowd, page: Page[T], *, is_last: bool) -> None:
        """Add a page of a second; end it where that is complete, or where another round would not help."""
        is_new = bool(page.rows.keys() - crowd.shown)
        crowd.shown |= page.rows.keys()
        crowd.totals.append(page.total)
        # Rows that are hidden have offsets, too, so that a page may show what the one before did, or nothing.
        crowd.offset += len(page.rows) if is_new else request.rows
        # A server that never ends its pages must not be read forever.
        if not is_last and crowd.offset <= self._max_rows:
            return
        others = [each for each in self.unserved if each[0] != request.since]
        # Rows that this round showed again, and those that it stepped over.
        known = len(crowd.shown & crowd.shown_before) + len(self.unserved) - len(others)
        is_complete = any(total is not None and known >= total for total in crowd.totals[:2])
        if not is_complete and crowd.rounds < MAX_ROUNDS:
            crowd.offset, crowd.rounds, crowd.totals = 0, crowd.rounds + 1, [page.total]
            crowd.shown_before |= crowd.shown
            crowd.shown = set()
            # Each round finds the rows that cannot be served again, at the offsets that they have by then.
            self.unserved = others
            return
        self._slices.remove(request.slice)
        if not is_complete:
            self.partial.append(iso(request.since))

    def _step_over(self, piece: Slice, error: Exception) -> None:
        """Leave out the row at the current offset of a second, and remember it.

        Raises SourceError where these are too many.
        """
        crowd = piece.crowd or _Crowd()
        place = (piece.since, crowd.offset)
        self.unserved.append(place)
        self._suspects |= {place}  # the next round requests it alone, and once
        if len(self.unserved) > MAX_UNSERVED:
            raise SourceError(f"W&B cannot serve more than {MAX_UNSERVED} runs: {error}")
        crowd.offset += 1
        self._size = self._page_size  # in case that it was the size of this row


def _check_times(request: SliceRequest, page: Page[T]) -> None:
    """Raise SourceError where the server ignores the filter on creation times, or their order."""
    low = request.since - TOLERANCE if request.since > EARLIEST else -math.inf
    high = request.until + TOLERANCE if request.until < LATEST else math.inf
    for time in (min(page.times, default=low), max(page.times, default=high)):
        if not low <= time <= high:
            limits = f"{iso(request.since)}..{iso(request.until)}"
            raise SourceError(
                f"W&B ignores the filter on createdAt: a run of {iso(int(time))} is not in {limits}"
            )
    # Only a page that is not the last depends on the order: the slice continues after its last time.
    latest = accumulate(page.times, max)
    if page.more and any(time < before - OVERLAP for time, before in zip(page.times, latest, strict=True)):
        raise SourceError("W&B ignores the order of runs by createdAt, so that not all can be listed")
