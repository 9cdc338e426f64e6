"""The way through a listing, driven without a network: any order of answers, any drift between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.wandb.pages import Page, Span
from collectors.wandb.runs import Run, RunKind, State
from collectors.wandb.settings import Project
from collectors.wandb.walk import TRIES, TRIES_OF_ROW, Walk
from common.errors import SourceError

ANTS = Project("acme", "ants")
MAX_CHANGES = 400  # so that no listing grows faster than it is read for ever


def run(name: str) -> Run:
    return Run(name, State.FINISHED, RunKind.OTHER, 0, 1, 0, 1, 1, False, None, None, {})


@dataclass
class Rows:
    """A listing as a server has it: ids in the order of creation, some of them hidden or not servable."""

    chance: Random
    ids: list[str]
    hidden: set[str] = field(default_factory=set)
    unservable: set[str] = field(default_factory=set)
    totals: bool = True
    cursors: bool = True
    opaque: bool = False
    most: int = 1000  # rows that a page holds, whatever was asked for
    always: set[str] = field(default_factory=set)  # that were there all the time
    came: int = 0
    requests: int = 0

    def __post_init__(self) -> None:
        self.always = {*self.ids}

    def leave(self) -> None:
        """Some leave; of those that cannot be served, none does: where they stood, no answer tells."""
        for _ in range(self.chance.randint(1, 4)):
            leaving = [name for name in self.ids if name not in self.unservable]
            if leaving:
                gone = self.chance.choice(leaving)
                self.ids.remove(gone)
                self.always.discard(gone)

    def swap(self) -> None:
        """As many come as leave, which the total does not tell."""
        before = len(self.ids)
        self.leave()
        while len(self.ids) < before:
            self.come()

    def come(self) -> None:
        self.came += 1
        self.ids.insert(self.chance.randint(0, len(self.ids)), f"new{self.came}")

    def create(self) -> None:
        self.came += 1
        self.ids.append(f"new{self.came}")

    def page(self, span: Span) -> Page | None:
        """What is answered now; None where one of the rows cannot be served."""
        self.requests += 1
        begin = int(span.after) if span.after else span.begin
        until = begin + min(span.asked, self.most)
        places = range(begin, min(until, len(self.ids)))
        if any(self.ids[place] in self.unservable for place in places):
            return None
        shown = [place for place in places if self.ids[place] not in self.hidden]
        known = not self.opaque and (self.cursors or len(shown) == span.asked)
        more = until < len(self.ids)
        return Page(
            begin=span.begin,
            asked=span.asked,
            end=places[-1] if places and not self.opaque else span.begin + span.asked - 1,
            offsets=shown if known else None,
            ids=[self.ids[place] for place in shown],
            runs=[run(self.ids[place]) for place in shown],
            total=len(self.ids) if self.totals else None,
            more=more,
            cursor=str(until) if self.opaque and more else None,
        )


@dataclass
class Drive:
    """Walks through rows with so many requests under way, which are answered in any order."""

    rows: Rows
    size: int
    connections: int
    drift: float = 0.0
    changes: tuple[str, ...] = ("leave", "come", "create")
    changed: int = 0
    shrinking: float = 0.0  # how often a page of more than three rows is too much
    max_runs: int = 10_000

    def outcome(self) -> tuple[set[str], str]:
        """What was found, or why nothing was."""
        try:
            return self.run(), ""
        except SourceError as error:
            return set(), str(error)

    def run(self) -> set[str]:
        chance = self.rows.chance
        walk = Walk(ANTS, self.size, self.max_runs)
        under_way: list[Span] = []
        for _ in range(20_000):
            if walk.done:
                return {run.id for run in walk.listing().runs}
            while len(under_way) < self.connections and (span := walk.next(self.size)):
                under_way.append(span)
            assert under_way, "nothing is under way, and nothing is left to ask"
            span = under_way.pop(chance.randrange(len(under_way)))
            if span.asked > 3 and chance.random() < self.shrinking:
                walk.too_many(span)
                continue
            page = self.rows.page(span)
            if page is None:
                walk.failed(span, SourceError("answered 500"))
            else:
                walk.served(span, page)
            if self.changed < MAX_CHANGES and chance.random() < self.drift:
                self.changed += 1
                getattr(self.rows, chance.choice(self.changes))()
        raise AssertionError("it does not end")


def rows(seed: int, number: int, *, totals: bool = True, cursors: bool = True) -> Rows:
    return Rows(Random(seed), [f"r{place}" for place in range(number)], totals=totals, cursors=cursors)


seeds = st.integers(0, 2**32)
numbers = st.integers(0, 120)
sizes = st.integers(1, 40)
several = st.integers(1, 6)


class TestStillListings:
    @settings(max_examples=200, deadline=None)
    @given(seeds, numbers, sizes, several, st.floats(0, 1), st.booleans(), st.booleans())
    def test_whatever_is_hidden_and_whoever_answers_first_every_row_shown_is_there_once(
        self, seed: int, number: int, size: int, connections: int, hiding: float, totals: bool, cursors: bool
    ) -> None:
        listed = rows(seed, number, totals=totals, cursors=cursors)
        listed.hidden = {name for name in listed.ids if listed.chance.random() < hiding}
        assert Drive(listed, size, connections).run() == {*listed.ids} - listed.hidden

    @settings(max_examples=100, deadline=None)
    @given(seeds, numbers, sizes, several, st.integers(2, 12), st.floats(0, 0.5))
    def test_a_server_that_holds_back_rows_of_every_page_is_asked_for_them(
        self, seed: int, number: int, size: int, connections: int, most: int, hiding: float
    ) -> None:
        listed = rows(seed, number)
        listed.most = most
        listed.hidden = {name for name in listed.ids if listed.chance.random() < hiding}
        assert Drive(listed, size, connections).run() == {*listed.ids} - listed.hidden

    @settings(max_examples=100, deadline=None)
    @given(seeds, numbers, sizes, several, st.booleans(), st.integers(2, 50))
    def test_cursors_that_are_no_offsets_are_followed_one_by_one(
        self, seed: int, number: int, size: int, connections: int, totals: bool, most: int
    ) -> None:
        listed = rows(seed, number, totals=totals)
        listed.opaque, listed.most = True, most
        assert Drive(listed, size, connections).run() == {*listed.ids}

    @settings(max_examples=200, deadline=None)
    @given(seeds, st.integers(1, 200), st.integers(2, 40), several)
    def test_where_nothing_is_hidden_a_row_of_overlap_is_all_that_is_read_twice(
        self, seed: int, number: int, size: int, connections: int
    ) -> None:
        listed = rows(seed, number)
        Drive(listed, size, connections).run()
        assert listed.requests <= 1 + -(-max(0, number - size) // (size - 1))

    @settings(max_examples=200, deadline=None)
    @given(
        seeds, st.integers(1, 120), sizes, several, st.sets(st.integers(0, 119), max_size=5), st.booleans()
    )
    def test_rows_that_cannot_be_served_cost_themselves_unless_too_many_follow_each_other(
        self, seed: int, number: int, size: int, connections: int, bad: set[int], totals: bool
    ) -> None:
        listed = rows(seed, number, totals=totals)
        listed.unservable = {f"r{place}" for place in bad if place < number}
        in_a_row = any({place, place + 1, place + 2, place + 3} <= bad for place in range(number))
        found, failure = Drive(listed, size, connections).outcome()
        if failure:
            assert in_a_row
            assert "one run after another" in failure
        else:
            assert found == {*listed.ids} - listed.unservable


Happens = dict[int, Callable[[Rows], None]]  # by the number of requests after which it does


def named(*places: int) -> set[str]:
    return {f"r{place}" for place in places}


def leave(*places: int) -> Callable[[Rows], None]:
    def happens(listed: Rows) -> None:
        listed.ids = [name for name in listed.ids if name not in named(*places)]

    return happens


def come(place: int, *others: str) -> Callable[[Rows], None]:
    def happens(listed: Rows) -> None:
        listed.ids[place:place] = ["new", *others]

    return happens


def way(listed: Rows, size: int, connections: int, happens: Happens) -> str:
    """Which rows are asked for, and what comes of it; `x4` is four times in a row.

    Something may happen to the rows after the first request, or the second, and so on.
    """
    asked: list[str] = []
    original = listed.page

    def page(span: Span) -> Page | None:
        asked.append(f"{span.begin}-{span.last}")
        answered = original(span)
        happens.get(len(asked), leave())(listed)
        return answered

    listed.page = page  # type: ignore[method-assign]  # the rows of this test, not the product
    found, failure = Drive(listed, size, connections).outcome()
    times = [(rows, len([*same])) for rows, same in groupby(asked)]
    said = " ".join(rows if number == 1 else f"{rows}x{number}" for rows, number in times)
    return f"{said}: {failure.partition(':')[0] or len(found)}"


def case(
    what: str,
    expected: str,
    happens: Happens | None = None,
    number: int = 12,
    size: int = 5,
    connections: int = 1,
    **of_rows: Any,
) -> Any:
    return pytest.param(number, size, connections, of_rows, happens or {}, expected, id=what)


WAYS = [
    case("a page begins with the last row of the one before", "0-4 4-8 8-12: 12"),
    case("without totals", "0-4 4-8 8-12: 12", totals=False),
    case("one page", "0-4: 5", number=5),
    case("no row", "0-4: 0", number=0),
    case("two at once", "0-4 4-8 12-16 8-12 20-24 16-20: 22", number=22, connections=2),
    case("hidden rows at the end of a page", "0-4 2-6 6-10 10-14: 9", hidden=named(3, 4, 5)),
    case("hidden rows without cursors", "0-4 2-6 6-10 10-14: 9", hidden=named(3, 4, 5), cursors=False),
    case("a page of hidden rows", "0-4 3-7 7-11 3-3: 7", hidden=named(*range(4, 9))),
    case(
        "two pages of hidden rows",
        "0-4 2-6 6-10 10-14 14-18 2-2 18-22: 10",
        hidden=named(*range(3, 15)),
        number=22,
    ),
    case(
        "the same without totals",
        "0-4 2-6 7-11 12-16 2-2 16-20 20-24: 10",
        hidden=named(*range(3, 15)),
        number=22,
        totals=False,
    ),
    case("the first rows hidden", "0-4 5-9 9-13: 4", hidden=named(*range(8))),
    case("the last rows hidden", "0-4 2-6 6-10 10-14 2-2: 3", hidden=named(*range(3, 12))),
    case("all rows hidden", "0-4 5-9 9-13: 0", hidden=named(*range(12))),
    case(
        "a row that cannot be served", "0-4 4-8x4 4-6x2 4-5 6-6x5 7-7 5-5 8-12 7-8: 11", unservable=named(6)
    ),
    case("the first row cannot", "0-4x4 0-2x2 0-1x2 0-0x5 1-1 1-5 5-9 9-13: 11", unservable=named(0)),
    case(
        "the last row cannot",
        "0-4 4-8 8-12x4 8-10 10-11x2 10-10 11-11x5 12-12 10-10: 11",
        unservable=named(11),
    ),
    case(
        "the last row cannot, without totals",
        "0-4 4-8 8-12x4 8-10 10-11x2 10-10 11-11x5 12-12 10-10: 11",
        unservable=named(11),
        totals=False,
    ),
    case("two in a row cannot", "0-4 4-8x4 4-6x2 4-5 6-6x5 7-7x5 8-12 5-5: 10", unservable=named(6, 7)),
    case(
        "three in a row cannot",
        "0-4 4-8x4 4-6x2 4-5 6-6x5 7-7x5 8-12x4 8-10x2 8-9x2 8-8x5 9-9 5-5 9-13: 9",
        unservable=named(6, 7, 8),
    ),
    case(
        "four in a row cannot",
        "0-4 4-8x4 4-6x2 4-5x2 4-4 5-5x5 6-6x5 7-7x5 8-12x4 8-10x2 8-9x2 8-8x5: "
        "W&B fails on one run after another, 4 so far",
        unservable=named(5, 6, 7, 8),
    ),
    case(
        "two of one page cannot",
        "0-4 4-8x4 4-6x2 4-5x2 4-4 5-5x5 6-6 4-4 6-8x4 6-7 8-12x2 8-10x2 8-9x2 8-8x5 9-9 7-7 9-13: 10",
        unservable=named(5, 8),
    ),
    case(
        "one cannot beside hidden ones",
        "0-4 3-7x4 3-5 3-6x2 3-4 6-6x5 7-11 3-3: 8",
        unservable=named(6),
        hidden=named(4, 5, 7),
    ),
    case(
        "one cannot, two at once",
        "0-4 4-8x2 8-12 12-16 4-8 16-20 20-24 4-8 4-6x2 4-5 6-6x5 7-7 5-5 7-8: 21",
        unservable=named(6),
        number=22,
        connections=2,
    ),
    case("a row left before the page", "0-4 4-8 0-4 4-8 8-12: 12", {1: leave(0)}),
    case("many rows left", "0-4 4-8 8-12 4-8 0-4 4-8 8-12 12-16: 22", {2: leave(*range(7))}, number=22),
    case(
        "all known rows left",
        "0-4 4-8 8-12 12-16 16-20 12-16 8-12 4-8: the runs of acme/ants move while they are read",
        {4: leave(*range(17))},
        number=32,
    ),
    case("a row left behind the page", "0-4 4-8 8-12: 11", {1: leave(8)}),
    case("a row came before the page", "0-4 4-8 8-12: 12", {1: come(0)}),
    case(
        "many rows came before the page",
        "0-4 4-8 8-12 12-16 16-20: 15",
        {1: come(0, "b", "c", "d", "e", "f", "g")},
    ),
    case("a row came at the end", "0-4 4-8 8-12: 12", {3: come(12)}),
    case("many came at the end", "0-4 4-8 8-12 12-16: 17", {2: come(12, "b", "c", "d", "e")}),
    case(
        "rows left twice",
        "0-4 4-8 8-12 4-8 8-12 0-4 4-8 8-12 12-16 16-20: 22",
        {2: leave(0), 4: leave(1, 2)},
        number=22,
    ),
    case(
        "rows leave at every page",
        "0-4 4-8 0-4 4-8 0-4 4-8 0-4 4-8: the runs of acme/ants move while they are read",
        {step: leave(step) for step in range(1, 40)},
        number=42,
    ),
    case(
        "a row left while hidden ones were passed",
        "0-4 3-7 7-11 0-3 2-6 6-10 2-2: 7",
        {2: leave(0)},
        hidden=named(*range(4, 9)),
    ),
    case(
        "a row left while one could not be served",
        "0-4 4-8x4 4-6x2 4-5 6-6x2 5-6x2 5-5x5 1-5x4 1-3 3-4 5-5x5 6-6 4-4 6-8 8-12: 11",
        {9: leave(0)},
        unservable=named(6),
    ),
    case(
        "a row came while one could not be served",
        "0-4 4-8x4 4-6x2 4-5 6-6x2 6-8x2 6-7x2 6-6 7-7x5 8-12 6-6: 11",
        {9: come(0)},
        unservable=named(6),
    ),
    case(
        "a row left before the page was proven",
        "0-4 4-8x4 4-6x2 4-5 6-6x5 7-7 5-5 8-12 7-8 3-7x4 3-5x2 3-4 5-5x5 6-6 6-8: 11",
        {16: leave(0)},
        unservable=named(6),
    ),
    case("cursors that are no offsets", "0-4 5-9 10-14: 12", opaque=True),
    case(
        "such cursors and a row that cannot be served",
        "0-4 5-9: W&B's cursor '5' is not an offset, so no row can be stepped over",
        opaque=True,
        unservable=named(6),
    ),
    case("a server that holds back rows", "0-4 2-6 4-6 6-10 8-10 10-14: 12", most=3),
    case(
        "a server that holds back rows, two at once",
        "0-4 2-6 4-6 10-14 6-10 14-18 8-10 18-22 12-14 16-18 20-24: 22",
        most=3,
        number=22,
        connections=2,
    ),
    case(
        "a server that holds back rows, some hidden",
        "0-4 1-5x2 4-5 1-4 5-9 6-9 9-13 8-9: 9",
        most=3,
        hidden=named(2, 3, 7),
    ),
    case(
        "three cannot, two of them side by side",
        "0-4x4 0-2 2-3x2 2-2 3-3x5 4-4x5 5-5 2-2 5-9x4 5-7x2 5-6x2 5-5 6-6x5 7-7 5-5 7-9 9-13: 9",
        unservable=named(3, 4, 6),
    ),
    case(
        "the row between two pages cannot",
        "0-4 4-8x4 4-6 6-7 8-12x2 8-10x2 8-9x2 8-8x5 9-9 7-7 9-13: 11",
        unservable=named(8),
    ),
    case(
        "the row between two pages cannot, two at once",
        "0-4 4-8x2 8-12 12-16 4-8 16-20 20-24 4-8 4-6 6-7 8-12 8-10x2 8-9x2 8-8x5 9-9 7-7 9-12: 21",
        unservable=named(8),
        number=22,
        connections=2,
    ),
    case(
        "the row between two pages and the next one cannot",
        "0-4 4-8x4 4-6 6-7 8-12x2 8-10x2 8-9x2 8-8x5 9-9x5 10-10 7-7 10-12 12-16 16-20 20-24: 20",
        unservable=named(8, 9),
        number=22,
    ),
    case("pages of two rows", "0-1 1-2 2-3: 4", number=4, size=2),
    case("pages of one row", "0-0 1-1 0-0 2-2 1-1 3-3 2-2: 4", number=4, size=1),
    case(
        "pages of two rows, of which one left",
        "0-1 1-2 2-3 3-4 2-3 4-5 3-4: 6",
        {3: leave(0)},
        number=6,
        size=2,
    ),
    case(
        "pages of two rows, of which one is hidden",
        "0-1 1-2 2-3 1-1 3-4 4-5: 5",
        number=6,
        size=2,
        hidden=named(2),
    ),
    case(
        "pages of two rows, of which one cannot be served",
        "0-1 1-2x4 1-1 2-3x2 2-2x5 3-4 1-1 4-5: 5",
        number=6,
        size=2,
        unservable=named(2),
    ),
    case(
        "pages of one row, of which one left",
        "0-0 1-1 0-0 2-2 0-0 1-1 0-0 2-2 1-1 3-3 2-2 3-3 4-4 3-3: 6",
        {3: leave(0)},
        number=6,
        size=1,
    ),
    case(
        "pages of one row, of which one is hidden",
        "0-0 1-1 0-0 2-2 3-3 1-1 4-4 3-3 5-5 4-4: 5",
        number=6,
        size=1,
        hidden=named(2),
    ),
    case(
        "a server that shows one row of each page",
        "0-4x2 1-4 0-1 1-4 2-4 1-2 2-4 3-4 2-3 4-8 3-4 4-8 5-9 4-5: 6",
        number=6,
        most=1,
    ),
    case(
        "a row left behind hidden ones",
        "0-4 3-7 7-11 3-3 4-7 0-3 3-7 7-11 3-3: 6",
        {3: leave(11)},
        hidden=named(*range(4, 9)),
    ),
    case(
        "the last row shown left while hidden ones were passed",
        "0-4 3-7 7-11 0-3 2-6 6-10 2-2: 7",
        {2: leave(3)},
        hidden=named(*range(4, 9)),
    ),
    case(
        "a row came while hidden ones were passed",
        "0-4 3-7 7-11 0-3 3-7 7-11 4-4 11-15: 8",
        {2: come(0)},
        hidden=named(*range(4, 9)),
    ),
    case(
        "a row left and came while hidden ones were passed",
        "0-4 3-7 7-11 0-3 2-6 6-10 2-2 10-14: 8",
        {2: leave(0), 3: come(11)},
        hidden=named(*range(4, 9)),
    ),
    case(
        "a row left while one could not be served, two at once",
        "0-4 4-8x2 8-12 4-8x2 4-6x2 4-5 6-6 5-6x2 5-5x5 1-5x4 1-3 3-4 5-5x5 6-6 4-4 6-8: 11",
        {9: leave(0)},
        unservable=named(6),
        connections=2,
    ),
    case("a row left without totals", "0-4 4-8 0-4 4-8 8-12: 12", {1: leave(0)}, totals=False),
    case(
        "rows left without cursors",
        "0-4 3-7 7-11 5-7 1-5 3-7: 10",
        {2: leave(0, 1)},
        cursors=False,
        hidden=named(3, 7),
    ),
    case(
        "many rows left and came back",
        "0-4 4-8 8-12 4-8 0-4 4-8 8-12 12-16: 23",
        {2: leave(*range(7)), 4: come(0)},
        number=22,
    ),
    case("all but the first and the last row hidden", "0-4 5-9 9-13 0-0: 2", hidden=named(*range(1, 11))),
    case(
        "one cannot be served where another row was",
        "0-0x5 1-1 2-2x5 3-3 1-1x5 0-0 1-1x5 2-2 3-3x5 4-4 2-2: 1",
        {1: come(1), 12: come(0)},
        number=2,
        size=1,
        unservable=named(0, 1),
    ),
    case(
        "one cannot be served behind rows that left",
        "0-0 1-1 0-0 2-2 0-0 1-1 0-0 2-2 1-1 3-3x5 4-4 2-2: 4",
        {3: leave(1, 4)},
        number=6,
        size=1,
        cursors=False,
        unservable=named(5),
    ),
    case(
        "every other row cannot be served, and rows move",
        "0-0 1-1 0-0x2 1-1 0-0 1-1 0-0 2-2x5 3-3x5 4-4 1-1 5-5x5 6-6 4-4 7-7 6-6: 5",
        {2: leave(3), 3: come(7)},
        number=8,
        size=1,
        unservable=named(2, 4, 6),
    ),
    case(
        "rows left around rows that cannot be served",
        "0-0 1-1 0-0 2-2 1-1 3-3 2-2 4-4 2-2 3-3 0-0 1-1 2-2 3-3 2-2 4-4x5 5-5 3-3 5-5 6-6 5-5: 7",
        {7: leave(1, 6, 7, 10), 9: leave(4)},
        size=1,
        cursors=False,
        unservable=named(8, 10),
    ),
    case(
        "a row left between hidden ones, without totals",
        "0-2 2-4 3-5 6-8 3-3 1-3 2-4 4-6 2-2: 4",
        {3: leave(1)},
        number=8,
        size=3,
        totals=False,
        hidden=named(0, 4, 5, 7),
    ),
    case(
        "the last row shown left, and rows behind it",
        "0-4 2-6 0-2 1-5: 3",
        {1: leave(3, 4, 5, 6), 4: come(2)},
        number=8,
        cursors=False,
        hidden=named(2, 3, 7),
    ),
    case(
        "rows left while two were asked for",
        "0-0 1-1 0-0x2 1-1 0-0: 2",
        {2: leave(0, 1, 4, 5)},
        number=6,
        size=1,
        connections=2,
        totals=False,
        hidden=named(3, 4, 5),
    ),
    case(
        "a row came at the end while two were asked for",
        "0-0 1-1 0-0 3-3 2-2 4-4 5-5 0-0 2-2 1-1 3-3 1-1 2-2 3-3 4-4 6-6 5-5: 7",
        {3: come(6)},
        number=6,
        size=1,
        connections=2,
    ),
    case(
        "rows came among hidden ones while three were asked for",
        "0-0 1-1 3-3 4-4 2-2 5-5 0-0 6-6 1-1 7-7 2-2 3-3 10-10 9-9 11-11 8-8 5-5 10-10 12-12 11-11 "
        "13-13 12-12: 5",
        {2: come(2), 3: come(5)},
        size=1,
        connections=3,
        cursors=False,
        hidden=named(*range(8)),
    ),
    case(
        "rows left at two seams",
        "0-2 2-4 0-2 2-4 4-6 2-4 4-6: 8",
        {1: leave(2), 4: leave(5)},
        number=8,
        size=3,
        cursors=False,
    ),
    case(
        "a page got no further",
        "0-7x3 3-10: 3",
        {1: come(0)},
        number=4,
        size=8,
        connections=2,
        cursors=False,
        totals=False,
        most=3,
        hidden=named(0, 1),
    ),
    case("six rows, two at once", "0-4 4-8: 6", number=6, connections=2),
    case(
        "one of two rows left, of which one is shown at once",
        "0-7x2 1-8 0-1: 2",
        {2: leave(0)},
        number=2,
        size=8,
        most=1,
    ),
    case(
        "four of six hidden rows at once, two requests",
        "0-4x2 4-8: 0",
        number=6,
        connections=2,
        most=4,
        hidden=named(*range(6)),
    ),
    case(
        "a row came where one could not be served",
        "0-0x5 1-1x3 2-2x5 1-1x5 0-0 1-1x5 2-2 0-0: 1",
        {7: come(1), 12: leave(0)},
        number=2,
        size=1,
        totals=False,
        unservable=named(0, 1),
        hidden=named(1),
    ),
]


@pytest.mark.parametrize(("number", "size", "connections", "of_rows", "happens", "expected"), WAYS)
def test_the_way_through_a_listing(
    number: int, size: int, connections: int, of_rows: dict[str, Any], happens: Happens, expected: str
) -> None:
    assert way(replace(rows(1, number), **of_rows), size, connections, happens) == expected


@pytest.mark.parametrize(("number", "lost"), [(12, ""), (13, "acme/ants has more than 12 runs to read")])
def test_more_runs_than_are_allowed_lose_the_project(number: int, lost: str) -> None:
    found, failure = Drive(rows(1, number), 5, 1, max_runs=12).outcome()
    assert (len(found), failure.partition(";")[0]) == (0 if lost else 12, lost)


@pytest.mark.parametrize(
    ("number", "lost"), [(20, ""), (21, "W&B fails on one run after another, 21 so far")]
)
def test_more_rows_that_cannot_be_served_than_are_stepped_over_lose_the_project(
    number: int, lost: str
) -> None:
    listed = replace(rows(1, 66), unservable=named(*range(2, 2 + 3 * number, 3)))
    found, failure = Drive(listed, 5, 1).outcome()
    assert (len(found), failure.partition(":")[0]) == (0 if lost else 46, lost)


def test_a_listing_that_shows_nothing_is_followed_for_twice_the_runs_and_500_pages() -> None:
    listed = replace(rows(1, 3000, totals=False), hidden=named(*range(3000)))
    assert Drive(listed, 5, 1, max_runs=100).outcome() == (set(), "the listing of acme/ants does not end")
    assert listed.requests == 1 + (2 * 100 + 500 * 5) // 5


class TestDrift:
    @settings(max_examples=400, deadline=None)
    @given(
        seeds,
        st.integers(1, 120),
        st.integers(2, 40),
        several,
        st.floats(0, 0.8),
        st.booleans(),
        st.booleans(),
        st.one_of(st.just(1000), st.integers(2, 12)),
        st.sampled_from([("leave", "come", "create"), ("swap",), ("leave", "create")]),
        st.sampled_from([0.0, 0.2]),
    )
    @example(0, 7, 2, 1, 0.5, False, True, 1000, ("leave", "come", "create"), 0.0)
    def test_no_row_that_was_there_all_the_time_is_missed_in_silence(
        self,
        seed: int,
        number: int,
        size: int,
        connections: int,
        drift: float,
        totals: bool,
        cursors: bool,
        most: int,
        changes: tuple[str, ...],
        shrinking: float,
    ) -> None:
        """Where every page shows two rows, each seam can be proven, so this holds whatever the drift is."""
        listed = rows(seed, number, totals=totals, cursors=cursors)
        listed.most = most
        drive = Drive(listed, size, connections, drift, changes, shrinking=shrinking)
        found, failure = drive.outcome()
        if failure:
            assert drive.changed, failure
        else:
            assert found >= listed.always

    @settings(max_examples=400, deadline=None)
    @given(
        seeds,
        st.integers(1, 120),
        sizes,
        several,
        st.floats(0, 0.8),
        st.booleans(),
        st.one_of(st.just(1000), st.integers(2, 12)),
        st.sampled_from([("leave",), ("create",), ("come", "create")]),
        st.floats(0, 0.8),
        st.sets(st.integers(0, 119), max_size=4),
    )
    @example(203, 4, 1, 4, 0.1, True, 4, ("leave",), 0.3, set())
    @example(735, 15, 3, 1, 0.3, False, 1000, ("leave",), 0.6, set())
    @example(20353, 31, 5, 3, 0.1, False, 4, ("come", "create"), 0.0, {19})
    @example(365, 29, 11, 1, 0.2, False, 1000, ("leave",), 0.6, {16})
    @example(1269, 19, 27, 1, 0.1, False, 1000, ("leave",), 0.5, {13})
    @example(354, 10, 3, 1, 0.2, True, 1000, ("leave",), 0.5, set())
    @example(16, 15, 16, 3, 0.1, True, 1000, ("come", "create"), 0.7, {4, 11})
    @example(626, 15, 8, 1, 0.2, True, 3, ("leave",), 0.7, set())
    @example(2015025, 10, 14, 1, 0.3, True, 3, ("leave",), 0.6, set())
    def test_what_cannot_be_proven_is_believed_only_while_the_total_stands_still(
        self,
        seed: int,
        number: int,
        size: int,
        connections: int,
        drift: float,
        cursors: bool,
        most: int,
        changes: tuple[str, ...],
        hiding: float,
        bad: set[int],
    ) -> None:
        """Across a run that cannot be served, or a page of hidden ones, no two pages have a row in common.

        As many rows that come as leave meanwhile are not noticed there: the total is all that tells.
        """
        listed = rows(seed, number, cursors=cursors)
        listed.most = most
        listed.hidden = {name for name in listed.ids if listed.chance.random() < hiding}
        listed.unservable = {f"r{place}" for place in bad if place < number}
        found, failure = Drive(listed, size, connections, drift, changes).outcome()
        assert failure or found >= listed.always - listed.hidden - listed.unservable

    def test_rows_that_leave_and_come_before_a_run_that_cannot_be_served_are_noticed(self) -> None:
        listed = rows(1, 12)
        listed.unservable = {"r6"}
        drive = Drive(listed, 4, 1)
        original = listed.page

        def page(span: Span) -> Page | None:
            answered = original(span)
            if answered is None and span.asked == 1:
                tried.append(span.begin)
                if len(tried) == TRIES_OF_ROW:  # the total stays, and what lies behind r6 moves
                    listed.ids.remove("r0")
                    listed.ids.append("r12")
            return answered

        tried: list[int] = []
        listed.page = page  # type: ignore[method-assign]  # the rows of this test, not the product
        assert drive.run() >= {f"r{place}" for place in range(1, 12)} - {"r6"}

    @settings(max_examples=200, deadline=None)
    @given(seeds, st.integers(1, 120), st.integers(2, 40), several, st.floats(0, 0.5))
    def test_runs_that_are_created_meanwhile_never_cost_a_project(
        self, seed: int, number: int, size: int, connections: int, drift: float
    ) -> None:
        listed = rows(seed, number)
        found = Drive(listed, size, connections, drift, ("create",)).run()
        assert found >= listed.always

    @settings(max_examples=200, deadline=None)
    @given(seeds, st.integers(20, 120), st.integers(5, 40), several)
    def test_a_single_change_is_read_again_and_costs_nothing(
        self, seed: int, number: int, size: int, connections: int
    ) -> None:
        listed = rows(seed, number)
        drive = Drive(listed, size, connections, 0.4, ("leave", "come", "create"))

        def once() -> None:
            if drive.changed:
                drive.drift = 0.0

        found: set[str] = set()
        original = listed.page

        def page(span: Span) -> Page | None:
            once()
            return original(span)

        listed.page = page  # type: ignore[method-assign]  # the rows of this test, not the product
        found = drive.run()
        assert found >= listed.always

    def test_rows_that_never_stand_still_lose_the_project_not_some_of_its_runs(self) -> None:
        listed = rows(1, 60)
        drive = Drive(listed, 10, 1)
        original = listed.page

        def page(span: Span) -> Page | None:
            answered = original(span)
            listed.always.discard(listed.ids.pop(0))
            listed.create()
            return answered

        listed.page = page  # type: ignore[method-assign]
        with pytest.raises(SourceError, match="the runs of acme/ants move while they are read"):
            drive.run()
        assert listed.requests == 8

    @settings(max_examples=150, deadline=None)
    @given(seeds, st.integers(10, 120), st.integers(4, 40), several, st.sampled_from([True, False]))
    def test_pages_that_shrink_on_the_way_leave_no_gap(
        self, seed: int, number: int, size: int, connections: int, totals: bool
    ) -> None:
        listed = rows(seed, number, totals=totals)
        drive = Drive(listed, size, connections, drift=0.1, shrinking=0.2)
        found, failure = drive.outcome()
        assert failure or found >= listed.always
        assert drive.changed or not failure


class TestEnds:
    def page(self, span: Span, shown: range, more: bool = False) -> Page:
        ids = [f"r{place}" for place in shown]
        end = shown[-1] if shown else span.last
        return Page(span.begin, span.asked, end, shown, ids, [None] * len(ids), total=12, more=more)

    def ask(self, walk: Walk) -> Span:
        span = walk.next(5)
        assert span is not None
        return span

    def test_a_listing_that_ends_early_is_asked_for_the_rest(self) -> None:
        walk = Walk(ANTS, 5, 100)
        first = self.ask(walk)
        before = walk.begun
        walk.served(first, self.page(first, range(5)))
        assert (before, walk.begun) == (False, True)
        rest = self.ask(walk)
        assert (rest.begin, rest.asked) == (4, 5)
        walk.served(rest, self.page(rest, range(4, 9), more=True))
        last = self.ask(walk)
        walk.served(last, self.page(last, range(8, 12)))
        assert walk.done
        assert walk.listing().listed == 12

    def test_pages_that_get_no_further_lose_the_project(self) -> None:
        walk = Walk(ANTS, 5, 100)
        first = self.ask(walk)
        walk.served(first, self.page(first, range(5), more=True))
        for _ in range(12):
            again = self.ask(walk)
            walk.served(again, self.page(again, range(4, 5), more=True))
        again = self.ask(walk)
        with pytest.raises(SourceError, match="acme/ants does not go on behind row 5"):
            walk.served(again, self.page(again, range(4, 5), more=True))

    def test_one_that_does_so_twice_is_lost(self) -> None:
        walk = Walk(ANTS, 5, 100)
        first = self.ask(walk)
        walk.served(first, self.page(first, range(5)))
        rest = self.ask(walk)
        with pytest.raises(SourceError, match="ended twice at row 5 of 12"):
            walk.served(rest, self.page(rest, range(4, 5)))

    def test_rows_that_are_hidden_at_its_end_do_not_make_it_end_early(self) -> None:
        walk = Walk(ANTS, 20, 100)
        first = self.ask(walk)
        walk.served(first, replace(self.page(first, range(5)), asked=20))
        assert walk.done
        assert walk.listing().unseen == 7

    def test_a_last_page_that_does_not_show_the_row_it_was_asked_from_is_no_end(self) -> None:
        walk = Walk(ANTS, 5, 100)
        first = self.ask(walk)
        walk.served(first, replace(self.page(first, range(5), more=True), total=None))
        second = self.ask(walk)
        assert second.begin == 4
        walk.served(second, replace(self.page(second, range(0)), total=None))
        assert not walk.done
        assert self.ask(walk).begin == 0


def test_an_answer_too_large_to_hold_is_halved_down_to_the_row_that_is_stepped_over() -> None:
    walk = Walk(ANTS, 2, 1000)
    for expected in [(0, 1), (0, 0)]:
        span = walk.next(2)
        assert span is not None
        assert (span.begin, span.last) == expected
        walk.too_large(span, SourceError("too large"))
    assert walk.reached == walk.listing().unserved == 1


def test_a_part_of_a_page_that_failed_begins_anew() -> None:
    walk = Walk(ANTS, 5, 1000)
    for number in range(1, TRIES + 1):
        span = walk.next(5)
        assert span is not None
        assert (span.begin, span.last, span.tries) == (0, 4, number - 1)
        span.failures = number
        walk.failed(span, SourceError("answered 500"))
    part = walk.next(5)
    assert part is not None
    assert (part.begin, part.last, part.tries, part.failures) == (0, 2, 0, 0)


def test_pages_that_are_too_large_are_asked_for_in_parts_that_share_a_row_each() -> None:
    walk = Walk(ANTS, 20, 1000)
    first = walk.next(20)
    assert first is not None
    ids = [f"r{place}" for place in range(20)]
    walk.served(first, Page(0, 20, 19, range(20), ids, [None] * 20, total=90, more=True))
    pages = [span for _ in range(3) if (span := walk.next(20))]
    assert [(span.begin, span.last) for span in pages] == [(19, 38), (38, 57), (57, 76)]
    for span in pages[:2]:
        walk.too_many(span)
    parts = [span for _ in range(6) if (span := walk.next(20))]
    assert [(span.begin, span.last) for span in parts] == [
        *((19, 28), (28, 37), (37, 38)),
        *((38, 47), (47, 56), (56, 57)),
    ]
