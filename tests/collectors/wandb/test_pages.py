"""Pages by themselves: which offsets they cover, whether two belong together, how large the next one is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.wandb.pages import Page, PageSize, Seam, cursor_before, offset_of, offsets_of, seam
from servers.wandb import cursor


def page(begin: int, shown: dict[int, str], asked: int = 3, number: int = 0) -> Page:
    """A page that shows rows at offsets."""
    return Page(begin, asked, number, begin + asked - 1, list(shown), list(shown.values()))


class TestSeams:
    def test_a_row_at_one_offset_in_both_proves_that_nothing_lies_between(self) -> None:
        assert seam(page(0, {0: "a", 1: "b", 2: "c"}), page(2, {2: "c", 3: "d"})) is Seam.SAME

    @pytest.mark.parametrize(
        "right",
        [
            {2: "d", 3: "e"},  # one before it left
            {2: "b", 3: "c"},  # one before it came
            {3: "d"},  # it is hidden now
            {},
        ],
    )
    def test_another_row_at_the_offset_or_none_says_that_rows_moved(self, right: dict[int, str]) -> None:
        assert seam(page(0, {0: "a", 1: "b", 2: "c"}), page(2, right)) is Seam.DIFFERENT

    def test_where_neither_shows_a_row_nothing_is_known(self) -> None:
        assert seam(page(0, {0: "a", 1: "b"}), page(2, {3: "d"})) is Seam.BLIND

    def test_pages_that_do_not_overlap_say_nothing(self) -> None:
        assert seam(page(0, {0: "a", 1: "b", 2: "c"}), page(3, {3: "d"})) is Seam.BLIND

    def test_rows_that_are_repeated_from_before_must_be_the_same_too(self) -> None:
        left = page(0, {0: "a", 1: "b", 2: "c"})
        assert seam(left, page(2, {1: "b", 2: "c", 3: "d"})) is Seam.SAME
        assert seam(left, page(2, {1: "x", 2: "c", 3: "d"})) is Seam.DIFFERENT

    def test_without_offsets_a_row_in_both_is_all_that_can_be_asked_for(self) -> None:
        left = Page(0, 3, 0, 2, None, ["a", "b"])
        assert seam(left, Page(2, 3, 1, 4, None, ["b", "c"])) is Seam.SAME
        assert seam(left, Page(2, 3, 1, 4, None, ["c"])) is Seam.BLIND
        assert seam(Page(0, 3, 0, 2, None, [None]), Page(2, 3, 1, 4, None, [None])) is Seam.BLIND

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(st.booleans(), min_size=2, max_size=12),
        st.data(),
    )
    def test_two_pages_of_one_state_are_never_different(self, shown: list[bool], data: st.DataObject) -> None:
        size = data.draw(st.integers(1, len(shown)))
        begins = [data.draw(st.integers(0, len(shown) - 1)) for _ in range(2)]
        first, second = (
            page(
                begin, {at: str(at) for at in range(begin, min(begin + size, len(shown))) if shown[at]}, size
            )
            for begin in begins
        )
        assert seam(first, second) is not Seam.DIFFERENT
        common = {*first.ids} & {*second.ids}
        assert (seam(first, second) is Seam.SAME) == bool(common)

    @settings(max_examples=300, deadline=None)
    @given(st.integers(4, 20), st.integers(2, 8), st.data())
    def test_rows_that_left_before_the_seam_are_always_noticed(
        self, number: int, size: int, data: st.DataObject
    ) -> None:
        size = min(size, number - 1)
        gone = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
        left = page(0, {at: str(at) for at in range(size)}, size)
        now = [str(at) for at in range(number) if at not in gone] + [f"new{one}" for one in gone]
        begin = size - 1
        right = page(begin, {at: now[at] for at in range(begin, min(begin + size, number))}, size)
        assert seam(left, right) is Seam.DIFFERENT


class TestOffsets:
    @given(st.integers(0, 10**9))
    def test_a_cursor_is_the_offset_of_the_row_before(self, offset: int) -> None:
        assert offset_of(cursor(offset)) == offset
        assert cursor_before(offset + 1) == cursor(offset)

    @pytest.mark.parametrize("text", [None, 7, "", "b3BhcXVl", "é", "YXJyYXljb25uZWN0aW9uOi0x", b"x"])
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
