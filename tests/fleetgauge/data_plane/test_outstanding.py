"""The table of bytes held, by itself: what the wrapper's own calls cannot bring about."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable

from fleetgauge.data_plane.outstanding import MAX_FIELDS_PER_KEY, Outstanding
from fleetgauge.data_plane.row_bytes import Column, Uneven


def put(table: Outstanding, keys: Iterable[Hashable], **columns: Column) -> None:
    table.finish_put(table.begin_put("p", tuple(keys)), {field: columns[field] for field in columns})


def clear(table: Outstanding, *keys: Hashable) -> None:
    table.finish_clear(table.begin_clear("p"), dict.fromkeys(keys))


class HashedOnce:
    """A key that can be hashed when a put begins and not when it is booked."""

    hashed = False

    def __hash__(self) -> int:
        if self.hashed:
            raise RuntimeError("hashed again")
        self.hashed = True
        return 1


def test_a_put_that_fails_half_way_is_left_out_and_the_sums_are_those_of_the_table() -> None:
    table = Outstanding(max_keys=10)
    put(table, ["a", "b", "c"], x=Uneven.of([1, 2, 1000]))
    put(table, ["d", HashedOnce(), "a"], x=Uneven.of([50, 60, 70]))
    assert (table.totals().bytes_outstanding, table.totals().n_keys_outstanding) == (1003, 3)
    assert table.bytes_by_partition() == {"p": 1003}
    assert [type(error) for error in table.taken_failures()] == [RuntimeError]
    assert table.taken_failures() == []


def test_a_partition_whose_first_put_failed_is_none() -> None:
    table = Outstanding(max_keys=2)
    put(table, [HashedOnce()], x=1)
    assert table.bytes_by_partition() == {}
    assert len(table.taken_failures()) == 1


def test_a_put_that_began_earlier_and_ended_later_does_not_make_the_key_older() -> None:
    table = Outstanding(max_keys=10)
    early = table.begin_put("p", ("b", "a"))
    clearing = table.begin_clear("p")
    late = table.begin_put("p", ("a", "b"))
    table.finish_put(late, {"x": 1})
    table.finish_put(early, {"x": 1})
    table.finish_clear(clearing, ["a"])
    assert table.totals().n_keys_outstanding == 2


def test_a_clear_withdraws_its_keys_from_earlier_puts_of_its_own_partition_alone() -> None:
    table = Outstanding(max_keys=10)
    early, elsewhere = table.begin_put("p", ("a", "b")), table.begin_put("q", ("a",))
    clearing = table.begin_clear("p")
    late = table.begin_put("p", ("a", "c"))
    table.finish_clear(clearing, ["a", "c"])
    for each in (early, elsewhere, late):
        table.finish_put(each, {"x": Uneven.of([1, 10][: each.n_rows])})
    assert table.bytes_by_partition() == {"p": 10 + 1 + 10, "q": 1}


def test_the_largest_row_ever_put_counts_though_it_was_cleared_before_the_put_returned() -> None:
    table = Outstanding(max_keys=10)
    under_way = table.begin_put("p", ("a", "b"))
    clear(table, "a", "b")
    table.finish_put(under_way, {"x": Uneven.of([1, 10])})
    assert (table.totals().max_bytes_per_key_seen, table.totals().bytes_outstanding) == (10, 0)


def test_keys_put_again_after_a_clear_began_are_spared_one_by_one() -> None:
    table = Outstanding(max_keys=10)
    put(table, ["a", "b", "c"], x=Uneven.of([1, 10, 100]))
    some, whole, elsewhere = table.begin_clear("p"), table.begin_clear("p"), table.begin_clear("q")
    put(table, ["b"], x=20)
    assert elsewhere.spared == set()
    table.finish_clear(some, ["a", "b", "no such key"])
    assert (table.totals().bytes_outstanding, table.totals().n_keys_outstanding) == (120, 2)
    assert table.finish_clear_of_partition(whole) == 1
    assert (table.totals().bytes_outstanding, table.totals().n_keys_outstanding) == (20, 1)
    assert table.finish_clear_of_partition(table.begin_clear("p")) == 1
    assert (table.totals().bytes_outstanding, table.bytes_by_partition()) == (0, {})


def test_a_clear_that_hangs_remembers_no_more_keys_than_can_be_held() -> None:
    table = Outstanding(max_keys=3)
    some, whole = table.begin_clear("p"), table.begin_clear("p")
    for key in range(9):
        put(table, [key], x=1)
    assert (some.spared, whole.spared) == ({0, 1, 2, 3}, {0, 1, 2, 3})
    table.finish_clear(some, [6, 7, 8])
    assert (table.finish_clear_of_partition(whole), table.totals().n_keys_outstanding) == (0, 3)


def test_a_copy_has_what_waits_and_not_what_is_under_way() -> None:
    table = Outstanding(max_keys=10)
    put(table, ["a"], x=1)
    under_way = table.begin_put("p", ("b",))
    clearing = table.begin_clear("p")
    twin = copy.deepcopy(table)
    assert (twin.puts, twin.clears) == ({}, {})
    table.finish_put(under_way, {"x": 10})
    assert (table.totals().bytes_outstanding, twin.totals().bytes_outstanding) == (11, 1)
    clear(twin, "b")
    put(twin, ["c"], x=100)
    assert (under_way.rows, clearing.spared) == (("b",), set())


def test_what_was_cleared_in_whatever_way_leaves_its_room_to_others() -> None:
    table = Outstanding(max_keys=2)
    many: dict[Hashable, Column] = dict.fromkeys(range(2 * MAX_FIELDS_PER_KEY), 1)
    for forget in (
        lambda: clear(table, "a"),
        lambda: table.finish_clear_of_partition(table.begin_clear("p")),
        table.clear_everything,
    ):
        table.finish_put(table.begin_put("p", ("a",)), many)
        assert table.totals().bytes_outstanding == 2 * MAX_FIELDS_PER_KEY
        forget()
    assert (table.totals().bytes_outstanding, table.totals().keys_overflowed) == (0, 0)


def test_puts_and_clears_wait_until_somebody_asks_or_many_rows_do() -> None:
    table = Outstanding(max_keys=100_000)
    put(table, range(16_381), x=1)
    clear(table)
    assert table.partitions == {}
    clear(table, 7)
    assert table.partitions["p"].n_bytes == 16_380
    clear(table, 8)
    assert table.partitions["p"].n_bytes == 16_380
    assert table.totals().bytes_outstanding == 16_379


def test_what_waits_is_bounded_even_if_it_is_about_no_key() -> None:
    table = Outstanding(max_keys=10)
    for _ in range(40_000):
        put(table, [])
        clear(table)
    assert len(table.waiting) < 16_384


def test_after_everything_is_cleared_nothing_waits() -> None:
    table = Outstanding(max_keys=10)
    put(table, ["a"], x=1)
    table.clear_everything()
    assert (table.partitions, list(table.waiting)) == ({}, [])
