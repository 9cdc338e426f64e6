"""All runs of a project that a span of time can concern, page by page, each once.

Knows how listings go wrong: short and empty pages, repeated rows, rows that move while they are read,
runs that cannot be served. Knows nothing of what the runs mean.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections import Counter
from dataclasses import dataclass, field

from collectors.wandb.api import Api, Page, UnservableError
from collectors.wandb.query import touched_since
from collectors.wandb.runs import Run, RunReader
from collectors.wandb.settings import Project
from common.errors import SourceError
from common.net.retry import Deadline
from common.parent import Parent

TRIES = 4  # of a whole page that answers 500, before it is halved
TRIES_OF_PART = 2
MAX_UNSERVED = 20
MAX_UNSERVED_IN_A_ROW = 3
SPARE_PAGES = 500

_OFFSET = re.compile(r"arrayconnection:(\d+)")

log = logging.getLogger(__name__)


@dataclass
class Listing:
    """The runs of a project, what was lost of them by reason, and how many rows were never shown."""

    project: Project
    total: int | None = None
    unserved: int = 0
    errors: int = 0
    _runs: dict[str, Run | None] = field(default_factory=dict)
    _flaws: dict[str, list[str]] = field(default_factory=dict)
    _nameless: int = 0

    @property
    def runs(self) -> list[Run]:
        """Every run that could be read."""
        return [run for run in self._runs.values() if run is not None]

    @property
    def listed(self) -> int:
        """How many different rows were shown, readable or not."""
        return len(self._runs) + self._nameless

    @property
    def unseen(self) -> int | None:
        """How many rows were counted but not shown; None where the server does not count them."""
        return None if self.total is None else max(0, self.total - self.listed)

    @property
    def dropped(self) -> Counter[str]:
        """What was lost, by reason."""
        lost = Counter(reason for flaws in self._flaws.values() for reason in flaws)
        lost.update(unserved_run=self.unserved, malformed_run=self._nameless, graphql_error=self.errors)
        return +lost

    def shrunk_to(self, total: int | None) -> int:
        """Note how many rows there are now, and return how many fewer that is than before."""
        before, self.total = self.total, total
        return 0 if before is None or total is None else before - total

    def take(self, page: Page, reading: RunReader) -> None:
        """Read the rows of a page. Of a run that is listed twice, the later row is the newer truth."""
        self.errors += page.errors
        for node in page.nodes:
            key = node.get("id") if isinstance(node, dict) else None
            if not isinstance(key, str):
                self._nameless += 1
                continue
            flaws: list[str] = []
            self._runs[key] = reading.read(node, flaws)
            self._flaws.pop(key, None)
            if flaws:
                self._flaws[key] = flaws


@dataclass(frozen=True)
class Request:
    """Which runs are wanted: of which project, touched since when, created before when, at most how many."""

    project: Project
    since: int
    max_runs: int
    created_before: int | None = None


class _Walk:
    """One way through a listing: where it is, and how large its next step is."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.after: str | None = None
        self.suspects = 0  # rows from here on among which one is known not to be servable
        self.stepped_over = 0
        self._in_a_row = 0

    @property
    def size(self) -> int:
        """How many rows to ask for: half of the suspects, where there are any."""
        return max(1, self.suspects // 2) if self.suspects else self._api.page_size

    @property
    def tries(self) -> int:
        return TRIES_OF_PART if self.suspects else TRIES

    def failed(self, error: UnservableError) -> None:
        """Narrow the suspects down; a single one is stepped over."""
        if self.size > 1:
            self.suspects = self.size
            return
        self.stepped_over += 1
        self._in_a_row += 1
        if self._in_a_row > MAX_UNSERVED_IN_A_ROW or self.stepped_over > MAX_UNSERVED:
            raise SourceError(f"W&B fails on one run after another, {self.stepped_over} so far: {error}")
        log.warning("stepped over a run that W&B cannot serve: %s", error)
        self.after = _moved(self.after, 1)
        self.suspects = 1  # look at the next one alone: where all fail, it is not the runs

    def advanced(self, page: Page) -> None:
        """Go on behind a page. An empty one may have no cursor, or the one it was asked with."""
        self._in_a_row = 0
        self.suspects = max(0, self.suspects - page.asked)
        new = page.cursor not in {None, self.after}
        self.after = page.cursor if new else _moved(self.after, page.asked)

    def back(self, rows: int) -> None:
        """Rows before this place are gone from the listing, and others have moved up past it."""
        self.after = _moved(self.after, -rows)


def fetch(
    api: Api, request: Request, reading: RunReader, deadline: Deadline, parent: Parent | None = None
) -> Listing:
    """List the runs; raises where the listing cannot be complete, for a part of it counts wrong."""
    listing = Listing(request.project)
    walk = _Walk(api)
    filters = touched_since(request.since, request.created_before)
    for _ in range(2 * request.max_runs // api.page_size + SPARE_PAGES):
        try:
            page = api.page(request.project, filters, walk.size, walk.after, walk.tries, deadline)
        except UnservableError as error:
            walk.failed(error)
            listing.unserved = walk.stepped_over
            continue
        listing.take(page, reading)
        if listing.listed > request.max_runs:
            raise SourceError(
                f"{request.project} has more than {request.max_runs:,} runs to read; "
                "raise FLEETGAUGE_WANDB_MAX_RUNS"
            )
        if parent:
            parent.progress(f"listing the runs of {request.project}", listing.listed, page.total)
        gone = listing.shrunk_to(page.total)
        if gone > 0 and walk.after is not None:
            walk.back(gone)
        elif page.more:
            walk.advanced(page)
        else:
            return listing
    raise SourceError(f"the listing of {request.project} does not end")


def _moved(cursor: str | None, rows: int) -> str | None:
    """The cursor so many rows further. W&B's cursors are offsets of the last row that was read."""
    if cursor is None:
        last_read = -1
    else:
        try:
            text = base64.b64decode(cursor, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            text = cursor
        offset = _OFFSET.fullmatch(text)
        if offset is None:
            raise SourceError(f"W&B's cursor {text[:80]!r} is not an offset, so no row can be stepped over")
        last_read = int(offset[1])
    moved = last_read + rows
    return base64.b64encode(f"arrayconnection:{moved}".encode()).decode() if moved >= 0 else None
