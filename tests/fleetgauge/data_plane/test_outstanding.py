"""The table of bytes held, by itself: what the wrapper's own calls cannot bring about."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Hashable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.data_plane.held_rows import Operation
from fleetgauge.data_plane.outstanding import (
    CLEARED_PER_LOT,
    MAX_CLEARED_LOTS,
    MAX_FIELDS_PER_KEY,
    Outstanding,
)
from fleetgauge.data_plane.row_bytes import Column, Columns, Uneven, total_bytes


class Table(Outstanding):
    """Operations that begin and end on their own."""

    def begin_put(self, keys: Iterable[Hashable], partition: str = "p", **columns: Column) -> Operation:
        put = Operation("put", partition)
        put.rows = tuple(keys)
        put.columns = {name: columns[name] for name in columns}
        put.n_rows, put.n_bytes = len(put.rows), total_bytes(put.columns, len(put.rows))
        self.begin(put)
        return put

    def begin_clear(self, keys: Iterable[Hashable] | None, partition: str = "p") -> Operation:
        clear = Operation("clear", partition)
        clear.rows = None if keys is None else tuple(keys)
        self.begin(clear)
        return clear

    def finish(self, operation: Operation) -> int:
        if operation.columns is None:
            return self.finish_clear(operation)
        assert operation.rows is not None
        return self.finish_put(operation, operation.rows, operation.columns)

    def put(self, keys: Iterable[Hashable], partition: str = "p", **columns: Column) -> int:
        return self.finish(self.begin_put(keys, partition, **columns))

    def clear(self, *keys: Hashable, partition: str = "p") -> int:
        return self.finish(self.begin_clear(keys, partition))

    def freed_by(self, *keys: Hashable) -> int:
        before = self.totals.bytes_outstanding
        self.clear(*keys)
        return before - self.totals.bytes_outstanding


@pytest.fixture
def table() -> Table:
    return Table(max_keys=1000)


# Which bytes a key has


def test_more_fields_of_the_same_rows_are_added_to_them(table: Table) -> None:
    table.put(range(300), x=1, y=2)
    table.put(range(300), y=Uneven.of(range(300)), z=4)
    assert (len(table.batches), table.totals.bytes_outstanding) == (1, 300 * 5 + sum(range(300)))
    assert table.freed_by(7) == 1 + 7 + 4


def test_fields_of_some_rows_of_several_batches_are_added_to_those_alone(table: Table) -> None:
    table.put(range(300), x=1)
    table.put(range(300, 600), x=Uneven.of(range(300)))
    table.put([599, 10, 700, 20], x=1000, y=Uneven.of([1, 2, 3, 4]))
    assert table.totals.bytes_outstanding == 300 + sum(range(300)) - 1 - 1 - 299 + 4000 + 10
    assert [table.freed_by(key) for key in (599, 10, 700, 20, 30, 598)] == [1001, 1002, 1003, 1004, 1, 298]


def test_the_same_keys_in_another_order_are_not_mistaken_for_the_same_rows(table: Table) -> None:
    table.put(range(300), x=Uneven.of(range(300)))
    table.put(reversed(range(300)), y=Uneven.of(range(300)))
    assert [table.freed_by(key) for key in (0, 10)] == [299, 299]


def test_the_last_row_of_a_repeated_key_stands(table: Table) -> None:
    assert table.put(["a", "b", "a"], x=Uneven.of([1, 10, 100]), y=1) == 2
    assert (table.totals.bytes_outstanding, table.totals.n_keys_outstanding) == (112, 2)
    assert table.put(["c", "a", "c", "a"], x=Uneven.of([5, 6, 7, 8])) == 2
    assert [table.freed_by(key) for key in "abc"] == [9, 11, 7]


def test_rows_no_longer_held_are_taken_back_once_they_are_most(table: Table) -> None:
    table.put(range(300), x=Uneven.of(range(300)), y=1)
    table.clear(*range(182))
    (batch,) = table.batches.values()
    assert (batch.n_rows, table.totals.bytes_outstanding) == (300, sum(range(182, 300)) + 118)
    table.clear(182)
    assert (batch.n_rows, table.totals.bytes_outstanding) == (117, sum(range(183, 300)) + 117)
    assert table.freed_by(299) == 300


def test_a_batch_whose_keys_are_all_cleared_is_gone(table: Table) -> None:
    table.put(range(300), x=1)
    table.put(range(300, 600), x=2)
    table.clear(*range(200), "no such key")
    assert len(table.batches) == 2
    table.clear(*range(200, 300))
    assert (len(table.batches), table.bytes_by_partition()) == (1, {"p": 600})
    table.clear()
    table.clear(*range(300, 600))
    assert (table.batches, table.partitions) == ({}, {})


def test_the_garbage_collector_does_not_walk_the_keys_of_a_large_table(table: Table) -> None:
    """A host that collects at every step would pay for each of them."""
    for step in range(3):
        table.put([f"{step}-{index}" for index in range(300)], x=step)
    table.clear("0-7")
    gc.collect()
    taken_apart, *whole = table.batches.values()
    assert isinstance(taken_apart.rows, dict)
    tables = (table.partitions["p"].batch_of, taken_apart.rows, *(each.rows for each in whole))
    assert not any(map(gc.is_tracked, tables))


columns = st.dictionaries(
    st.sampled_from("xyz"), st.one_of(st.integers(0, 9), st.lists(st.integers(0, 9), min_size=9, max_size=9))
)
steps = st.lists(st.tuples(st.lists(st.integers(0, 8), max_size=9), st.none() | columns))


@given(steps=steps)
def test_any_puts_and_clears_leave_each_key_with_its_own_bytes(
    steps: list[tuple[list[int], dict[str, int | list[int]] | None]],
) -> None:
    held: dict[int, dict[str, int]] = {}
    table = Table(max_keys=1000)
    for keys, fields in steps:
        if fields is None:
            assert table.clear(*keys) == len(set(keys))
            held = {key: row for key, row in held.items() if key not in keys}
        else:
            assert table.put(keys, **_columns(fields, len(keys))) == len(set(keys))  # type: ignore[arg-type]
            for row, key in enumerate(keys):
                sizes = {name: size if isinstance(size, int) else size[row] for name, size in fields.items()}
                held.setdefault(key, {}).update(sizes)
        assert table.totals.n_keys_outstanding == len(held)
        assert table.totals.bytes_outstanding == sum(sum(row.values()) for row in held.values())
        assert len(table.batches) <= len(held)
    assert [table.freed_by(key) for key in held] == [sum(row.values()) for row in held.values()]
    assert (table.batches, table.partitions) == ({}, {})


def _columns(fields: dict[str, int | list[int]], n_rows: int) -> Columns:
    return {
        name: sizes if isinstance(sizes, int) else Uneven.of(sizes[:n_rows]) for name, sizes in fields.items()
    }


# Keys that were put by somebody else


def test_keys_that_were_never_put_here_are_foreign_however_often_they_are_cleared(table: Table) -> None:
    table.put(["a"], x=1)
    assert table.clear("a", "b", "b", "c") == 3
    assert table.totals.foreign_clears == 2
    table.clear("d", partition="where nothing was put")
    assert table.totals.foreign_clears == 3
    table.clear("b")
    assert table.totals.foreign_clears == 4


@pytest.mark.parametrize("cleared", ["by name", "with its partition", "with everything"])
def test_a_key_that_is_cleared_twice_is_not_foreign(table: Table, cleared: str) -> None:
    table.put(["a", "b"], x=1)
    table.put(["a"], "q", x=1)
    if cleared == "by name":
        assert table.clear("a", "b", "a") == 2
    elif cleared == "with its partition":
        assert table.finish(table.begin_clear(None)) == 2
    else:
        table.clear_everything()
    table.clear("a", "b")
    assert table.totals.foreign_clears == 0
    table.clear("b", partition="q")
    assert table.totals.foreign_clears == 1


def test_of_keys_cleared_long_ago_no_more_is_remembered_than_so_many(table: Table) -> None:
    for lot in range(MAX_CLEARED_LOTS + 1):
        keys = [f"{lot}-{index}" for index in range(CLEARED_PER_LOT)]
        for some in (keys[:100], keys[100:]):
            table.put(some, x=1)
            table.clear(*some)
    table.clear("1-0", "1-1023", "16-7")
    assert table.totals.foreign_clears == 0
    table.clear("0-0")
    assert table.totals.foreign_clears == 1


def test_a_key_that_is_cleared_before_its_put_has_returned_is_not_foreign(table: Table) -> None:
    under_way = table.begin_put(["a"], x=1)
    table.clear("a")
    table.finish(under_way)
    assert (table.totals.foreign_clears, table.totals.n_keys_outstanding) == (0, 0)


def test_a_key_that_is_put_again_before_its_clear_has_returned_is_not_foreign(table: Table) -> None:
    clearing = table.begin_clear(["a", "a"])
    table.put(["a"], x=1)
    assert table.finish(clearing) == 1
    assert (table.totals.foreign_clears, table.totals.n_keys_outstanding) == (0, 1)


# What fails, and what overlaps


class HashedOnce:
    """A key that can be hashed only so often."""

    def __init__(self, hashes: int) -> None:
        self.hashes = hashes

    def __hash__(self) -> int:
        self.hashes -= 1
        if self.hashes < 0:
            raise RuntimeError("hashed again")
        return 1


@pytest.mark.parametrize("hashes", range(6))
def test_after_a_put_that_failed_half_way_a_recount_holds_what_both_tables_know(
    table: Table, hashes: int
) -> None:
    table.put(["a", "b", "c"], x=Uneven.of([1, 2, 1000]))
    table.put(["z"], "q", x=7)
    try:
        table.put(["d", HashedOnce(hashes), "a"], x=Uneven.of([50, 60, 70]))
    except RuntimeError:
        table.recount()
        assert table.bytes_by_partition()["q"] == 7
        assert table.totals.bytes_outstanding == sum(table.bytes_by_partition().values())
        assert table.freed_by("b", "c") == 1002
    else:
        assert table.totals.bytes_outstanding == 50 + 60 + 70 + 1002 + 7


def test_a_recount_drops_what_only_one_table_knows(table: Table) -> None:
    table.put(range(300), x=Uneven.of(range(300)))
    table.put(range(300, 600), x=1)
    batch_of = table.partitions["p"].batch_of
    del batch_of[299], batch_of[300]
    batch_of["of a put half entered"] = 99
    batch_of["of a batch that has lost it"] = batch_of[0]
    table.recount()
    assert (table.totals.n_keys_outstanding, table.totals.bytes_outstanding) == (598, sum(range(299)) + 299)
    assert table.freed_by(298) == 298


def test_a_put_that_began_earlier_and_ended_later_does_not_make_the_key_older(table: Table) -> None:
    early = table.begin_put(["b", "a"], x=1)
    clearing = table.begin_clear(["a"])
    late = table.begin_put(["a", "b"], x=1)
    for each in (late, early, clearing):
        table.finish(each)
    assert table.totals.n_keys_outstanding == 2


def test_a_clear_withdraws_its_keys_from_earlier_puts_of_its_own_partition_alone(table: Table) -> None:
    early = table.begin_put(["a", "b"], x=Uneven.of([1, 10]))
    elsewhere = table.begin_put(["a"], "q", x=1)
    clearing = table.begin_clear(["a", "c"])
    late = table.begin_put(["a", "c"], x=Uneven.of([1, 10]))
    for each in (clearing, early, elsewhere, late):
        table.finish(each)
    assert table.bytes_by_partition() == {"p": 10 + 1 + 10, "q": 1}


def test_the_largest_row_ever_put_counts_though_it_was_cleared_before_the_put_returned(table: Table) -> None:
    under_way = table.begin_put(["a", "b"], x=Uneven.of([1, 10]))
    table.clear("a", "b")
    table.finish(under_way)
    assert (table.totals.max_bytes_per_key_seen, table.totals.bytes_outstanding) == (10, 0)


def test_keys_put_again_after_a_clear_began_are_spared_one_by_one(table: Table) -> None:
    table.put(["a", "b", "c"], x=Uneven.of([1, 10, 100]))
    some, whole = table.begin_clear(["a", "b", "no such key"]), table.begin_clear(None)
    elsewhere = table.begin_clear(None, "q")
    table.put(["b"], x=20)
    assert elsewhere.spared is None
    assert table.finish(some) == 3
    assert (table.totals.bytes_outstanding, table.totals.n_keys_outstanding) == (120, 2)
    assert table.finish(whole) == 1
    assert (table.totals.bytes_outstanding, table.totals.n_keys_outstanding) == (20, 1)
    assert table.finish(table.begin_clear(None)) == 1
    assert (table.totals.bytes_outstanding, table.bytes_by_partition()) == (0, {})


def test_a_clear_that_hangs_remembers_no_more_keys_than_can_be_held() -> None:
    table = Table(max_keys=3)
    some, whole = table.begin_clear([6, 7, 8]), table.begin_clear(None)
    for key in range(9):
        table.put([key], x=1)
    assert some.spared == whole.spared == {0, 1, 2, 3}
    table.finish(some)
    assert (table.finish(whole), table.totals.n_keys_outstanding) == (0, 3)


def test_a_clear_that_remembers_as_many_keys_as_can_be_held_still_clears_the_others() -> None:
    table = Table(max_keys=2)
    table.put(["a"], x=1)
    whole = table.begin_clear(None)
    table.put(["b"], x=10)
    table.clear("b")
    table.put(["c"], x=100)
    assert (whole.spared, table.totals.bytes_outstanding) == ({"b", "c"}, 101)
    assert (table.finish(whole), table.totals.bytes_outstanding) == (1, 100)


def test_what_was_cleared_in_whatever_way_leaves_its_room_to_others() -> None:
    table = Table(max_keys=2)
    many = {str(number): 1 for number in range(2 * MAX_FIELDS_PER_KEY)}
    for forget in (
        lambda: table.clear("a"),
        lambda: table.finish(table.begin_clear(None)),
        table.clear_everything,
    ):
        table.put(["a"], **many)  # type: ignore[arg-type]
        assert table.totals.bytes_outstanding == 2 * MAX_FIELDS_PER_KEY
        forget()
    assert (table.totals.bytes_outstanding, table.totals.keys_overflowed) == (0, 0)


# Memory


def size_of(table: Table) -> int:
    return len(
        pickle.dumps([(batch.rows, batch.n_rows, list(batch.columns)) for batch in table.batches.values()])
    )


def test_puts_and_clears_without_end_take_no_more_memory(table: Table) -> None:
    table.put(["stays"], x=1)
    sizes = []
    for step in range(60):
        ids = [f"{step}-{index}" for index in range(50)]
        table.put(ids, **{"x": 1, f"of step {step}": 1})  # type: ignore[arg-type]
        table.put(ids, x=2)
        table.clear(*ids)
        sizes.append(size_of(table))
    assert set(sizes) == {sizes[0]}


def test_a_producer_whose_keys_others_clear_takes_no_more_memory() -> None:
    table, sizes = Table(max_keys=200), []
    for step in range(300):
        ids = [f"{step}-{index}" for index in range(1 + step % 7)]
        table.put(ids, f"p{step % 5}", **{f"of {step % 30}": 1})
        sizes.append(size_of(table))
    assert max(sizes[150:]) < 1.2 * max(sizes[:150])
    assert table.totals.keys_overflowed > 800


def test_writing_the_same_keys_without_end_takes_no_more_memory(table: Table) -> None:
    sizes = []
    for step in range(400):
        table.put(["a", "b", "c"] if step % 2 else ["c", "a", "b"], x=1)
        sizes.append(size_of(table))
        assert table.totals.bytes_outstanding == 3
    assert max(sizes[200:]) < 1.1 * max(sizes[:200])
