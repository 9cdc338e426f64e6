"""Listings that change while they are read: a server without a network, and what a reader may miss of it.

Each of `CLASSES` is a way in which a listing can be hard to read. A run that was there throughout, and can be
served, must be listed, or the project is lost with an error, or its second is named.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random

from collectors.wandb.slices import LATEST, Failure, Page, SliceRequest, Slices
from common.errors import SourceError
from common.times import EARLIEST, iso

UNTIL = 1_794_700_800
SINCE = UNTIL - 86_400
MAX_REQUESTS = 5_000


@dataclass(eq=False, slots=True)
class Stored:
    """A run as the server stores it."""

    id: str
    created: float
    hidden: bool = False
    unservable: bool = False
    unreadable: bool = False  # its creation time


@dataclass
class Listing:
    """The runs of a project, how the server shows them, and what changes from answer to answer."""

    chance: Random
    runs: list[Stored] = field(default_factory=list)
    page_size: int = 40
    connections: int = 1
    totals: bool = True
    ordered: bool = True
    stable: bool = True  # order of runs that were created at the same time
    shown: Callable[[float], float] = float
    cap: int | None = None  # rows of a page, whatever is requested
    changes: float = 0.0  # how often something changes with an answer
    torn: bool = False  # whether something may change between the count of a page and its rows
    kinds: tuple[str, ...] = ("leave", "come", "create")
    quick: float = 0.0  # how often a request fails
    heavy_above: int | None = None  # rows
    requests: int = 0
    made: int = 0
    left: set[str] = field(default_factory=set)

    def page(self, request: SliceRequest) -> Page[None] | Failure:
        """Answer a request as of now."""
        chance = self.chance
        if self.heavy_above is not None and request.rows > self.heavy_above:
            return Failure.HEAVY
        if chance.random() < self.quick:
            return Failure.QUICK
        low = -math.inf if request.since == EARLIEST else request.since
        high = math.inf if request.until == LATEST else request.until
        total = sum(low <= run.created < high for run in self.runs)
        if self.torn:
            self.change()
        chosen = [run for run in self.runs if low <= run.created < high]
        tie: Callable[[Stored], object] = (lambda run: run.id) if self.stable else lambda _: chance.random()
        if self.ordered:
            chosen.sort(key=lambda run: (run.created, tie(run)))
        else:
            chance.shuffle(chosen)
        begin = request.offset
        end = begin + min(request.rows, self.cap or request.rows)
        part = chosen[begin:end]
        if any(run.unservable for run in part):
            return Failure.QUICK
        visible = [run for run in part if not run.hidden]
        return Page(
            {run.id: None for run in visible},
            [self.shown(run.created) for run in visible if not run.unreadable],
            total if self.totals else None,
            end < len(chosen),
        )

    def change(self) -> None:
        """Change something, or nothing."""
        if self.chance.random() >= self.changes:
            return
        kind = self.chance.choice(self.kinds)
        if kind in {"leave", "swap"} and self.runs:
            gone = self.runs.pop(self.chance.randrange(len(self.runs)))
            self.left.add(gone.id)
        if kind in {"come", "swap"}:
            at = self.chance.choice(self.runs).created if self.runs else float(SINCE)
            self.add(at + self.chance.choice((0.0, 0.0, 0.25, -30.0)))
        if kind == "create":
            self.add(UNTIL + self.requests / 8)

    def add(self, created: float) -> Stored:
        """Make a run."""
        self.made += 1
        # Ids are in no order, so that runs of one second come before and behind each other.
        run = Stored(f"{self.chance.getrandbits(30):08x}-{self.made}", created)
        self.runs.append(run)
        return run

    def read(self, remembered: Collection[tuple[int, int]] = ()) -> Slices[None]:
        """Read it with several requests under way, of which any may be answered next. SourceError: lost."""
        chance, slices = self.chance, Slices[None](self.page_size, 100_000, SINCE, UNTIL, remembered)
        under_way: list[tuple[SliceRequest, Page[None] | Failure | None]] = []
        while slices.outstanding:
            while len(under_way) < self.connections:
                request = slices.next()
                if request is None and slices.outstanding < self.connections:
                    request = slices.cut()
                if request is None:
                    break
                # Some are answered as of when they were sent, others as of when their answer arrives.
                under_way.append((request, self.page(request) if chance.random() < 0.5 else None))
                self.requests += 1
                # Where runs are created as fast as they are read, the deadline ends the listing.
                if self.requests == MAX_REQUESTS:
                    assert self.changes, "it does not end"
                    raise SourceError("the deadline passed")
            assert under_way, "nothing is under way, and nothing is left to request"
            request, answer = under_way.pop(chance.randrange(len(under_way)))
            answer = answer or self.page(request)
            if isinstance(answer, Failure):
                slices.failed(request, answer, SourceError("answered 500"))
            else:
                slices.served(request, answer)
            self.change()
        return slices


def missed(listing: Listing) -> tuple[list[str], str]:
    """Read a listing; return the runs that it misses without saying so, and how it ended.

    Of a second with rows that could not be served, no more runs may be missing than such rows are named.
    """
    before = [(run.id, math.floor(run.created)) for run in listing.runs if run.unservable or not run.hidden]
    try:
        slices = listing.read()
    except SourceError:
        return [], "lost"
    absent = [each for each in before if each[0] not in slices.rows and each[0] not in listing.left]
    missing = Counter(second for _, second in absent)
    unserved = Counter(second for second, _ in slices.unserved)
    silent = [
        run
        for run, second in absent
        if missing[second] > unserved[second] and iso(second) not in slices.partial
    ]
    ended = "partial" if slices.partial else "unserved" if slices.unserved else "complete"
    return silent, ended


def evenly(seed: int, runs: int, **options: object) -> Listing:
    """Make a listing of runs over a day, in pages of 500, read over four connections."""
    made = Listing(Random(seed), page_size=500, connections=4)
    for _ in range(runs):
        made.add(round(made.chance.uniform(SINCE, UNTIL), 3))
    for name, value in options.items():
        setattr(made, name, value)
    return made


def requests(make: Callable[[int], Listing], seeds: int) -> list[int]:
    """Return how many requests each listing takes, the fewest first; all of them must be complete."""
    counts = []
    for seed in range(seeds):
        made = make(seed)
        slices = made.read()
        assert len(slices.rows) == sum(not run.unservable for run in made.runs), seed
        assert slices.partial == []
        counts.append(made.requests)
    return sorted(counts)


def _spread(listing: Listing, number: int) -> None:
    """Add runs over days, unevenly: many in few minutes, some long ago."""
    chance = listing.chance
    for _ in range(number):
        at = chance.choice(
            (
                chance.uniform(SINCE, UNTIL),
                chance.gauss(UNTIL - 20_000, 60),
                UNTIL - chance.expovariate(1 / 400_000),
            )
        )
        listing.add(math.floor(at) if chance.random() < 0.3 else round(at, 6))


def _crowd(listing: Listing, seconds: int, largest: int, *, tie: bool = False) -> None:
    """Add seconds with many runs each, at different fractions or all at the same instant."""
    chance = listing.chance
    for _ in range(seconds):
        second, instant = chance.randrange(SINCE, UNTIL), chance.choice((0.0, 0.5))
        for _ in range(chance.randrange(2, largest)):
            listing.add(second + (instant if tie else chance.randrange(1_000_000) / 1e6))


CLASSES = (
    *("still", "drift", "no totals", "hidden rows", "unservable rows", "swaps", "crowded seconds"),
    *("swaps in crowded seconds", "unservable in a crowd"),
    *("ties in unstable order", "ties larger than a page", "a change at every answer"),
    *("rounded down", "rounded to nearest", "rounded up"),
    *("quick failures", "heavy pages", "short pages", "unreadable times", "no order", "torn counts"),
)
COMBINED = "combinations"


def _make(listing: Listing, kind: str) -> None:
    """Make a listing hard to read in one way."""
    chance, runs, size = listing.chance, listing.runs, listing.page_size
    match kind:
        case "drift":
            listing.changes = chance.uniform(0.05, 0.6)
        case "no totals":
            listing.totals, listing.changes = False, chance.uniform(0.05, 0.6)
        case "hidden rows":
            for run in runs:
                run.hidden = chance.random() < 0.2
            if chance.random() < 0.5:  # more than a page of them in a row
                runs.sort(key=lambda run: run.created)
                begin = chance.randrange(max(1, len(runs)))
                for run in runs[begin : begin + 2 * size]:
                    run.hidden = True
        case "unservable rows":
            for run in chance.sample(runs, min(len(runs), chance.randrange(1, 4))):
                run.unservable = True
        case "swaps":
            listing.kinds, listing.changes = ("swap",), chance.uniform(0.2, 0.8)
        case "crowded seconds":
            _crowd(listing, 3, 2 * size)
        case "swaps in crowded seconds":
            runs.clear()
            _crowd(listing, 2, 4 * size)
            listing.kinds, listing.changes = ("swap",), chance.uniform(0.3, 1)
        case "unservable in a crowd":
            runs.clear()
            listing.page_size = chance.randrange(3, 8)
            _crowd(listing, 2, 3 * listing.page_size)
            for run in chance.sample(runs, 2):
                run.unservable = True
            listing.kinds, listing.changes = ("swap",), chance.uniform(0.05, 0.3)
        case "ties in unstable order":
            _crowd(listing, 8, size, tie=True)
            listing.stable = False
        case "ties larger than a page":
            _crowd(listing, 3, 3 * size, tie=True)
        case "a change at every answer":
            listing.changes = 1.0
            listing.kinds = chance.choice((("leave", "come", "create"), ("swap",), ("leave",), ("come",)))
        case "rounded down":
            listing.shown = math.floor
        case "rounded to nearest":
            listing.shown = lambda seconds: float(math.floor(seconds + 0.5))
        case "rounded up":
            listing.shown = math.ceil
        case "quick failures":
            listing.quick = chance.uniform(0.05, 0.5)
        case "heavy pages":
            listing.heavy_above = chance.randrange(1, 30)
        case "short pages":
            listing.cap = chance.randrange(3, 30)
        case "unreadable times":
            for run in runs:
                run.unreadable = chance.random() < 0.3
        case "no order":
            listing.ordered = False
        case "torn counts":
            del runs[8:]  # as many as a page: one that comes hides another
            listing.page_size, listing.torn = 8, True
            listing.kinds, listing.changes = ("leave", "come", "swap"), chance.uniform(0.2, 0.8)


def listing(kind: str, seed: int) -> Listing:
    """Make a listing of a class, or of several at once."""
    chance = Random(f"{kind}/{seed}")
    made = Listing(chance, page_size=chance.randrange(10, 60), connections=chance.randrange(1, 9))
    _spread(made, chance.choice((0, 1, 40, 150, 150, 300)))
    # That a server ignores the order shows only where a page has several visible rows. Where counts are torn,
    # nothing proves that a crowded second is complete.
    combined = chance.sample(CLASSES[:-2], chance.randrange(2, 6))
    for name in combined if kind == COMBINED else [kind]:
        _make(made, name)
    return made
