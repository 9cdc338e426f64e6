"""Slices of creation time: no run is missed without a word, and how many requests a listing takes."""

from __future__ import annotations

import math
import statistics

import pytest

from collectors.wandb.slices import LATEST, OVERLAP, Failure, Page, SliceRequest, Slices
from common.errors import SourceError
from common.times import EARLIEST, iso
from support.wandb_listings import CLASSES, COMBINED, SINCE, UNTIL, evenly, listing, missed, requests

LISTINGS = 500  # in every run of the tests
KINDS = [*CLASSES, COMBINED]
ERROR = SourceError("answered 500")


def page(*times: float | None, total: int | None = None, more: bool = False) -> Page[None]:
    shown = [time for time in times if time is not None]
    return Page({f"r{time}": None for time in times}, shown, total, more)


def started(size: int = 3) -> Slices[None]:
    return Slices(size, 100, SINCE, UNTIL)


def following(slices: Slices[None]) -> SliceRequest:
    request = slices.next()
    assert request is not None
    return request


class TestNoSilentMiss:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_run_is_listed_or_named_or_the_project_is_lost(self, kind: str) -> None:
        for seed in range(-(-LISTINGS // len(KINDS))):
            assert missed(listing(kind, seed))[0] == [], (kind, seed)

    @pytest.mark.parametrize(
        "kind",
        [
            *("still", "drift", "swaps", "hidden rows", "crowded seconds", "ties in unstable order"),
            *("ties larger than a page", "rounded up", "quick failures", "heavy pages", "short pages"),
        ],
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

    # A second is read in two rounds, unless the row is alone in it.
    @pytest.mark.parametrize(("alone", "most"), [(True, 5), (False, 9)])
    def test_unservable_run_costs_80_requests_and_5_or_9_when_remembered(
        self, alone: bool, most: int
    ) -> None:
        for seed in range(60):
            made = evenly(seed, 600)
            failing = made.runs[seed * 10]
            for run in made.runs:
                if run is not failing and math.floor(run.created) == math.floor(failing.created):
                    run.created -= 10
            if not alone:
                made.runs[seed * 10 - 1].created = math.floor(failing.created) + 0.5
            failing.unservable = True
            slices = made.read()
            assert (len(slices.rows), slices.total, slices.partial) == (599, 600, [])
            assert [second for second, _ in slices.unserved] == [math.floor(failing.created)]
            assert made.requests <= 80
            made.requests = 0
            again = made.read(slices.unserved)
            assert (len(again.rows), again.total, again.partial) == (599, 600, [])
            assert again.unserved == slices.unserved
            assert made.requests <= most
            failing.unservable = False
            healed = made.read(slices.unserved)
            assert (len(healed.rows), healed.unserved, healed.partial) == (600, [], [])

    def test_unservable_run_in_a_crowded_second_costs_few_more_requests(self) -> None:
        made = evenly(1, 0)
        for number in range(400):
            made.add(SINCE + number / 400)
        made.runs[200].unservable = True
        assert len(made.read().rows) == 399
        assert made.requests <= 120

    def test_rows_are_requested_as_before_once_a_heavy_run_is_stepped_over(self) -> None:
        slices = started(64)
        while not slices.unserved:
            request = following(slices)
            if request.since <= SINCE + 9 < request.until:
                slices.failed(request, Failure.HEAVY, ERROR)
            elif request.until == SINCE:
                waits = request
            else:
                slices.served(request, page(total=0))
        slices.failed(waits, Failure.RATE_LIMITED, ERROR)
        assert following(slices).rows == 64


class TestDecisions:
    def test_a_slice_continues_one_second_before_the_last_time_shown(self) -> None:
        slices = started()
        first = following(slices)
        assert (first.since, first.until, first.rows) == (EARLIEST, LATEST, 3)
        # A row without a readable time is kept, and never continued from.
        slices.served(first, page(SINCE + 5, SINCE + 9.75, None, more=True))
        second = following(slices)
        assert (second.since, second.until, len(slices.rows)) == (SINCE + 8, LATEST, 3)

    @pytest.mark.parametrize(("outside", "is_error"), [(2.0, False), (2.5, True)])
    def test_a_row_more_than_two_seconds_outside_its_slice_is_an_error(
        self, outside: float, is_error: bool
    ) -> None:
        slices = started()
        slices.served(following(slices), page(SINCE + 1, SINCE + 100, more=True))
        second = following(slices)
        if is_error:
            with pytest.raises(SourceError, match="ignores the filter on createdAt"):
                slices.served(second, page(second.since - outside))
        else:
            slices.served(second, page(second.since - outside))
            assert slices.outstanding == 0

    @pytest.mark.parametrize("back", [1.0, 1.5])
    def test_a_time_further_back_than_slices_overlap_is_an_error(self, back: float) -> None:
        slices, shown = started(), page(SINCE + 9, SINCE + 9 - back, SINCE + 20, more=True)
        if back > OVERLAP:
            with pytest.raises(SourceError, match="ignores the order of runs"):
                slices.served(following(slices), shown)
        else:
            slices.served(following(slices), shown)
            assert following(slices).since == SINCE + 19

    def test_a_slice_that_was_cut_is_compared_with_what_was_requested(self) -> None:
        slices = started()
        slices.served(following(slices), page(SINCE, SINCE + 10, SINCE + 20, total=30, more=True))
        front, tail = following(slices), slices.cut()
        assert tail is not None
        assert tail.since == front.slice.until
        slices.served(front, page(UNTIL - 1.0, total=28, more=True))
        assert slices.outstanding == 1

    def test_nothing_is_cut_where_one_more_page_shows_the_rest(self) -> None:
        slices = started(10)
        times = [SINCE + 10.0 * number for number in range(10)]
        slices.served(following(slices), page(*times, total=15, more=True))
        following(slices)
        assert slices.cut() is None

    def test_order_does_not_matter_where_one_page_shows_all(self) -> None:
        slices = started()
        slices.served(following(slices), page(SINCE + 9, SINCE, SINCE + 5))
        assert (slices.outstanding, len(slices.rows)) == (0, 3)

    @pytest.mark.parametrize(("total", "left"), [(3, 1), (4, 0), (5, 1)])
    def test_a_short_page_with_more_behind_it_is_all_if_it_is_what_is_counted(
        self, total: int, left: int
    ) -> None:
        slices = started(9)
        shown = page(*(SINCE + 10.0 * number for number in range(4)), total=total, more=True)
        slices.served(following(slices), shown)
        assert slices.outstanding == left

    @pytest.mark.parametrize(("total", "endless"), [(5, False), (None, False), (None, True)])
    def test_a_second_that_is_not_proven_complete_is_named(self, total: int | None, endless: bool) -> None:
        slices = started(2)
        while (request := slices.next()) is not None:
            rows = {f"r{at % 4}": None for at in range(request.offset, request.offset + 2)}
            shown = Page(rows, [float(SINCE)] * len(rows), total, endless or request.offset < 2)
            inside = request.since <= SINCE < request.until
            slices.served(request, shown if inside else Page({}, [], total and 0, False))
        assert (slices.partial, len(slices.rows), slices.total) == ([iso(SINCE)], 4, total)

    @pytest.mark.parametrize(("totals", "left"), [((3, 3, 3, 2), 1), ((3, 2, 3, 3), 0)])
    def test_a_second_is_proven_by_what_is_counted_between_two_rounds(
        self, totals: tuple[int, ...], left: int
    ) -> None:
        slices = Slices[None](2, 100, SINCE, UNTIL, [(SINCE, 9)])
        for request in [following(slices) for _ in range(3)]:
            if request.since != SINCE:
                slices.served(request, page(total=0))
            else:
                slices.failed(request, Failure.RATE_LIMITED, ERROR)
        shown = {"a": None, "b": None}  # a third is never shown
        for number, total in enumerate(totals):
            rows = {} if number % 2 else shown
            slices.served(following(slices), Page(rows, [float(SINCE)] * len(rows), total, bool(rows)))
        assert (slices.outstanding, slices.partial) == (left, [])

    def test_more_runs_than_allowed_are_an_error(self) -> None:
        slices = Slices[None](10, 5, SINCE, UNTIL)
        with pytest.raises(SourceError, match="FLEETGAUGE_WANDB_MAX_RUNS"):
            slices.served(following(slices), page(*(SINCE + number for number in range(6))))


class TestFailures:
    def test_heavy_page_halves_the_rows_until_eight_pages_succeeded(self) -> None:
        slices = started(64)
        slices.failed(following(slices), Failure.HEAVY, ERROR)
        for number in range(8):
            request, at = following(slices), SINCE + 10.0 * number
            assert request.rows == 32
            slices.served(request, page(at, at + 8, total=2000, more=True))
        trial, other = following(slices), slices.cut()
        assert other is not None
        assert (trial.rows, other.rows) == (64, 32)  # one request at a time tries more rows
        slices.served(trial, page(SINCE + 80, SINCE + 88, total=2000, more=True))
        assert following(slices).rows == 64

    def test_a_quick_failure_is_tried_three_times_and_then_halves_its_slice(self) -> None:
        slices = started()
        for _ in range(3):
            request = following(slices)
            assert (request.since, request.until) == (EARLIEST, LATEST)
            slices.failed(request, Failure.QUICK, ERROR)
        halves = [following(slices), following(slices)]
        assert [(half.since, half.until) for half in halves] == [(EARLIEST, SINCE), (SINCE, LATEST)]

    def test_where_nothing_succeeds_the_project_is_lost(self) -> None:
        slices = started()
        for _ in range(30):  # which is no failure of the request
            slices.failed(following(slices), Failure.RATE_LIMITED, ERROR)
        for _ in range(23):
            slices.failed(following(slices), Failure.QUICK, ERROR)
        with pytest.raises(SourceError, match="answered 500"):
            slices.failed(following(slices), Failure.QUICK, ERROR)

    def test_too_many_runs_that_cannot_be_served_lose_the_project(self) -> None:
        made = evenly(1, 300)
        for run in made.runs[::12]:
            run.unservable = True
        with pytest.raises(SourceError, match="cannot serve more than 20 runs: answered 500"):
            made.read()
