"""Decide which slices of creation time to request next, and when every run was seen.

A run's creation time never changes, while its offset does. So a listing is cut into slices `[since, until)`
of creation time, and a slice is complete once one page shows all of it. If there is more, it continues one
second before the last time shown: shown times may be rounded. A cut is exact, because the server compares
stored times. Where a single second has more runs than a page, they are requested by offset, and the second is
complete only if the pages prove it (`_Crowd`).

Failures stay in their slice. A heavy one halves the rows of the project's pages. A quick one is retried, and
then the slice is halved. A run that cannot be served ends up alone in its second, and is stepped over.

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
from common.times import DAY, EARLIEST, iso

OVERLAP = 1  # seconds by which a slice continues before the last time shown
TOLERANCE = 2  # seconds by which a row may be outside the slice that was requested
LATEST = 4_102_444_800  # the year 2100: no cut is later
TRIES = 3  # of a slice that fails quickly
TRIES_OF_HALF = 2  # of half of such a slice, as long as no retry has helped in this listing
TRIES_OF_ROW = 5
MAX_ANSWERLESS = 12  # requests of a slice in a row that got no answer about its rows
MAX_FAILURES = 24  # in a row
MAX_UNSERVED = 20
MAX_ROUNDS = 6  # of reading a crowded second
GROW_AFTER = 8  # pages in a row that succeeded
FEW_ROWS = 32  # a slice that fails quickly is not requested in smaller pages
SLACK = 1.05  # by which a slice may hold more rows than expected without costing another page

T = TypeVar("T")


class Page(NamedTuple, Generic[T]):
    """The answer to a request: its rows by id, and their creation times as shown, in seconds and in order.

    An unreadable time is left out. `total` counts the rows of the slice, hidden ones too; None where the
    server does not count. `end` is the offset of the last row; None if unknown.
    """

    rows: Mapping[str, T]
    times: Sequence[float]
    total: int | None
    more: bool
    end: int | None = None


class Failure(Enum):
    """What a failed request means for its rows."""

    HEAVY = auto()  # they were too many
    QUICK = auto()  # one of them may be impossible to serve, or it was chance
    ANSWERLESS = auto()  # nothing
    RATE_LIMITED = auto()  # nothing, and it is no failure of this request


@dataclass(eq=False, slots=True)
class _Crowd:
    """A slice that is read by offset.

    Between two pages runs leave and others come, and each shifts all that follow. A run that a page and a
    later one show was there in between. So if the runs that were shown both no later and no earlier than some
    page are as many as that page counts, then they are all: the slice is complete.
    """

    suspects: set[int] = field(default_factory=set)  # offsets that could not be served in an earlier run
    unserved: set[int] = field(default_factory=set)  # offsets that cannot be served
    offset: int = 0
    rounds: int = 1
    seen_before: int = 0  # how many runs were known when this round began
    first: dict[str, int] = field(default_factory=dict)  # by run, the number of the first page that shows it
    last: dict[str, int] = field(default_factory=dict)
    totals: list[int | None] = field(default_factory=list)  # by page

    def limit(self, rows: int) -> int:
        """Return how many rows to request: none that is known to fail, and a suspect alone.

        Advances the offset over rows that cannot be served. `rows` is the most that is allowed.
        """
        while self.offset in self.unserved:
            self.offset += 1
        if self.offset in self.suspects:
            return 1
        following = [at - self.offset for at in self.suspects | self.unserved if at > self.offset]
        return min(rows, *following) if following else rows

    def add(self, page: Page[T], rows: int) -> bool:
        """Add a page that was requested with `rows`; return whether more follow in this round."""
        number = len(self.totals)
        self.totals.append(page.total)
        for run in page.rows:
            self.first.setdefault(run, number)
            self.last[run] = number
        self.suspects.discard(self.offset)
        # Hidden rows have offsets too and are not shown, so that the cursor of the last row is the better
        # evidence. An empty page without a cursor still advances, by what was requested.
        following = self.offset + (len(page.rows) or rows)
        if page.end is not None and page.end >= self.offset:
            following = page.end + 1
        self.offset = following
        return page.more if page.total is None else following < page.total

    @property
    def is_complete(self) -> bool:
        """Return whether the pages so far prove that every run was seen."""
        if self.unserved:  # the second is named anyway
            total = self.totals[-1] if self.totals else None
            return total is not None and len(self.first) + len(self.unserved) >= total
        # Count, for each page, the runs whose first and last page enclose it: a running sum of +1 and -1.
        changes = [0] * (len(self.totals) + 1)
        for run, number in self.first.items():
            changes[number] += 1
            changes[self.last[run] + 1] -= 1
        shown = accumulate(changes)
        return any(
            total is not None and known >= total for known, total in zip(shown, self.totals, strict=False)
        )

    def is_hopeless(self) -> bool:
        """Begin another round; return whether that would not help.

        It would not where the server does not count, after too many rounds, or after one that showed no new
        run.
        """
        known, before = len(self.first), self.seen_before
        self.offset, self.seen_before, self.rounds = 0, known, self.rounds + 1
        return self.totals[-1] is None or self.rounds > MAX_ROUNDS or (self.rounds > 2 and known == before)


@dataclass(eq=False, slots=True)
class Slice:
    """Runs created in `[since, until)`, where None is no limit, that were not all seen yet.

    Mutable: it shrinks as pages are served, and `cut` may move its end while a request is under way.
    """

    since: int | None
    until: int | None
    rows: int  # to request at most
    expected: float | None = None  # rows that it holds; None if unknown
    pace: float = math.inf  # seconds per row, as last shown
    is_counted: bool = False  # whether its rows are part of the project's total
    is_half: bool = False  # of a slice that failed
    request: SliceRequest | None = None  # under way
    failures: int = 0  # in a row
    answerless: int = 0  # in a row
    due: float = 0.0  # when it may be requested again
    crowd: _Crowd | None = None

    def __str__(self) -> str:
        if self.since is not None and self.until == self.since + 1:
            return iso(self.since)
        return "..".join("" if limit is None else iso(limit) for limit in (self.since, self.until))


@dataclass(frozen=True, eq=False, slots=True)
class SliceRequest:
    """Up to `rows` rows of a slice as it was when they were requested; it may have been cut since."""

    slice: Slice
    since: int | None
    until: int | None
    rows: int
    expected: float | None = None  # rows that the slice was expected to hold
    offset: int = 0


class Slices(Generic[T]):
    """The listing of one project.

    Most runs are expected to be created between `since` and `until`. `unserved` are the seconds and offsets
    of rows that an earlier listing could not get; the attribute holds those of this one. `partial` names the
    seconds that are not proven to be complete. A listing that cannot be completed raises SourceError.

    The caller alternates `next` (or `cut`) with `served`, `failed` or `release`, one of which ends every
    request. One thread only: there is no lock.
    """

    def __init__(
        self,
        page_size: int,
        max_rows: int,
        since: int,
        until: int,
        unserved: Mapping[int, Collection[int]] | None = None,
    ) -> None:
        """Begin with one slice without limits, cut around the seconds in `unserved`.

        `page_size` is the most rows of a request, `max_rows` the most of the listing.
        """
        self.rows: dict[str, T] = {}  # by id, as last shown
        self.total: int | None = 0
        self.partial: list[str] = []
        self.unserved: dict[int, list[int]] = {}
        self.size = page_size
        self._page_size, self._max_rows = page_size, max_rows
        self._since, self._until = since, max(since + 1, until)
        self.failures = 0  # in a row
        self._retries_help = False
        self._successes = 0  # in a row, since the size last changed
        self._patience = GROW_AFTER
        self._trial: SliceRequest | None = None  # of twice the size
        self._slices: list[Slice] = []
        # A second with rows that failed before is read by offset from the start: finding it again by halving
        # would cost dozens of requests at every tick.
        edge: int | None = None
        for second, offsets in sorted((unserved or {}).items()):
            if edge is None or second > edge:
                self._slices.append(Slice(edge, second, page_size))
            crowd = _Crowd(suspects=set(offsets))
            self._slices.append(Slice(second, second + 1, page_size, crowd=crowd))
            edge = second + 1
        self._slices.append(Slice(edge, None, page_size))

    @property
    def is_done(self) -> bool:
        """Return whether every slice is complete, or left as partial."""
        return not self._slices

    @property
    def outstanding(self) -> int:
        """Return the number of slices that are under way or wait."""
        return len(self._slices)

    @property
    def due(self) -> float | None:
        """Return when the next slice may be requested; None where all are under way."""
        return min((each.due for each in self._slices if each.request is None), default=None)

    def next(self, now: float = 0.0) -> SliceRequest | None:
        """Return the next request that is due at `now`; None where answers must come first."""
        for each in self._slices:
            if each.request is None and each.due <= now:
                return self._request(each)
        return None

    def cut(self) -> SliceRequest | None:
        """Return a request for half of the largest slice that needs several pages; None where there is none.

        It is for a connection that has nothing else to do: each cut may cost a page. A slice without a lower
        limit, one that failed and one that is read by offset are not cut.
        """
        large = [each for each in self._slices if (each.expected or 0) > self.size and not each.failures]
        for each in sorted(large, key=lambda each: each.expected or 0, reverse=True):
            since, expected = each.since, each.expected or 0
            until = self._until if each.until is None else each.until
            if since is None or each.crowd is not None:
                continue
            pages = math.ceil(expected * SLACK / self.size)
            # The first page is under way already, so that the cut halves the pages after it.
            share = (1 + (pages - 1) // 2) / pages  # what the page under way shows, and half of the rest
            at = since + round(min((until - since) * share, expected * share * each.pace))
            if since + OVERLAP < at < until:
                tail = Slice(at, each.until, self._page_size, expected * (1 - share), each.pace, True)
                each.until, each.expected = at, expected * share
                self._slices.append(tail)
                return self._request(tail)
        return None

    def release(self, request: SliceRequest) -> None:
        """Take back a request that was not answered for a reason that has nothing to do with it."""
        request.slice.request = None
        if self._trial is request:
            self._trial = None

    def failed(self, request: SliceRequest, failure: Failure, error: Exception) -> None:
        """Note a failed request. Raises SourceError where no other will do better.

        `error` is the reason for the message; `failure` decides what happens to the slice.
        """
        piece, is_trial = request.slice, self._trial is request
        self.release(request)
        if failure is Failure.RATE_LIMITED:
            return
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            raise SourceError(f"W&B could not be read: {error} ({self.failures} failures in a row)")
        # Nothing was learnt about the rows: halving the slice would not help. It is retried as it is.
        if failure is Failure.ANSWERLESS:
            piece.answerless += 1
            if piece.answerless >= MAX_ANSWERLESS:
                raise SourceError(f"W&B could not be read: {error} (tried {piece.answerless} times)")
            return
        # Fewer rows are the cure for a heavy query. A trial of twice the size that failed makes the next
        # trial wait for twice as many successes; without that, the size would oscillate.
        if failure is Failure.HEAVY:
            self._successes = 0
            self._patience *= 2 if is_trial else 1
            if request.rows > 1:
                self.size = min(self.size, request.rows // 2)
                return
        # A quick failure, or a single row that is heavy: it is chance, or a row that cannot be served.
        piece.failures += 1
        crowd = piece.crowd
        tries = TRIES_OF_HALF if piece.is_half and not self._retries_help else TRIES
        # The verdict on a single row is final for this run, so that it takes more attempts; a row that failed
        # in an earlier run as well gets one.
        if crowd is not None and request.rows == 1:
            tries = 1 if crowd.offset in crowd.suspects else TRIES_OF_ROW
        if piece.failures < tries:
            return
        piece.failures = 0
        if crowd is None:
            self._halve(piece, failed=True)
        elif request.rows > 1:
            piece.rows = 1
        else:
            self._step_over(piece, crowd, error)

    def served(self, request: SliceRequest, page: Page[T]) -> None:
        """Add the rows of a page, and decide what it leaves of its slice.

        Raises SourceError for a page that ignores the filter or the order, and for more than `max_rows` runs.
        """
        self.release(request)
        self._check_times(request, page)
        self.rows.update(page.rows)
        if len(self.rows) > self._max_rows:
            raise SourceError(
                f"there are more than {self._max_rows:,} runs to read; raise FLEETGAUGE_WANDB_MAX_RUNS"
            )
        self._note_success(request)
        piece = request.slice
        # The first page of a slice counts all of its rows. What is cut off later is part of that count.
        if not piece.is_counted:
            piece.is_counted = True
            self.total = None if self.total is None or page.total is None else self.total + page.total
        if piece.crowd is not None:
            self._add_to_crowd(request, piece, piece.crowd, page)
        else:
            self._continue(request, piece, page)

    def _request(self, piece: Slice) -> SliceRequest:
        """Return a request for the next rows of a slice.

        After enough successes it is a trial of twice the current size, one at a time.
        """
        size = self.size
        # A size that never grew again would collapse to one row where answers fail at random.
        if size < self._page_size and self._successes >= self._patience and self._trial is None:
            size = min(2 * size, self._page_size)
        rows, offset = min(size, piece.rows), 0
        if piece.crowd is not None:
            rows = piece.crowd.limit(rows)
            offset = piece.crowd.offset
        piece.request = request = SliceRequest(piece, piece.since, piece.until, rows, piece.expected, offset)
        if rows > self.size:
            self._trial = request
        return request

    def _note_success(self, request: SliceRequest) -> None:
        """Reset the counts of failures, and let the slice and the project request more rows again."""
        piece = request.slice
        self._retries_help |= piece.failures > 0
        self.failures = piece.failures = piece.answerless = 0
        piece.rows = min(2 * piece.rows, self._page_size)
        self._successes += 1
        if request.rows > self.size:
            self.size, self._successes = request.rows, 0

    def _check_times(self, request: SliceRequest, page: Page[T]) -> None:
        """Raise SourceError where the server ignores the filter on creation times, or their order."""
        low = -math.inf if request.since is None else request.since - TOLERANCE
        high = math.inf if request.until is None else request.until + TOLERANCE
        for time in (min(page.times, default=low), max(page.times, default=high)):
            if not low <= time <= high:
                limits = Slice(request.since, request.until, 0)
                raise SourceError(
                    f"W&B ignores the filter on createdAt: a run of {iso(int(time))} is not in {limits}"
                )
        # Only a page that is not the last depends on the order: the slice continues after its last time.
        latest = accumulate(page.times, max)
        if page.more and any(
            time < before - TOLERANCE for time, before in zip(page.times, latest, strict=True)
        ):
            raise SourceError("W&B ignores the order of runs by createdAt, so that not all can be listed")

    def _continue(self, request: SliceRequest, piece: Slice, page: Page[T]) -> None:
        """Continue a slice behind the last time shown, if it has more.

        A page that shows as many rows as it counts ends the slice. So does a last page, unless it counts more
        rows than were requested: then rows are missing from it that are not merely hidden.
        """
        total, times, number = page.total, page.times, len(page.rows)
        if total is not None and number >= total:
            return self._slices.remove(piece)
        if not page.more and (total is None or total <= request.rows):
            return self._slices.remove(piece)
        start = math.floor(times[-1]) - OVERLAP if times else None
        if start is None or (piece.since is not None and start <= piece.since):
            # No progress: a crowded second, or a page without a time.
            return self._halve(piece, crowded=start is not None, answer=(request, page))
        # The slice was cut while the page was under way, and the page covers what is left of it.
        if piece.until is not None and start >= piece.until:
            return self._slices.remove(piece)
        piece.since = start
        if total is not None:
            repeated = sum(time >= start for time in times)
            shown = number if page.end is None else page.end + 1
            moved = (request.expected or 0) - (piece.expected or 0)  # by cuts since the request
            piece.expected = max(0, total - shown - moved) + repeated
            piece.pace = (times[-1] - times[0]) / number
        return None

    def _halve(
        self,
        piece: Slice,
        *,
        failed: bool = False,
        crowded: bool = False,
        answer: tuple[SliceRequest, Page[T]] | None = None,
    ) -> None:
        """Cut a slice in two, or behind its first second if that is crowded; read a second by offset.

        `failed` makes the halves request fewer rows. `answer` is a page that made no progress: in a slice of
        one second it is the first page by offset.
        """
        at = self._middle(piece)
        if at is None:
            piece.crowd = _Crowd()
            if answer is not None:
                self._add_to_crowd(answer[0], piece, piece.crowd, answer[1])
            else:
                piece.rows = 1
            return
        if crowded and piece.since is not None:
            at = piece.since + 1
        # The rows of a failing slice shrink with it, but not below a few: small pages of rows that are fine
        # would cost more requests than they save.
        rows = min(piece.rows, max(FEW_ROWS, piece.rows // 2)) if failed else piece.rows
        expected = None if piece.expected is None else piece.expected / 2
        self._slices.remove(piece)  # both halves go to the end: all others are tried before them
        for since, until in ((piece.since, at), (at, piece.until)):
            half = Slice(since, until, rows, expected, piece.pace, piece.is_counted, piece.is_half or failed)
            half.due = piece.due
            self._slices.append(half)

    def _middle(self, piece: Slice) -> int | None:
        """Return where to halve a slice; None for a second. Without a limit, cuts get farther and farther."""
        since, until = piece.since, piece.until
        if since is None and until is None:
            return self._since
        if since is None and until is not None:
            at = until - max(DAY, self._until - until)
            return at if at > EARLIEST else None
        if since is not None and until is not None:
            return (since + until) // 2 if until - since > 1 else None
        at = max((since or 0) + 1, ((since or 0) + self._until) // 2, 2 * (since or 0) - self._until)
        return at if at < LATEST else None

    def _add_to_crowd(self, request: SliceRequest, piece: Slice, crowd: _Crowd, page: Page[T]) -> None:
        """Add a page of a second; end it where that is complete, or where another round would not help."""
        more = crowd.add(page, request.rows)
        shows_all = request.offset == 0 and not more and not crowd.unserved
        if shows_all or crowd.is_complete:
            self._slices.remove(piece)
        # A server that never ends its pages must not be read forever.
        elif crowd.offset > 2 * self._max_rows or (not more and crowd.is_hopeless()):
            self._leave_partial(piece)

    def _step_over(self, piece: Slice, crowd: _Crowd, error: Exception) -> None:
        """Leave out the row at the current offset, and remember it.

        Raises SourceError where these are too many.
        """
        # Before the first possible time there is no second to name or to remember.
        if piece.since is None:
            return self._leave_partial(piece)
        crowd.suspects.discard(crowd.offset)
        crowd.unserved.add(crowd.offset)
        self.unserved[piece.since] = sorted(crowd.unserved)
        if sum(map(len, self.unserved.values())) > MAX_UNSERVED:
            raise SourceError(f"W&B cannot serve more than {MAX_UNSERVED} runs: {error}")
        self.size = self._page_size  # in case that it was the size of this row
        if crowd.is_complete:
            self._slices.remove(piece)
        return None

    def _leave_partial(self, piece: Slice) -> None:
        """End a slice whose completeness cannot be proven; it is reported by its times."""
        self._slices.remove(piece)
        self.partial.append(str(piece))
