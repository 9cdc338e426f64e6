"""Listings that change while they are read: a server without a network, and what a reader may miss of it.

Each of `CLASSES` is a way in which a listing can be hard to read. A run that was there throughout, and can be
served, must be listed, or the project is lost with an error, or its second is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from collectors.wandb.slices import Failure, Page, SliceRequest, Slices
from common.errors import SourceError
from common.times import iso

UNTIL = 1_794_700_800
SINCE = UNTIL - 86_400
MAX_REQUESTS = 50_000


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
    offsets: bool = True  # whether cursors show them
    ordered: bool = True
    stable: bool = True  # order of runs that were created at the same time
    shown: Callable[[float], float] = float
    cap: int | None = None  # rows of a page, whatever is requested
    changes: float = 0.0  # how often something changes with an answer
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
        low = -math.inf if request.since is None else request.since
        high = math.inf if request.until is None else request.until
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
        more, last = end < len(chosen), begin + len(part) - 1
        visible = [run for run in part if not run.hidden]
        return Page(
            {run.id: None for run in visible},
            [self.shown(run.created) for run in visible if not run.unreadable],
            len(chosen) if self.totals else None,
            more,
            last if self.offsets and part else None,
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

    def read(self, remembered: dict[int, list[int]] | None = None) -> Slices[None]:
        """Read it with several requests under way, of which any may be answered next. SourceError: lost."""
        chance, slices = self.chance, Slices[None](self.page_size, 100_000, SINCE, UNTIL, remembered)
        under_way: list[tuple[SliceRequest, Page[None] | Failure | None]] = []
        while not slices.is_done:
            while len(under_way) < self.connections:
                request = slices.next()
                if request is None and slices.outstanding < self.connections:
                    request = slices.cut()
                if request is None:
                    break
                # Some are answered as of when they were sent, others as of when their answer arrives.
                under_way.append((request, self.page(request) if chance.random() < 0.5 else None))
                self.requests += 1
                assert self.requests < MAX_REQUESTS, "it does not end"
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
    """Read a listing; return the runs that it misses without saying so, and how it ended."""
    before = [(run.id, run.created) for run in listing.runs if not run.hidden and not run.unservable]
    try:
        slices = listing.read()
    except SourceError:
        return [], "lost"
    named = {*slices.partial, *map(iso, slices.unserved)}
    silent = [
        run
        for run, created in before
        if run not in slices.rows and run not in listing.left and iso(math.floor(created)) not in named
    ]
    ended = "partial" if slices.partial else "unserved" if slices.unserved else "complete"
    return silent, ended


def spread(listing: Listing, number: int) -> None:
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


def crowd(listing: Listing, seconds: int, largest: int) -> None:
    """Add seconds with many runs each, at different fractions."""
    for _ in range(seconds):
        second = listing.chance.randrange(SINCE, UNTIL)
        for _ in range(listing.chance.randrange(2, largest)):
            listing.add(second + listing.chance.randrange(1_000_000) / 1e6)


def tie(listing: Listing, instants: int, largest: int) -> None:
    """Add runs that were created at the same instant."""
    for _ in range(instants):
        at = listing.chance.randrange(SINCE, UNTIL) + listing.chance.choice((0.0, 0.5))
        for _ in range(listing.chance.randrange(2, largest)):
            listing.add(at)


def _hide(listing: Listing) -> None:
    for run in listing.runs:
        run.hidden = listing.chance.random() < 0.2
    if listing.chance.random() < 0.5:  # more than a page of them in a row
        listing.runs.sort(key=lambda run: run.created)
        begin = listing.chance.randrange(max(1, len(listing.runs)))
        for run in listing.runs[begin : begin + 2 * listing.page_size]:
            run.hidden = True


def _make_unservable(listing: Listing) -> None:
    for run in listing.chance.sample(listing.runs, min(len(listing.runs), listing.chance.randrange(1, 4))):
        run.unservable = True


def _drift(listing: Listing) -> None:
    listing.changes = listing.chance.uniform(0.05, 0.6)


def _swap(listing: Listing) -> None:
    listing.kinds, listing.changes = ("swap",), listing.chance.uniform(0.2, 0.8)


def _change_always(listing: Listing) -> None:
    listing.changes = 1.0
    listing.kinds = listing.chance.choice((("leave", "come", "create"), ("swap",), ("leave",), ("come",)))


def _set(**values: object) -> Callable[[Listing], None]:
    def apply(listing: Listing) -> None:
        for name, value in values.items():
            setattr(listing, name, value)

    return apply


def _fail(listing: Listing) -> None:
    listing.quick = listing.chance.uniform(0.05, 0.5)


def _weigh(listing: Listing) -> None:
    listing.heavy_above = listing.chance.randrange(1, 30)


def _shorten(listing: Listing) -> None:
    listing.cap = listing.chance.randrange(3, 30)


def _blur(listing: Listing) -> None:
    for run in listing.runs:
        run.unreadable = listing.chance.random() < 0.3


def _round_half(seconds: float) -> float:
    return float(math.floor(seconds + 0.5))


Trait = Callable[[Listing], None]
CLASSES: dict[str, tuple[Trait, ...]] = {
    "still": (),
    "drift": (_drift,),
    "no totals": (_set(totals=False), _drift),
    "hidden rows": (_hide,),
    "unservable rows": (_make_unservable,),
    "swaps": (_swap,),
    "crowded seconds": (lambda listing: crowd(listing, 3, 2 * listing.page_size),),
    "ties in unstable order": (
        lambda listing: tie(listing, 8, listing.page_size),
        _set(stable=False),
    ),
    "ties larger than a page": (lambda listing: tie(listing, 3, 3 * listing.page_size),),
    "a change at every answer": (_change_always,),
    "rounded down": (_set(shown=math.floor),),
    "rounded to nearest": (_set(shown=_round_half),),
    "rounded up": (_set(shown=math.ceil),),
    "quick failures": (_fail,),
    "heavy pages": (_weigh,),
    "short pages": (_shorten,),
    "unreadable times": (_blur,),
    "opaque cursors": (_set(offsets=False), lambda listing: crowd(listing, 2, 2 * listing.page_size)),
    "no order": (_set(ordered=False),),
}
COMBINED = "combinations"


def listing(kind: str, seed: int) -> Listing:
    """Make a listing of a class, or of several at once."""
    chance = Random(f"{kind}/{seed}")
    made = Listing(chance, page_size=chance.randrange(10, 60), connections=chance.randrange(1, 9))
    spread(made, chance.choice((0, 1, 40, 150, 150, 300)))
    if kind == COMBINED:
        # That a server ignores the order shows only where a page has several visible rows.
        names = sorted(CLASSES.keys() - {"no order"})
        traits = [CLASSES[name] for name in chance.sample(names, chance.randrange(2, 6))]
    else:
        traits = [CLASSES[kind]]
    for trait in traits:
        for apply in trait:
            apply(made)
    return made
