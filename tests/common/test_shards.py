"""Which shard owns a unit never changes, and each unit has one owner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.shards import ALONE, Shard


def test_a_unit_stays_with_its_shard_from_version_to_version() -> None:
    units = ("", "acme/ants", "acme/bees", "run-7", "\udcff")
    owners = [[shard for shard in range(5) if Shard(shard, 5).owns(unit)] for unit in units]
    assert owners == [[1], [4], [3], [3], [2]]


@given(st.text(), st.integers(1, 64))
def test_each_unit_has_one_owner(unit: str, count: int) -> None:
    assert sum(Shard(index, count).owns(unit) for index in range(count)) == 1
    assert ALONE.owns(unit)


def test_units_are_spread_over_all_shards() -> None:
    sizes = [sum(Shard(index, 8).owns(f"acme/project-{n}") for n in range(800)) for index in range(8)]
    assert min(sizes) > 60
    assert max(sizes) < 140
