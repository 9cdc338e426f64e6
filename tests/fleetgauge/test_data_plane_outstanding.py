"""The table of bytes held, by itself: what the wrapper's own calls cannot bring about."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable

from fleetgauge._outstanding import FIELDS_PER_KEY, Outstanding
from fleetgauge._row_bytes import Column, Uneven


def put(table: Outstanding, keys: Iterable[Hashable], **columns: Column) -> None:
    table.finish_put(table.begin_put("p", list(keys)), {field: columns[field] for field in columns})


def test_a_put_that_fails_half_way_is_left_out_and_the_sums_are_those_of_the_table() -> None:
    table = Outstanding(max_keys=10)
    put(table, ["a", "b", "c"], x=Uneven.of([1, 2, 1000]))
    put(table, ["b", "a"], x=Uneven.of([50, 60]), y=Uneven.of([7]))
    assert (table.held().n_bytes, table.bytes_by_partition()) == (1110 + 7, {"p": 1110 + 7})
    assert [type(error) for error in table.taken_failures()] == [ValueError]
    assert table.taken_failures() == []


def test_a_put_that_began_earlier_and_ended_later_does_not_make_the_key_older() -> None:
    table = Outstanding(max_keys=10)
    early = table.begin_put("p", ["a", "b"])
    clear_began = table.begin()
    late = table.begin_put("p", ["a", "b"])
    table.finish_put(late, {"x": 1})
    table.finish_put(early, {"x": 1})
    table.clear("p", ["a"], clear_began)
    assert table.held().n_keys == 2


def test_the_same_when_the_rows_do_not_lie_side_by_side() -> None:
    table = Outstanding(max_keys=10)
    early = table.begin_put("p", ["b", "a"])
    clear_began = table.begin()
    late = table.begin_put("p", ["a", "b"])
    table.finish_put(late, {"x": 1})
    table.finish_put(early, {"x": 1})
    table.clear("p", ["a"], clear_began)
    assert table.held().n_keys == 2


def test_keys_put_again_after_a_clear_began_are_spared_one_by_one() -> None:
    table = Outstanding(max_keys=10)
    put(table, ["a", "b", "c"], x=Uneven.of([1, 10, 100]))
    began = table.begin()
    put(table, ["b"], x=20)
    table.clear("p", ["a", "b", "no such key"], began)
    assert (table.held().n_bytes, table.held().n_keys) == (120, 2)
    assert table.clear_partition("p", began) == 1
    assert (table.held().n_bytes, table.held().n_keys) == (20, 1)
    assert table.clear_partition("p", table.begin()) == 1
    assert (table.held().n_bytes, table.bytes_by_partition()) == (0, {})


def test_slots_are_taken_back_once_most_are_empty_and_the_rest_keep_their_bytes() -> None:
    table = Outstanding(max_keys=1000)
    keys = [f"k{index}" for index in range(300)]
    put(table, keys, x=Uneven.of(range(300)), gone=0)
    table.clear("p", keys[:250], table.begin())
    partition = table._partitions["p"]
    assert (len(partition.began), list(partition.columns)) == (50, ["x"])
    assert table.held().n_bytes == sum(range(250, 300))
    table.clear("p", ["k299"], table.begin())
    assert table.held().n_bytes == sum(range(250, 299))


def test_few_empty_slots_are_left_alone() -> None:
    table = Outstanding(max_keys=1000)
    put(table, range(100), x=1)
    table.clear("p", range(82), table.begin())
    assert len(table._partitions["p"].began) == 100
    table.clear("p", [82], table.begin())
    assert len(table._partitions["p"].began) == 17


def test_a_copy_has_what_waits_and_not_what_is_under_way() -> None:
    table = Outstanding(max_keys=10)
    put(table, ["a"], x=1)
    under_way = table.begin_put("p", ["b"])
    twin = copy.deepcopy(table)
    table.finish_put(under_way, {"x": 10})
    assert (table.held().n_bytes, twin.held().n_bytes) == (11, 1)
    twin.clear("p", ["b"], twin.begin())
    assert under_way.withdrawn == set()


def test_what_was_cleared_in_whatever_way_leaves_its_room_to_others() -> None:
    table = Outstanding(max_keys=2)
    many: dict[Hashable, Column] = dict.fromkeys(range(2 * FIELDS_PER_KEY), 1)
    for clear in (
        lambda: table.clear("p", ["a"], table.begin()),
        lambda: table.clear_partition("p", table.begin()),
        table.clear_everything,
    ):
        table.finish_put(table.begin_put("p", ["a"]), many)
        assert table.held().n_bytes == 2 * FIELDS_PER_KEY
        clear()
    assert (table.held().n_bytes, table.held().keys_overflowed) == (0, 0)


def test_a_partition_whose_first_put_failed_is_none() -> None:
    class Unhashable:
        def __hash__(self) -> int:
            raise RuntimeError

    table = Outstanding(max_keys=2)
    put(table, [Unhashable()], x=1)
    assert table.bytes_by_partition() == {}
    assert len(table.taken_failures()) == 1


def test_puts_wait_until_somebody_asks_or_many_rows_do() -> None:
    table = Outstanding(max_keys=100_000)
    put(table, ["a"], x=1)
    assert table._partitions == {}
    put(table, range(8191), x=1)
    assert table._partitions == {}
    put(table, ["b"], x=1)
    assert table._partitions["p"].n_bytes == 8193
    put(table, ["c"], x=1)
    assert table._partitions["p"].n_bytes == 8193
    assert table.held().n_bytes == 8194
