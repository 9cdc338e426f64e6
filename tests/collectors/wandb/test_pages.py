"""Pages by themselves: where their rows are, and how large the next one is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wandb.pages import Anchor, Page, PageSize, cursor_before, offset_of, offsets_of
from support.servers.wandb import cursor


def page(begin: int, end: int, offsets: list[int] | None, *ids: str | None) -> Page:
    return Page(begin, end - begin + 1, end, offsets, ids)


class TestRows:
    def test_rows_are_where_the_page_says(self) -> None:
        shown = page(4, 9, [5, 7, 8], "a", "b", "c")
        assert (shown.first, shown.last) == (5, ("c", 8, 8))

    def test_without_offsets_as_many_rows_as_are_not_shown_may_be_hidden_anywhere(self) -> None:
        shown = page(4, 9, None, "a", "b", "c")
        assert (shown.first, shown.last) == (7, ("c", 6, 9))

    def test_rows_without_an_id_prove_nothing(self) -> None:
        shown = page(4, 7, [4, 5, 6, 7], None, "a", "b", None)
        assert (shown.first, shown.last) == (5, ("b", 6, 6))
        nameless = page(4, 5, [4, 5], None, None)
        assert (nameless.first, nameless.last) == (None, None)

    @pytest.mark.parametrize(
        ("shown", "contradicts"),
        [
            (page(2, 4, [2, 3], "c", "d"), False),
            (page(2, 4, [2, 3], "d", "e"), True),  # it left, or one before it did
            (page(2, 4, [2, 3], "b", "c"), True),  # one before it came
            (page(2, 4, [], *()), True),
            (page(3, 5, [3, 4], "x", "y"), False),  # of what comes behind it
            (page(2, 4, None, "c"), False),
            (page(2, 4, None, "d"), True),
        ],
    )
    def test_a_row_that_is_elsewhere_or_nowhere_says_that_rows_moved(
        self, shown: Page, contradicts: bool
    ) -> None:
        assert shown.contradicts(Anchor("c", 2, 2)) is contradicts

    def test_the_beginning_of_a_listing_never_moves(self) -> None:
        assert page(0, 3, [0], "a").contradicts(Anchor()) is False


class TestOffsets:
    @given(st.integers(0, 10**9))
    def test_a_cursor_is_the_offset_of_the_row_before(self, offset: int) -> None:
        assert offset_of(cursor(offset)) == offset
        assert cursor_before(offset + 1) == cursor(offset)

    @pytest.mark.parametrize(
        "text", [None, 7, "", "b3BhcXVl", "é", "YXJyYXljb25uZWN0aW9uOi0x", b"x", "!" + cursor(5)]
    )
    def test_another_cursor_has_none(self, text: object) -> None:
        assert offset_of(text) is None
        assert cursor_before(0) is None

    def test_rows_are_where_their_cursors_say(self) -> None:
        assert offsets_of([cursor(4), cursor(5), cursor(6)], 4, 3) == range(4, 7)
        assert offsets_of([cursor(4), cursor(6)], 4, 3) == [4, 6]
        assert offsets_of([cursor(2), cursor(3), cursor(4), cursor(5)], 4, 2) == range(2, 6)

    def test_without_cursors_a_full_page_tells_and_another_does_not(self) -> None:
        assert offsets_of([None, None], 4, 2) == range(4, 6)
        assert offsets_of([None], 4, 2) is None
        assert offsets_of([cursor(6), cursor(5)], 4, 3) is None
        assert offsets_of([cursor(5), cursor(5)], 4, 3) is None
        assert offsets_of([], 4, 2) == []


class TestSizes:
    def test_a_size_that_failed_is_halved_and_grown_again_but_not_reached(self) -> None:
        size = PageSize(500)
        sizes = []
        for _ in range(60):
            if size.fits > 60:
                size.shrink(size.fits)
            else:
                sizes.append(size.fits)
                size.grow(size.fits)
        assert sizes[0] == 31
        assert max(sizes) == size.fits == 60
        assert size.failed == 61

    @given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 300))
    def test_whatever_fits_is_found_in_few_failures(self, most: int, limit: int, pages: int) -> None:
        size = PageSize(most)
        failures = 0
        for _ in range(pages):
            assert 1 <= size.fits <= most
            if size.fits > limit:
                failures += 1
                size.shrink(size.fits)
            else:
                size.grow(size.fits)
        assert failures <= 20

    @pytest.mark.parametrize(
        ("fits", "failed", "grown"), [(250, 500, 281), (8, 500, 9), (7, 500, 8), (60, 64, 62), (63, 64, 63)]
    )
    def test_it_grows_by_an_eighth_and_at_most_half_way_to_what_failed(
        self, fits: int, failed: int, grown: int
    ) -> None:
        size = PageSize(1000, fits, failed)
        size.grow(fits)
        assert (size.fits, size.failed) == (grown, failed)

    def test_a_row_that_was_too_large_says_nothing_of_sizes_once_it_is_dealt_with(self) -> None:
        size = PageSize(16)
        size.shrink(2)
        assert (size.fits, size.failed) == (1, 2)
        size.forget()
        assert (size.fits, size.failed) == (4, 17)

    def test_several_failures_of_one_size_halve_it_once(self) -> None:
        size = PageSize(400)
        for _ in range(4):
            size.shrink(400)
        assert size.fits == 200

    def test_where_a_single_row_is_too_much_size_is_not_the_reason(self) -> None:
        size = PageSize(16)
        for _ in range(9):
            size.shrink(size.fits)
        for _ in range(40):
            size.grow(size.fits)
        assert size.fits == 16

    def test_smaller_pages_that_are_served_say_nothing_of_larger_ones(self) -> None:
        size = PageSize(100)
        size.shrink(100)
        size.grow(10)
        assert size.fits == 50
