"""The rows of a partition by themselves: whatever is put together or apart, each keeps its own bytes."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgauge.data_plane import held_rows
from fleetgauge.data_plane.held_rows import Batch, Partition, rows_of
from fleetgauge.data_plane.row_bytes import Column, Columns, Uneven


def batch(keys: Iterable[Hashable], **columns: Column) -> Batch:
    listed = tuple(keys)
    return Batch(rows_of(listed), {name: columns[name] for name in columns}, len(listed))


def holding(*batches: Batch) -> Partition:
    partition = Partition()
    for each in batches:
        partition.enter(each)
    return partition


def freed_by(partition: Partition, *keys: Hashable) -> int:
    before = partition.n_bytes
    partition.remove(keys)
    return before - partition.n_bytes


def n_batches(partition: Partition) -> int:
    assert set(partition.batch_of.values()) == set(partition.batches)
    return len(partition.batches)


def test_more_fields_of_the_same_rows_are_added_to_them() -> None:
    keys = range(300)
    partition = holding(batch(keys, x=1, y=2), batch(keys, y=Uneven.of(range(300)), z=4))
    assert (n_batches(partition), partition.n_bytes) == (1, 300 * 5 + sum(range(300)))
    assert freed_by(partition, 7) == 1 + 7 + 4


def test_fields_of_some_rows_of_several_batches_are_added_to_those_alone() -> None:
    partition = holding(batch(range(300), x=1), batch(range(300, 600), x=Uneven.of(range(300))))
    partition.enter(batch([599, 10, 700, 20], x=1000, y=Uneven.of([1, 2, 3, 4])))
    assert partition.n_bytes == 300 + sum(range(300)) - 1 - 1 - 299 + 4000 + 10
    assert [freed_by(partition, key) for key in (599, 10, 700, 20, 30, 598)] == [
        *(1001, 1002, 1003, 1004, 1, 298)
    ]


def test_the_same_keys_in_another_order_are_not_mistaken_for_the_same_rows() -> None:
    keys = list(range(300))
    partition = holding(batch(keys, x=Uneven.of(keys)), batch(keys[::-1], y=Uneven.of(keys)))
    assert [freed_by(partition, key) for key in (0, 10)] == [299, 299]


def test_the_last_row_of_a_repeated_key_stands() -> None:
    partition = holding(batch(["a", "b", "a"], x=Uneven.of([1, 10, 100]), y=1))
    assert (partition.n_bytes, list(partition.batch_of)) == (112, ["a", "b"])
    assert freed_by(partition, "a") == 101


def test_small_batches_of_the_same_fields_are_joined_and_can_be_taken_apart_again() -> None:
    partition = holding(*(batch([key], x=key, y=1) for key in range(300)))
    assert n_batches(partition) == 5
    assert partition.n_bytes == sum(range(300)) + 300
    assert [freed_by(partition, key) for key in (299, 0, 17)] == [300, 1, 18]
    partition.enter(batch([17], x=3, y=1))
    assert freed_by(partition, 17) == 4
    assert n_batches(holding(batch(["a"], x=1), batch(["b"], y=1))) == 2


def test_rows_no_longer_held_are_taken_back_once_they_are_most() -> None:
    partition = holding(batch(range(300), x=Uneven.of(range(300)), y=1))
    partition.remove(range(182))
    (rows,) = partition.batches.values()
    assert (rows.n_rows, partition.n_bytes) == (300, sum(range(182, 300)) + 118)
    partition.remove([182])
    assert (rows.n_rows, partition.n_bytes) == (117, sum(range(183, 300)) + 117)
    assert freed_by(partition, 299) == 300


def test_a_batch_whose_keys_are_all_removed_is_gone() -> None:
    partition = holding(batch(range(300), x=1), batch(range(300, 600), x=2))
    partition.remove([*range(200), "no such key"])
    assert n_batches(partition) == 2
    partition.remove(range(200, 300))
    assert (n_batches(partition), partition.n_bytes, partition.n_sizes) == (1, 600, 300)
    partition.remove([])
    partition.remove(range(300, 600))
    assert (n_batches(partition), partition.n_bytes, partition.n_sizes) == (0, 0, 0)


def test_the_oldest_keys_are_those_written_to_longest_ago() -> None:
    partition = holding(batch(range(300), x=1), batch(range(300, 600), x=1), batch(range(600, 900), x=1))
    assert partition.oldest_keys(2) == (0, 1)
    partition.enter(batch(range(300), y=1))
    assert partition.oldest_keys(999) == tuple(range(300, 600))
    partition.enter(batch([300, 302], y=1))
    assert partition.oldest_keys(2) == (301, 303)
    partition.remove(range(300, 900))
    assert partition.oldest_keys(1) == (0,)
    assert Partition().oldest_keys(1) == ()


def test_the_garbage_collector_does_not_walk_the_keys_of_a_large_table() -> None:
    """A host that collects at every step would pay for each of them."""
    partition = holding(*(batch([f"{step}-{index}" for index in range(300)], x=step) for step in range(3)))
    partition.remove(["0-7"])
    gc.collect()
    taken_apart, *whole = partition.batches.values()
    assert isinstance(taken_apart.rows, dict)
    assert not any(map(gc.is_tracked, (partition.batch_of, taken_apart.rows, *(each.rows for each in whole))))


def test_after_an_interrupt_what_both_tables_know_is_held() -> None:
    partition = holding(batch(range(300), x=Uneven.of(range(300))), batch(range(300, 600), x=1))
    del partition.batch_of[299], partition.batch_of[300]
    partition.batch_of["of a put half entered"] = 99
    partition.batch_of["of a batch that has lost it"] = partition.batch_of[0]
    partition.recount()
    assert (len(partition.batch_of), partition.n_sizes) == (598, 598)
    assert partition.n_bytes == sum(range(299)) + 299
    assert freed_by(partition, 298) == 298
    for key in range(300):
        partition.batch_of.pop(key, None)
    partition.recount()
    assert (n_batches(partition), partition.oldest_keys(1)) == (1, (301,))


columns = st.dictionaries(
    st.sampled_from("xyz"), st.one_of(st.integers(0, 9), st.lists(st.integers(0, 9), min_size=9, max_size=9))
)
steps = st.lists(st.tuples(st.lists(st.integers(0, 8), max_size=9, unique=True), st.none() | columns))


@pytest.mark.parametrize("rows_to_join", [0, 4, 64])
@given(steps=steps)
def test_any_puts_and_removals_leave_each_key_with_its_own_bytes(
    rows_to_join: int, steps: list[tuple[list[int], dict[str, int | list[int]] | None]]
) -> None:
    held: dict[int, dict[str, int]] = {}
    partition = Partition()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_rows, "MAX_JOINED_ROWS", rows_to_join)
        for keys, fields in steps:
            if fields is None:
                partition.remove(keys)
                held = {key: row for key, row in held.items() if key not in keys}
            elif keys:
                partition.enter(Batch(tuple(keys), _columns(fields, len(keys)), len(keys)))
                for row, key in enumerate(keys):
                    sizes = {
                        name: size if isinstance(size, int) else size[row] for name, size in fields.items()
                    }
                    held.setdefault(key, {}).update(sizes)
            assert set(partition.batch_of) == set(held)
            assert partition.n_bytes == sum(sum(row.values()) for row in held.values())
            assert partition.n_sizes == sum(map(len, held.values()))
            assert n_batches(partition) <= len(held)
    assert [freed_by(partition, key) for key in held] == [sum(row.values()) for row in held.values()]


def _columns(fields: dict[str, int | list[int]], n_rows: int) -> Columns:
    return {
        name: sizes if isinstance(sizes, int) else Uneven.of(sizes[:n_rows]) for name, sizes in fields.items()
    }
