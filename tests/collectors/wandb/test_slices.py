"""Slices of creation time: no run is missed without a word, and how many requests a listing takes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wandb.slices import Failure, Page, Slices
from common.errors import SourceError
from common.times import iso
from support.wandb_listings import CLASSES, COMBINED, SINCE, UNTIL, Listing, listing, missed

LISTINGS = 500  # in every run of the tests
KINDS = [*CLASSES, COMBINED]
ERROR = SourceError("answered 500")


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
        assert len(slices.rows) == sum(not run.unservable for run in made.runs)
        assert slices.partial == []
        counts.append(made.requests)
    return sorted(counts)


def page(*times: float | None, total: int | None = None, more: bool = False) -> Page[None]:
    shown = [time for time in times if time is not None]
    return Page({f"r{time}": None for time in times}, shown, total, more)


def started(size: int = 3, **unserved: list[int]) -> Slices[None]:
    return Slices(size, 100, SINCE, UNTIL, {int(second[1:]): rows for second, rows in unserved.items()})


class TestNoSilentMiss:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_run_is_listed_or_named_or_the_project_is_lost(self, kind: str) -> None:
        for seed in range(-(-LISTINGS // len(KINDS))):
            assert missed(listing(kind, seed))[0] == [], (kind, seed)

    @given(st.sampled_from(KINDS), st.integers(10**6))
    def test_the_same_holds_for_any_listing(self, kind: str, seed: int) -> None:
        assert missed(listing(kind, seed))[0] == []

    @pytest.mark.parametrize(
        "kind", ["still", "drift", "swaps", "crowded seconds", "ties in unstable order", "rounded up"]
    )
    def test_what_a_healthy_server_shows_is_always_complete(self, kind: str) -> None:
        assert {missed(listing(kind, seed))[1] for seed in range(20)} == {"complete"}


class TestCost:
    def test_600_runs_take_two_requests(self) -> None:
        assert requests(lambda seed: evenly(seed, 600), 20) == [2] * 20

    def test_many_runs_take_hardly_more_requests_than_pages(self) -> None:
        assert requests(lambda seed: evenly(seed, 20_000), 2)[-1] <= 1.15 * 40

    def test_half_of_the_answers_failing_costs_a_small_multiple(self) -> None:
        none, fifth, half = (
            requests(lambda seed: evenly(seed, 3000, quick=rate), 100)  # noqa: B023
            for rate in (0.0, 0.2, 0.5)
        )
        assert statistics.mean(fifth) <= 1.5 * statistics.mean(none)
        assert half[98] <= 60

    def test_a_server_that_serves_200_rows_is_asked_for_few_more(self) -> None:
        assert requests(lambda seed: evenly(seed, 3000, heavy_above=200), 20)[-1] <= 2.5 * 15

    def test_unservable_run_costs_80_requests_and_5_when_remembered(self) -> None:
        for seed in range(60):
            made = evenly(seed, 600)
            made.runs[seed * 10].unservable = True
            slices = made.read()
            assert (len(slices.rows), slices.partial) == (599, [])
            assert [*slices.unserved] == [math.floor(made.runs[seed * 10].created)]
            assert made.requests <= 80
            made.requests = 0
            again = made.read(slices.unserved)
            assert (len(again.rows), again.unserved, again.partial) == (599, slices.unserved, [])
            assert made.requests <= 5

    def test_one_that_can_be_served_again_is_forgotten(self) -> None:
        made = evenly(1, 600)
        slices = made.read({math.floor(made.runs[5].created): [0]})
        assert (len(slices.rows), slices.unserved, slices.partial) == (600, {}, [])


class TestDecisions:
    def test_a_slice_continues_one_second_before_the_last_time_shown(self) -> None:
        slices = started()
        first = slices.next()
        assert first is not None
        assert (first.since, first.until, first.rows) == (None, None, 3)
        slices.served(first, page(SINCE + 5, SINCE + 9.75, more=True))
        following = slices.next()
        assert following is not None
        assert (following.since, following.until) == (SINCE + 8, None)

    def test_a_row_without_a_readable_time_is_kept_and_never_continued_from(self) -> None:
        slices = started()
        first = slices.next()
        assert first is not None
        slices.served(first, page(SINCE + 5.0, None, more=True))
        following = slices.next()
        assert following is not None
        assert (following.since, [*slices.rows]) == (SINCE + 4, [f"r{SINCE + 5.0}", "rNone"])

    @pytest.mark.parametrize(("outside", "is_error"), [(2.0, False), (2.5, True)])
    def test_a_row_more_than_two_seconds_outside_its_slice_is_an_error(
        self, outside: float, is_error: bool
    ) -> None:
        slices = started()
        first = slices.next()
        assert first is not None
        slices.served(first, page(SINCE + 1, SINCE + 100, more=True))
        following = slices.next()
        assert following is not None
        assert following.since is not None
        if is_error:
            with pytest.raises(SourceError, match="ignores the filter on createdAt"):
                slices.served(following, page(following.since - outside))
        else:
            slices.served(following, page(following.since - outside))
            assert slices.is_done

    def test_a_slice_that_was_cut_is_compared_with_what_was_requested(self) -> None:
        slices = started()
        first = slices.next()
        assert first is not None
        slices.served(first, page(SINCE, SINCE + 10, SINCE + 20, total=30, more=True))
        front = slices.next()
        tail = slices.cut()
        assert front is not None
        assert tail is not None
        assert tail.since == front.slice.until
        slices.served(front, page(UNTIL - 1.0, total=28, more=True))
        assert slices.outstanding == 1

    def test_nothing_is_cut_where_one_more_page_shows_the_rest(self) -> None:
        slices = started(10)
        first = slices.next()
        assert first is not None
        slices.served(first, page(*(SINCE + 10.0 * number for number in range(10)), total=15, more=True))
        assert slices.next() is not None
        assert slices.cut() is None

    def test_a_second_that_is_not_proven_complete_is_named(self) -> None:
        slices = Slices[None](2, 100, SINCE, UNTIL)
        while (request := slices.next()) is not None:
            inside = request.since is None or request.since <= SINCE < (request.until or UNTIL)
            rows = {f"r{at}": None for at in range(request.offset, min(request.offset + 2, 4))}
            shown = Page(rows, [float(SINCE)] * len(rows), 5, request.offset + 2 < 5)
            slices.served(request, shown if inside else Page({}, [], 0, False))
        assert (slices.partial, len(slices.rows), slices.total) == ([iso(SINCE)], 4, 5)

    def test_more_runs_than_allowed_are_an_error(self) -> None:
        slices = Slices[None](10, 5, SINCE, UNTIL)
        request = slices.next()
        assert request is not None
        with pytest.raises(SourceError, match="FLEETGAUGE_WANDB_MAX_RUNS"):
            slices.served(request, page(*(SINCE + number for number in range(6))))


class TestFailures:
    def test_heavy_page_halves_the_rows_until_eight_pages_succeeded(self) -> None:
        slices = started(64)
        request = slices.next()
        assert request is not None
        slices.failed(request, Failure.HEAVY, ERROR)
        sizes = []
        for number in range(11):
            request = slices.next()
            assert request is not None
            sizes.append(request.rows)
            slices.served(request, page(SINCE + 10.0 * number, SINCE + 10.0 * number + 8, more=True))
        assert sizes == [32] * 8 + [64] * 3

    def test_only_one_request_at_a_time_tries_more_rows(self) -> None:
        slices = started(64)
        request = slices.next()
        assert request is not None
        slices.failed(request, Failure.HEAVY, ERROR)
        for number in range(8):
            request = slices.next()
            assert request is not None
            slices.served(
                request, page(SINCE + 10.0 * number, SINCE + 10.0 * number + 8, total=2000, more=True)
            )
        both = slices.next(), slices.cut()
        assert [request and request.rows for request in both] == [64, 32]

    def test_a_quick_failure_is_tried_three_times_and_then_halves_its_slice(self) -> None:
        slices = started()
        for _ in range(3):
            request = slices.next()
            assert request is not None
            assert (request.since, request.until) == (None, None)
            slices.failed(request, Failure.QUICK, ERROR)
        halves = [slices.next(), slices.next()]
        assert [half and (half.since, half.until) for half in halves] == [(None, SINCE), (SINCE, None)]

    @pytest.mark.parametrize(("failure", "number"), [(Failure.ANSWERLESS, 12), (Failure.QUICK, 24)])
    def test_where_nothing_succeeds_the_project_is_lost(self, failure: Failure, number: int) -> None:
        slices = started()
        for _ in range(number - 1):
            request = slices.next()
            assert request is not None
            slices.failed(request, failure, ERROR)
        request = slices.next()
        assert request is not None
        with pytest.raises(SourceError, match="answered 500"):
            slices.failed(request, failure, ERROR)

    def test_a_request_that_is_released_is_no_failure(self) -> None:
        slices = started()
        for _ in range(30):
            request = slices.next()
            assert request is not None
            slices.release(request)
        assert slices.failures == 0

    def test_too_many_runs_that_cannot_be_served_lose_the_project(self) -> None:
        made = evenly(1, 60)
        for run in made.runs[::2]:
            run.unservable = True
        with pytest.raises(SourceError, match="answered 500"):
            made.read()

    def test_nothing_is_requested_before_it_is_due(self) -> None:
        slices = started()
        request = slices.next(5)
        assert request is not None
        request.slice.due = 9
        slices.failed(request, Failure.QUICK, ERROR)
        assert slices.next(8) is None
        assert slices.due == 9
        assert slices.next(9) is not None
